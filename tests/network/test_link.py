# SPDX-License-Identifier: Apache-2.0
"""The link lets nothing by but TCP and DNS of its own address, whatever root of the sandbox could make: E08, E11."""

import contextlib
import os
import socket
import time

import pytest

import names
import wire
from client import eventually
from lab import ALLOWED, ATTACKER, RESOLVER, SECOND
from networked import DNS, NONE, OPEN, allowing

TLS_PORT, DNS_PORT = 443, 53


class Forger:
    """Frames on a sandbox's link, from the place of its root."""

    def __init__(self, box):
        self.box = box
        self.box.one(op="tcp", to=[box.gateway, 9], timeout=0.3)  # so that the two ends know each other
        self.injector = wire.Injector(box.namespace, "eth0")
        self.capture = wire.Capture(box.namespace, "eth0")
        self.router = self._router_mac()

    def _router_mac(self):
        """From a frame of the router's, as the sandbox's own kernel may not be the one that knows it."""
        request = wire.arp(1, self.injector.mac, self.box.address, "00:00:00:00:00:00", self.box.gateway)
        for _ in range(1200):
            self.injector.send(wire.ethernet("ff:ff:ff:ff:ff:ff", self.injector.mac, request, ethertype=wire.ETH_ARP))
            time.sleep(0.05)
            for data, outgoing, _ in list(self.capture.frames):
                if not outgoing and data[6:12] != wire.mac(self.injector.mac):
                    return data[6:12].hex(":")
        raise AssertionError("the router does not answer on the link")

    def put(self, packet, source_mac=None, destination_mac=None, **fields):
        self.injector.send(wire.ethernet(destination_mac or self.router, source_mac or self.injector.mac, packet, **fields))

    def let_through(self, seen):
        """Puts a question on the link that is answered, last of all: the name, when our resolver has been asked for it. What was put
        before has been judged by then."""
        name = fresh_name()
        self.put(dns_packet(self.box.address, name))
        self.box.logged(kind="dns", host=name)
        wait_until_asked(seen, name)
        return name

    def close(self):
        self.injector.close()
        self.capture.close()


def wait_until_asked(seen, *wanted):
    eventually(lambda: set(wanted) <= {q.name for q in seen.lab.names.asked(seen.marks["names"])}, 30, f"the resolver is asked for {wanted}")


def is_greeting(frame):
    """Of the connection with which a Forger begins; its last frames may come late."""
    return 9 in (frame.sport, frame.dport)


@pytest.fixture
def forger():
    with contextlib.ExitStack() as stack:
        def make(box):
            made = Forger(box)
            stack.callback(made.close)
            return made
        yield make


def dns_packet(source, name, server=DNS, **fields):
    body = wire.udp(source, server, 4000, DNS_PORT, names.query(name))
    return wire.ipv4(source, server, wire.UDP, body, **fields)


def syn(source, target, sport, port=TLS_PORT, **fields):
    return wire.ipv4(source, target, wire.TCP, wire.tcp(source, target, sport, port), **fields)


def fresh_name():
    return f"x{os.urandom(6).hex()}.evil.test"


def test_frames_with_the_own_address_do_get_through(networked, lab, forger):
    """The control of this file: what is dropped below is not dropped because of how it is made."""
    box = networked(OPEN)
    forge, name = forger(box), fresh_name()
    with lab.watch() as seen:
        forge.put(dns_packet(box.address, name))
        forge.put(dns_packet(box.address, "plain." + name, server="8.8.8.8"))
        forge.put(syn(box.address, ALLOWED, 4001))
        box.logged(kind="dns", host="plain." + name)
        wait_until_asked(seen, name, "plain." + name)
        forge.capture.wait_for(socket.inet_aton(ALLOWED) + socket.inet_aton(box.address))
    assert {name, "plain." + name} <= seen.asked_names
    answers = [f for f in forge.capture.since(incoming_only=True) if f.src == ALLOWED and f.flags == wire.SYN | wire.ACK]
    assert answers, "no SYN+ACK to a SYN made by hand"


