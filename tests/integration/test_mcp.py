# SPDX-License-Identifier: Apache-2.0
"""MCP sessions when things go wrong: the daemon is replaced, connections break, clients die. What they do otherwise: tests/clients/mcp."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import pytest

from client import eventually
from daemon import find_program, share_templates

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
ON_CONTAINERS = 'default_runtime = "container"\n'


class Relay:
    """A port that leads to a daemon, wherever it is now. Its connections can be cut."""

    def __init__(self, url):
        self.lead_to(url)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.open = []
        threading.Thread(target=self.accept, daemon=True).start()

    def lead_to(self, url):
        host, port = url.removeprefix("http://").split(":")
        self.target = (host, int(port))

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                try:
                    far = socket.create_connection(self.target)
                except OSError:
                    near.close()
                    continue
                self.open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self.copy, args=(one, other), daemon=True).start()

    @staticmethod
    def copy(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def cut(self):
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.open.clear()

    def close(self):
        self.listener.close()
        self.cut()


class Bridge:
    """`glovebox mcp`, spoken to by hand."""

    def __init__(self, *options, **environment):
        self.process = subprocess.Popen([find_program(), "mcp", *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, **environment}, bufsize=0)
        self.answers, self.others, self.last = {}, [], 0
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") is None:
                self.others.append(message)
            else:
                self.answers[message["id"]] = message

    def write(self, text):
        self.process.stdin.write(text.encode() + b"\n")

    def start(self, method, params=None):
        self.last += 1
        self.write(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params or {}}))
        return self.last

    def wait(self, request, seconds=150):
        return eventually(lambda: self.answers.get(request), seconds, f"request {request} has an answer")

    def begin(self):
        assert self.wait(self.start("initialize", INITIALIZE), 150)["result"]["serverInfo"]["name"] == "glovebox"
        self.write('{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return self

    def start_exec(self, command, **arguments):
        return self.start("tools/call", {"name": "exec", "arguments": {"command": command, **arguments}})

    def exec(self, command, **arguments):
        result = self.wait(self.start_exec(command, **arguments))["result"]
        assert not result["isError"], result
        return result["structuredContent"]

    def end(self, seconds=90):
        self.process.stdin.close()
        return self.process.wait(seconds)


@pytest.fixture
def bridge():
    made = []

    def make(*options, **environment):
        made.append(Bridge(*options, **environment))
        return made[-1].begin()

    yield make
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture(scope="module")
def mortal(make_daemon):
    """A daemon that tests replace."""
    return make_daemon(config=ON_CONTAINERS)


@pytest.fixture
def relay(mortal):
    relay = Relay(mortal.url)
    yield relay
    relay.close()


def replace(daemon, relay):
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait()
    daemon.start()
    relay.lead_to(daemon.url)


def test_a_session_and_its_sandbox_outlive_the_daemon(mortal, relay, bridge):
    mcp = bridge(GLOVEBOX_API_URL=relay.url, GLOVEBOX_API_KEY=mortal.admin.key)
    before = mcp.exec("echo kept > /tmp/kept")
    replace(mortal, relay)
    after = mcp.exec("cat /tmp/kept")
    assert (after["stdout"], after["sandbox_id"]) == ("kept\n", before["sandbox_id"])
    assert mcp.end() == 0
    eventually(lambda: before["sandbox_id"] not in mortal.live_ids(), 10, "it ended with the session")


def test_a_session_without_sandboxes_is_begun_anew(mortal, relay, bridge):
    mcp = bridge(GLOVEBOX_API_URL=relay.url, GLOVEBOX_API_KEY=mortal.admin.key)
    replace(mortal, relay)
    # One after the other while it is begun anew: one session comes of it.
    requests = []
    for number in range(12):
        requests.append(mcp.start_exec(f"echo {number}"))
        time.sleep(0.001)
    answers = [mcp.wait(request) for request in requests]
    refused = [answer["error"] for answer in answers if "error" in answer]
    assert not refused, refused
    assert len({answer["result"]["structuredContent"]["sandbox_id"] for answer in answers}) == 1
    assert mcp.end() == 0


def test_a_broken_connection_loses_no_result(mortal, relay, bridge):
    mcp = bridge(GLOVEBOX_API_URL=relay.url, GLOVEBOX_API_KEY=mortal.admin.key)
    mcp.exec("true")
    request = mcp.start_exec("for i in 1 2 3 4; do echo $i; sleep 1; done")
    for _ in range(3):
        time.sleep(0.9)
        relay.cut()
    result = mcp.wait(request)["result"]["structuredContent"]
    assert (result["stdout"], result["exit_code"]) == ("1\n2\n3\n4\n", 0)
    assert mcp.end() == 0


def test_a_daemon_that_is_away_is_an_error_and_no_end(mortal, relay, bridge):
    mcp = bridge(GLOVEBOX_API_URL=relay.url, GLOVEBOX_API_KEY=mortal.admin.key)
    url, relay.target = relay.target, ("127.0.0.1", 1)
    answer = mcp.wait(mcp.start_exec("true"))
    assert answer["error"]["data"] == {"code": "unavailable", "retryable": True}
    relay.target = url
    assert mcp.exec("echo back")["stdout"] == "back\n"
    assert mcp.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_session(mortal, relay, bridge, number):
    mcp = bridge(GLOVEBOX_API_URL=relay.url, GLOVEBOX_API_KEY=mortal.admin.key)
    box = mcp.exec("true")["sandbox_id"]
    mcp.start_exec("sleep 1000")
    time.sleep(0.3)
    mcp.process.send_signal(number)
    assert mcp.process.wait(90) == 128 + number
    eventually(lambda: box not in mortal.live_ids(), 10, "its sandbox has ended")


def test_what_is_no_message_is_answered(mortal, bridge):
    mcp = bridge(GLOVEBOX_API_URL=mortal.url, GLOVEBOX_API_KEY=mortal.admin.key)
    mcp.write("{broken")
    mcp.write("")
    mcp.write('{"jsonrpc":"1.0","method":"x"}')
    mcp.write("x" * (17 << 20))
    eventually(lambda: [m["error"]["code"] for m in mcp.others if "error" in m].count(-32700) == 1
               and any(m["error"]["message"] == "the message is too long" for m in mcp.others), 20, "the answers are there")
    assert mcp.wait(mcp.start("ping"))["result"] == {}
    assert mcp.end() == 0


def test_the_sandboxes_of_a_client_that_died_end_in_time(make_daemon, bridge):
    daemon = make_daemon(config=ON_CONTAINERS + "[mcp]\nsession_timeout_ms = 2000\n")
    mcp = bridge(GLOVEBOX_API_URL=daemon.url, GLOVEBOX_API_KEY=daemon.admin.key)
    box = mcp.exec("true")["sandbox_id"]
    mcp.process.kill()
    mcp.process.wait()
    ended = eventually(lambda: daemon.admin.call("GET", f"/v1/sandboxes/{box}")["ended"], 30, "it has ended")
    assert ended["reason"] in ("killed", "idle")


def test_sessions_and_templates_are_the_operators(make_daemon, bridge):
    daemon = make_daemon(config=ON_CONTAINERS + '[mcp]\nmax_sessions = 2\ntemplate = "none"\n')
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    other = daemon.new_key("other")["key"]
    for _ in range(3):  # this key's own unused ones make room
        assert daemon.admin.request("POST", "/mcp", json=body, headers=headers).status_code == 200
    refused = daemon.admin.request("POST", "/mcp", json=body, headers={**headers, "Authorization": f"Bearer {other}"})
    assert (refused.status_code, refused.json()["error"]["data"]["code"]) == (429, "capacity")
    assert int(refused.headers["Retry-After"]) > 0
    mcp = bridge(GLOVEBOX_API_URL=daemon.url, GLOVEBOX_API_KEY=daemon.admin.key)
    result = mcp.wait(mcp.start_exec("true"))["result"]
    assert (result["isError"], result["_meta"]["glovebox/error"]["code"]) == (True, "template_not_found")
    page = lambda: daemon.admin.request("GET", "/metrics").text
    eventually(lambda: "glovebox_mcp_sessions 2" in page(), what="there are two sessions")
    eventually(lambda: 'glovebox_mcp_calls_total{result="error",tool="exec"} 1' in page(), what="the call is counted")


def test_without_a_daemon_one_is_started(tmp_path, bridge):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    share_templates(data_dir)
    (data_dir / "config.toml").write_text(ON_CONTAINERS)
    try:
        mcp = bridge("--data-dir", str(data_dir))
        assert mcp.exec("echo 42")["stdout"] == "42\n"
        state = json.loads((data_dir / "daemon.json").read_text())
        assert mcp.end(60) == 0
        eventually(lambda: not os.path.exists(f"/proc/{state['pid']}"), 30, "its daemon is gone")
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
