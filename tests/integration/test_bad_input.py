# SPDX-License-Identifier: Apache-2.0
"""Requests that are wrong: each is refused with its own status and code, names its field, and changes nothing."""

import json

import pytest

from client import check_error, raw_connection, raw_head, raw_request

DEEP = "[" * 10_000 + "]" * 10_000
CREATE = [
    # (body, status, code, what the message names)
    ({"template": "no-such-template"}, 404, "template_not_found", "no-such-template"),
    ({"template": "../../etc"}, 400, "invalid_argument", ""),
    ({"template": "base@00000000"}, 404, "template_not_found", ""),
    ({"template": 7}, 400, "invalid_argument", "template"),
    ({"template": ""}, 400, "invalid_argument", "template"),
    ({"surprise": 1}, 400, "invalid_argument", "surprise"),
    ({"Template": "base"}, 400, "invalid_argument", "Template"),
    ({"runtime": "docker"}, 400, "invalid_argument", "runtime"),
    ({"limits": {"cpus": 0}}, 400, "invalid_argument", "limits.cpus"),
    ({"limits": {"cpus": -1}}, 400, "invalid_argument", "limits.cpus"),
    ({"limits": {"cpus": 1e9}}, 400, "invalid_argument", "limits.cpus"),
    ({"limits": {"cpus": "2"}}, 400, "invalid_argument", "limits.cpus"),
    ({"limits": {"memory_mb": -1}}, 400, "invalid_argument", "limits.memory_mb"),
    ({"limits": {"memory_mb": 0}}, 400, "invalid_argument", "limits.memory_mb"),
    ({"limits": {"memory_mb": 1.5}}, 400, "invalid_argument", "limits.memory_mb"),
    ({"limits": {"memory_mb": 2**62}}, 400, "invalid_argument", "limits.memory_mb"),
    ({"limits": {"disk_mb": 2**62}}, 400, "invalid_argument", "limits.disk_mb"),
    ({"limits": {"processes": 0}}, 400, "invalid_argument", "limits.processes"),
    ({"limits": {"processes": 2**40}}, 400, "invalid_argument", "limits.processes"),
    ({"limits": {"open_files": 2**40}}, 400, "invalid_argument", "limits.open_files"),
    ({"limits": {"gpus": 1}}, 400, "invalid_argument", "limits.gpus"),
    ({"limits": []}, 400, "invalid_argument", "limits"),
    ({"env": {"A": 1}}, 400, "invalid_argument", "env"),
    ({"env": {"A=B": "1"}}, 400, "invalid_argument", "env"),
    ({"env": {"": "1"}}, 400, "invalid_argument", "env"),
    ({"env": {"A": "nul\0"}}, 400, "invalid_argument", "env"),
    ({"metadata": {str(n): "" for n in range(65)}}, 400, "invalid_argument", "metadata"),
    ({"metadata": {"k": "v" * 17_000}}, 413, "payload_too_large", "metadata"),
    ({"metadata": {"k": None}}, 400, "invalid_argument", "metadata"),
    ({"lifetime_ms": -1}, 400, "invalid_argument", "lifetime_ms"),
    ({"lifetime_ms": 1.5}, 400, "invalid_argument", "lifetime_ms"),
    ({"lifetime_ms": 2**62}, 400, "invalid_argument", "lifetime_ms"),
    ({"idle_timeout_ms": -5}, 400, "invalid_argument", "idle_timeout_ms"),
    ({"network": {"egress": "all"}}, 400, "invalid_argument", "network.egress"),
    ({"user": "no-such-user"}, 400, "user_unknown", "no-such-user"),
    ({"workdir": "a\0b"}, 400, None, ""),
]


@pytest.mark.parametrize("body,status,code,named", CREATE, ids=[str(n) for n in range(len(CREATE))])
def test_create(daemon, api, body, status, code, named):
    before = set(daemon.live_ids())
    answer = api.request("POST", "/v1/sandboxes", json=body)
    if answer.status_code == 201:
        api.call("DELETE", f"/v1/sandboxes/{answer.json()['id']}")
    error = check_error(answer, status, code or answer.json()["error"]["code"])
    assert named in error["message"], error
    assert error["fault"] == "caller" and not error["retryable"]
    assert set(daemon.live_ids()) <= before


BODIES = {
    "not-json": b"{", "empty-object-key": b'{"":1}', "array": b"[]", "number": b"1", "text": b'"base"', "null": b"null",
    "duplicate": b'{"template":"base","template":"base"}', "deep": DEEP.encode(), "invalid-utf8": b'{"template":"\xff"}',
    "lone-surrogate": rb'{"template":"\ud800"}', "trailing": b"{} {}", "nan": b'{"lifetime_ms":NaN}',
    "huge-number": b'{"lifetime_ms":1e400}', "comment": b"{} // x", "nul": b"{}\0", "bom": b"\xef\xbb\xbf{}",
}


