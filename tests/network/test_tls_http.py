# SPDX-License-Identifier: Apache-2.0
"""What TLS and HTTP claim decides nothing alone: E04, E05, E06, E07, C36."""

import os

import pytest

import hello
from client import eventually
from lab import ALLOWED, ATTACKER, SECOND
from networked import ALLOWED_ONLY, CA, NONE, OPEN, allowing, b64, received

WAYS_IN = {(ALLOWED, 443), (ALLOWED, 80)}


def get(host, target="/", *more, version="1.1"):
    return "".join(f"{line}\r\n" for line in [f"GET {target} HTTP/{version}", f"Host: {host}", *more]) + "\r\n"


def http(head, address=ATTACKER, port=80, **fields):
    return {"op": "tcp", "to": [address, port], "send": head, "idle": 2, **fields}


def raw(message, address=ATTACKER, port=443, pieces=None, **fields):
    return {"op": "tcp", "to": [address, port], "pieces_b64": [b64(p) for p in pieces or [message]], "limit": 64, **fields}


def tls(name, address=ATTACKER, port=443, **fields):
    return {"op": "tls", "to": [address, port], "sni": name, "verify": CA,
            "request": get(name or "x", "/", "Connection: close"), **fields}


def hosts_seen(visits):
    return {value for v in visits for n in range(len(v.requests)) for value in v.headers("host", n)}


@pytest.mark.parametrize("address", [ATTACKER, "10.9.0.9", "169.254.169.254", "8.8.8.8", SECOND])
def test_e04_c36_the_name_decides_where_it_goes_not_the_address(networked, lab, address):
    """An allowed name at another's address: the connection goes to the name's own address."""
    box = networked(ALLOWED_ONLY)
    with lab.watch() as seen:
        by_tls, by_http, by_hello = box.attempt(tls("allowed.test", address), http(get("allowed.test", "/x", "Connection: close"), address),
                                                raw(hello.records(hello.client_hello("allowed.test")), address))
    seen.assert_only(WAYS_IN, {"allowed.test"})
    for result in (by_tls, by_http):
        assert '"site": "allowed"' in result.get("received", "") or not received(result) or "egress_denied" in result["received"], result
    assert {v.address for v in seen.visits} <= {ALLOWED}
    assert hello.is_server_hello(received(by_hello)) or not by_hello["bytes"] or hello.alert_of(received(by_hello)), by_hello


@pytest.mark.microvm
def test_an_allowed_host_works_by_tls_and_http(networked, lab):
    """The control of this file: at its own address, verified, with the libraries that agents use."""
    box = networked(ALLOWED_ONLY)
    with lab.watch() as seen:
        for url in ("https://allowed.test/a", "http://allowed.test/b"):
            code, text = box.curl(url)
            assert code == 0 and '"site": "allowed"' in text, (code, text)
        python = box.ok(["python3", "-c", "import ssl, urllib.request as u\n"
                         f"print(u.urlopen('https://allowed.test/c', context=ssl.create_default_context(cafile='{CA}')).read().decode())"])
        assert '"sni": "allowed.test"' in python
    seen.assert_only(WAYS_IN, {"allowed.test"})
    assert [v.requests[0][1] for v in seen.visits] == ["/a", "/b", "/c"]
    opened = box.logged(kind="connection", host="allowed.test", verdict="allowed", protocol="tls", phase="open")
    closed = box.logged(kind="connection", phase="close", flow=opened[0]["flow"])[0]
    assert opened[0]["rule"] == "allow[0]" and opened[0]["address"] == ALLOWED and opened[0]["port"] == 443
    assert closed["bytes_out"] > 200 and closed["bytes_in"] > 200, closed


