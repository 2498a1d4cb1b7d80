# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, AsyncIterator, Callable, Generic, List, Mapping, Optional, TypeVar, Union

from .._io_async import sleep
from .._routes import Route
from .transport import AsyncTransport, QueryValue

T = TypeVar("T")


class AsyncPages(Generic[T]):
    """A list that the server gives in pages: iterate it, or take it as a list."""

    def __init__(self, transport: AsyncTransport, route: Route, field: str, made: Callable[[Any], T],
                 params: Optional[Mapping[str, Union[str, int]]] = None, query: Optional[Mapping[str, QueryValue]] = None) -> None:
        self._transport = transport
        self._route = route
        self._field = field
        self._made = made
        self._params = params
        self._query = query or {}

    async def __aiter__(self) -> AsyncIterator[T]:
        cursor: Optional[str] = None
        while True:
            page = await self._transport.json(self._route, self._params, query={"limit": 1000, **self._query, "cursor": cursor})
            for item in page[self._field]:
                yield self._made(item)
            if page["next_cursor"] is None or page["next_cursor"] == cursor:
                return
            cursor = page["next_cursor"]

    async def to_list(self) -> List[T]:
        return [item async for item in self]


async def log_entries(transport: AsyncTransport, route: Route, field: str, made: Callable[[Any], T], params: Mapping[str, Union[str, int]],
                      cursor: Optional[str], follow: bool) -> AsyncIterator[T]:
    """The entries of a log behind the cursor; with `follow`, those that come later as well."""
    while True:
        page = await transport.json(route, params, query={"limit": 1000, "cursor": cursor})
        for item in page[field]:
            yield made(item)
        cursor = page["next_cursor"]
        if page[field]:
            continue
        if not follow:
            return
        await sleep(0.5)
