# SPDX-License-Identifier: Apache-2.0
# Made from _async/watch.py by scripts/make-sync; change that.
from __future__ import annotations

import json
from typing import Any, Iterator, List, Mapping

from .. import _routes as routes
from .._decode import decode
from .._sse import Event, EventParser
from ..errors import ConnectionLostError, error_from_answer
from ..types import FileEvent
from .execution import MAX_SILENCE_MS
from .transport import Response, Transport


class Watch:
    """Changes in a directory, in the order in which they happen, until the directory is gone.

    Iterate over it; leaving its `with` ends it. An end before its time is an error: SandboxEndedError, SandboxNotReadyError when the
    sandbox was hibernated or reset, UnavailableError when the server stops, ConnectionLostError when it is not known. Changes
    meanwhile are not told later.
    """

    def __init__(self, response: Response) -> None:
        self._response = response
        self._pieces = response.pieces()
        self._parser = EventParser()
        self._waiting: List[Event] = []

    @staticmethod
    def open(transport: Transport, params: Mapping[str, str], query: Mapping[str, Any]) -> Watch:
        response = transport.open(routes.WATCH_FILES, params, query=query, idle_timeout_ms=MAX_SILENCE_MS)
        watch = Watch(response)
        try:
            while (watch._next()).event != "watching":
                pass
        except BaseException:
            watch.close()
            raise
        return watch

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()

    def __iter__(self) -> Iterator[FileEvent]:
        try:
            while True:
                event = self._next()
                if event.event == "end":
                    return
                yield decode(FileEvent, json.loads(event.data))
        finally:
            self.close()

    def _next(self) -> Event:
        while not self._waiting:
            try:
                self._waiting = self._parser.feed(self._pieces.__next__())
            except StopIteration:
                raise ConnectionLostError("the watch ended without a word", sent=True) from None
        event = self._waiting.pop(0)
        if event.event == "error":
            raise error_from_answer(self._response.status, self._response.headers, event.data.encode())
        return event