def test_large_bodies_pass_unchanged_both_ways(networked, lab):
    box = networked(ALLOWED_ONLY)
    size = 8 << 20
    for scheme in ("https", "http"):
        assert box.curl("-o", "/tmp/body", f"{scheme}://allowed.test/bytes/{size}")[0] == 0
        assert box.ok("sha256sum < /tmp/body; head -c %d /dev/zero | tr '\\0' x | sha256sum" % size).split()[::2] == [
            box.ok("sha256sum < /tmp/body").split()[0]] * 2
        mark = lab.site.mark()
        assert box.curl("--data-binary", "@/tmp/body", f"{scheme}://allowed.test/upload")[0] == 0
        assert lab.site.since(mark)[0].requests[0][0] == "POST"
    counted = lambda: min(box.network()["usage"][way] for way in ("bytes_in", "bytes_out")) >= 2 * size
    eventually(counted, 30, "all of it counts as used")


# E05 --------------------------------------------------------------------------------------------------------------------------
def split(data, count):
    step = max(1, len(data) // count)
    return [data[i:i + step] for i in range(0, step * (count - 1), step)] + [data[step * (count - 1):]]


def good_hellos():
    plain = hello.client_hello("allowed.test")
    return {
        "whole": raw(hello.records(plain)),
        "20 segments": raw(b"", pieces=split(hello.records(plain), 20), gap=0.01),
        "byte by byte at the start": raw(b"", pieces=[*split(hello.records(plain)[:12], 12), hello.records(plain)[12:]], gap=0.01),
        "2 records": raw(hello.records(plain, 40)),
        "record per byte in the head": raw(hello.records(plain, 1, 2, 3, 4, 5)),
        "2 records in 2 segments": raw(b"", pieces=split(hello.records(plain, 90), 2), gap=0.05),
        "GREASE": raw(hello.records(hello.client_hello("allowed.test", grease=True))),
        "upper case": raw(hello.records(hello.client_hello("ALLOWED.Test"))),
        "long": raw(hello.records(hello.client_hello("allowed.test", last=[hello.extension(21, bytes(9000))]))),
        "name at the end of a long one": raw(hello.records(hello.client_hello("allowed.test", first=[hello.extension(21, bytes(9000))]))),
    }


def bad_hellos():
    odd = lambda **fields: raw(hello.records(hello.client_hello(**fields)))
    first, second = hello.client_hello("allowed.test"), hello.client_hello("evil.test")
    twice = hello.extension(0, hello.server_names("evil.test"))
    return {
        "another name": raw(hello.records(second)),
        "another name in 20 segments": raw(b"", pieces=split(hello.records(second), 20), gap=0.01),
        "another name over 2 records": raw(hello.records(second, 60)),
        "none": raw(hello.records(hello.client_hello())),
        "none, at the allowed address": raw(hello.records(hello.client_hello()), ALLOWED),
        "two names": raw(hello.records(hello.client_hello("allowed.test", "evil.test"))),
        "two extensions": raw(hello.records(hello.client_hello("allowed.test", last=[twice]))),
        "two extensions, other order": raw(hello.records(hello.client_hello("evil.test", last=[hello.extension(0, hello.server_names("allowed.test"))]))),
        "two hellos": raw(hello.records(first[:20]) + hello.records(second)),
        "empty name": odd(sni=hello.server_names("")),
        "no list": odd(sni=b""),
        "NUL in the name": raw(hello.records(hello.client_hello("allowed.test\0.evil.test"))),
        "NUL at the end": raw(hello.records(hello.client_hello("allowed.test\0"))),
        "space": raw(hello.records(hello.client_hello("allowed.test evil.test"))),
        "port in the name": raw(hello.records(hello.client_hello("allowed.test:443"))),
        "address": raw(hello.records(hello.client_hello(ATTACKER))),
        "suffix": raw(hello.records(hello.client_hello("allowed.test.evil.test"))),
        "prefix": raw(hello.records(hello.client_hello("notallowed.test"))),
        "subdomain": raw(hello.records(hello.client_hello("sub.allowed.test"))),
        "list longer than the extension": odd(sni=b"\x01\x00\x00\x00\x0callowed.test"),
        "name of type 1": odd(sni=b"\0\x0f\x01\0\x0callowed.test"),
        "handshake shorter than it is": raw(hello.records(first[:1] + b"\0\0\x30" + first[4:])),
        "record of 0 bytes": raw(b"\x16\x03\x01\0\0" * 40 + hello.records(second)),
        "record too long": raw(b"\x16\x03\x01\xff\xff" + first),
        "SSLv2": raw(b"\x80\x2e\x01\x03\x01" + bytes(43)),
        "application data": raw(hello.records(b"GET / HTTP/1.1", kind=23)),
        "alert first": raw(hello.records(b"\x01\0", kind=21) + hello.records(second)),
        "ECH with another name outside": raw(hello.records(hello.client_hello("evil.test", last=[hello.encrypted_client_hello()]))),
        "half": raw(hello.records(first)[:70], half_close=True),
    }


def test_e05_hellos_in_every_shape_are_decided_by_their_name(networked, lab):
    box = networked(ALLOWED_ONLY)
    cases = good_hellos()
    with lab.watch() as seen:
        results = dict(zip(cases, box.attempt(*cases.values())))
    for label, result in results.items():
        assert hello.is_server_hello(received(result)), (label, result)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    assert len([f for f in seen.visits if f.port == 443]) == len(cases)


def test_e05_hellos_that_say_another_name_or_none_do_not_pass(networked, lab):
    box = networked(ALLOWED_ONLY)
    cases = bad_hellos()
    with lab.watch() as seen:
        results = dict(zip(cases, box.attempt(*cases.values())))
    for label, result in results.items():
        assert not hello.is_server_hello(received(result)) and result.get("end") != "timeout", (label, result)
    seen.assert_only(names={"allowed.test"})
    named = results["another name"]
    assert hello.alert_of(received(named)) == hello.ACCESS_DENIED, named
    eventually(lambda: len([e for e in box.log() if e["kind"] == "connection"]) >= len(cases), 30, "each has its entry in the log")


def test_e05_trailing_dot_and_ech_are_decided_or_refused(networked, lab):
    box = networked(ALLOWED_ONLY)
    cases = [raw(hello.records(hello.client_hello("allowed.test."))),
             raw(hello.records(hello.client_hello("allowed.test", last=[hello.encrypted_client_hello()])))]
    with lab.watch() as seen:
        results = box.attempt(*cases)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    for result in results:
        assert hello.is_server_hello(received(result)) or hello.alert_of(received(result)), result
    verdicts = {e["verdict"] for e in box.logged(kind="connection")}
    assert verdicts <= {"allowed", "denied"}


def test_e05_a_hello_that_never_ends_is_given_up(networked, lab):
    box = networked(ALLOWED_ONLY)
    message = hello.records(hello.client_hello("allowed.test"))
    with lab.watch() as seen:
        stuck, endless = box.attempt(raw(message[:30], timeout=90), raw(b"", pieces=[b"\x16\x03\x01\x40\0" + b"\x01\xff\xff\xff" + bytes(16380)] * 20))
    assert stuck["end"] != "timeout" and stuck["ms"] < 40_000, stuck
    assert endless["end"] != "timeout" or endless["broken"], endless
    seen.assert_silent()


# E06 --------------------------------------------------------------------------------------------------------------------------
def test_e06_each_request_of_a_connection_is_judged(networked, lab):
    box = networked(ALLOWED_ONLY)
    talk = lambda *turns: {"op": "talk", "to": [ALLOWED, 80], "turns": [[t, "http"] for t in turns]}
    with lab.watch() as seen:
        other, back, absolute = box.attempt(
            talk(get("allowed.test", "/1"), get("evil.test", "/2")),
            talk(get("allowed.test", "/3"), get("allowed.test", "/4"), get("sub.allowed.test", "/5")),
            talk(get("allowed.test", "/6"), get("evil.test", "http://evil.test/7")))
    seen.assert_only({(ALLOWED, 80)}, {"allowed.test"})
    for result, good in ((other, 1), (back, 2), (absolute, 1)):
        texts = [a["received"] for a in result["answers"]]
        assert all('"site": "allowed"' in text for text in texts[:good]), texts
        assert len(texts) == good + 1 and texts[good].startswith("HTTP/1.1 403 ") and '"egress_denied"' in texts[good], texts
    assert {r[1] for v in seen.visits for r in v.requests} == {"/1", "/3", "/4", "/6"}
    assert box.logged(kind="request", host="evil.test", verdict="denied") or box.logged(host="evil.test", verdict="denied")


def test_e06_pipelined_requests_are_judged_one_by_one(networked, lab):
    box = networked(ALLOWED_ONLY)
    with lab.watch() as seen:
        result = box.one(**http(get("allowed.test", "/1") + get("evil.test", "/2") + get("allowed.test", "/3", "Connection: close"), ALLOWED))
    text = result["received"]
    assert text.startswith("HTTP/1.1 200 ") and "HTTP/1.1 403 " in text and text.index("200") < text.index("403"), text
    assert hosts_seen(seen.visits) == {"allowed.test"}
    assert "/2" not in {r[1] for v in seen.visits for r in v.requests}
    seen.assert_only({(ALLOWED, 80)}, {"allowed.test"})


DISAGREE = {
    "absolute target of another": "GET http://evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    "absolute target, Host of another": "GET http://allowed.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    "absolute target with another port": "GET http://allowed.test:22/ HTTP/1.1\r\nHost: allowed.test:22\r\n\r\n",
    "user part": "GET http://allowed.test@evil.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    "https target": "GET https://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n",
    "Host twice": "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost: evil.test\r\n\r\n",
    "the same Host twice": "GET / HTTP/1.1\r\nHost: allowed.test\r\nhost: allowed.test\r\n\r\n",
    "Host list": "GET / HTTP/1.1\r\nHost: allowed.test, evil.test\r\n\r\n",
    "folded Host": "GET / HTTP/1.1\r\nHost: allowed.test\r\n evil.test\r\n\r\n",
    "space before the colon": "GET / HTTP/1.1\r\nHost: allowed.test\r\nHost : evil.test\r\n\r\n",
    "NUL in Host": "GET / HTTP/1.1\r\nHost: allowed.test\0.evil.test\r\n\r\n",
    "user part in Host": "GET / HTTP/1.1\r\nHost: allowed.test@evil.test\r\n\r\n",
    "path in Host": "GET / HTTP/1.1\r\nHost: allowed.test/evil.test\r\n\r\n",
    "no Host": "GET / HTTP/1.1\r\nX: y\r\n\r\n",
    "no Host, HTTP/1.0": "GET / HTTP/1.0\r\n\r\n",
    "empty Host": "GET / HTTP/1.1\r\nHost:\r\n\r\n",
    "Host after a bare CR": "GET / HTTP/1.1\r\nHost: allowed.test\rHost: evil.test\r\n\r\n",
    "two lengths": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\nContent-Length: 60\r\n\r\nhello" + get("evil.test"),
    "length and chunks": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get("evil.test"),
    "odd coding": "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + get("evil.test"),
    "coding with a tab": "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding:\x0bchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + get("evil.test"),
    "negative length": "POST / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: -1\r\n\r\n" + get("evil.test"),
    "chunk with a bare line feed": "POST / HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n" + get("evil.test"),
    "HTTP/2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\0\0\0\4\0\0\0\0\0",
    "HTTP/0.9": "GET /\r\n",
    "not HTTP": "SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": "\0" * 64,
}


def test_e06_requests_that_disagree_with_themselves_are_refused(networked, lab):
    box = networked(ALLOWED_ONLY)
    with lab.watch() as seen:
        results = dict(zip(DISAGREE, box.attempt(*[http(head, ALLOWED) for head in DISAGREE.values()])))
    seen.assert_attacker_saw_nothing()
    assert seen.destinations <= {(ALLOWED, 80)} and seen.asked_names <= {"allowed.test"}
    # Some begin with a request that is in order; what follows it must not come through.
    assert hosts_seen(seen.visits) <= {"allowed.test"}, [v.requests for v in seen.visits]
    assert not [v for v in seen.visits if b"evil.test" in v.data], [v.data for v in seen.visits]
    for label, result in results.items():
        answers = [line for line in result["received"].split("\r\n") if line.startswith("HTTP/1.")]
        assert not answers or answers[-1].split()[1] in ("400", "403", "405", "411", "501", "505"), (label, result)
        assert '"site": "attacker"' not in result["received"], (label, result)


def test_e06_c36_connect_must_name_what_is_inside(networked, lab):
    box = networked(ALLOWED_ONLY)
    connect = lambda name, port=443: f"CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n"
    tunnelled = lambda outer, sni, **fields: tls(sni, ALLOWED, 80, connect=connect(outer), **fields)
    with lab.watch() as seen:
        good, other, nameless, plain, ssh, denied, other_port = box.attempt(
            tunnelled("allowed.test", "allowed.test"), tunnelled("allowed.test", "evil.test", verify=None),
            tunnelled("allowed.test", None, verify=None),
            {"op": "talk", "to": [ALLOWED, 80], "turns": [[connect("allowed.test"), "\r\n\r\n"], [get("evil.test"), "http"]]},
            {"op": "talk", "to": [ALLOWED, 80], "timeout": 2, "turns": [[connect("allowed.test"), "\r\n\r\n"], ["SSH-2.0-x\r\n", ""]]},
            http(connect("evil.test"), ALLOWED), http(connect("allowed.test", 22), ALLOWED))
    seen.assert_only(WAYS_IN, {"allowed.test"})
    assert good["handshake"] and '"site": "allowed"' in good["received"], good
    for result in (other, nameless):
        assert not result.get("handshake"), result
    assert '"site"' not in str([a["received"] for a in plain["answers"][1:]]), plain
    assert not [v for v in seen.visits if v.data.startswith(b"SSH")], ssh
    for result in (denied, other_port):
        assert result["received"].startswith("HTTP/1.1 403 ") and '"egress_denied"' in result["received"], result
    assert [v.sni for v in seen.visits if v.requests] == ["allowed.test"]


def test_e06_an_upgrade_to_h2c_does_not_take_the_connection_out_of_sight(networked, lab):
    box = networked(ALLOWED_ONLY)
    upgrade = get("allowed.test", "/upgrade", "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
    with lab.watch() as seen:
        result = box.one(**http(upgrade + get("evil.test"), ALLOWED))
    assert "101 Switching" not in result["received"], result
    assert not [v for v in seen.visits if any("h2c" in h for h in v.headers("upgrade"))], seen.visits[0].requests
    assert not [v for v in seen.visits if b"evil.test" in v.data]
    seen.assert_only({(ALLOWED, 80)}, {"allowed.test"})


def test_a_websocket_to_an_allowed_host_works(networked, lab):
    box = networked(ALLOWED_ONLY)
    upgrade = get("allowed.test", "/upgrade", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                  "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
    result = box.one(op="talk", to=[ALLOWED, 80], turns=[[upgrade, "220 allowed\r\n"], ["\x81\x85\1\2\3\4abcde", "abcde"]])
    assert result["answers"][0]["received"].startswith("HTTP/1.1 101 "), result
    assert result["answers"][1]["end"] == "until", result


# E07 --------------------------------------------------------------------------------------------------------------------------
def test_e07_only_the_ports_and_protocols_of_the_rule(networked, lab):
    box = networked(ALLOWED_ONLY)
    box.one(op="resolve", name="allowed.test")
    tasks = {
        "ssh": http("SSH-2.0-x\r\n", ALLOWED, 22), "smtp": http("EHLO x\r\n", ALLOWED, 25), "tls on 8443": tls("allowed.test", ALLOWED, 8443),
        "http on 8080": http(get("allowed.test"), ALLOWED, 8080), "http on 443": http(get("allowed.test"), ALLOWED, 443),
        "tls on 80": tls("allowed.test", ALLOWED, 80), "bytes on 80": http("\x05\x01\x00" * 20, ALLOWED),
        "bytes on 443": http("\x05\x01\x00" * 20, ALLOWED, 443), "ssh on 443": http("SSH-2.0-x\r\n", ALLOWED, 443),
        "silence on 443": http("", ALLOWED, 443, timeout=1), "host with port": http(get("allowed.test:22"), ALLOWED, 80),
        "tls on 22": tls("allowed.test", ALLOWED, 22), "postgres": http("\0\0\0\x08\x04\xd2\x16/", ALLOWED, 5432)}
    with lab.watch() as seen:
        results = dict(zip(tasks, box.attempt(*tasks.values())))
    seen.assert_only(names={"allowed.test"})
    for label, result in results.items():
        assert not result.get("handshake") and '"site"' not in result.get("received", "") and "220 " not in result.get("received", ""), (label, result)
    assert box.logged(kind="connection", port=22, verdict="denied")


def test_e07_other_ports_and_protocols_by_their_rule_only(networked, lab):
    box = networked(allowing({"host": "allowed.test", "ports": [8443], "protocols": ["tls"]}, {"host": "allowed.test", "ports": [8080], "protocols": ["http"]},
                             {"host": "allowed.test", "ports": [25, "7777-7778"], "protocols": ["tcp"]},
                             {"cidr": f"{SECOND}/32", "ports": [22], "protocols": ["tcp"]}))
    echo = lambda address, port: {"op": "tcp", "to": [address, port], "send": "ping\r\n", "until": "ping\r\n"}
    with lab.watch() as seen:
        before = box.one(**echo(ALLOWED, 7777))  # the address is not known to be the name's yet
        box.one(op="resolve", name="allowed.test")
        good = box.attempt(tls("allowed.test", ALLOWED, 8443), http(get("allowed.test:8080", "/", "Connection: close"), ALLOWED, 8080),
                           echo(ALLOWED, 25), echo(ALLOWED, 7778), echo(SECOND, 22))
        bad = box.attempt(tls("allowed.test", ALLOWED), http(get("allowed.test"), ALLOWED), echo(ALLOWED, 22), echo(SECOND, 25), echo(SECOND, 7777),
                          echo(ATTACKER, 7777), echo(ATTACKER, 22), echo("45.10.0.12", 7777))
    assert not before.get("received"), before
    assert '"site": "allowed"' in good[0]["received"] and '"site": "allowed"' in good[1]["received"], good[:2]
    for result in good[2:]:
        assert result["received"] == "220 allowed\r\nping\r\n", result  # the server speaks first
    for result in bad:
        assert not result.get("handshake") and "220 " not in result.get("received", "") and '"site"' not in result.get("received", ""), result
    seen.assert_only({(ALLOWED, 8443), (ALLOWED, 8080), (ALLOWED, 25), (ALLOWED, 7778), (SECOND, 22)}, {"allowed.test"})


def test_methods_and_paths_of_a_rule_hold(networked, lab):
    box = networked(allowing({"host": "allowed.test", "ports": [80], "protocols": ["http"], "methods": ["GET"], "paths": ["/public/*", "/exact"]}))
    request = lambda method, target: http(f"{method} {target} HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", ALLOWED)
    good = [("GET", "/public/a"), ("GET", "/public/a/b?c=/d"), ("GET", "/exact"), ("GET", "/exact?x")]
    bad = [("POST", "/public/a"), ("GET", "/private"), ("GET", "/public/../private"), ("GET", "/public/%2e%2e/private"), ("GET", "/public/..%2fprivate"),
           ("GET", "/public/.%2e/private"), ("GET", "//exact"), ("GET", "/exact/more"), ("GET", "/Public/a"), ("get", "/public/a"), ("OPTIONS", "*"),
           ("GET", "/public/%252e%252e/private"), ("GET", "/public\\..\\private"), ("DELETE", "/exact"), ("GET", "/%70rivate")]
    with lab.watch() as seen:
        results = box.attempt(*[request(*r) for r in good + bad])
    for wanted, result in zip(good, results):
        assert '"site": "allowed"' in result["received"], (wanted, result)
    for wanted, result in zip(bad, results[len(good):]):
        passed_as_it_is = wanted[1] == "/public/%252e%252e/private" and '"site": "allowed"' in result["received"]
        refused = result["received"].split(" ")[1:2] in (["403"], ["400"]) or wanted[0] == "get" and not result["received"]
        assert passed_as_it_is or refused, (wanted, result)
    targets = {r[1] for v in seen.visits for r in v.requests}
    assert targets <= {r[1] for r in good} | {"/public/%252e%252e/private"}, targets


# C36 --------------------------------------------------------------------------------------------------------------------------
def test_c36_deny_wins_over_an_overlapping_allow(networked, lab):
    box = networked(allowing({"host": "*.allowed.test"}, {"host": "allowed.test"}, deny=[{"host": "www.allowed.test"}]))
    with lab.watch() as seen:
        good, deep, denied, denied_http = box.attempt(tls("allowed.test"), tls("second.allowed.test"), tls("www.allowed.test"),
                                                      http(get("www.allowed.test"), ALLOWED))
    assert '"site": "allowed"' in good["received"] and '"site": "allowed"' in deep["received"], (good, deep)
    assert not denied.get("handshake") and '"egress_denied"' in denied_http["received"], (denied, denied_http)
    assert "www.allowed.test" not in seen.asked_names
    assert box.logged(host="www.allowed.test", rule="deny[0]")
    assert '"rule":"deny[0]"' in denied_http["received"].replace(" ", "")


def test_c36_deny_holds_under_open_also_for_addresses(networked, lab):
    box = networked({"egress": "open", "deny": [{"host": "*.evil.test"}, {"host": "evil.test"}, {"cidr": "45.66.0.0/16"}]})
    with lab.watch() as seen:
        good, by_name, by_address = box.attempt(tls("allowed.test"), tls("www.evil.test", verify=None), http("hello", ATTACKER, 7777))
        box.one(op="resolve", name=os.urandom(6).hex() + ".evil.test")
    assert '"site": "allowed"' in good["received"], good
    assert not by_name.get("handshake") and not by_address.get("received"), (by_name, by_address)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})


BAD_POLICIES = {
    "unknown level": {"egress": "some"}, "unknown field": {"egress": "none", "alow": []}, "rules under none": {"egress": "none", "allow": [{"host": "a.test"}]},
    "allow under open": {"egress": "open", "allow": [{"host": "a.test"}]}, "star": allowing({"host": "*"}), "star inside": allowing({"host": "a.*.test"}),
    "star at the end": allowing({"host": "allowed.*"}), "part of a label": allowing({"host": "a*.test"}), "two stars": allowing({"host": "*.*.test"}),
    "top-level": allowing({"host": "*.test"}), "address as host": allowing({"host": "45.66.0.66"}), "decimal host": allowing({"host": "757202498"}),
    "URL as host": allowing({"host": "https://allowed.test"}), "port in host": allowing({"host": "allowed.test:443"}),
    "empty host": allowing({"host": ""}), "label too long": allowing({"host": "a" * 64 + ".test"}), "space": allowing({"host": "a b.test"}),
    "NUL": allowing({"host": "allowed.test\0"}), "neither": allowing({"ports": [80]}), "both": allowing({"host": "a.test", "cidr": "45.0.0.0/8"}),
    "port 0": allowing({"host": "a.test", "ports": [0]}), "port too high": allowing({"host": "a.test", "ports": [65536]}),
    "port as text": allowing({"host": "a.test", "ports": ["443"]}), "empty ports": allowing({"host": "a.test", "ports": []}),
    "range backwards": allowing({"host": "a.test", "ports": ["90-80"]}), "unknown protocol": allowing({"host": "a.test", "protocols": ["quic"]}),
    "udp by name": allowing({"host": "a.test", "ports": [53], "protocols": ["udp"]}), "methods over tls": allowing({"host": "a.test", "methods": ["GET"]}),
    "host bits set": allowing({"cidr": "45.66.0.66/24", "ports": [80], "protocols": ["tcp"]}), "DNS by address": allowing({"cidr": "8.8.8.8/32", "ports": [53], "protocols": ["tcp"]}),
    "twice": allowing({"host": "a.test"}, {"host": "a.test"}), "allow covered by deny": {"allow": [{"host": "a.test"}], "deny": [{"host": "a.test"}]},
    "unknown preset": {"presets": ["everything"]}, "too many": allowing(*[{"host": f"h{n}.test"} for n in range(257)]),
    "negative limit": {"egress": "open", "limits": {"connections": -1}}, "not an object": "open", "list": [],
    "allow is no list": {"egress": "allowlist", "allow": {"host": "a.test"}}, "our own name": allowing({"host": "packages.glovebox.internal"}),
}


@pytest.mark.parametrize("label", BAD_POLICIES)
def test_c36_bad_rules_are_refused_when_set(api, lab, label):
    response = api.request("POST", "/v1/sandboxes", json={"network": BAD_POLICIES[label]})
    if response.status_code == 201:
        api.call("DELETE", f"/v1/sandboxes/{response.json()['id']}")
    assert response.status_code == 400 and response.json()["error"]["code"] == "invalid_argument", response.text
    assert response.json()["error"]["details"].get("field", "").startswith("network"), response.text


def test_c36_a_bad_change_is_refused_and_changes_nothing(networked, lab):
    box = networked(ALLOWED_ONLY)
    before = box.network()
    for policy in (BAD_POLICIES["star"], BAD_POLICIES["unknown field"], BAD_POLICIES["both"]):
        box.api.refused("PUT", box.path + "/network", 400, "invalid_argument", json=policy)
    assert box.network()["policy"] == before["policy"] and box.network()["effective"] == before["effective"]
    assert box.set_policy(NONE)["effective"]["egress"] == "none"
    assert box.set_policy(OPEN)["effective"]["egress"] == "open"


def test_c36_no_proxy_settings_are_needed_and_none_help(networked, lab):
    box = networked(ALLOWED_ONLY)
    ways = ["", "-x http://45.66.0.66:3128", "-x socks5h://45.66.0.66:1080", f"-x http://{box.gateway}:3129", f"--connect-to ::{ATTACKER}:",
            f"--resolve evil.test:443:{ALLOWED}", f"--resolve evil.test:80:{ALLOWED}", "--doh-url https://8.8.8.8/dns-query"]
    calls = [f"curl -sk --max-time 5 {way} {scheme}://evil.test/ > {n}-{scheme}; echo $? > {n}-{scheme}.code" for n, way in enumerate(ways)
             for scheme in ("https", "http")]
    with lab.watch() as seen:
        box.ok("mkdir -p /tmp/ways; cd /tmp/ways; " + " & ".join(f"({call})" for call in calls) + " & wait")
    seen.assert_attacker_saw_nothing()
    assert not seen.queries and seen.destinations <= {(ALLOWED, 443), (ALLOWED, 80)}, (seen.queries, seen.left)
    answers = box.ok("cd /tmp/ways; for code in *.code; do echo \"$code $(cat $code) $(cat ${code%.code})\"; done").splitlines()
    assert len(answers) == len(calls)
    for answer in answers:
        assert answer.split()[1] != "0" or '"egress_denied"' in answer, answer
