# SPDX-License-Identifier: Apache-2.0
"""What the Lizard dialect promises and its client cannot show: see tests/clients/lizard for the rest."""

import contextlib
import json
import os
import re
import signal

import httpx
import pytest

import host
from client import Api, eventually


@pytest.fixture
def lizard(daemon, tier):
    """A key whose sandboxes are of the tier, in the dialect's own paths."""
    made = daemon.new_key(f"lizard-{tier}", default_runtime=tier)
    api = Api(daemon.url, made["key"])
    yield api
    for info in api.request("GET", "/api/sandboxes").json():
        api.request("DELETE", f"/api/sandboxes/{info['sandboxId']}")
    daemon.admin.call("DELETE", f"/v1/keys/{made['id']}")


def create(api, **fields):
    answer = api.request("POST", "/api/sandboxes", json={"template": "base", "size": "nano", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_the_key_chooses_the_runtime(lizard, tier):
    assert create(lizard)["runtime"] == tier


def test_the_server_chooses_the_runtime(make_daemon, tier):
    daemon = make_daemon("--default-runtime", tier)
    info = create(daemon.admin)
    assert info["runtime"] == tier
    assert daemon.admin.request("DELETE", f"/api/sandboxes/{info['sandboxId']}").status_code == 204


def test_a_named_size_over_the_operators_limit_is_refused_and_the_default_shrinks(make_daemon, tier):
    daemon = make_daemon("--default-runtime", tier, config="[max_limits]\ncpus = 2\nmemory_mb = 4096\n")
    for size in ("medium", "large", "big"):
        answer = daemon.admin.request("POST", "/api/sandboxes", json={"template": "base", "size": size})
        assert (answer.status_code, answer.json()["code"]) == (400, "SANDBOX_SIZE_NOT_ALLOWED"), answer.text
    info = daemon.admin.request("POST", "/api/sandboxes", json={"template": "base"}).json()
    assert (info["size"], info["cpus"], info["memoryMb"]) == ("small", 2, 4096)
    limits = daemon.admin.call("GET", f"/v1/sandboxes/{info['sandboxId']}")["limits"]
    assert (limits["cpus"], limits["memory_mb"]) == (2, 4096)
    daemon.admin.request("DELETE", f"/api/sandboxes/{info['sandboxId']}")


def test_capacity_has_the_protocols_code(make_daemon, tier):
    daemon = make_daemon("--default-runtime", tier, config="max_sandboxes = 1\n")
    first = create(daemon.admin)
    answer = daemon.admin.request("POST", "/api/sandboxes", json={"template": "base", "size": "nano"})
    body = answer.json()
    assert (answer.status_code, body["code"], body["unit"]) == (429, "SANDBOX_LIMIT_REACHED", "sandboxes"), body
    assert (body["limit"], body["running"]) == (1, 1) and body["retryAfterS"] > 0
    assert int(answer.headers["retry-after"]) > 0
    daemon.admin.request("DELETE", f"/api/sandboxes/{first['sandboxId']}")


@pytest.mark.parametrize("default, says, given", [
    ("", False, False),
    ('[network.default]\negress = "open"\n', True, True),
    ('[network.default]\npresets = ["github"]\n', False, True),
], ids=["closed", "open", "allowlist"])
def test_the_operators_default_is_what_a_create_without_words_gets(make_daemon, tier, default, says, given):
    daemon = make_daemon("--default-runtime", tier, config=default)
    info = create(daemon.admin)
    assert (info["internetAccess"], info["allowedHosts"]) == (says, [])
    assert daemon.admin.call("GET", f"/v1/sandboxes/{info['sandboxId']}")["network"]["link"] is given
    asked = daemon.admin.request("POST", "/api/sandboxes", json={"template": "base", "size": "nano", "internetAccess": True})
    assert asked.status_code == (201 if says else 400), asked.text
    assert asked.json().get("code") == (None if says else "INTERNET_ACCESS_NOT_OFFERED"), asked.text
    closed = create(daemon.admin, internetAccess=False)
    assert closed["internetAccess"] is False
    assert daemon.admin.call("GET", f"/v1/sandboxes/{closed['sandboxId']}/network")["effective"]["egress"] == "none"
    for found in daemon.admin.request("GET", "/api/sandboxes").json():
        daemon.admin.request("DELETE", f"/api/sandboxes/{found['sandboxId']}")


def test_more_network_than_the_operator_gives_has_a_code(make_daemon, tier):
    daemon = make_daemon("--default-runtime", tier, config='[network]\nmax_egress = "none"\n')
    answer = daemon.admin.request("POST", "/api/sandboxes", json={"template": "base", "size": "nano", "allowedHosts": ["example.com"]})
    assert (answer.status_code, answer.json()["code"]) == (400, "NETWORK_NOT_OFFERED"), answer.text
    assert "operator.max_egress" in answer.json()["error"]


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
def test_a_lost_guest_never_looks_like_success(lizard, daemon, streamed):
    before = set(host.descendants(daemon.pid))
    box = create(lizard)
    path = f"/api/sandboxes/{box['sandboxId']}/exec"
    headers = {"Accept": "text/event-stream"} if streamed else {}
    text, status = "", None
    with lizard.http.stream("POST", path, json={"cmd": "echo up > /tmp/up; echo up; sleep 600; exit 0"}, headers=headers) \
            if streamed else Posted(lizard, path) as answer:
        kill_its_processes(lizard, daemon, box["sandboxId"], before)
        try:
            for part in answer.iter_text():
                text += part
            status = answer.status_code
        except httpx.RemoteProtocolError:
            return  # the stream broke off: the client throws
    codes = [int(code) for code in re.findall(r'"exitCode": ?(\d+)', text)]
    assert codes and codes[-1] != 0 or status >= 400, (status, text)
    if status >= 400:
        assert json.loads(text)["code"] in ("SANDBOX_LOST", "SANDBOX_NOT_FOUND"), text


class Posted:
    """A JSON exec under way in another thread, with the look of a stream."""

    def __init__(self, api, path):
        import concurrent.futures
        self.pool = concurrent.futures.ThreadPoolExecutor(1)
        self.answer = self.pool.submit(api.request, "POST", path, json={"cmd": "echo up > /tmp/up; sleep 600; exit 0"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.shutdown()

    def iter_text(self):
        yield self.answer.result(120).text

    @property
    def status_code(self):
        return self.answer.result().status_code


def kill_its_processes(api, daemon, sandbox, before):
    """SIGKILL to everything that the sandbox added to the host, once its command runs."""
    eventually(lambda: api.request("GET", f"/api/sandboxes/{sandbox}/files/stat?path=/tmp/up").status_code == 200)
    added = set(host.descendants(daemon.pid)) - before
    assert added
    for number in (signal.SIGSTOP, signal.SIGKILL):  # a shell that saw its child die would go on, and rightly succeed
        for pid in added:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def test_errors_have_the_protocols_form(lizard, daemon):
    stranger = Api(daemon.url, "nonsense")
    table = [
        (stranger, "GET", "/api/projects", 401, "UNAUTHENTICATED"),
        (lizard, "GET", "/api/sandboxes/sb-none", 404, "SANDBOX_NOT_FOUND"),
        (lizard, "POST", "/api/sandboxes/sb-none/exec", 404, "SANDBOX_NOT_FOUND"),
        (lizard, "POST", "/api/sandboxes/sb-none/pause", 404, "SANDBOX_NOT_FOUND"),
        (lizard, "GET", "/api/apps/x", 404, "ROUTE_NOT_FOUND"),
        (lizard, "POST", "//api//sandboxes", 400, None),
    ]
    for api, method, path, status, code in table:
        answer = api.request(method, daemon.url + path, content=b"[]" if code is None else b"")
        assert answer.status_code == status, (path, answer.text)
        body = answer.json()
        assert set(body) == {"error", "code"} and body["error"] and body["code"] == (code or "INVALID_ARGUMENT"), (path, body)
        assert answer.headers["x-request-id"]
