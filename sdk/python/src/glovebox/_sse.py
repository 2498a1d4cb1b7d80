# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import List, NamedTuple, Optional


class Event(NamedTuple):
    id: str
    event: str
    data: str


def _parse(block: bytes) -> Optional[Event]:
    event_id, event = "", "message"
    data: List[str] = []
    for line in block.decode("utf-8", "replace").split("\n"):
        name, _, value = line.rstrip("\r").partition(":")
        if value.startswith(" "):
            value = value[1:]
        if name == "data":
            data.append(value)
        elif name == "id":
            event_id = value
        elif name == "event":
            event = value
    return Event(event_id, event, "\n".join(data)) if data else None


class EventParser:
    """Gives complete events only: what a broken connection left of the last one is read again from its cursor."""

    def __init__(self) -> None:
        self._parts: List[bytes] = []

    def feed(self, piece: bytes) -> List[Event]:
        self._parts.append(piece)
        if b"\n" not in piece:  # events end in an empty line; most pieces of a large one hold none
            return []
        *blocks, rest = b"".join(self._parts).split(b"\n\n")
        self._parts = [rest] if rest else []
        return [event for event in map(_parse, blocks) if event is not None]
