# SPDX-License-Identifier: Apache-2.0
# Made from _async/pages.py by scripts/make-sync; change that.
from __future__ import annotations

from typing import Any, Iterator, Callable, Generic, List, Mapping, Optional, TypeVar, Union

from .._io_sync import sleep
from .._routes import Route
from .transport import Transport, QueryValue

T = TypeVar("T")


class Pages(Generic[T]):
    """A list that the server gives in pages: iterate it, or take it as a list."""

    def __init__(self, transport: Transport, route: Route, field: str, made: Callable[[Any], T],
                 params: Optional[Mapping[str, Union[str, int]]] = None, query: Optional[Mapping[str, QueryValue]] = None) -> None:
        self._transport = transport
        self._route = route
        self._field = field
        self._made = made
        self._params = params
        self._query = query or {}

    def __iter__(self) -> Iterator[T]:
        cursor: Optional[str] = None
        while True:
            page = self._transport.json(self._route, self._params, query={"limit": 1000, **self._query, "cursor": cursor})
            for item in page[self._field]:
                yield self._made(item)
            if page["next_cursor"] is None or page["next_cursor"] == cursor:
                return
            cursor = page["next_cursor"]

    def to_list(self) -> List[T]:
        return [item for item in self]


def log_entries(transport: Transport, route: Route, field: str, made: Callable[[Any], T], params: Mapping[str, Union[str, int]],
                      cursor: Optional[str], follow: bool) -> Iterator[T]:
    """The entries of a log behind the cursor; with `follow`, those that come later as well."""
    while True:
        page = transport.json(route, params, query={"limit": 1000, "cursor": cursor})
        for item in page[field]:
            yield made(item)
        cursor = page["next_cursor"]
        if page[field]:
            continue
        if not follow:
            return
        sleep(0.5)
