# SPDX-License-Identifier: Apache-2.0
"""Watching directories: what is told, what it costs, and that it holds a sandbox in no state."""

import collections
import contextlib
import threading

import pytest

import host
from client import Sandbox, eventually, needs_true_memory, parse_sse, patience, quote


class Watcher:
    """Takes the events of one watch, on a thread of its own."""

    def __init__(self, box, path, **query):
        self.events = []
        self.error = None
        self.begun, self.is_over = threading.Event(), threading.Event()
        options = "".join(f"&{name}={value}" for name, value in query.items())
        self.target = f"{box.path}/files/watch?path={quote(path)}{options}"
        self.api = box.api
        self.response = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        with contextlib.suppress(Exception), self.api.http.stream("GET", self.target) as self.response:
            for event in parse_sse(self.response.iter_lines()):
                self.events.append((event["event"], event["data"].get("path")))
                self.begun.set()
                if event["event"] == "error":
                    self.error = event["data"]["error"]
        self.is_over.set()

    def __enter__(self):
        self.thread.start()
        assert self.begun.wait(90)
        return self

    def __exit__(self, *error):
        with contextlib.suppress(Exception):
            self.response.close()

    def wait(self, *event):
        eventually(lambda: event in self.events, 20, f"{event} (it ended: {self.error})")

    def ended_with(self, code):
        assert self.is_over.wait(90), "the stream did not end"
        assert self.error and self.error["code"] == code, (self.error, self.events[-5:])
        return self.error


def test_changes_are_told_as_they_happen(sandbox):
    sandbox.run("mkdir -p /tmp/w/sub")
    with Watcher(sandbox, "/tmp/w", recursive="true") as watch:
        assert watch.events == [("watching", None)]
        sandbox.run("cd /tmp/w; mkdir -p a/b; echo x >a/b/f")
        watch.wait("create", "a/b/f")  # a directory that has another name by then cannot be looked into
        sandbox.run("cd /tmp/w; mv a z; echo y >z/b/g; chmod 600 sub; rm -r sub")
        watch.wait("remove", "sub")
        for event in [("create", "a"), ("create", "a/b/f"), ("rename", "a"), ("create", "z"), ("create", "z/b/g"), ("chmod", "sub")]:
            assert event in watch.events, event
        sandbox.put("/tmp/w/new", b"1")
        watch.wait("write", "new")
        assert watch.events[-2:] == [("create", "new"), ("write", "new")]
        sandbox.run("rm -r /tmp/w")
        watch.wait("end", None)


def test_what_cannot_be_watched(sandbox, api):
    watch = sandbox.path + "/files/watch"
    api.refused("GET", watch + "?path=/no", 404, "file_not_found")
    api.refused("GET", watch + "?path=/etc/passwd", 409, "not_a_directory")
    api.refused("GET", watch, 400, "invalid_argument")
    api.refused("GET", watch + "?path=/&recursive=maybe", 400, "invalid_argument")


def test_watching_keeps_no_sandbox_awake(create):
    box = create()
    with Watcher(box, "/tmp") as watch:
        eventually(lambda: box.refresh()["frozen"], 10, "a watched sandbox is frozen")
        box.put("/tmp/f", b"1")
        watch.wait("create", "f")
        box.api.call("PATCH", box.path, json={"idle_timeout_ms": patience(1500)})
        eventually(lambda: box.refresh()["ended"], 20, "it ends for idleness")
        assert box.info["ended"]["reason"] == "idle"
        assert watch.ended_with("sandbox_ended")["details"]["reason"] == "idle"


@pytest.mark.parametrize("reason", ["killed", "lifetime"])
def test_the_end_of_the_sandbox_ends_a_watch(create, reason):
    box = create()
    with Watcher(box, "/tmp") as watch:
        if reason == "killed":
            box.kill()
        else:
            box.api.call("PATCH", box.path, json={"lifetime_ms": 200})
        assert watch.ended_with("sandbox_ended")["details"]["reason"] == reason