@pytest.mark.parametrize("case", BODIES)
def test_broken_json(api, daemon, case):
    before = set(daemon.live_ids())
    api.refused("POST", "/v1/sandboxes", 400, "invalid_argument", content=BODIES[case],
                headers={"Content-Type": "application/json"})
    assert set(daemon.live_ids()) <= before


EXECUTE = [
    ({}, 400, "invalid_argument"), ({"argv": []}, 400, "invalid_argument"), ({"argv": "true"}, 400, "invalid_argument"),
    ({"argv": [1]}, 400, "invalid_argument"), ({"argv": ["a\0b"]}, 400, "invalid_argument"),
    ({"argv": ["true"], "command": "true"}, 400, "invalid_argument"), ({"command": ""}, 400, "invalid_argument"),
    ({"command": ["true"]}, 400, "invalid_argument"), ({"command": "a\0b"}, 400, "invalid_argument"),
    ({"argv": ["true"], "timeout": 5}, 400, "invalid_argument"),
    ({"argv": ["true"], "timeout_ms": -1}, 400, "invalid_argument"),
    ({"argv": ["true"], "timeout_ms": "5"}, 400, "invalid_argument"),
    ({"argv": ["true"], "kill_grace_ms": -1}, 400, "invalid_argument"),
    ({"argv": ["true"], "pty": {"cols": 0, "rows": 1}}, 400, "invalid_argument"),
    ({"argv": ["true"], "pty": {"cols": 70_000, "rows": 1}}, 400, "invalid_argument"),
    ({"argv": ["true"], "pty": True}, 400, "invalid_argument"),
    ({"argv": ["true"], "stdin_b64": "%%%"}, 400, "invalid_argument"),
    ({"argv": ["true"], "stdin_b64": "eA==", "stdin_text": "x"}, 400, "invalid_argument"),
    ({"argv": ["true"], "stdin": True, "stdin_text": "x"}, 400, "invalid_argument"),
    ({"argv": ["true"], "env": {"A=": "x"}}, 400, "invalid_argument"),
    ({"argv": ["true"], "env": {"A": "x\0"}}, 400, "invalid_argument"),
    ({"argv": ["true"], "name": "n" * 129}, 400, "invalid_argument"),
    ({"argv": ["true"], "user": "nobody-here"}, 400, "user_unknown"),
    ({"argv": ["true"], "user": "../root"}, 400, "user_unknown"),
    ({"argv": ["true"], "cwd": "/no/such"}, 400, "workdir_not_found"),
    ({"argv": ["/no/such"]}, 400, "command_not_found"), ({"argv": ["no-such"]}, 400, "command_not_found"),
    ({"argv": [""]}, 400, None), ({"argv": ["/etc"]}, 400, "command_not_executable"),
    ({"argv": ["/etc/passwd"]}, 400, "command_not_executable"),
]


def test_execute(sandbox):
    for body, status, code in EXECUTE:
        answer = sandbox.api.request("POST", sandbox.path + "/executions?wait=true", json=body)
        assert answer.status_code == status, (body, answer.text)
        check_error(answer, status, code or answer.json()["error"]["code"])
    assert sandbox.executions() == []
    assert sandbox.ok(["echo", "fine"]) == "fine\n"


def test_calls_on_an_execution(sandbox):
    running = sandbox.start(["sleep", "600"])
    post = lambda call, body, status=400, code="invalid_argument": sandbox.api.refused(
        "POST", f"{running.path}/{call}", status, code, json=body)
    for body in ({}, {"signal": 0}, {"signal": 65}, {"signal": -9}, {"signal": "SIGNOPE"}, {"signal": "9; rm"},
                 {"signal": "TERM", "tree": "yes"}, {"signal": ["TERM"]}, {"signal": "TERM", "x": 1}):
        post("signal", body)
    for body in ({}, {"cols": 1}, {"cols": -1, "rows": 1}, {"cols": 1, "rows": 10**9}, {"cols": "1", "rows": "1"}):
        post("resize", body)
    post("resize", {"cols": 80, "rows": 24}, 409, "conflict")  # it has no terminal
    sandbox.api.refused("POST", running.path + "/stdin", 409, "conflict", content=b"x")
    for query in ("cursor=-1", "cursor=x", "format=xml", "stream=stdin", "wait_ms=-1", "wait_ms=99999999999", "surprise=1",
                  "format=raw&follow=maybe"):
        sandbox.api.refused("GET", f"{running.path}/output?{query}", 400, "invalid_argument")
    for form in ("sse", "json"):
        sandbox.api.refused("GET", f"{running.path}/output?format={form}", 400, "invalid_argument", headers={"Last-Event-ID": "x"})
    for query in ("timeout_ms=-1", "timeout_ms=3600001", "timeout_ms=1s"):
        sandbox.api.refused("GET", f"{running.path}/wait?{query}", 400, "invalid_argument")
    assert running.refresh()["state"] == "running"
    assert running.kill()["outcome"]["type"] == "killed_by_caller"


