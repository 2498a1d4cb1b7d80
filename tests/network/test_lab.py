# SPDX-License-Identifier: Apache-2.0
"""The lab itself works: what the other tests call silence would be seen if it were not."""

import base64
import json
import socket
import ssl
import struct

import pytest

import hello
import names
import test_tls_http
import wire
from client import eventually
from lab import ALLOWED, ALLOWED6, ATTACKER, ATTACKER6, HOST, RESOLVER, SECOND
from networked import PROBE, b64

SPECIAL = ["10.9.0.9", "192.168.7.7", "172.16.5.5", "100.64.0.1", "169.254.169.254", "169.254.170.2", "168.63.129.16", "8.8.8.8", "198.18.0.1",
           "240.0.0.1", "192.0.0.192", "203.0.113.5"]


def datagram(namespace, address, port, data=b"control", seconds=30):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with namespace, socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.settimeout(seconds)
        sock.sendto(data, (address, port))
        return sock.recvfrom(65536)


def connect(namespace, address, port):
    with namespace:
        return socket.create_connection((address, port), timeout=30)


def resolve(lab, name, kind="A", over_tcp=False, seconds=30):
    message = names.query(name, kind)
    if not over_tcp:
        return datagram(lab.host, RESOLVER, 53, message, seconds)[0]
    with connect(lab.host, RESOLVER, 53) as sock:
        sock.sendall(struct.pack("!H", len(message)) + message)
        return sock.recv(65536)[2:]


@pytest.mark.parametrize("address", [ATTACKER, ATTACKER6, "2001:4860:4860::8888", "fd00:ec2::254", *SPECIAL])
def test_attacker_sees_what_the_host_sends_to_any_address(lab, address):
    with lab.watch() as seen:
        assert datagram(lab.host, address, 9999)[1][0] == address
        with connect(lab.host, address, 443):
            pass
    assert {(f.dst, f.protocol) for f in seen.at_attacker} >= {(address, wire.UDP), (address, wire.TCP)}
    assert {(address, 9999), (address, 443)} <= seen.destinations
    assert {(v.address, v.port) for v in seen.attacker_visits} >= {(address, 9999)}
    with pytest.raises(AssertionError):
        seen.assert_silent()
    with pytest.raises(AssertionError):
        seen.assert_only({(address, 443), (address, 9999)})  # listed or not: the attacker saw it


def test_attacker_sees_icmp_and_odd_protocols(lab):
    with lab.watch() as seen, lab.host:
        for protocol, packet in ((wire.ICMP, wire.icmp(8, b"payload")), (wire.SCTP, b"\0\x50\0\x50" + b"\0" * 8), (47, b"\0" * 8)):
            with socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol) as sock:
                sock.sendto(packet, ("10.9.0.9", 0))
    assert {f.protocol for f in seen.at_attacker if f.dst == "10.9.0.9"} == {wire.ICMP, wire.SCTP, 47}


def test_a_container_beside_the_daemon_would_get_out(lab):
    """The host forwards and masquerades: what keeps sandboxes in is not the lab."""
    from netns import Namespace
    space = Namespace.new("beside")
    try:
        lab.host.ip(f"link add beside type veth peer name eth0 netns {space.path}", "address add 172.31.0.1/30 dev beside", "link set beside up")
        space.ip("address add 172.31.0.2/30 dev eth0", "link set eth0 up", "route add default via 172.31.0.1")
        with lab.watch() as seen:
            datagram(space, ATTACKER, 9999, b"from beside")
        assert [f.src for f in seen.at_attacker if f.payload == b"from beside"] == [HOST]
    finally:
        lab.host.run("ip", "link", "delete", "beside", check=False)
        space.close()


def test_services_of_the_host_see_who_comes(lab):
    with lab.watch() as seen:
        for address in ("127.0.0.1", HOST):
            with connect(lab.host, address, 80) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert b'"site": "host"' in sock.recv(65536)
    assert {(v.address, v.port) for v in seen.host_visits} == {("127.0.0.1", 80), (HOST, 80)}
    assert {f.dst for f in seen.to_host} == {"127.0.0.1", HOST}
    assert not seen.left
    with pytest.raises(AssertionError):
        seen.assert_silent()


@pytest.mark.parametrize("address", [ALLOWED, SECOND, ALLOWED6])
def test_allowed_host_answers_on_all_its_ports(lab, address):
    with lab.watch() as seen:
        for port in lab.site.ECHO:
            with connect(lab.host, address, port) as sock:
                assert sock.recv(100) == b"220 allowed\r\n"
        for port in lab.site.UDP:
            assert datagram(lab.host, address, port)[0] == b"control"
    assert {v.port for v in seen.visits} == set(lab.site.ECHO + lab.site.UDP)
    seen.assert_only({(address, port) for port in lab.site.ECHO + lab.site.UDP})


