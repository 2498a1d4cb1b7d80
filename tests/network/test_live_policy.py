# SPDX-License-Identifier: Apache-2.0
"""A policy changes under open connections: E13."""

import time

import pytest

import names
from client import eventually
from lab import ALLOWED, SECOND
from networked import ALLOWED_ONLY, CA, NONE, OPEN, allowing

WIDE = allowing({"host": "allowed.test"}, {"host": "second.allowed.test"}, {"cidr": f"{ALLOWED}/32", "ports": [7777], "protocols": ["tcp"]})
CUT = ("eof", "ECONNRESET", "EPIPE", "alert 49", "UNEXPECTED_EOF_WHILE_READING")


def stream_request(host):
    return f"GET /stream HTTP/1.1\r\nHost: {host}\r\n\r\n"


def flows(name, address):
    """Connections that never end by themselves, by TLS and by HTTP."""
    return [{"op": "tls", "to": [address, 443], "sni": name, "verify": CA, "request": stream_request(name), "timeout": 60, "limit": 1 << 26},
            {"op": "tcp", "to": [address, 80], "send": stream_request(name), "timeout": 60, "limit": 1 << 26}]


IDLE_TCP = {"op": "tcp", "to": [ALLOWED, 7777], "send": "x", "timeout": 60}


def wait_for_flows(lab, mark, count):
    return eventually(lambda: (v := [v for v in lab.site.since(mark) if v.sent > (150 if v.port != 7777 else 10) and not v.closed]) and len(v) == count and v, 60,
                      f"{count} connections are open")


@pytest.mark.parametrize("after", [NONE, allowing({"host": "other.test"}), {"egress": "open", "deny": [{"host": "allowed.test"}, {"cidr": f"{ALLOWED}/32"}]}],
                         ids=["none", "another host", "denied"])
def test_e13_open_flows_are_cut_before_the_change_is_acknowledged(networked, lab, after):
    box = networked(WIDE)
    with lab.watch() as seen:
        finish = box.begin(*flows("allowed.test", ALLOWED), IDLE_TCP)
        open_visits = wait_for_flows(lab, seen.marks["site"], 3)
        assert box.set_policy(after)["effective"]["egress"] == after["egress"]
        acknowledged = time.time()
        lab.fence()
        mark = lab.uplink.mark()
        eventually(lambda: all(v.closed for v in open_visits), 30, "the servers see the end")
        results = finish()
        lab.fence()
    late = [f for f in lab.uplink.since(mark) if f.payload and not f.payload.startswith(b"fence-")]
    assert not late, late
    for result in results:
        assert result.get("end") in CUT and result["ended"] - acknowledged < 30, result
    assert results[0]["bytes"] > 20 and results[1]["bytes"] > 20
    closed = box.logged(kind="connection", phase="close", host="allowed.test", protocol="tls")
    assert closed[-1]["bytes_in"] > 0
    eventually(lambda: box.network()["usage"]["open_connections"] == 0, 30, "no connection counts as open")


def test_e13_flows_that_stay_allowed_live_on(networked, lab):
    box = networked(WIDE)
    mark = lab.site.mark()
    finish = box.begin(*flows("second.allowed.test", SECOND), *flows("allowed.test", ALLOWED))
    wait_for_flows(lab, mark, 4)
    box.set_policy(allowing({"host": "second.allowed.test"}))
    eventually(lambda: len([v for v in lab.site.since(mark) if v.closed and v.address == ALLOWED]) == 2, 30, "the others are cut")
    time.sleep(0.3)
    alive = [v for v in lab.site.since(mark) if v.address == SECOND]
    before = [v.sent for v in alive]
    eventually(lambda: all(v.sent > b + 50 for v, b in zip(alive, before)), 30, "data still flows to the host that stays allowed")
    box.set_policy(NONE)
    finish()


