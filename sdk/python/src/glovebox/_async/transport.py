# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json as json_module
import random
import ssl
import time
from typing import Any, AsyncIterator, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union, cast
from urllib.parse import quote, quote_from_bytes

from .. import _h1
from .._io_async import AsyncSource, PeerAnswered, Stream, pieces, sleep
from .._routes import Route
from .._settings import find_server
from ..errors import ApiError, ConnectionLostError, ProtocolError, error_from_answer

QueryValue = Union[str, bytes, int, bool, List[str], Mapping[str, str], None]
# The server closes connections that were idle for 75 s. One that is given up earlier is never met by a close on its way.
MAX_IDLE_SECONDS = 30.0


class Options(NamedTuple):
    retries: int
    connect_timeout_ms: int
    idle_timeout_ms: int
    reattach_ms: int


def _quoted(value: Union[str, bytes]) -> str:
    return quote_from_bytes(value, safe="") if isinstance(value, bytes) else quote(value, safe="", errors="surrogateescape")


def query_text(query: Mapping[str, QueryValue]) -> str:
    parts: List[str] = []
    for name, value in query.items():
        if value is None:
            continue
        if isinstance(value, bool):
            parts.append(f"{name}={'true' if value else 'false'}")
        elif isinstance(value, list):
            parts += [f"{name}={_quoted(item)}" for item in value]
        elif isinstance(value, (str, bytes)):
            parts.append(f"{name}={_quoted(value)}")
        elif isinstance(value, int):
            parts.append(f"{name}={value}")
        else:  # the API spells a filter by its properties: metadata.KEY=VALUE
            parts += [f"{_quoted(key)}={_quoted(text)}" for key, text in value.items()]
    return "?" + "&".join(parts) if parts else ""


def _whole(content: Optional[AsyncSource]) -> Optional[bytes]:
    """The bytes of a body that can be sent again; None for one that is streamed."""
    if content is None:
        return b""
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape")
    return bytes(content) if isinstance(content, (bytes, bytearray, memoryview)) else None


def _is_repeatable(route: Route, headers: Optional[Mapping[str, str]]) -> bool:
    return route.repeatable or "Idempotency-Key" in (headers or {})


def is_refused_for_now(error: BaseException) -> bool:
    """A server that is starting or stopping has refused the call before it did anything."""
    return isinstance(error, ApiError) and error.status == 503 and error.retry_after is not None


async def back_off(attempt: int, error: Optional[BaseException] = None) -> None:
    """Waits, with jitter, and at least as long as the server asked for."""
    own = min(2.0, 0.1 * 2**attempt) * (0.5 + random.random() / 2)
    asked = error.retry_after if isinstance(error, ApiError) and error.retry_after else 0.0
    await sleep(max(own, asked))


