# SPDX-License-Identifier: Apache-2.0
"""UDP, ICMP and everything that is neither TCP nor DNS: dropped and written down, or relayed where a rule names it."""

import os
import socket
import struct
import time

import pytest
from lab import ALLOWED, ATTACKER

UDP_RULE = {"allow": [{"cidr": "45.10.0.0/24", "ports": [7777], "protocols": ["udp"]}]}
PING_RULE = {"allow": [{"cidr": "45.10.0.0/24", "protocols": ["icmp"]}]}


def datagram(space, address, port, data=b"secret"):
    with space, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(data, (address, port))


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def pings(space, address, count, seconds):
    """How many of so many echo requests were answered, by whom they were sent to and with what they held."""
    answered = 0
    with space, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sock:
        sock.settimeout(seconds)
        for number in range(count):
            body = struct.pack(">HH", 4711, number) + os.urandom(16)
            sock.sendto(b"\x08\0" + struct.pack(">H", checksum(b"\x08\0\0\0" + body)) + body, (address, 0))
            try:
                answer, peer = sock.recvfrom(2000)
            except TimeoutError:
                continue
            answered += peer[0] == address and answer[20:21] == b"\0" and answer[24:] == body and checksum(answer[20:]) == 0
    return answered


def packet(protocol, source, destination, body=b"secret", flags=0, options=b""):
    """An IPv4 packet for a raw socket, which fills in the checksum."""
    words = 5 + len(options) // 4
    return struct.pack(">BBHHHBBH4s4s", 0x40 | words, 0, words * 4 + len(body), 1, flags, 64, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(destination)) + options + body


def send_raw(space, data, destination):
    with space, socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sock:
        sock.sendto(data, (destination, 0))


class TestDropped:
    @pytest.mark.parametrize("address, port", [("93.184.216.34", 443), (ATTACKER, 9999), ("10.1.2.3", 5353), ("224.0.0.251", 5353)])
    def test_udp(self, lab, proxy, sandbox, address, port):
        proxy.set_policy(sandbox, {"egress": "open"})
        begin = time.monotonic()
        with lab.watch() as seen:
            datagram(sandbox, address, port)
            logged = proxy.event(kind="packet", protocol="udp", address=address, port=port)
            for _ in range(20):
                datagram(sandbox, address, port)
            time.sleep(0.2)
        seen.assert_silent()
        assert logged["verdict"] == "denied" and logged["how_to_allow"]
        tens = int((time.monotonic() - begin) / 10)  # it is told once in ten seconds
        assert 1 <= len(proxy.events(kind="packet", address=address)) <= 1 + tens

    def test_one_that_tries_everything_does_not_silence_another(self, proxy, sandbox, neighbour):
        for space in (sandbox, neighbour):
            proxy.set_policy(space, {"egress": "open"})
        with sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for number in range(60_000):
                sock.sendto(b"x", (ATTACKER, 1 + number))
                if number % 200 == 0:
                    time.sleep(0.002)  # what comes faster than it is read is lost before anybody sees it
        assert proxy.event(kind="packet", sandbox=f"sb-{sandbox.address}", address=ATTACKER)["verdict"] == "denied"
        time.sleep(0.5)
        datagram(neighbour, ATTACKER, 9999)
        assert proxy.event(kind="packet", sandbox=f"sb-{neighbour.address}", port=9999)["verdict"] == "denied"

    def test_other_protocols_fragments_options_and_forged_sources(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "open"})
        udp = struct.pack(">HHHH", 1, 9, 14, 0) + b"secret"
        cases = [
            (packet(132, sandbox.address, ATTACKER), "protocol:sctp"),
            (packet(47, sandbox.address, ATTACKER), "protocol:gre"),
            (packet(17, sandbox.address, ATTACKER, udp, flags=0x2000), "protocol:fragment"),
            (packet(6, sandbox.address, ATTACKER, b"\0\1\0\x50" + b"\0" * 8 + b"\x50\2\0\0\0\0\0\0", options=b"\x94\4\0\0"), "protocol:ip options"),
            (packet(17, "10.200.6.7", ATTACKER, udp), "link:spoofed"),
            (packet(6, "10.200.6.7", ATTACKER, b"\0\1\0\x50" + b"\0" * 8 + b"\x50\2\0\0\0\0\0\0"), "link:spoofed"),
            (packet(1, sandbox.address, ATTACKER, b"\x0d\0\0\0" + b"\0" * 16), "protocol:icmp"),
        ]
        with lab.watch() as seen:
            for data, rule in cases:
                send_raw(sandbox, data, ATTACKER)
                assert proxy.event(kind="packet", rule=rule)["verdict"] == "denied"
        seen.assert_silent()

    def test_ping(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "open"})
        with lab.watch() as seen:
            assert pings(sandbox, ATTACKER, 1, 1) == 0
            assert proxy.event(kind="packet", protocol="icmp", address=ATTACKER)
        seen.assert_silent()

    def test_ipv6(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, {"egress": "open"})
        sandbox.ip("address add fd00::2/64 dev eth0 nodad", "route add default via fd00::1",
                   "neighbour add fd00::1 lladdr 02:00:00:00:00:01 dev eth0")
        with lab.watch() as seen:
            with sandbox, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
                sock.sendto(b"secret", ("2a00:66::66", 443))
            assert proxy.event(kind="packet", rule="protocol:ipv6", address="2a00:66::66")["port"] == 443
        seen.assert_silent()