@pytest.mark.parametrize("site, address, name", [("allowed", ALLOWED, "allowed.test"), ("attacker", ATTACKER, "evil.test"),
                                                 ("attacker", "8.8.8.8", "deep.evil.test")])
def test_tls_servers_have_certificates_that_hold_and_note_the_name(lab, site, address, name):
    context = ssl.create_default_context(cafile=lab.authority.certificate)
    with lab.watch() as seen, connect(lab.host, address, 443) as plain, context.wrap_socket(plain, server_hostname=name) as sock:
        sock.sendall(b"GET /hello HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % name.encode())
        assert f'"site": "{site}"'.encode() in sock.recv(65536)
    visit = (seen.visits + seen.attacker_visits)[0]
    assert (visit.address, visit.port, visit.sni) == (address, 443, name)
    assert visit.requests[0][:2] == ("GET", "/hello")


def test_resolver_answers_and_writes_down(lab):
    with lab.watch() as seen:
        for over_tcp in (False, True):
            assert socket.inet_aton(ALLOWED) in resolve(lab, "allowed.test", over_tcp=over_tcp)
        assert socket.inet_aton(ATTACKER) in resolve(lab, "some.data.evil.test")
        assert resolve(lab, "nothing.test")[3] & 15 == names.NXDOMAIN
    assert [(q.name, q.kind, q.over_tcp) for q in seen.queries] == [
        ("allowed.test", 1, False), ("allowed.test", 1, True), ("some.data.evil.test", 1, False), ("nothing.test", 1, False)]
    with pytest.raises(AssertionError):
        seen.assert_silent()
    with pytest.raises(AssertionError):
        seen.assert_only(names={"allowed.test"})
    with pytest.raises(AssertionError):
        seen.assert_secret_stayed(b"SOME")


def test_resolver_follows_its_script(lab):
    lab.names.cycle("turns.hostile.test", [("A", ALLOWED)], [("A", "127.0.0.1")])
    answers = [resolve(lab, "turns.hostile.test") for _ in range(4)]
    assert [socket.inet_aton("127.0.0.1") in answer for answer in answers] == [False, True, False, True]
    lab.names.script("once.hostile.test", names.Answer(rcode=names.SERVFAIL), names.Answer([("CNAME", "internal.test")]))
    assert resolve(lab, "once.hostile.test")[3] & 15 == names.SERVFAIL
    assert all(names.encode_name("internal.test") in resolve(lab, "once.hostile.test") for _ in range(2))
    lab.names.script("big.hostile.test", names.Answer([("A", f"45.10.0.{n}") for n in range(256)], truncated=True))
    assert resolve(lab, "big.hostile.test")[2] & 2
    assert len(resolve(lab, "big.hostile.test", over_tcp=True)) > 4000
    lab.names.script("silent.hostile.test", names.Answer(silent=True))
    with pytest.raises(TimeoutError):
        resolve(lab, "silent.hostile.test", seconds=1)


def test_frames_made_by_hand_are_seen_as_they_are(lab):
    injector = wire.Injector(lab.host, "eth0")
    datagram(lab.host, ATTACKER6, 9999)  # so that all neighbours know each other
    lab.fence()
    gateway = lab.host.run("ip", "neigh", "show", "45.0.0.1").split()[4]
    put = lambda packet, **more: injector.send(wire.ethernet(gateway, injector.mac, packet, **more))
    with lab.watch() as seen:
        put(wire.ipv4("45.0.0.77", ATTACKER, wire.TCP, wire.tcp("45.0.0.77", ATTACKER, 4000, 443)))
        put(wire.ipv4(HOST, ATTACKER, wire.UDP, wire.udp(HOST, ATTACKER, 4000, 9999, b"options"), options=b"\x07\x07\x04\0\0\0\0"))
        put(wire.ipv4(HOST, ATTACKER, wire.UDP, wire.udp(HOST, ATTACKER, 4001, 9999, b"f" * 24)[:16], fragment=0x2000))
        put(wire.ipv6(HOST6 := "2a00:45::2", ATTACKER6, wire.ICMPV6, wire.icmpv6(HOST6, ATTACKER6, 128, b"\0\1\0\1ping")), ethertype=wire.ETH_IPV6)
        injector.send(wire.ethernet(gateway, injector.mac, wire.ipv4(HOST, ATTACKER, 253, b"tagged"), vlans=[5]))
        eventually(lambda: any(v.data == b"options" for v in lab.evil_site.since(seen.marks["evil_site"])), 30, "the server got the datagram with options")
        lab.at_attacker.wait_for(b"\0\1\0\1ping")
    injector.close()
    assert any(f.src == "45.0.0.77" and f.flags == wire.SYN for f in seen.at_attacker)
    assert any(v.data == b"options" for v in seen.attacker_visits)
    assert any(f.sport == 4001 for f in seen.at_attacker)
    assert any(f.protocol == wire.ICMPV6 for f in seen.at_attacker)
    assert any(f.protocol == 253 for f in seen.left)


# What the probe reports where nothing is in its way ----------------------------------------------------------------------------
@pytest.fixture
def probe(lab, tmp_path):
    def run(*tasks):
        (tmp_path / "tasks").write_text(json.dumps(tasks))
        lab.host.run("/usr/bin/python3", str(PROBE), str(tmp_path / "tasks"), str(tmp_path / "results"))
        return json.loads((tmp_path / "results").read_text())
    return run


def test_probe_gets_through_where_nothing_is_in_its_way(lab, probe):
    ca, request = str(lab.authority.certificate), "GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"
    with lab.watch() as seen:
        tls, plain, talk, udp, icmp, name, over_tcp, held, looped = probe(
            {"op": "tls", "to": [ATTACKER, 443], "sni": "evil.test", "verify": ca, "request": request},
            {"op": "tcp", "to": ["10.9.0.9", 80], "send": request},
            {"op": "talk", "to": [ALLOWED, 80], "turns": [[request.replace("Connection: close\r\n", ""), "http"]] * 3},
            {"op": "udp", "to": ["169.254.169.254", 9999], "send": "hello"},
            {"op": "raw", "to": [ATTACKER, 0], "protocol": 132, "send": "hello"},
            {"op": "dns", "to": [RESOLVER, 53], "query_b64": b64(names.query("allowed.test"))},
            {"op": "dns", "to": [RESOLVER, 53], "query_b64": b64(names.query("x.evil.test")), "over_tcp": True},
            {"op": "hold", "to": [ALLOWED, 7777], "count": 20, "seconds": 1, "send": "x"},
            {"op": "loop", "seconds": 1, "at_least": 4, "task": {"op": "tcp", "to": [ALLOWED, 7777], "send": "y", "until": "y"}})
    assert '"site": "attacker"' in tls["received"] and tls["handshake"]
    assert '"site": "attacker"' in plain["received"] and plain["end"] == "eof"
    assert [a["end"] for a in talk["answers"]] == ["until"] * 3 and all('"site": "allowed"' in a["received"] for a in talk["answers"])
    assert udp["answered"] and udp["received"] == "hello" and icmp["sent"]
    assert (name["rcode"], name["answer_count"], over_tcp["rcode"], over_tcp["answer_count"]) == (0, 1, 0, 1)
    assert (held["opened"], held["alive"]) == (20, 20)
    assert len(looped["outcomes"]) > 3 and all(o[2] == "good" for o in looped["outcomes"])
    assert {f.dst for f in seen.at_attacker} == {ATTACKER, "10.9.0.9", "169.254.169.254"}


def test_odd_hellos_are_good_ones_for_a_server(lab, probe):
    """Handled wrongly they would come through: OpenSSL takes them."""
    cases = {**test_tls_http.good_hellos(), **{k: v for k, v in test_tls_http.bad_hellos().items() if k in (
        "another name", "another name in 20 segments", "another name over 2 records", "none", "suffix", "ECH with another name outside")}}
    results = dict(zip(cases, probe(*[{**task, "to": [ATTACKER, 443]} for task in cases.values()])))
    for label, result in results.items():
        assert hello.is_server_hello(base64.b64decode(result["received_b64"])), (label, result)


def test_requests_that_disagree_with_themselves_do_reach_a_server(lab, probe):
    """The servers of the lab are lenient: a request passed on would be written down."""
    with lab.watch() as seen:
        probe(*[{"op": "tcp", "to": [ATTACKER, 80], "send": head, "timeout": 1} for head in test_tls_http.DISAGREE.values()])
        visits = lambda: lab.evil_site.since(seen.marks["evil_site"])
        eventually(lambda: all(head.encode("latin-1") in b"".join(v.data for v in visits()) for head in test_tls_http.DISAGREE.values()), 30,
                   "the server got all of them")
        eventually(lambda: {"evil.test", "allowed.test"} <= {value for v in visits() for r in v.requests for key, value in r[2] if key == "host"}, 30,
                   "the server read them as requests")


def test_limits_of_the_lab_are_above_those_of_the_tests(lab, probe):
    held, = probe({"op": "hold", "to": [ALLOWED, 443], "count": 600, "seconds": 3, "send": "\x16"})
    assert held["opened"] == 600, held


def test_streams_flow_until_somebody_ends_them(lab, probe):
    mark = lab.site.mark()
    request = "GET /stream HTTP/1.1\r\nHost: allowed.test\r\n\r\n"
    plain, tls = probe({"op": "tcp", "to": [ALLOWED, 80], "send": request, "limit": 500},
                       {"op": "tls", "to": [ALLOWED, 443], "sni": "allowed.test", "request": request, "limit": 500})
    assert plain["end"] == tls["end"] == "limit"
    eventually(lambda: all(v.closed for v in lab.site.since(mark)), 30, "the servers see the end")
