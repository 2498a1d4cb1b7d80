# SPDX-License-Identifier: Apache-2.0
"""What is really on a wire: every frame of an interface, and frames as bytes to be put on one."""

import errno
import ipaddress
import select
import socket
import struct
import threading
import time

ETH_ALL, ETH_IPV4, ETH_IPV6, ETH_ARP, ETH_VLAN, ETH_QINQ = 3, 0x0800, 0x86DD, 0x0806, 0x8100, 0x88A8
ICMP, TCP, UDP, ICMPV6, SCTP = 1, 6, 17, 58, 132
PACKET_OUTGOING = 4
SOL_PACKET, PACKET_STATISTICS = 263, 6
FIN, SYN, RST, PUSH, ACK = 1, 2, 4, 8, 16


class Frame:
    """One captured frame, read as far as it can be."""

    def __init__(self, data, outgoing, seconds):
        self.data, self.outgoing, self.seconds = data, outgoing, seconds
        self.src = self.dst = ""
        self.protocol = self.sport = self.dport = self.flags = None
        self.payload = b""
        self.ethertype, at = struct.unpack_from("!H", data, 12)[0], 14
        while self.ethertype in (ETH_VLAN, ETH_QINQ) and len(data) >= at + 4:
            self.ethertype, at = struct.unpack_from("!H", data, at + 2)[0], at + 4
        try:
            self._read_ip(data[at:])
        except struct.error:
            pass  # cut short: what was read stays

    def _read_ip(self, packet):
        if self.ethertype == ETH_IPV4:
            self.src, self.dst = socket.inet_ntoa(packet[12:16]), socket.inet_ntoa(packet[16:20])
            total = struct.unpack_from("!H", packet, 2)[0]
            first = struct.unpack_from("!H", packet, 6)[0] & 0x1FFF == 0
            self._read_transport(packet[9], packet[(packet[0] & 15) * 4:total], first)
        elif self.ethertype == ETH_IPV6:
            self.src, self.dst = (str(ipaddress.IPv6Address(packet[a:a + 16])) for a in (8, 24))
            following, rest = packet[6], packet[40:40 + struct.unpack_from("!H", packet, 4)[0]]
            while following in (0, 43, 60) and len(rest) >= 8:
                following, rest = rest[0], rest[8 + rest[1] * 8:]
            self._read_transport(following, rest, True)

    def _read_transport(self, protocol, segment, first):
        self.protocol, self.payload = protocol, segment
        if not first:
            return
        if protocol in (TCP, UDP, SCTP):
            self.sport, self.dport = struct.unpack_from("!HH", segment)
        if protocol == TCP:
            self.flags = segment[13]
            self.payload = segment[(segment[12] >> 4) * 4:]
        elif protocol == UDP:
            self.payload = segment[8:]

    @property
    def is_neighbour_talk(self):
        """ARP, neighbour discovery and multicast membership: the lab's own and no way out."""
        if self.ethertype == ETH_ARP:
            return True
        return self.protocol == ICMPV6 and self.payload[:1] and (self.payload[0] in range(130, 138) or self.payload[0] == 143)

    def __repr__(self):
        names = {ICMP: "icmp", TCP: "tcp", UDP: "udp", ICMPV6: "icmp6", SCTP: "sctp"}
        if not self.src:
            return f"<{self.ethertype:#06x} {self.data[:40].hex()}>"
        ports = f" {self.sport}>{self.dport}" if self.sport is not None else ""
        flags = f" flags={self.flags:#x}" if self.flags is not None else ""
        return f"<{self.src} > {self.dst} {names.get(self.protocol, self.protocol)}{ports}{flags} {len(self.payload)}B>"