class TestRelayed:
    def test_udp_that_a_rule_names(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, UDP_RULE)
        with lab.watch() as seen, sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(30)
            sock.connect((ALLOWED, 7777))
            for size in (0, 1, 700, 1472):
                data = os.urandom(size)
                sock.send(data)
                assert sock.recv(2000) == data
        opened = proxy.event(protocol="udp", verdict="allowed", phase="open")
        assert (opened["address"], opened["port"], opened["rule"]) == (ALLOWED, 7777, "allow[0]")
        seen.assert_only({(ALLOWED, 7777)} | {("45.0.0.2", f.dport) for f in seen.left})

    def test_other_ports_and_addresses_are_not(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, UDP_RULE)
        with lab.watch() as seen:
            datagram(sandbox, ALLOWED, 9999)
            datagram(sandbox, ATTACKER, 7777)
            proxy.event(kind="packet", address=ALLOWED, port=9999)
            proxy.event(kind="packet", address=ATTACKER, port=7777)
            send_raw(sandbox, packet(17, "10.200.6.7", ALLOWED, struct.pack(">HHHH", 1, 7777, 14, 0) + b"secret"), ALLOWED)
            proxy.event(kind="packet", rule="link:spoofed")
        seen.assert_silent()

    def test_a_tightened_policy_ends_it(self, lab, proxy, sandbox):
        proxy.set_policy(sandbox, UDP_RULE)
        with sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(30)
            sock.connect((ALLOWED, 7777))
            sock.send(b"one")
            assert sock.recv(10) == b"one"
            proxy.set_policy(sandbox, {"egress": "none"})
            with lab.watch() as seen:
                sock.send(b"two")
                sock.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    sock.recv(10)
            seen.assert_silent()
        assert proxy.event(protocol="udp", phase="close")["reason"].startswith("cut: ")

    def test_pings_that_a_rule_names(self, proxy, sandbox):
        proxy.set_policy(sandbox, PING_RULE)
        assert pings(sandbox, ALLOWED, 3, 30) == 3
        assert pings(sandbox, ATTACKER, 1, 1) == 0
        assert proxy.event(protocol="icmp", verdict="allowed", phase="open")["address"] == ALLOWED

    def test_bytes_count(self, proxy, sandbox):
        proxy.set_policy(sandbox, {**UDP_RULE, "limits": {"bytes": 5000}})
        with sandbox, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.3)
            sock.connect((ALLOWED, 7777))
            back = 0
            for _ in range(20):
                sock.send(b"x" * 1000)
                try:
                    back += len(sock.recv(2000))
                except TimeoutError:
                    pass
        assert back <= 3000
        proxy.event(rule="limit:bytes")