class AsyncResponse:
    """An answer; its body is read once."""

    def __init__(self, transport: AsyncTransport, stream: Stream, head: _h1.Head, rest: bytes, timeout: Optional[float]) -> None:
        self.status = head.status
        self.headers = head.headers
        self._transport = transport
        self._stream = stream
        self._head = head
        self._decoder = _h1.BodyDecoder(head)
        self._rest = rest
        self._timeout = timeout
        self._is_open = True

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. One that breaks off is a ConnectionLostError; ending early closes the connection."""
        try:
            for piece in self._decoder.feed(self._rest):
                yield piece
            while not self._decoder.is_complete:
                data = await self._stream.read(self._timeout)
                if not data:
                    if self._decoder.ends_with_connection:
                        break
                    raise ConnectionLostError("the connection broke in the middle of an answer", sent=True)
                for piece in self._decoder.feed(data):
                    yield piece
            self._finish()
        finally:
            self.close()

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])

    def _finish(self) -> None:
        if self._decoder.is_complete and self._head.keeps_open and not self._decoder.rest:
            self._is_open = False
            self._transport.keep(self._stream)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._stream.close()


class AsyncTransport:
    """One server, one key, and the connections to it."""

    def __init__(self, url: Optional[str], api_key: Optional[str], data_dir: Optional[str], options: Options,
                 headers: Optional[Mapping[str, str]]) -> None:
        server = find_server(url, api_key, data_dir)
        self.url = server.url
        self.options = options
        self._host = server.url.hostname or ""
        is_tls = server.url.scheme == "https"
        self._port = server.url.port or (443 if is_tls else 80)
        self._tls = ssl.create_default_context() if is_tls else None
        self._prefix = server.url.path.rstrip("/")
        self._headers = {"Host": server.url.netloc.rpartition("@")[2], "Authorization": f"Bearer {server.api_key}", **(headers or {})}
        self._kept: List[Tuple[Stream, float]] = []

    def close(self) -> None:
        while self._kept:
            self._kept.pop()[0].close()

    def keep(self, stream: Stream) -> None:
        self._kept.append((stream, time.monotonic()))

    async def open(self, route: Route, params: Optional[Mapping[str, Union[str, int]]] = None, *,
                   query: Optional[Mapping[str, QueryValue]] = None, json: Optional[Mapping[str, Any]] = None,
                   content: Optional[AsyncSource] = None, headers: Optional[Mapping[str, str]] = None,
                   idle_timeout_ms: Optional[int] = None) -> AsyncResponse:
        """The answer, its body not yet read. A failing status is raised."""
        target = self._target(route, params, query)
        sent_headers = dict(headers or {})
        if json is not None:
            fields = {name: value for name, value in json.items() if value is not None}
            _check_names(route, "field", fields, route.body)
            content = json_module.dumps(fields, ensure_ascii=False)
            sent_headers["Content-Type"] = "application/json"
        can_repeat = _whole(content) is not None
        attempt = 0
        while True:
            try:
                return await self._once(route.method, target, sent_headers, content, idle_timeout_ms)
            except (ConnectionLostError, ApiError) as error:
                is_safe = isinstance(error, ConnectionLostError) and (not error.sent or _is_repeatable(route, headers))
                if attempt >= self.options.retries or not can_repeat or not (is_safe or is_refused_for_now(error)):
                    raise
                await back_off(attempt, error)
                attempt += 1

    async def read(self, route: Route, params: Optional[Mapping[str, Union[str, int]]] = None, **call: Any) -> bytes:
        """The whole body of the answer. A read that breaks off is begun again."""
        attempt = 0
        while True:
            response = await self.open(route, params, **call)
            try:
                return await response.read()
            except ConnectionLostError:
                if not _is_repeatable(route, call.get("headers")) or _whole(call.get("content")) is None or attempt >= self.options.retries:
                    raise
                await back_off(attempt)
                attempt += 1

    async def json(self, route: Route, params: Optional[Mapping[str, Union[str, int]]] = None, **call: Any) -> Dict[str, Any]:
        text = await self.read(route, params, **call)
        try:
            value = json_module.loads(text)
        except ValueError as error:
            raise ProtocolError(f"{route.method} {route.path}: the answer is not JSON: {text[:200]!r}") from error
        if not isinstance(value, dict):
            raise ProtocolError(f"{route.method} {route.path}: the answer is no object")
        return cast("Dict[str, Any]", value)

    async def upgrade(self, route: Route, params: Mapping[str, Union[str, int]], query: Mapping[str, QueryValue],
                      headers: Mapping[str, str]) -> Tuple[Stream, _h1.Head, bytes]:
        """A connection that has become a WebSocket, and what has arrived on it."""
        stream = await self._connect()
        try:
            await stream.write(_h1.request_head("GET", self._target(route, params, query), {**self._headers, **headers}), None)
            head, rest = await self._read_head(stream, self.options.connect_timeout_ms / 1000)
            if head.status != 101:
                raise error_from_answer(head.status, head.headers, await AsyncResponse(self, stream, head, rest, 10).read())
            return stream, head, rest
        except BaseException:
            stream.close()
            raise

    async def request_url(self, method: str, target: str, headers: Mapping[str, str], content: Optional[AsyncSource]) -> AsyncResponse:
        """Any path of the server, without the key; every status is an answer."""
        stream = await self._connect()
        try:
            return await self._exchange(stream, method, target, {"Host": self._headers["Host"], **headers}, content, self._timeout(None))
        except BaseException:
            stream.close()
            raise

    def _target(self, route: Route, params: Optional[Mapping[str, Union[str, int]]], query: Optional[Mapping[str, QueryValue]]) -> str:
        _check_names(route, "query parameter", query or {}, route.query)
        path = route.path
        for name, value in (params or {}).items():
            path = path.replace("{" + name + "}", _quoted(str(value)))
        return self._prefix + path + query_text(query or {})

    def _timeout(self, milliseconds: Optional[int]) -> Optional[float]:
        value = self.options.idle_timeout_ms if milliseconds is None else milliseconds
        return value / 1000 if value else None

    async def _connect(self) -> Stream:
        return await Stream.connect(self._host, self._port, self._tls, self.options.connect_timeout_ms / 1000)

    async def _take(self) -> Stream:
        while True:
            try:
                stream, since = self._kept.pop()
            except IndexError:
                return await self._connect()
            if not stream.is_stale and time.monotonic() - since < MAX_IDLE_SECONDS:
                return stream
            stream.close()

    async def _once(self, method: str, target: str, headers: Mapping[str, str], content: Optional[AsyncSource],
                    idle_timeout_ms: Optional[int]) -> AsyncResponse:
        timeout = self._timeout(idle_timeout_ms)
        stream = await self._take()
        try:
            response = await self._exchange(stream, method, target, {**self._headers, **headers}, content, timeout)
        except BaseException:
            stream.close()
            raise
        if response.status < 300:
            return response
        raise error_from_answer(response.status, response.headers, await response.read())

    async def _exchange(self, stream: Stream, method: str, target: str, headers: Dict[str, str], content: Optional[AsyncSource],
                        timeout: Optional[float]) -> AsyncResponse:
        whole = _whole(content)
        is_answered_early = False
        try:
            if whole is not None:
                if whole or method not in ("GET", "HEAD"):
                    headers["Content-Length"] = str(len(whole))
                await self._send_whole(stream, _h1.request_head(method, target, headers), whole, timeout)
            else:
                headers["Transfer-Encoding"] = "chunked"
                await stream.write(_h1.request_head(method, target, headers), timeout)
                async for piece in pieces(cast("AsyncSource", content)):
                    if piece:
                        await stream.write(_h1.chunk(bytes(piece)), timeout, until_answer=True)
                await stream.write(_h1.chunk(b""), timeout)
        except PeerAnswered:
            is_answered_early = True  # it counts, not that the rest could not be sent
        head, rest = await self._read_head(stream, timeout)
        if is_answered_early:
            head.headers["connection"] = "close"
        return AsyncResponse(self, stream, head, rest, timeout)

    async def _send_whole(self, stream: Stream, head: bytes, body: bytes, timeout: Optional[float]) -> None:
        if len(body) <= 1 << 16:
            await stream.write(head + body, timeout)
            return
        await stream.write(head, timeout)
        for begin in range(0, len(body), 1 << 20):
            await stream.write(body[begin : begin + (1 << 20)], timeout, until_answer=True)

    async def _read_head(self, stream: Stream, timeout: Optional[float]) -> Tuple[_h1.Head, bytes]:
        buffer = b""
        while True:
            found = _h1.split_head(buffer)
            if found is not None:
                if found[0].status >= 200 or found[0].status == 101:
                    return found
                buffer = found[1]
                continue
            data = await stream.read(timeout)
            if not data:
                raise ConnectionLostError("the server closed the connection without an answer", sent=True)
            buffer += data


def _check_names(route: Route, what: str, given: Mapping[str, Any], known: "frozenset[str]") -> None:
    unknown = given.keys() - known
    if unknown:
        raise TypeError(f"{route.method} {route.path} has no {what} {', '.join(sorted(unknown))}")
