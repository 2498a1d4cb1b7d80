# SPDX-License-Identifier: Apache-2.0
"""What schemathesis cannot know: objects that exist, and which server errors are honest."""

import atexit
import collections
import itertools
import json
import os
import urllib.request

import schemathesis

URL, KEY = os.environ["GLOVEBOX_URL"], os.environ["GLOVEBOX_ADMIN_KEY"]
# What a sandbox, the host or this version cannot do. Others (internal, io, corrupt, start_failed, agent_protocol) are faults of ours.
HONEST_ERRORS = {"unsupported", "preview_unreachable", "disk_full", "memory_limit", "unavailable", "timeout"}
EVERY = 4  # one call of so many keeps the ids that were made up


def call(method, path, body=None):
    request = urllib.request.Request(URL + path, method=method, data=None if body is None else json.dumps(body).encode(),
                                     headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)
    except urllib.error.HTTPError:
        return None


class Live:
    """A sandbox with an execution that has ended and one that reads, made anew when it has ended."""

    def __init__(self):
        self.sandbox = self.ended = self.reading = self.snapshot = self.volume = None

    def refresh(self):
        info = self.sandbox and call("GET", f"/v1/sandboxes/{self.sandbox}")
        if not info or info["state"] not in ("ready", "paused"):
            made = call("POST", "/v1/sandboxes", {"metadata": {"fuzz": "live"}})
            if not made:  # as many as there may be
                others = (call("GET", "/v1/sandboxes?state=ready&limit=1") or {}).get("sandboxes")
                made = others[0] if others else None
            self.sandbox = made["id"] if made else None
            self.ended = self.start("?wait=true", command="echo out; echo err >&2")
            self.reading = None
        if not self.snapshot or not call("GET", f"/v1/snapshots/{self.snapshot['id']}"):
            self.snapshot = self.sandbox and call("POST", f"/v1/sandboxes/{self.sandbox}/snapshots", {"name": "live"})
        if not self.volume or not call("GET", f"/v1/volumes/{self.volume['id']}"):
            self.volume = call("POST", "/v1/volumes", {"name": f"live-{next(counter)}", "size_mb": 16})
        reading = self.reading and call("GET", f"/v1/sandboxes/{self.sandbox}/executions/{self.reading['id']}")
        if not reading or reading["state"] == "ended":
            self.reading = self.start("", command="cat > /dev/null", stdin=True, pty={})

    def start(self, query, **spec):
        return self.sandbox and call("POST", f"/v1/sandboxes/{self.sandbox}/executions{query}", spec)


live = Live()
counter = itertools.count()
PATHS = itertools.cycle(["/tmp", "/etc/passwd", "made", "/tmp/made", "/home/user/.", "/proc/self/status", "/dev/null"])
NO_DIRECTORIES = itertools.cycle(["/etc/passwd", "no-such", "/dev/null"])
NEEDS_RUNNING = ("stdin", "signal", "resize", "kill", "attach", "wait")


def use_what_exists(path, parameters, query, body):
    live.refresh()
    if path.startswith("/v1/snapshots/"):
        parameters["id"] = live.snapshot["id"] if live.snapshot else parameters["id"]
    elif live.sandbox and "id" in parameters:
        parameters["id"] = live.sandbox
    if live.volume and "volume" in parameters:
        parameters["volume"] = live.volume["id"]
    execution = live.reading if path.endswith(NEEDS_RUNNING) else live.ended
    if execution and "eid" in parameters:
        parameters["eid"] = execution["id"]
    if live.reading and "pid" in parameters:
        parameters["pid"] = live.reading["pid"]
    if path.endswith("/files/watch"):  # that of a directory goes on as long as its sandbox
        query["path"] = next(NO_DIRECTORIES)
        return
    for place, names in ((query, ("path",)), (body, ("path", "from", "to"))):
        for name in names:
            if isinstance(place, dict) and isinstance(place.get(name), str):
                place[name] = next(PATHS)


@schemathesis.hook
def before_call(context, case, kwargs):
    parameters, path, query = case.path_parameters or {}, case.operation.path, case.query or {}
    # Without the template there would be nothing left to fuzz.
    if path == "/v1/templates/{name}" and case.method.upper() == "DELETE" and str(parameters.get("name", "")).startswith("base"):
        parameters["name"] = "no-such-template"
    # These wait as long as they are told to.
    for name in ("wait_ms", "timeout_ms"):
        if str(query.get(name, "")).isascii() and str(query.get(name, "")).isdigit() and 1000 < int(query[name]) <= 3_600_000:
            query[name] = 1000
    if path.endswith("/wait"):
        case.query = {"timeout_ms": 100, **query}
    if path.startswith(("/v1/sandboxes/{id}", "/v1/snapshots/{id}", "/v1/volumes/{volume}")) and next(counter) % EVERY != 0:
        use_what_exists(path, parameters, query, case.body)


def holds_null(value):
    if isinstance(value, dict):
        return any(one is None or holds_null(one) for one in value.values())
    return isinstance(value, list) and any(map(holds_null, value))


@schemathesis.hook
def filter_failure(context, failure, case, response):
    # Any header that a client adds is fine, and null is as good as absent.
    if failure.code == "ST201" and ("x-schemathesis-unknown-property" in case.headers or holds_null(case.body)):
        return False
    # A sandbox may have ended, whatever else is wrong with a request.
    if failure.code == "ST201" and response.status_code == 410:
        return False
    # OpenAPI 3.1 has no way to describe the events of a stream; its schema says that it is text.
    return not (failure.code == "ST108" and response.headers.get("content-type", [""])[0].startswith("text/event-stream"))


@schemathesis.check
def honest_server_errors(ctx, response, case):
    if response.status_code < 500:
        return
    error = response.json()["error"]
    assert error["code"] in HONEST_ERRORS, f"{response.status_code} {error['code']}: {error['message']}"


@schemathesis.check
def every_answer_has_a_request_id(ctx, response, case):
    assert "x-request-id" in response.headers, response.headers
    if response.status_code in (429, 503):
        assert int(response.headers["retry-after"][0]) > 0


accepted, calls = collections.Counter(), itertools.count()


@schemathesis.hook
def after_call(context, case, response):
    next(calls)
    if case.method.upper() == case.operation.method.upper():
        accepted[f"{case.method.upper()} {case.operation.path}"] += 200 <= response.status_code < 300


# For `run`, which must know that calls were served, not only refused.
@atexit.register
def report():
    with open(os.environ["GLOVEBOX_FUZZ_ACCEPTED"], "w", encoding="utf-8") as out:
        json.dump({"calls": next(calls), "accepted": accepted}, out)
