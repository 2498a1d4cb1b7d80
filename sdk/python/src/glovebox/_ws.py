# SPDX-License-Identifier: Apache-2.0
"""The client's side of a WebSocket (RFC 6455) as bytes. Nothing here reads or writes a connection."""
from __future__ import annotations

import base64
import hashlib
import os
import struct
from typing import List, Optional, Tuple, Union

from .errors import ConnectionLostError, ProtocolError

MAX_MESSAGE_BYTES = 16 << 20
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
Message = Union[str, bytes]


def new_key() -> str:
    return base64.b64encode(os.urandom(16)).decode()


def accept_of(key: str) -> str:
    return base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()


def frame(op: int, payload: bytes) -> bytes:
    length = len(payload)
    if length < 126:
        head = struct.pack("!BB", 0x80 | op, 0x80 | length)
    elif length < 65536:
        head = struct.pack("!BBH", 0x80 | op, 0x80 | 126, length)
    else:
        head = struct.pack("!BBQ", 0x80 | op, 0x80 | 127, length)
    mask = os.urandom(4)
    key = int.from_bytes((mask * (length // 4 + 1))[:length], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big")


class FrameParser:
    """Takes what came and gives whole messages; `replies` has what must be sent back."""

    def __init__(self) -> None:
        self.replies: List[bytes] = []
        self.is_closed = False
        self.error: Optional[Exception] = None  # why it was closed, unless properly
        self._buffer = b""
        self._fragments: List[bytes] = []
        self._op = 0

    def feed(self, data: bytes) -> List[Message]:
        self._buffer += data
        out: List[Message] = []
        while not self.is_closed:
            found = self._next_frame()
            if found is None:
                break
            message = self._take(*found)
            if message is not None:
                out.append(message)
        return out

    def _next_frame(self) -> Optional[Tuple[int, bool, bytes]]:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        first, second = buffer[0], buffer[1]
        if second & 0x80 or first & 0x70:
            raise ProtocolError("a frame that no WebSocket server sends")
        length, begin = second & 0x7F, 2
        if length >= 126:
            begin = 4 if length == 126 else 10
            if len(buffer) < begin:
                return None
            length = int.from_bytes(buffer[2:begin], "big")
        if length > MAX_MESSAGE_BYTES:
            raise ProtocolError("a WebSocket message is too large")
        if len(buffer) < begin + length:
            return None
        self._buffer = buffer[begin + length :]
        return first & 0x0F, bool(first & 0x80), buffer[begin : begin + length]

    def _take(self, op: int, is_last: bool, payload: bytes) -> Optional[Message]:
        if op == PING:
            self.replies.append(frame(PONG, payload))
            return None
        if op == PONG:
            return None
        if op == CLOSE:
            self.replies.append(frame(CLOSE, payload[:2]))
            self.is_closed = True
            code = int.from_bytes(payload[:2], "big")
            if code != 1000:
                self.error = ConnectionLostError(f"the server closed the WebSocket with {code}", sent=True)
            return None
        if op != CONTINUATION:
            self._op = op
        self._fragments.append(payload)
        if sum(map(len, self._fragments)) > MAX_MESSAGE_BYTES:
            raise ProtocolError("a WebSocket message is too large")
        if not is_last:
            return None
        whole = b"".join(self._fragments)
        self._fragments = []
        return whole.decode("utf-8", "replace") if self._op == TEXT else whole
