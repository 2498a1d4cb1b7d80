# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 messages as bytes. Nothing here reads or writes a connection."""
from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Tuple

from .errors import ProtocolError

MAX_HEAD_BYTES = 64 << 10


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1"]
    for name, value in headers.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"the header {name} has a line break")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """A piece of a body whose length is not known; the empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Head:
    """The status and headers of an answer; names are in lower case."""

    def __init__(self, status: int, headers: Dict[str, str]) -> None:
        self.status = status
        self.headers = headers

    @property
    def keeps_open(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


def parse_head(text: bytes) -> Head:
    lines = text.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise ProtocolError("the answer is not HTTP/1.1")
    headers: Dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise ProtocolError("the answer has a broken header")
        headers[name.strip().lower()] = value.strip()
    return Head(int(parts[1]), headers)


class BodyDecoder:
    """Takes the bytes that follow a head and gives those of the body."""

    def __init__(self, head: Head) -> None:
        self.is_complete = head.status in (204, 304)
        self.rest = b""  # what follows the body
        self._is_chunked = "chunked" in head.headers.get("transfer-encoding", "").lower()
        length = head.headers.get("content-length")
        if length is not None and not length.isdigit():
            raise ProtocolError("the answer has a broken length")
        self._left: Optional[int] = None if self._is_chunked or length is None else int(length)
        if self._left == 0:
            self.is_complete = True
        self._buffer = b""
        self._is_in_trailer = False

    @property
    def ends_with_connection(self) -> bool:
        return not self._is_chunked and self._left is None

    def feed(self, data: bytes) -> List[bytes]:
        if self._is_chunked:
            return self._feed_chunked(data)
        if self._left is None:
            return [data] if data else []
        out = data[: self._left]
        self.rest = data[self._left :]
        self._left -= len(out)
        self.is_complete = self._left == 0
        return [out] if out else []

    def _feed_chunked(self, data: bytes) -> List[bytes]:
        self._buffer += data
        out: List[bytes] = []
        while not self.is_complete:
            if self._left:  # of this chunk, with its line end
                piece = self._buffer[: self._left]
                self._buffer = self._buffer[len(piece) :]
                content = piece[: max(0, self._left - 2)]
                self._left -= len(piece)
                if content:
                    out.append(content)
                if self._left:
                    break
                continue
            line, found, rest = self._buffer.partition(b"\r\n")
            if not found:
                if len(line) > MAX_HEAD_BYTES:
                    raise ProtocolError("the answer has a broken chunk")
                break
            self._buffer = rest
            if self._is_in_trailer:
                self.is_complete = line == b""
                continue
            size = _chunk_size(line)
            self._is_in_trailer = size == 0
            self._left = size + 2 if size else None
        if self.is_complete:
            self.rest, self._buffer = self._buffer, b""
        return out


def _chunk_size(line: bytes) -> int:
    text = line.split(b";", 1)[0].strip()
    if not text or len(text) > 15 or any(byte not in b"0123456789abcdefABCDEF" for byte in text):
        raise ProtocolError("the answer has a broken chunk")
    return int(text, 16)


def split_head(buffer: bytes) -> Optional[Tuple[Head, bytes]]:
    """The first head in `buffer` and what follows it; None when it is not all there."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEAD_BYTES:
            raise ProtocolError("the answer's head is too large")
        return None
    return parse_head(buffer[:end]), buffer[end + 4 :]