def test_hibernation_ends_a_watch_and_a_pause_does_not(create):
    box = create()
    with Watcher(box, "/tmp") as watch:
        box.api.call("POST", box.path + "/pause")
        box.put("/tmp/f", b"1")  # resumes it
        watch.wait("write", "f")
        box.api.call("POST", box.path + "/hibernate", json={})
        assert watch.ended_with("sandbox_not_ready")["details"]["reason"] == "hibernated"
    with Watcher(box, "/tmp") as watch:
        box.put("/tmp/g", b"1")
        watch.wait("write", "g")


def test_the_daemons_end_is_told_and_a_crash_is_a_cut(make_daemon, tier):
    daemon = make_daemon()
    box = daemon.admin.create(runtime=tier)
    with Watcher(box, "/tmp") as watch:
        daemon.stop()
        assert watch.ended_with("unavailable")["retryable"]
    daemon.start()
    box = Sandbox(daemon.admin, daemon.admin.call("GET", box.path))
    with Watcher(box, "/tmp") as watch:
        box.put("/tmp/f", b"1")
        watch.wait("write", "f")
        daemon.process.kill()
        daemon.process.wait()
        assert watch.is_over.wait(90) and watch.events[-1] == ("write", "f"), "neither an end nor an error was made up"
    daemon.start()
    daemon.admin.call("DELETE", box.path)


def test_a_sandbox_has_64_watches(sandbox):
    watch = sandbox.path + "/files/watch?path=/tmp"
    with contextlib.ExitStack() as open_ones:
        for _ in range(64):
            assert open_ones.enter_context(sandbox.api.http.stream("GET", watch)).status_code == 200
        sandbox.api.refused("GET", watch, 429, "capacity")
        assert sandbox.ok("echo calls go on") == "calls go on\n"
    eventually(lambda: watch_once(sandbox.api, watch) == 200, 20, "their places come back")


def watch_once(api, target):
    with api.http.stream("GET", target) as response:
        return response.status_code


def test_more_directories_than_it_watches_are_told(sandbox):
    sandbox.ok("mkdir -p /tmp/many && cd /tmp/many && seq 8192 | xargs mkdir", timeout_ms=60_000)
    refused = sandbox.api.refused("GET", sandbox.path + "/files/watch?path=/tmp/many&recursive=true", 429, "capacity")
    assert "8192" in refused["message"]
    sandbox.ok("rmdir /tmp/many/8192 /tmp/many/8191")
    with Watcher(sandbox, "/tmp/many", recursive="true") as watch:
        sandbox.ok("mkdir /tmp/many/a; mkdir /tmp/many/b; mkdir /tmp/many/c")
        watch.wait("overflow", "")
        watch.wait("create", "c")


@needs_true_memory
def test_a_flood_that_nobody_reads_costs_the_daemon_a_window(sandbox, daemon, tier):
    """The reader takes nothing while 15 MB of events happen: they wait in the sandbox, which is not frozen meanwhile, or overflow there."""
    sandbox.ok("true")
    with Watcher(sandbox, "/tmp") as watch:  # what a first one costs is not what is measured
        sandbox.put("/tmp/first", b"1")
        watch.wait("create", "first")
    before = host.rss_bytes(daemon.pid)
    with sandbox.api.http.stream("GET", sandbox.path + "/files/watch?path=/tmp") as response:
        assert response.status_code == 200
        sandbox.ok("cd /tmp; name=$(printf %200s x | tr ' ' x); seq -f $name%.0f 20000 | xargs touch; seq -f $name%.0f 20000 | xargs rm",
                   timeout_ms=120_000)
        assert host.rss_bytes(daemon.pid) - before < 8 << 20
        seen = collections.Counter()
        for event in parse_sse(response.iter_lines()):
            seen[event["event"]] += 1
            if event["event"] == "overflow" or seen["remove"] == 20_000:
                break
    if tier == "container":
        assert seen["overflow"], "the kernel dropped some, and nobody said so"
    else:  # gVisor queues them in the sandbox's own memory
        assert seen["create"] == seen["remove"] == 20_000, seen
