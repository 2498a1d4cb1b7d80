# SPDX-License-Identifier: Apache-2.0
"""The resolver that the daemon is configured with: dnsmasq for ordinary names, and scripted answers for hostile ones."""

import dataclasses
import select
import socket
import struct
import subprocess
import threading
import time

TYPES = {"A": 1, "NS": 2, "CNAME": 5, "NULL": 10, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "ANY": 255}
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, REFUSED = 0, 1, 2, 3, 5


def encode_name(name):
    labels = [label for label in name.rstrip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


def decode_name(data, at):
    labels, jumps, end = [], 0, None
    while data[at]:
        if data[at] >= 0xC0:
            end, at, jumps = end or at + 2, struct.unpack_from("!H", data, at)[0] & 0x3FFF, jumps + 1
            assert jumps < 20
            continue
        labels.append(data[at + 1:at + 1 + data[at]].decode("latin-1"))
        at += 1 + data[at]
    return ".".join(labels), end or at + 1


def query(name, kind="A", identity=0x1234, options=b""):
    extra = 1 if options else 0
    return struct.pack("!HHHHHH", identity, 0x0100, 1, 0, 0, extra) + encode_name(name) + struct.pack("!HH", TYPES.get(kind, kind), 1) + options


def question(message):
    """(name as sent, type number, bytes of the question)."""
    name, at = decode_name(message, 12)
    return name, struct.unpack_from("!H", message, at)[0], message[12:at + 4]


def _data(kind, value):
    if kind == "A":
        return socket.inet_aton(value)
    if kind == "AAAA":
        return socket.inet_pton(socket.AF_INET6, value)
    if kind == "CNAME":
        return encode_name(value)
    return bytes([len(value)]) + value.encode()  # TXT


def record(kind, value, ttl=0, owner=None):
    name = encode_name(owner) if owner else b"\xc0\x0c"
    data = _data(kind, value)
    return name + struct.pack("!HHIH", TYPES[kind], 1, ttl, len(data)) + data


def response(request, records=(), rcode=NOERROR, flags=0):
    _, _, asked = question(request)
    head = request[:2] + struct.pack("!HHHHH", 0x8580 | flags | rcode, 1, len(records), 0, 0)
    return head + asked + b"".join(records)


@dataclasses.dataclass
class Answer:
    """What a scripted name says. An address record only answers a query of its type, a CNAME both."""

    records: list = dataclasses.field(default_factory=list)  # ("A", "45.10.0.10") or ("A", "45.10.0.10", owner)
    ttl: int = 0
    rcode: int = NOERROR
    delay: float = 0
    truncated: bool = False  # over UDP: the TC bit and no record
    silent: bool = False
    raw: object = None  # function of the request's bytes that gives the answer's

    def message(self, request, over_tcp):
        if self.raw:
            return self.raw(request)
        if self.truncated and not over_tcp:
            return response(request, flags=0x0200)
        asked = question(request)[1]
        chosen = [r for r in self.records if r[0] == "CNAME" or len(r) > 2 or TYPES[r[0]] == asked]
        return response(request, [record(r[0], r[1], self.ttl, *r[2:]) for r in chosen], self.rcode)


@dataclasses.dataclass
class Query:
    name: str  # lower case
    kind: int
    over_tcp: bool
    seconds: float


class Resolver:
    """Port 53 on `address` in `namespace`. Scripted names are answered here, the rest by dnsmasq behind it."""

    def __init__(self, namespace, address, directory, hosts, wildcards):
        self.scripts, self.counts, self.queries = {}, {}, []
        self.lock = threading.Lock()
        self.closing = False
        self.process = self._start_dnsmasq(namespace, directory, hosts, wildcards)
        with namespace:
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.udp.bind((address, 53))
            self.tcp = socket.create_server((address, 53), backlog=64)
            self.behind = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.behind.connect(("127.0.0.1", 5300))
        self.behind.settimeout(20)
        for work in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=work, daemon=True).start()
        self._wait_for_dnsmasq()

    def _start_dnsmasq(self, namespace, directory, hosts, wildcards):
        command = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--port=5300",
                   "--listen-address=127.0.0.1", "--bind-interfaces", "--user=root", "--pid-file=", "--local=/test/",
                   "--log-queries", f"--log-facility={directory}/dnsmasq.log"]
        command += [f"--host-record={name},{','.join(addresses)}" for name, addresses in hosts.items()]
        command += [f"--address=/{suffix}/{address}" for suffix, address in wildcards.items()]
        with namespace:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def _wait_for_dnsmasq(self):
        for _ in range(1200):
            try:
                return self._ask_behind(query("ready.test"))
            except OSError:  # refused: it does not listen yet
                time.sleep(0.05)
        raise AssertionError(f"dnsmasq does not answer (ended with {self.process.poll()})")

    def close(self):
        self.closing = True
        self.process.kill()
        self.process.wait()
        for sock in (self.udp, self.tcp, self.behind):
            sock.close()

    def script(self, name, *answers):
        """The answers of `name` in turn, the last one for ever after; each query counts, whatever its type."""
        with self.lock:
            self.scripts[name] = [a if isinstance(a, Answer) else Answer(a) for a in answers]
            self.counts[name] = 0

    def cycle(self, name, *answers):
        """The answers in turn, over and over, for each query type on its own."""
        with self.lock:
            self.scripts[name] = ("cycle", [a if isinstance(a, Answer) else Answer(a) for a in answers])

    def asked(self, mark=0):
        with self.lock:
            return self.queries[mark:]

    def mark(self):
        with self.lock:
            return len(self.queries)

    def _choose(self, name, kind):
        script = self.scripts.get(name)
        if script is None:
            return None
        if isinstance(script, tuple):
            number = self.counts[name, kind] = self.counts.get((name, kind), -1) + 1
            return script[1][number % len(script[1])]
        number = self.counts[name]
        self.counts[name] += 1
        return script[min(number, len(script) - 1)]

    def _answer(self, request, over_tcp, reply):
        name, kind, _ = question(request)
        with self.lock:
            self.queries.append(Query(name.lower(), kind, over_tcp, time.monotonic()))
            chosen = self._choose(name.lower(), kind)
        if chosen is None:
            return reply(self._ask_behind(request))
        if chosen.silent:
            return None
        if chosen.delay:
            timer = threading.Timer(chosen.delay, reply, (chosen.message(request, over_tcp),))
            timer.daemon = True
            return timer.start()
        return reply(chosen.message(request, over_tcp))

    def _ask_behind(self, request):
        with self.lock:
            self.behind.send(request)
            answer = self.behind.recv(65536)
            while answer[:2] != request[:2]:
                answer = self.behind.recv(65536)
            return answer

    def _serve_udp(self):
        while not self.closing:
            try:
                if not select.select([self.udp], [], [], 0.2)[0]:
                    continue
                request, peer = self.udp.recvfrom(65536)
                self._answer(request, False, lambda data, peer=peer: self.udp.sendto(data, peer))
            except (OSError, ValueError, IndexError, struct.error):
                continue  # the peer is gone, or it was no query

    def _serve_tcp(self):
        while not self.closing:
            try:
                if not select.select([self.tcp], [], [], 0.2)[0]:
                    continue
                connection, _ = self.tcp.accept()
            except (OSError, ValueError):
                return  # closed
            threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()

    def _serve_connection(self, connection):
        def read(size):
            data = b""
            while len(data) < size:
                part = connection.recv(size - len(data))
                if not part:
                    raise OSError("closed")
                data += part
            return data

        with connection:
            connection.settimeout(5)
            try:
                while True:
                    request = read(struct.unpack("!H", read(2))[0])
                    self._answer(request, True, lambda data: connection.sendall(struct.pack("!H", len(data)) + data))
            except (OSError, IndexError, struct.error):
                return
