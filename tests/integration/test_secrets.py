# SPDX-License-Identifier: Apache-2.0
"""Secrets reach processes, and nothing else: no answer, no log, no snapshot's record, no copy that was not told to inherit them."""

import os

import pytest

from client import Sandbox

SHOW = 'echo "${TOKEN-none} ${OTHER-none}"'


@pytest.fixture
def value():
    return f"secret-{os.urandom(16).hex()}"


def said(box, **spec):
    return box.ok(SHOW, **spec).split()


def test_processes_see_them_and_answers_do_not(create, daemon, value):
    box = create(secrets={"TOKEN": value}, env={"PLAIN": "1"})
    assert said(box) == [value, "none"] and said(box, secrets={"OTHER": "x" + value}) == [value, "x" + value]
    assert said(box, secrets={"TOKEN": "own"}) == ["own", "none"], "a call's own come first"
    assert box.info["secret_keys"] == ["TOKEN"] and "TOKEN" not in box.info["env_keys"] and "PLAIN" in box.info["env_keys"]
    running = box.start("sleep 100", secrets={"OTHER": value})
    snapshot = box.api.call("POST", box.path + "/snapshots", expect=201, json={})
    for path in ("/v1/sandboxes", box.path, box.path + "/executions", running.path, box.path + "/processes", box.path + "/stats",
                 box.path + "/network", box.path + "/diff", f"/v1/snapshots/{snapshot['id']}", "/v1/snapshots", "/metrics"):
        assert value not in box.api.request("GET", path).text, path
    box.kill()
    assert value not in box.api.request("GET", box.path).text and box.refresh()["secret_keys"] == []
    assert value not in daemon.log_path.read_text(errors="replace")
    box.api.call("DELETE", f"/v1/snapshots/{snapshot['id']}")


def test_copies_begin_without_them(create, api, value):
    box = create(secrets={"TOKEN": value})
    snapshot = api.call("POST", box.path + "/snapshots", expect=201, json={})
    bare = api.create(snapshot=snapshot["id"])
    given = api.create(snapshot=snapshot["id"], secrets={"TOKEN": "again"})
    assert said(bare) == ["none", "none"] and said(given) == ["again", "none"]
    for made in (bare, given):
        made.kill()
    api.call("DELETE", f"/v1/snapshots/{snapshot['id']}")


def test_children_inherit_them_when_told(create, api, tier, value):
    if tier == "container":
        pytest.skip("no forks of running sandboxes")
    box = create(secrets={"TOKEN": value})
    for body, seen in (({}, ["none", "none"]), ({"secrets": {"OTHER": "1"}}, ["none", "1"]),
                       ({"inherit_secrets": True, "secrets": {"OTHER": "1"}}, [value, "1"])):
        (child,) = api.call("POST", box.path + "/fork", expect=201, json={"count": 1, **body})["sandboxes"]
        assert said(Sandbox(api, child)) == seen
        api.call("DELETE", f"/v1/sandboxes/{child['id']}")
    assert said(box) == [value, "none"]


def test_they_survive_hibernation_and_the_daemon(make_daemon, tier, value):
    daemon = make_daemon()
    box = daemon.admin.create(runtime=tier, secrets={"TOKEN": value})
    daemon.admin.call("POST", box.path + "/hibernate", json={})
    assert said(box) == [value, "none"]
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()
    box = Sandbox(daemon.admin, daemon.admin.call("GET", box.path))
    assert said(box) == [value, "none"]
    box.kill()


def test_what_is_no_secret_is_refused(api, sandbox):
    api.refused("POST", "/v1/sandboxes", 400, "invalid_argument", json={"env": {"A": "1"}, "secrets": {"A": "2"}})
    api.refused("POST", "/v1/sandboxes", 400, "invalid_argument", json={"secrets": {"A=B": "2"}})
    for secrets in ({"A": "2"}, {"A=B": "2"}, {"A": 2}, []):
        sandbox.refuse_run("true", 400, "invalid_argument", env={"A": "1"}, secrets=secrets)
