# SPDX-License-Identifier: Apache-2.0
"""A thin client for tests: every answer is checked against what docs/reference/api.md promises."""

import contextlib
import json
import os
import socket
import time
import urllib.parse

import httpx
import pytest

LONG = os.environ.get("GLOVEBOX_LONG") == "1"
# For bounds on memory: a sanitizer's own would be measured.
TRUE_MEMORY = os.environ.get("GLOVEBOX_SANITIZED") != "1"
needs_true_memory = pytest.mark.skipif(not TRUE_MEMORY, reason="a sanitizer's memory would be measured")
ERROR_FIELDS = {"code", "message", "hint", "retryable", "fault", "details"}


def scaled(short, full):
    """The amount of work for this run: `full` with GLOVEBOX_LONG=1."""
    return full if LONG else short


class Patience:
    """How much longer things may take on what is tested now: 1 but for an emulated machine."""

    factor = 1

    def __call__(self, seconds):
        return seconds * self.factor


patience = Patience()
# Where nothing else happens all that tests wait for takes a second or two. Machines are shared, and stand still for seconds: what ends a
# wait sooner than this would fail for what others do.
LEAST_WAIT = 40


def eventually(check, seconds=LEAST_WAIT, what="condition"):
    """Polls `check` until it gives something true and returns that. Only for facts that no call waits for."""
    seconds = patience(max(seconds, LEAST_WAIT))
    deadline, pause = time.monotonic() + seconds, 0.02
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what} did not come true in {seconds} s (last: {value!r})"
        time.sleep(pause)
        pause = min(1.1 * pause, 0.1)


def promptly(seconds, work, tries=5):
    """What `work` gives, where it costs no more than `seconds`: other load adds to some of several runs, a fault to every one.

    What `work` asserts has to hold each time, and none of them may take LEAST_WAIT: that would be no load, but something that hangs.
    """
    taken = []
    while not taken or taken[-1] > patience(seconds):
        assert len(taken) < tries, f"took {taken} s, each time more than {patience(seconds)} s"
        begin = time.monotonic()
        value = work()
        taken.append(time.monotonic() - begin)
        assert taken[-1] < patience(LEAST_WAIT), taken
    return value


def whole_lines(content):
    """Those of a file that may be written to: its last line counts once it has an end."""
    return content.split(b"\n" if isinstance(content, bytes) else "\n")[:-1]


def quote(path):
    """Percent-encodes a path, given as text or bytes, for a query."""
    raw = path.encode() if isinstance(path, str) else path
    return urllib.parse.quote_from_bytes(raw, safe="")


def check_error(response, status, code):
    """Asserts the whole error envelope and returns it."""
    assert response.status_code == status, f"{response.status_code} {response.text[:500]}"
    body = response.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert set(error) == ERROR_FIELDS, error
    assert error["code"] == code, error
    assert error["fault"] in ("caller", "sandbox", "platform")
    assert isinstance(error["retryable"], bool) and isinstance(error["details"], dict)
    assert error["message"] and error["hint"]
    assert response.headers.get("x-request-id")
    if status in (429, 503):
        assert int(response.headers["retry-after"]) > 0
    return error


class InPlace(httpx.HTTPTransport):
    """Opens its connections within `place`, a context manager: a network namespace of the test's."""

    def __init__(self, place, **options):
        super().__init__(**options)
        self.place = place

    def handle_request(self, request):
        with self.place:
            return super().handle_request(request)


class Api:
    """One key's view of a daemon."""

    def __init__(self, url, key, timeout=300.0, place=None):
        self.url = url
        self.key = key
        self.seen_ids = set()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        transport = InPlace(place, limits=limits) if place else None
        self.http = httpx.Client(base_url=url, headers=headers, timeout=timeout, limits=limits, transport=transport)

    def request(self, method, path, **options):
        return self.http.request(method, path, **options)

    def call(self, method, path, expect=200, **options):
        """The JSON of an answer that must have status `expect`."""
        response = self.request(method, path, **options)
        assert response.status_code == expect, f"{method} {path}: {response.status_code} {response.text[:800]}"
        assert response.headers.get("x-request-id")
        return response.json()

    def refused(self, method, path, status, code, **options):
        return check_error(self.request(method, path, **options), status, code)

    def create(self, **spec):
        info = self.call("POST", "/v1/sandboxes", expect=201, json=spec)
        self.seen_ids.add(info["id"])
        return Sandbox(self, info)

    def pages(self, path, field, limit):
        """Every item of a paged list, in order."""
        items, cursor = [], None
        while True:
            joint = "&" if "?" in path else "?"
            query = f"{joint}limit={limit}" + (f"&cursor={quote(cursor)}" if cursor else "")
            page = self.call("GET", path + query)
            assert len(page[field]) <= limit
            items += page[field]
            cursor = page["next_cursor"]
            if cursor is None:
                return items
            assert page[field], "an empty page with a cursor would never end"


