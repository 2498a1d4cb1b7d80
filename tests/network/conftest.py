# SPDX-License-Identifier: Apache-2.0
"""The daemon in a lab of network namespaces (lab.py), and sandboxes of each usable tier in it: see ../integration/fixtures.py."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
for _module in ("fixtures", "daemon", "client", "lab", "networked"):
    pytest.register_assert_rewrite(_module)

import lab as lab_module  # noqa: E402
import leftovers  # noqa: E402
import netns  # noqa: E402
from fixtures import (  # noqa: E402, F401
    api, leaving_nothing, make_daemon, pytest_collection_modifyitems, pytest_generate_tests, pytest_runtest_setup, runtimes, tier, wanted)
from networked import NONE, SETTINGS, Networked, first_refusal  # noqa: E402


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    reason = netns.why_unusable()
    if reason:
        pytest.skip(reason)
    leftovers.sweep()
    with leftovers.recorded(tmp_path_factory.getbasetemp()):
        made = lab_module.Lab(tmp_path_factory.mktemp("lab"))
        yield made
        made.close()


@pytest.fixture(scope="session")
def place(lab):
    """Daemons run in the lab's host, and are called there."""
    return lab.host


@pytest.fixture(scope="session")
def settings():
    return SETTINGS


@pytest.fixture(scope="session")
def daemon(make_daemon, settings):
    """The daemon of the session, with the processes that it starts for the first sandbox with a link."""
    made = make_daemon(config=settings, emulate=wanted["emulation"])
    first = made.admin.call("POST", "/v1/sandboxes", expect=201, json={"network": NONE})
    made.admin.call("DELETE", f"/v1/sandboxes/{first['id']}")
    with leaving_nothing(made) as daemon:
        yield daemon


@pytest.fixture
def networked(api, tier, lab):
    """Makes sandboxes with a link and the given policy; all are ended after the test."""
    made = []

    def make(policy, api=api, **spec):
        box = Networked.create(api, lab, tier, policy, **spec)
        made.append(box)
        return box

    yield make
    for box in made:
        box.close()
    lab.settle()


@pytest.fixture
def refusal(api, tier):
    """What the server answers to a sandbox with this policy: the error, which must be one of the caller's."""
    return lambda policy: first_refusal(api, tier, policy)
