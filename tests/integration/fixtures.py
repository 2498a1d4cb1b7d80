# SPDX-License-Identifier: Apache-2.0
"""The daemon of the session and its sandboxes on each usable tier, for the conftest.py of every folder that wants them.

GLOVEBOX_BIN            the program (default: build/release or build/dev)
GLOVEBOX_TEST_DATA_DIR  a data directory with a built `base` template (default: /var/lib/glovebox)
GLOVEBOX_TIERS          comma-separated tiers to test (default: all; one that does not work here is skipped)
GLOVEBOX_ALL_TIERS=1    every test on microvm too, where the machine has to be emulated; otherwise those marked `microvm`
GLOVEBOX_LONG=1         full sizes

Where the processor runs no guests the tests allow their daemons to emulate one: the same code, many times slower.
"""

import collections
import contextlib
import os

import pytest

import client
import host
from client import LONG, eventually
from daemon import Daemon, share_kernel, share_templates

ALL_TIERS = ["container", "gvisor", "microvm"]
TIERS = [t for t in os.environ.get("GLOVEBOX_TIERS", "").split(",") if t] or ALL_TIERS
EMULATED_IS_SLOWER = 6
EVERYTHING = os.environ.get("GLOVEBOX_ALL_TIERS") == "1"


# Whether the tests of this run need a microvm, which files have such tests, and what runs now.
wanted = {"emulation": False, "files": set(), "item": None}


def pytest_generate_tests(metafunc):
    if "tier" in metafunc.fixturenames:
        metafunc.parametrize("tier", TIERS, indirect=True)


def on_microvm(item):
    call = getattr(item, "callspec", None)
    return bool(call) and call.params.get("tier") == "microvm"


def pytest_runtest_setup(item):
    wanted["item"] = item


def pytest_collection_modifyitems(items):
    for item in items:
        if on_microvm(item) and not (EVERYTHING or item.get_closest_marker("microvm")):
            item.add_marker(pytest.mark.skip(reason="microvm: run with ./test --all-tiers"))
        elif on_microvm(item):
            wanted["emulation"] = True
            wanted["files"].add(item.path)
    if not LONG:
        skip = pytest.mark.skip(reason="minutes long: set GLOVEBOX_LONG=1")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def place():
    """Where daemons run and are called: see Daemon."""
    return contextlib.nullcontext()


@pytest.fixture(scope="session")
def settings():
    """The config.toml of the session's daemon."""
    return ""


@pytest.fixture(scope="session")
def make_daemon(tmp_path_factory, place):
    """Starts daemons; all are stopped at the end and must leave the host as it was. `config` becomes their config.toml."""
    started = []

    def make(*options, config="", emulate=False):
        emulate = emulate or wanted["item"].path in wanted["files"]
        data_dir = tmp_path_factory.mktemp("data")
        share_templates(data_dir)
        if emulate:
            share_kernel(data_dir)
        (data_dir / "config.toml").write_text(config)
        daemon = Daemon(data_dir, *options, place=place, emulate=emulate)
        started.append(daemon)
        return daemon.start()

    yield make
    for daemon in started:
        daemon.end_sandboxes()
        daemon.stop()
    for daemon in started:
        assert daemon.stopped_in_time, "the daemon did not stop within 60 s of SIGTERM"
        words = [str(daemon.data_dir)]
        left = lambda: host.command_lines(words) + host.loop_devices(words) + host.mounts("self", words)
        eventually(lambda: not left(), 5, f"a stopped daemon without sandboxes leaves nothing: {left()}")


@pytest.fixture(scope="session")
def daemon(make_daemon, settings):
    """The daemon of the session."""
    with leaving_nothing(make_daemon(config=settings, emulate=wanted["emulation"])) as daemon:
        yield daemon


# One of each, from the first sandbox with a network to the daemon's end.
NETWORK_PROCESSES = {"glovebox-net", "glovebox-egress", "glovebox-reg"}


def processes_below(daemon):
    """Counted by name and state; what a daemon keeps for its network's sake is not counted, but may be there once."""
    names = collections.Counter(host.descendants(daemon.pid).values())
    for kept in NETWORK_PROCESSES:
        names.subtract([name for name in names if name.split()[0] == kept][:1])
    return +names


@contextlib.contextmanager
def leaving_nothing(daemon):
    """At the end, with every sandbox ended, the host holds what it held at the start."""
    at_start = processes_below(daemon)
    yield daemon
    assert not daemon.died_by_itself(), daemon.died_by_itself()
    eventually(lambda: not daemon.live_ids(), 20, "every sandbox of the session has ended")
    ids = daemon.sandbox_ids()
    eventually(lambda: not host.leftovers(daemon.pid, daemon.data_dir, ids), 5,
               f"ended sandboxes leave nothing: {host.leftovers(daemon.pid, daemon.data_dir, ids)}")
    eventually(lambda: not processes_below(daemon) - at_start, 5,
               f"no process is left below the daemon: {host.descendants(daemon.pid)}")


@pytest.fixture(scope="session")
def api(daemon):
    """The admin key's view."""
    return daemon.admin


@pytest.fixture(scope="session")
def runtimes(api):
    return {r["runtime"]: r for r in api.call("GET", "/v1/runtimes")["runtimes"]}


@pytest.fixture
def tier(request, runtimes):
    found = runtimes.get(request.param)
    if not found or not found["usable"]:
        reason = found["problem"] if found else "not known to this version"
        pytest.skip(f"{request.param}: {reason}")
    client.patience.factor = EMULATED_IS_SLOWER if found["facts"].get("accel") == "emulated" else 1
    yield request.param
    client.patience.factor = 1


@pytest.fixture
def create(api, tier):
    """Makes sandboxes of the tier; all are ended after the test, whatever it did."""
    made = []

    def make(**spec):
        box = api.create(**{"runtime": tier, "lifetime_ms": 600_000, **spec})
        made.append(box)
        assert box.info["state"] == "ready" and box.info["runtime"] == tier
        return box

    yield make
    for box in made:
        box.kill()


@pytest.fixture
def sandbox(create):
    return create()
