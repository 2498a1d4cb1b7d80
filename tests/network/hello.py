# SPDX-License-Identifier: Apache-2.0
"""ClientHellos as bytes, ordinary and odd ones."""

import os
import struct

GREASE = 0x2A2A
HANDSHAKE, ALERT = 22, 21


def _vector(data, width):
    return len(data).to_bytes(width, "big") + data


def server_names(*names):
    return _vector(b"".join(b"\0" + _vector(name.encode("latin-1"), 2) for name in names), 2)


def extension(number, data):
    return struct.pack("!H", number) + _vector(data, 2)


def client_hello(*names, first=(), last=(), grease=False, sni=None):
    """The handshake message; `names` go into one server_name extension, `first` and `last` are further extensions."""
    suites = ([GREASE] if grease else []) + [0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030]
    extensions = list(first) + ([extension(GREASE, b"")] if grease else [])
    if names or sni is not None:
        extensions.append(extension(0, server_names(*names) if sni is None else sni))
    groups, key = ([GREASE] if grease else []) + [0x001D, 0x0017], os.urandom(32)
    shares = (struct.pack("!H", GREASE) + _vector(b"\0", 2) if grease else b"") + struct.pack("!H", 0x001D) + _vector(key, 2)
    extensions += [
        extension(10, _vector(b"".join(struct.pack("!H", g) for g in groups), 2)),
        extension(13, _vector(bytes.fromhex("040308040401050308050501080606010201"), 2)),
        extension(43, _vector((struct.pack("!H", GREASE) if grease else b"") + b"\x03\x04\x03\x03", 1)),
        extension(51, _vector(shares, 2)), *last]
    body = (b"\x03\x03" + os.urandom(32) + _vector(os.urandom(32), 1) + _vector(b"".join(struct.pack("!H", s) for s in suites), 2)
            + _vector(b"\0", 1) + _vector(b"".join(extensions), 2))
    return b"\x01" + _vector(body, 3)


def records(message, *cuts, kind=HANDSHAKE):
    """The message in records, cut at the given places."""
    edges = [0, *cuts, len(message)]
    return b"".join(bytes([kind]) + b"\x03\x01" + _vector(message[a:b], 2) for a, b in zip(edges, edges[1:]))


def encrypted_client_hello(inner=200):
    """An outer encrypted_client_hello extension as clients send it, its content random."""
    return extension(0xFE0D, b"\0" + b"\0\x01\0\x01" + b"\x07" + _vector(os.urandom(32), 2) + _vector(os.urandom(inner), 2))


def is_server_hello(data):
    return len(data) > 5 and data[0] == HANDSHAKE and data[5] == 2


def alert_of(data):
    """The number of the alert that the bytes are; None when they are something else."""
    return data[6] if len(data) == 7 and data[0] == ALERT and data[5] == 2 else None


ACCESS_DENIED = 49
