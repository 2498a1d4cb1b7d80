# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any, AsyncIterator, List, Mapping

from .. import _routes as routes
from .._decode import decode
from .._sse import Event, EventParser
from ..errors import ConnectionLostError, error_from_answer
from ..types import FileEvent
from .execution import MAX_SILENCE_MS
from .transport import AsyncResponse, AsyncTransport


class AsyncWatch:
    """Changes in a directory, in the order in which they happen, until the directory is gone.

    Iterate over it; leaving its `with` ends it. An end before its time is an error: SandboxEndedError, SandboxNotReadyError when the
    sandbox was hibernated or reset, UnavailableError when the server stops, ConnectionLostError when it is not known. Changes
    meanwhile are not told later.
    """

    def __init__(self, response: AsyncResponse) -> None:
        self._response = response
        self._pieces = response.pieces()
        self._parser = EventParser()
        self._waiting: List[Event] = []

    @staticmethod
    async def open(transport: AsyncTransport, params: Mapping[str, str], query: Mapping[str, Any]) -> AsyncWatch:
        response = await transport.open(routes.WATCH_FILES, params, query=query, idle_timeout_ms=MAX_SILENCE_MS)
        watch = AsyncWatch(response)
        try:
            while (await watch._next()).event != "watching":
                pass
        except BaseException:
            watch.close()
            raise
        return watch

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()

    async def __aiter__(self) -> AsyncIterator[FileEvent]:
        try:
            while True:
                event = await self._next()
                if event.event == "end":
                    return
                yield decode(FileEvent, json.loads(event.data))
        finally:
            self.close()

    async def _next(self) -> Event:
        while not self._waiting:
            try:
                self._waiting = self._parser.feed(await self._pieces.__anext__())
            except StopAsyncIteration:
                raise ConnectionLostError("the watch ended without a word", sent=True) from None
        event = self._waiting.pop(0)
        if event.event == "error":
            raise error_from_answer(self._response.status, self._response.headers, event.data.encode())
        return event