def test_e08_udp_and_icmp_are_dropped_whatever_they_hold(networked, lab, forger):
    box = networked(OPEN)
    forge, secret = forger(box), b"s3cr3t" + os.urandom(6).hex().encode()
    quic = bytes([0xC3, 0, 0, 0, 1, 8]) + bytes(8) + b"\0\0\x44\xb0" + secret + bytes(1150)
    targets = [ALLOWED, ATTACKER, "8.8.8.8", RESOLVER, DNS, box.gateway, "224.0.0.251", "255.255.255.255"]
    with lab.watch() as seen:
        results = box.attempt(*[{"op": "udp", "to": [t, p], "send": secret.decode(), "timeout": 1} for t in targets[:5] for p in (443, 123, 9999, 53)],
                              *[{"op": "icmp", "to": [t, 0], "send": secret.decode(), "timeout": 1} for t in targets[:5]])
        for target in targets:
            for port, data in ((443, quic), (53, secret * 8), (53, secret[:5]), (123, secret), (3053, secret), (3129, secret)):
                forge.put(wire.ipv4(box.address, target, wire.UDP, wire.udp(box.address, target, 4000, port, data)))
            for kind in (0, 3, 5, 8, 13):
                forge.put(wire.ipv4(box.address, target, wire.ICMP, wire.icmp(kind, secret)))
        box.logged(kind="packet", protocol="udp", port=443)
    seen.assert_silent()
    seen.assert_secret_stayed(secret)
    assert not [r for r in results if r.get("answered") and r.get("bytes", 0) > 12], results
    assert box.logged(kind="packet", protocol="icmp", verdict="denied")


