# SPDX-License-Identifier: Apache-2.0
"""What a program in a sandbox does on the network, byte by byte."""

import json
import socket
import ssl
import struct
import time

ACCESS_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"


def connect(space, address, port, seconds=30):
    with space:
        sock = socket.socket()
        sock.settimeout(seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect((address, port))
        return sock


def is_reset(space, address, port, data=b""):
    """The connection is reset before a byte comes back."""
    try:
        with connect(space, address, port) as sock:
            sock.sendall(data)
            return read_all(sock) == (b"", "reset")
    except (ConnectionResetError, BrokenPipeError):
        return True


def read_all(sock, seconds=30):
    """(bytes, "eof" | "reset" | "timeout")"""
    data = b""
    sock.settimeout(seconds)
    try:
        while True:
            part = sock.recv(65536)
            if not part:
                return data, "eof"
            data += part
    except ConnectionResetError:
        return data, "reset"
    except TimeoutError:
        return data, "timeout"


def read_response(sock, seconds=30, is_head=False):
    """(status, headers, body) of one response; the connection may go on."""
    sock.settimeout(seconds)
    buffer = getattr(sock, "_left", b"")
    reader = sock.makefile("rb")
    status_line = reader.readline()
    assert status_line, "the connection ended without a response"
    status = int(status_line.split()[1])
    headers = {}
    while (line := reader.readline().strip()):
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    body = b""
    if not is_head and "content-length" in headers:
        body = reader.read(int(headers["content-length"]))
    assert not buffer
    return status, headers, body


def http(space, address, port, request, seconds=30):
    """One request; (status, headers, body)."""
    with connect(space, address, port, seconds) as sock:
        sock.sendall(request if isinstance(request, bytes) else request.encode())
        return read_response(sock, seconds)


def denial(body):
    said = json.loads(body)
    assert {k: said["error"][k] for k in ("code", "host", "rule", "how_to_allow")} == {k: said[k] for k in ("code", "host", "rule", "how_to_allow")}
    return said


def tls(space, address, port, name, authority, seconds=30, verify=True):
    context = ssl.create_default_context(cafile=authority.certificate)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    sock = connect(space, address, port, seconds)
    try:
        return context.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def client_hello(name):
    """The bytes a real client would send first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        connection.do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outgoing.read()


def dns_question(name, kind=1, number=0x1234, edns=False):
    labels = b"".join(bytes([len(label)]) + label.encode("latin-1") for label in name.split(".") if label)
    extra = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0) if edns else b""
    return struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, int(edns)) + labels + b"\0" + struct.pack(">HH", kind, 1) + extra


def dns_answer(message):
    """(rcode, IPv4 addresses, ttl)"""
    number, flags, _, answers, _, _ = struct.unpack(">HHHHHH", message[:12])
    at = 12
    while message[at]:
        at += 1 + message[at]
    at += 5
    addresses, ttl = [], None
    for _ in range(answers):
        assert message[at] & 0xC0 == 0xC0
        kind, _, ttl, length = struct.unpack(">HHIH", message[at + 2:at + 12])
        if kind == 1:
            addresses.append(socket.inet_ntoa(message[at + 12:at + 12 + length]))
        at += 12 + length
    return flags & 15, addresses, ttl


def ask(space, name, server="10.200.0.2", kind=1, seconds=30, edns=False):
    """(rcode, addresses, ttl) over UDP; the answer must come from the server that was asked."""
    with space, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(seconds)
        sock.connect((server, 53))
        sock.send(dns_question(name, kind, edns=edns))
        return dns_answer(sock.recv(4096))


def quickest(attempt, enough, times=5):
    """The least time that `attempt` took, of up to so many until one took less than `enough`: what else a busy machine does only adds to it."""
    least = None
    for _ in range(times):
        begin = time.monotonic()
        attempt()
        seconds = time.monotonic() - begin
        least = seconds if least is None else min(least, seconds)
        if least < enough:
            break
    return least


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