class Capture:
    """Every frame of one interface from now on, in a thread. Frames that the kernel had to drop fail the test that looks."""

    def __init__(self, namespace, interface, label=""):
        self.label = label or f"{namespace.label}/{interface}"
        with namespace:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            self.socket.bind((interface, ETH_ALL))
        self.frames = []
        self.arrived = threading.Condition()
        self.closing = False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while not self.closing:
            if not select.select([self.socket], [], [], 0.2)[0]:
                continue
            try:
                data, address = self.socket.recvfrom(65536)
            except OSError:
                continue  # the interface went down
            with self.arrived:
                self.frames.append((data, address[2] == PACKET_OUTGOING, time.monotonic()))
                self.arrived.notify_all()

    def close(self):
        self.closing = True
        self.thread.join()
        self.socket.close()

    def mark(self):
        with self.arrived:
            return len(self.frames)

    def since(self, mark=0, incoming_only=True, end=None):
        """Frames after `mark`, up to the mark `end`, but for the talk between neighbours."""
        received, dropped = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        assert dropped == 0, f"{self.label}: {dropped} of {received} frames were not seen"
        with self.arrived:
            raw = self.frames[mark:end]
        frames = [Frame(*parts) for parts in raw if not (incoming_only and parts[1])]
        return [frame for frame in frames if not frame.is_neighbour_talk]

    def wait_for(self, token, mark=0, seconds=60.0):
        """Until a frame that holds `token` is here: everything put on the wire before it is here too."""
        deadline = time.monotonic() + seconds
        with self.arrived:
            while not any(token in data for data, _, _ in self.frames[mark:]):
                assert self.arrived.wait(deadline - time.monotonic()), f"{self.label}: {token!r} did not come"


# Frames to send ---------------------------------------------------------------------------------------------------------------
def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ethernet(destination, source, payload, ethertype=ETH_IPV4, vlans=()):
    tags = b"".join(struct.pack("!HH", ETH_VLAN, vlan) for vlan in vlans)
    return mac(destination) + mac(source) + tags + struct.pack("!H", ethertype) + payload


def ipv4(source, destination, protocol, payload, options=b"", identification=0x4242, fragment=0, ttl=64):
    """`fragment`: the flags and the offset as they are in the header (0x2000 = more fragments)."""
    options += b"\0" * (-len(options) % 4)
    length = 20 + len(options)
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | length // 4, 0, length + len(payload), identification, fragment, ttl, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(destination)) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def ipv6(source, destination, following, payload, hops=255):
    return (struct.pack("!IHBB", 6 << 28, len(payload), following, hops) + socket.inet_pton(socket.AF_INET6, source)
            + socket.inet_pton(socket.AF_INET6, destination) + payload)


def _pseudo(source, destination, protocol, length):
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    return (socket.inet_pton(family, source) + socket.inet_pton(family, destination)
            + (struct.pack("!II", length, protocol) if family == socket.AF_INET6 else struct.pack("!HH", protocol, length)))


def udp(source, destination, sport, dport, payload):
    segment = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    value = checksum(_pseudo(source, destination, UDP, len(segment)) + segment) or 0xFFFF
    return segment[:6] + struct.pack("!H", value) + segment[8:]


def tcp(source, destination, sport, dport, flags=SYN, payload=b"", sequence=1000, acknowledge=0):
    segment = struct.pack("!HHIIBBHHH", sport, dport, sequence, acknowledge, 5 << 4, flags, 65000, 0, 0) + payload
    value = checksum(_pseudo(source, destination, TCP, len(segment)) + segment)
    return segment[:16] + struct.pack("!H", value) + segment[18:]


def icmp(kind, payload, code=0):
    message = struct.pack("!BBHHH", kind, code, 0, 7, 1) + payload
    return message[:2] + struct.pack("!H", checksum(message)) + message[4:]


def icmpv6(source, destination, kind, body, code=0):
    message = struct.pack("!BBH", kind, code, 0) + body
    value = checksum(_pseudo(source, destination, ICMPV6, len(message)) + message)
    return message[:2] + struct.pack("!H", value) + message[4:]


def arp(operation, sender_mac, sender, target_mac, target):
    return (struct.pack("!HHBBH", 1, ETH_IPV4, 6, 4, operation) + mac(sender_mac) + socket.inet_aton(sender)
            + mac(target_mac) + socket.inet_aton(target))


class Injector:
    """Sends whole frames from within a namespace, as root of that link could."""

    def __init__(self, namespace, interface):
        with namespace:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            self.socket.bind((interface, ETH_ALL))
        self.mac = self.socket.getsockname()[4].hex(":")

    def send(self, *frames):
        for frame in frames:
            while not self._is_sent(frame):
                time.sleep(0.001)

    def _is_sent(self, frame):
        """False when the queue between the two ends is full, which a busy processor has not emptied yet."""
        try:
            return self.socket.send(frame) == len(frame)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            return False

    def close(self):
        self.socket.close()