class Sandbox:
    """A sandbox that the test made."""

    def __init__(self, api, info):
        self.api = api
        self.info = info
        self.id = info["id"]
        self.path = f"/v1/sandboxes/{self.id}"

    def refresh(self):
        self.info = self.api.call("GET", self.path)
        return self.info

    def kill(self):
        return self.api.call("DELETE", self.path)

    def stats(self):
        return self.api.call("GET", self.path + "/stats")

    # Executions ---------------------------------------------------------------------------------------------------
    def run(self, program, **spec):
        """Runs to the end and returns the execution; a list is argv, a string is a shell command."""
        return self.api.call("POST", self.path + "/executions?wait=true", json=exec_body(program, spec))

    def ok(self, program, **spec):
        """The standard output of a run that must succeed."""
        done = self.run(program, **spec)
        assert done["outcome"]["type"] == "exited" and done["exit_code"] == 0, done
        return done["stdout"]

    def start(self, program, **spec):
        info = self.api.call("POST", self.path + "/executions", expect=201, json=exec_body(program, spec))
        return Execution(self, info)

    def refuse_run(self, program, status, code, **spec):
        return self.api.refused("POST", self.path + "/executions?wait=true", status, code,
                                json=exec_body(program, spec))

    def processes(self):
        return self.api.call("GET", self.path + "/processes")["processes"]

    def executions(self, query=""):
        return self.api.pages(self.path + "/executions" + query, "executions", 100)

    # Files --------------------------------------------------------------------------------------------------------
    def file_url(self, path, call="files", **query):
        extra = "".join(f"&{key}={quote(str(value))}" for key, value in query.items())
        return f"{self.path}/{call}?path={quote(path)}{extra}"

    def put(self, path, content, **query):
        return self.api.call("PUT", self.file_url(path, **query), content=content)

    def get(self, path, **query):
        response = self.api.request("GET", self.file_url(path, **query))
        assert response.status_code == 200, response.text[:500]
        return response.content

    def stat(self, path, **query):
        return self.api.call("GET", self.file_url(path, "files/stat", **query))

    def ls(self, path, limit=1000, **query):
        return self.api.pages(self.file_url(path, "files/list", **query), "entries", limit)

    def exists(self, path):
        response = self.api.request("GET", self.file_url(path, "files/stat"))
        if response.status_code == 404:
            check_error(response, 404, "file_not_found")
            return False
        assert response.status_code == 200, response.text
        return True


class Execution:
    def __init__(self, sandbox, info):
        self.sandbox = sandbox
        self.api = sandbox.api
        self.info = info
        self.id = info["id"]
        self.path = f"{sandbox.path}/executions/{self.id}"

    def refresh(self):
        return self.api.call("GET", self.path)

    def wait(self, timeout_ms=30_000):
        """The execution, which must have ended within the time."""
        timeout_ms = min(patience(max(timeout_ms, LEAST_WAIT * 1000)), 300_000)
        done = self.api.call("GET", f"{self.path}/wait?timeout_ms={timeout_ms}", timeout=timeout_ms / 1000 + 60)
        assert done["state"] == "ended", done
        return done

    def raw(self, query=""):
        response = self.api.request("GET", f"{self.path}/output?format=raw{query}")
        assert response.status_code == 200, response.text[:500]
        return response

    def output(self, query=""):
        return self.api.call("GET", f"{self.path}/output?format=json{query}")

    def wait_for_output(self, text, seconds=LEAST_WAIT):
        """Long-polls until the output so far contains `text`; returns (all bytes, cursor after them)."""
        deadline = time.monotonic() + patience(max(seconds, LEAST_WAIT))
        data, cursor = b"", 0
        while text not in data:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not appear in {data!r}"
            page = self.output(f"&cursor={cursor}&wait_ms={max(1, min(30_000, int(left * 1000)))}")
            data += b"".join(chunk_bytes(chunk) for chunk in page["chunks"])
            cursor = page["next_cursor"]
            assert page["chunks"] or not page["ended"], f"ended without {text!r}: {data!r}"
        return data, cursor

    def send(self, content, close=False):
        answer = self.api.call("POST", self.path + "/stdin" + ("?close=true" if close else ""), content=content)
        assert answer == {"accepted_bytes": len(content)}

    def signal(self, signal, **fields):
        return self.api.call("POST", self.path + "/signal", json={"signal": signal, **fields})

    def kill(self):
        return self.api.call("POST", self.path + "/kill")

    def sse(self, query="", headers=None):
        """The events of the stream, as dicts with id, event and data, to its end."""
        url = f"{self.path}/output?format=sse{query}"
        with self.api.http.stream("GET", url, headers=headers or {}) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            yield from parse_sse(response.iter_lines())


def exec_body(program, spec):
    return {("argv" if isinstance(program, list) else "command"): program, **spec}


def chunk_bytes(chunk):
    import base64
    assert ("data" in chunk) != ("data_b64" in chunk) or "dropped_bytes" in chunk, chunk
    if "dropped_bytes" in chunk:
        return b""
    return chunk["data"].encode() if "data" in chunk else base64.b64decode(chunk["data_b64"], validate=True)


def parse_sse(lines):
    event = {}
    for line in lines:
        line = line.rstrip("\r\n")
        if not line:
            if event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value[1:] if value.startswith(" ") else value
            event[name] = json.loads(value) if name == "data" else value


@contextlib.contextmanager
def raw_connection(api):
    """A plain socket to the daemon, for requests that a client library would not send."""
    target = urllib.parse.urlsplit(api.url)
    with socket.create_connection((target.hostname, target.port), timeout=120) as connection:
        yield connection


def raw_request(api, method, target, body=b"", headers=()):
    """(status, body bytes) for a request whose target bytes are sent as they are."""
    with raw_connection(api) as connection:
        connection.sendall(raw_head(api, method, target, len(body), headers) + body)
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
    head, _, content = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 "), data[:200]
    return int(head.split(b" ", 2)[1]), content


def raw_head(api, method, target, length, headers=()):
    target = target.encode() if isinstance(target, str) else target
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target), b"Host: localhost",
             b"Authorization: Bearer " + api.key.encode(), b"Connection: close", b"Content-Length: %d" % length]
    return b"\r\n".join(lines + [h.encode() for h in headers]) + b"\r\n\r\n"