def test_e13_the_next_request_of_a_connection_meets_the_new_policy(networked, lab):
    box = networked(allowing({"host": "allowed.test", "ports": [80], "protocols": ["http"], "paths": ["/a", "/b", "/wait"]}))
    request = lambda path: f"GET {path} HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
    mark = lab.site.mark()
    turns = [[request("/a"), "http"]] + [[request("/b"), "http"]] * 400
    finish = box.begin({"op": "talk", "to": [ALLOWED, 80], "timeout": 3, "turns": turns[:1] + [["", "never"]]},
                       {"op": "loop", "seconds": 120, "stop": "/tmp/stop", "gap": 0.02, "task": {"op": "talk", "to": [ALLOWED, 80], "turns": turns[:3]}})
    eventually(lambda: len([r for v in lab.site.since(mark) for r in v.requests if r[1] == "/b"]) > 3, 60, "requests flow")
    box.set_policy(allowing({"host": "allowed.test", "ports": [80], "protocols": ["http"], "paths": ["/a"]}))
    lab.fence()
    changed = lab.uplink.mark()
    denied = lambda: [e for e in box.log() if e.get("host") == "allowed.test" and e["verdict"] == "denied"]
    eventually(lambda: len(denied()) >= 3, 60, "requests go on, and are denied")
    box.tell("/tmp/stop")
    finish()
    lab.fence()
    late = [f for f in lab.uplink.since(changed) if b"GET /b" in f.payload]
    assert not late, late


def test_e13_a_handshake_under_way_meets_the_new_policy(networked, lab):
    import hello
    from networked import b64, received
    box = networked(ALLOWED_ONLY)
    message = hello.records(hello.client_hello("allowed.test"))
    with lab.watch() as seen:
        finish = box.begin({"op": "tcp", "to": [ALLOWED, 443], "pieces_b64": [b64(message[:80]), b64(message[80:])], "then": "/tmp/go", "limit": 64},
                           {"op": "tcp", "to": [ALLOWED, 80], "pieces_b64": [b64(b"GET / HTTP/1.1\r\nHost: allo"), b64(b"wed.test\r\n\r\n")], "then": "/tmp/go", "idle": 1})
        eventually(lambda: box.network()["usage"]["open_connections"] >= 2, 30, "both connections are there")
        box.set_policy(NONE)
        box.tell("/tmp/go")
        results = finish()
    assert not hello.is_server_hello(received(results[0])) and '"site"' not in results[1]["received"], results
    seen.assert_silent()


def test_e13_names_and_addresses_of_before_do_not_stay_open(networked, lab):
    lab.names.script("pinned.hostile.test", names.Answer([("A", SECOND)], ttl=3600))
    box = networked(allowing({"host": "pinned.hostile.test", "ports": [7777], "protocols": ["tcp"]}))
    echo = {"op": "tcp", "to": [SECOND, 7777], "send": "ping", "until": "ping"}
    assert box.one(op="resolve", name="pinned.hostile.test")["addresses"] == [SECOND]
    assert box.one(**echo)["received"].endswith("ping")
    box.set_policy(NONE)
    with lab.watch() as seen:
        name, connection = box.attempt({"op": "resolve", "name": "pinned.hostile.test"}, echo)
    assert name["error"] and not connection.get("received"), (name, connection)
    seen.assert_silent()
    box.set_policy(OPEN)
    assert box.one(**echo)["received"].endswith("ping"), "loosening holds at once too"


def test_e13_changes_in_quick_succession_end_in_the_last_one(networked, lab):
    import concurrent.futures
    box = networked(ALLOWED_ONLY)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(box.set_policy, [NONE, OPEN, ALLOWED_ONLY] * 10))
    box.set_policy(NONE)
    with lab.watch() as seen:
        assert not box.one(**{**flows("allowed.test", ALLOWED)[0], "limit": 100}).get("handshake")
    seen.assert_silent()
    assert box.network()["policy"]["egress"] == "none"