def test_e08_fragments_and_ip_options_are_dropped(networked, lab, forger):
    box = networked(OPEN)
    forge = forger(box)
    mark = forge.capture.mark()
    options = {"record route": b"\x07\x07\x04" + bytes(4), "loose source route": b"\x83\x07\x04" + socket.inet_aton(ATTACKER),
               "strict source route": b"\x89\x07\x04" + socket.inet_aton(ATTACKER), "timestamp": b"\x44\x0c\x05\0" + bytes(8),
               "router alert": b"\x94\x04\0\0", "nop": b"\x01\x01\x01\x01"}
    asked = [fresh_name() for _ in range(len(options) + 3)]
    with lab.watch() as seen:
        for number, (option, name) in enumerate(zip(options.values(), asked)):
            forge.put(dns_packet(box.address, name, options=option))
            forge.put(syn(box.address, ALLOWED, 5000 + number, options=option))
        for number, name in enumerate(asked[len(options):]):
            datagram = wire.udp(box.address, DNS, 4000, DNS_PORT, names.query(name))
            cut = (8, 16, 24)[number]
            forge.put(wire.ipv4(box.address, DNS, wire.UDP, datagram[:cut], identification=number, fragment=0x2000))
            forge.put(wire.ipv4(box.address, DNS, wire.UDP, datagram[cut:], identification=number, fragment=cut // 8))
        hello = wire.tcp(box.address, ALLOWED, 6000, TLS_PORT)
        for first, second in (((hello[:8], 0x2000), (hello[8:], 1)), ((hello[8:], 1), (hello[:8], 0x2000)), ((hello, 0x2000), (hello, 0x2000))):
            for part, fragment in (first, second):
                forge.put(wire.ipv4(box.address, ALLOWED, wire.TCP, part, identification=77, fragment=fragment))
        control = forge.let_through(seen)
    assert seen.asked_names == {control}
    seen.assert_only(names={control})
    answers = [f for f in forge.capture.since(mark) if f.protocol == wire.TCP and f.flags is not None and f.flags & wire.SYN and not is_greeting(f)]
    assert not answers, answers


def test_e08_a_rule_for_datagrams_is_obeyed_or_refused(api, networked, lab, tier):
    """Never accepted and ignored."""
    policy = allowing({"cidr": f"{SECOND}/32", "ports": [9999], "protocols": ["udp"]})
    answer = api.request("POST", "/v1/sandboxes", json={"runtime": tier, "network": policy})
    if answer.status_code != 201:
        assert answer.json()["error"]["code"] in ("unsupported", "invalid_argument"), answer.text
        return
    api.call("DELETE", f"/v1/sandboxes/{answer.json()['id']}")
    box = networked(policy)
    echo = lambda address, port, **fields: {"op": "udp", "to": [address, port], "send": "ping", **fields}
    with lab.watch() as seen:
        good, port, other = box.attempt(echo(SECOND, 9999), echo(SECOND, 443, timeout=2), echo(ATTACKER, 9999, timeout=2))
    assert good.get("received") == "ping" and not port.get("answered") and not other.get("answered"), (good, port, other)
    seen.assert_only({(SECOND, 9999)})


def test_e11_a_foreign_source_address_is_dropped(networked, lab, forger):
    """Neither to use a sibling's policy nor to hide behind its name."""
    box, sibling = networked(OPEN), networked(OPEN)
    forge, witness = forger(box), forger(sibling)
    mark = witness.capture.mark()
    sources = [sibling.address, sibling.gateway, box.gateway, DNS, "10.200.255.255", ALLOWED, ATTACKER, "127.0.0.1", "0.0.0.0", "255.255.255.255", "224.0.0.1"]
    asked = {source: fresh_name() for source in sources}
    with lab.watch() as seen:
        for number, source in enumerate(sources):
            for hardware in (None, witness.injector.mac, forge.router, "ff:ff:ff:ff:ff:ff"):
                forge.put(dns_packet(source, asked[source]), source_mac=hardware)
                forge.put(syn(source, ALLOWED, 7000 + number), source_mac=hardware)
                forge.put(syn(source, ATTACKER, 7100 + number, 80), source_mac=hardware)
        control = forge.let_through(seen)
    assert seen.asked_names == {control}
    seen.assert_only(names={control})
    assert not [f for f in witness.capture.since(mark) if f.protocol in (wire.TCP, wire.UDP) and not is_greeting(f)], witness.capture.since(mark)
    assert not [e for e in sibling.log() if e["port"] != 9], sibling.log()


def test_e11_a_connection_from_a_siblings_address_does_not_come_about(networked, lab):
    """With the host's own TCP stack on the link, as a sandbox with all rights could have it."""
    box, sibling = networked(NONE), networked(OPEN)
    space = box.namespace
    space.run("ip", "address", "add", f"{sibling.address}/32", "dev", "eth0")
    space.run("ip", "address", "add", f"{box.address}/31", "dev", "eth0", check=False)
    space.run("ip", "route", "replace", "default", "via", box.gateway, "dev", "eth0", "onlink")
    with lab.watch() as seen, space:
        for target in (ALLOWED, ATTACKER):
            with socket.socket() as sock, pytest.raises(OSError):
                sock.settimeout(1)
                sock.bind((sibling.address, 0))
                sock.connect((target, 80))
                sock.sendall(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
                assert not sock.recv(100)
                raise OSError("closed")
    seen.assert_silent()
    assert not sibling.log()


def test_e11_nothing_reaches_a_sibling_or_the_router(networked, lab, forger):
    box, sibling = networked(OPEN), networked(OPEN)
    forge, witness = forger(box), forger(sibling)
    mark, secret = witness.capture.mark(), b"s3cr3t" + os.urandom(6).hex().encode()
    with lab.watch() as seen:
        for target in (sibling.address, "255.255.255.255", "224.0.0.1", sibling.gateway, "10.201.255.255"):
            for hardware in (forge.router, witness.injector.mac, witness.router, "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01"):
                for protocol, body in ((wire.UDP, wire.udp(box.address, target, 9, 7777, secret)), (wire.ICMP, wire.icmp(8, secret)),
                                       (wire.TCP, wire.tcp(box.address, target, 9, 7777, wire.PUSH | wire.ACK, secret))):
                    forge.put(wire.ipv4(box.address, target, protocol, body), destination_mac=hardware)
        box.attempt(*[{"op": "tcp", "to": [a, p], "send": secret.decode(), "timeout": 1} for a in (sibling.address, box.gateway, sibling.gateway)
                      for p in (22, 80, 3053, 3129, 7777)])
        control = forge.let_through(seen)
    seen.assert_only(names={control})
    assert not [f for f in witness.capture.since(mark) if secret in f.data or f.src == box.address], witness.capture.since(mark)


def test_e11_poisoned_neighbours_change_nothing(networked, lab, forger):
    box, sibling = networked(NONE), networked(allowing({"host": "allowed.test"}))
    forge = forger(box)
    claimed = [sibling.address, sibling.gateway, box.gateway, DNS, "10.200.0.1", ALLOWED, RESOLVER]
    for address in claimed:
        for operation, destination in ((1, "ff:ff:ff:ff:ff:ff"), (2, "ff:ff:ff:ff:ff:ff"), (2, forge.router)):
            for sender in (forge.injector.mac, "02:00:00:00:00:66"):
                forge.put(wire.arp(operation, sender, address, forge.router, address), destination_mac=destination, source_mac=sender, ethertype=wire.ETH_ARP)
    mark = forge.capture.mark()
    with lab.watch() as seen:
        code, text = sibling.curl("https://allowed.test/")
    assert code == 0 and '"site": "allowed"' in text, (code, text)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    stray = [f for f in forge.capture.since(mark) if f.dst == sibling.address or f.src == ALLOWED]
    assert not stray, stray


def test_e11_vlan_tags_are_dropped(networked, lab, forger):
    box = networked(OPEN)
    forge = forger(box)
    mark = forge.capture.mark()
    tags = [[1], [5], [4095], [0], [5, 6]]
    asked = [fresh_name() for _ in tags]
    with lab.watch() as seen:
        for number, (vlans, name) in enumerate(zip(tags, asked)):
            forge.put(dns_packet(box.address, name), vlans=vlans)
            forge.put(syn(box.address, ALLOWED, 8000 + number), vlans=vlans)
        control = forge.let_through(seen)
    # Tag 0 is only a priority: the frame is the link's own, and judged as such.
    assert seen.asked_names <= {control, asked[3]}
    assert seen.destinations <= {(RESOLVER, 53)}
    assert {f.dport for f in forge.capture.since(mark) if f.protocol == wire.TCP and not is_greeting(f)} <= {8003}
    seen.assert_attacker_saw_nothing()
