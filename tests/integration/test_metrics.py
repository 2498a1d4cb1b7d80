# SPDX-License-Identifier: Apache-2.0
"""GET /metrics: restarts, what was taken over, swept and leaked; and the page that lists them all."""

import concurrent.futures
import os
import pathlib
import re
import signal

import pytest

import host
from client import Sandbox, eventually

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/metrics.md"
LEAK_PATIENCE = 150  # two looks, ten seconds apart


def samples(daemon):
    """name{labels} -> value"""
    found = {}
    for line in daemon.admin.request("GET", "/metrics").text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def restarts(daemon):
    page = samples(daemon)
    return page['glovebox_restarts_total{after="stop"}'], page['glovebox_restarts_total{after="death"}']


@pytest.fixture(scope="module")
def own(make_daemon):
    """A daemon of its own, that has been through a death with a sandbox and with something that was nobody's."""
    daemon = make_daemon(config="[pool]\ncontainer = 1\ngvisor = 1\n")
    assert restarts(daemon) == (0, 0) and samples(daemon)["glovebox_leaked"] == 0
    daemon.box = daemon.admin.create(lifetime_ms=600_000)
    daemon.box.start("head -c 1000000 /dev/zero").wait()
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait()
    daemon.stray = pathlib.Path(stray_cgroup(daemon.box.id))
    daemon.start()
    daemon.box = Sandbox(daemon.admin, daemon.admin.call("GET", daemon.box.path))
    yield daemon
    daemon.end_sandboxes()


def stray_cgroup(sandbox_id):
    """A control group beside the sandbox's, of a sandbox that was never there."""
    path = os.path.join(os.path.dirname(host.cgroups([sandbox_id])[0]), "sb-of-nobody")
    os.mkdir(path)
    return path


def test_a_death_is_counted_and_what_was_left_is_swept(own):
    kinds = ("glovebox_adopted_total", "glovebox_swept_objects_total")
    page = eventually(lambda: (p := samples(own)) and all(p.get(kind) for kind in kinds) and p, what="the sandbox is taken over, and the rest swept")
    assert restarts(own) == (0, 1)
    assert [page[kind] for kind in kinds] == [1, 1]
    assert not own.stray.exists()


def test_what_belongs_to_no_sandbox_is_counted_while_it_is_there(own):
    path = stray_cgroup(own.box.id)
    directory = own.data_dir / "sandboxes" / "sb-of-nobody-else"
    directory.mkdir()
    try:
        eventually(lambda: samples(own)["glovebox_leaked"] == 2, LEAK_PATIENCE, "both are seen")
        log = own.log_path.read_text()
        assert log.count("host.leaked") == 2 and "sb-of-nobody-else" in log
        assert os.path.isdir(path) and directory.exists(), "they are reported, not touched"
    finally:
        os.rmdir(path)
        directory.rmdir()
    eventually(lambda: samples(own)["glovebox_leaked"] == 0, LEAK_PATIENCE, "they are gone")
    assert own.box.ok(["echo", "alive"]) == "alive\n"


def test_a_stop_is_no_death(own):
    own.stop()
    own.start()
    assert restarts(own) == (1, 1)


def copy_and_take_back(box):
    api = box.api
    snapshot = api.call("POST", box.path + "/snapshots", expect=201, json={})
    child, = api.call("POST", box.path + "/fork", expect=201, json={"count": 1})["sandboxes"]
    api.call("DELETE", f"/v1/sandboxes/{child['id']}")
    api.call("POST", box.path + "/reset", json={"snapshot": snapshot["id"]})
    api.call("POST", box.path + "/hibernate", json={})
    box.ok("true")
    api.request("DELETE", f"/v1/snapshots/{snapshot['id']}")


def call_a_tool(api):
    headers = {"Accept": "application/json, text/event-stream"}
    post = lambda message: api.request("POST", "/mcp", json={"jsonrpc": "2.0", **message}, headers=headers)
    client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    headers["Mcp-Session-Id"] = post({"id": 1, "method": "initialize", "params": client}).headers["mcp-session-id"]
    post({"method": "notifications/initialized"})
    assert post({"id": 2, "method": "tools/call", "params": {"name": "list_sandboxes", "arguments": {}}}).status_code == 200
    api.request("DELETE", "/mcp", headers=headers)


def test_the_page_of_metrics_lists_them_all(own):
    """After a death, a sweep, an end, output that was spooled, a call to a paused sandbox, a claim and a miss, copies, and a model's call,
    no metric is missing."""
    box = own.admin.create()
    box.ok("head -c 1000000 /dev/zero >&2")
    box.kill()
    own.process.send_signal(signal.SIGKILL)
    own.process.wait()
    stray_cgroup(own.box.id)
    own.start()
    works = {r["runtime"] for r in own.admin.call("GET", "/v1/runtimes")["runtimes"] if r["usable"]}
    full = lambda: all(p["ready"] == 1 for p in own.admin.call("GET", "/v1/pool")["pools"] if p["runtime"] in works)
    eventually(full, 30, "the pool is full")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # at once: a pool fills up again
        assert set(pool.map(lambda _: own.admin.create().info["started_from"], range(4))) == {"pool", "cold"}
    box = own.admin.create()
    eventually(lambda: box.refresh()["frozen"], 10, "it is frozen")
    box.api.call("POST", box.path + "/pause")
    box.ok("head -c 1000000 /dev/zero >&2")
    copy_and_take_back(box)
    box.kill()
    call_a_tool(own.admin)
    eventually(lambda: "glovebox_adopted_total" in samples(own), 20, "the sandbox is taken over")
    listed = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE.read_text(), re.MULTILINE))
    kinds = lambda: set(re.findall(r"^# TYPE (\w+) (\w+)$", own.admin.request("GET", "/metrics").text, re.MULTILINE))
    eventually(lambda: listed <= kinds(), what=f"all that is listed is there; now missing: {listed - kinds()}")
    assert kinds() == listed