def test_queries(api):
    for query in ("limit=0", "limit=1001", "limit=-1", "limit=x", "state=alive", "cursor=%00garbage",
                  "cursor=zzz", "surprise=1"):
        api.refused("GET", f"/v1/sandboxes?{query}", 400, "invalid_argument")


def test_file_calls(sandbox):
    table = [
        ("GET", "/files", None, 400), ("GET", "/files?path=", None, 400), ("GET", "/files?path=%00", None, 400),
        ("GET", "/files?path=/etc/passwd&surprise=1", None, 400), ("PUT", "/files?path=/tmp/x&mode=999", b"", 400),
        ("PUT", "/files?path=/tmp/x&mode=rw", b"", 400), ("PUT", "/files?path=/tmp/x&parents=2", b"", 400),
        ("DELETE", "/files?path=/tmp/x&recursive=maybe", None, 400), ("GET", "/files/list?path=/tmp&limit=0", None, 400),
        ("POST", "/files/mkdir", {}, 400), ("POST", "/files/mkdir", {"path": ""}, 400),
        ("POST", "/files/mkdir", {"path": "a\0b"}, 400), ("POST", "/files/mkdir", {"path": "/tmp/a", "mode": 755}, 400),
        ("POST", "/files/mkdir", {"path": "/tmp/a", "path_b64": "YQ=="}, 400), ("POST", "/files/move", {"from": "/a"}, 400),
        ("POST", "/files/mkdir", {"path_b64": "%"}, 400), ("GET", "/archive", None, 400), ("PUT", "/archive?path=/tmp/x", b"", 400),
    ]
    for method, path, body, status in table:
        options = {} if body is None else {"content": body} if isinstance(body, bytes) else {"json": body}
        answer = sandbox.api.request(method, sandbox.path + path, **options)
        assert answer.status_code == status, (method, path, body, answer.text)
        assert answer.json()["error"]["code"] in ("invalid_argument", "invalid_path"), (method, path, answer.text)
    assert not sandbox.exists("/tmp/x")


def test_oversized_bodies(sandbox):
    huge = json.dumps({"argv": ["true"], "stdin_text": "x" * (100 << 20)}).encode()
    sandbox.api.refused("POST", sandbox.path + "/executions", 413, "payload_too_large", content=huge)
    sandbox.api.refused("POST", "/v1/sandboxes", 413, "payload_too_large", content=b'{"metadata":{"k":"' + b"x" * (100 << 20))
    with raw_connection(sandbox.api) as connection:  # known from its length, refused before it is sent
        connection.sendall(raw_head(sandbox.api, "POST", "/v1/sandboxes", 10**15, ["Content-Type: application/json"]))
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    assert sandbox.ok(["echo", "fine"]) == "fine\n"


def test_unknown_routes_and_methods(api):
    for path in ("/v1/nope", "/v1/sandboxes/x/y/z", "/v9/sandboxes", "/v1"):
        api.refused("GET", path, 404, "route_not_found")
    answer = api.request("PUT", "/v1/sandboxes")
    check_error(answer, 405, "method_not_allowed")
    assert {"GET", "POST"} <= {m.strip() for m in answer.headers["allow"].split(",")}


RAW = {
    "invalid-percent": (b"GET", b"/v1/sandboxes/%zz", 400), "control-character": (b"GET", b"/v1/sand\x01boxes", 400),
    "raw-high-bytes": (b"GET", b"/v1/sandboxes/\xff\xfe", None), "no-slash": (b"GET", b"v1/sandboxes", 400),
    "bad-method": (b"GE T", b"/v1/sandboxes", 400), "long-target": (b"GET", b"/v1/" + b"x" * 100_000, None),
}


@pytest.mark.parametrize("case", RAW)
def test_broken_requests(api, case):
    method, target, status = RAW[case]
    answer, _ = raw_request(api, method.decode(), target)
    assert answer == status if status else 400 <= answer < 500
    assert api.request("GET", "/healthz").status_code == 200


def test_headers_without_end(api):
    answer, _ = raw_request(api, "GET", "/v1/sandboxes", headers=[f"X-{n}: {'y' * 1000}" for n in range(300)])
    assert answer == 431


def test_smuggling_attempts(api):
    for headers in (["Transfer-Encoding: chunked"], ["Content-Length: 5"], ["Transfer-Encoding: identity, chunked"]):
        answer, _ = raw_request(api, "POST", "/v1/sandboxes", b"0\r\n\r\n", headers)
        assert answer == 400, headers


def test_half_requests_disturb_nobody(api):
    for part in (b"", b"GET", b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"):
        with raw_connection(api) as connection:
            connection.sendall(part)
            assert api.request("GET", "/healthz").status_code == 200
    assert api.call("GET", "/v1/sandboxes?limit=1") is not None
