# SPDX-License-Identifier: Apache-2.0
"""Waiting, with asyncio. _io_sync.py has the same names for threads."""
from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import (
    Any, AsyncIterable, AsyncIterator, Awaitable, BinaryIO, Callable, Coroutine, Generator, Generic, Iterable, Optional, TypeVar, Union)

from .errors import ConnectionLostError, ConnectionTimeoutError

T = TypeVar("T")
P = TypeVar("P")
MAX_BUFFERED = 1 << 20

# Bytes for a request: text goes as UTF-8; files and anything iterable are streamed.
AsyncSource = Union[str, bytes, bytearray, memoryview, BinaryIO, Iterable[bytes], AsyncIterable[bytes]]

sleep = asyncio.sleep
Lock = asyncio.Lock


class PeerAnswered(Exception):
    """There is an answer already, while the request is still being sent."""


class Stream(asyncio.Protocol):
    """A connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # set before anybody gets a Stream
        self._buffer = bytearray()
        self._is_ended = False
        self._error: Optional[Exception] = None
        self._is_reading_paused = self._is_writing_paused = False
        self._reader: Optional[asyncio.Future[None]] = None
        self._writer: Optional[asyncio.Future[None]] = None

    @staticmethod
    async def connect(host: str, port: int, context: Optional[ssl.SSLContext], timeout: float) -> Stream:
        loop = asyncio.get_running_loop()
        try:
            connecting = loop.create_connection(Stream, host, port, ssl=context)
            _, stream = await asyncio.wait_for(connecting, timeout)
        except asyncio.TimeoutError as error:
            raise ConnectionTimeoutError(f"{host}:{port} does not accept connections", sent=False) from error
        except OSError as error:
            raise ConnectionLostError(f"{host}:{port}: {error}: is the server running (`glovebox up`)?", sent=False) from error
        return stream

    # What asyncio calls.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > MAX_BUFFERED and not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()
        self._wake(read=True, write=True)

    def eof_received(self) -> bool:
        self._is_ended = True
        self._wake(read=True, write=True)
        return False

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self._is_ended = True
        self._error = exc
        self._wake(read=True, write=True)

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake(write=True)

    def _wake(self, read: bool = False, write: bool = False) -> None:
        for waiter, wanted in ((self._reader, read), (self._writer, write)):
            if waiter is not None and wanted and not waiter.done():
                waiter.set_result(None)

    async def _wait(self, which: str, timeout: Optional[float]) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        setattr(self, which, waiter)
        is_late = False

        def give_up() -> None:
            nonlocal is_late
            if not waiter.done():
                is_late = True
                waiter.set_result(None)

        timer = loop.call_later(timeout, give_up) if timeout else None
        try:
            await waiter
        finally:
            setattr(self, which, None)
            if timer:
                timer.cancel()
        return not is_late

    @property
    def is_stale(self) -> bool:
        """It is of no use for another request."""
        return self._is_ended or bool(self._buffer) or self._transport.is_closing()

    async def read(self, timeout: Optional[float]) -> bytes:
        """What there is, waiting for at least one byte; empty at the end."""
        while not self._buffer:
            if self._error:
                raise ConnectionLostError(f"the connection broke: {self._error}", sent=True) from self._error
            if self._is_ended:
                return b""
            if not await self._wait("_reader", timeout):
                raise ConnectionTimeoutError("the server is silent", sent=True)
        data = bytes(self._buffer)
        self._buffer.clear()
        if self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes, timeout: Optional[float], *, until_answer: bool = False) -> None:
        if self._is_ended or self._transport.is_closing():
            raise ConnectionLostError("the connection broke", sent=True) from self._error
        if until_answer and self._buffer:
            raise PeerAnswered
        self._transport.write(data)
        while self._is_writing_paused and not self._is_ended:
            if until_answer and self._buffer:
                raise PeerAnswered
            if not await self._wait("_writer", timeout):
                raise ConnectionTimeoutError("the server takes nothing", sent=True)
        if self._is_ended and not self._buffer:
            raise ConnectionLostError("the connection broke", sent=True) from self._error

    def close(self) -> None:
        # abort(), because close() would wait for a peer that takes nothing.
        self._transport.abort() if self._is_writing_paused else self._transport.close()


class Task:
    """Work beside this."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.ensure_future(work())

    def give_up(self) -> None:
        self._task.cancel()


async def completed(work: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[T], Coroutine[Any, Any, object]]) -> T:
    """What must not be left in the middle, because its other half is elsewhere. When the wait for it is cancelled, it is undone."""
    task = asyncio.ensure_future(work())

    async def undo_it() -> None:
        await undo(await task)

    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        later(undo_it)
        raise


async def in_thread(work: Callable[[], T]) -> T:
    """Work that waits for files, so that nobody else waits for it."""
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def last_wish(work: Callable[[], Awaitable[object]]) -> None:
    """Cleans up after a failure or a cancellation; a failure to do so is not worth more than the first one."""
    with contextlib.suppress(Exception):
        await asyncio.shield(asyncio.ensure_future(asyncio.wait_for(work(), 10)))


def later(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """Like last_wish, without waiting for it."""
    task = asyncio.ensure_future(last_wish(work))
    _pending.add(task)
    task.add_done_callback(_pending.discard)


_pending: set[asyncio.Future[None]] = set()


async def pieces(source: AsyncSource) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield piece
        return
    iterator = filter(None, _read_pieces(source))  # an empty piece is none
    while True:
        piece = await in_thread(lambda: next(iterator, b""))
        if not piece:
            return
        yield piece


def _read_pieces(source: Any) -> Iterable[bytes]:
    return iter(lambda: source.read(1 << 18), b"") if hasattr(source, "read") else source


class Opening(Generic[T]):
    """`await` it, or `async with` it."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._made: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._work.__await__()

    async def __aenter__(self) -> T:
        self._made = await self._work
        await self._made.__aenter__()
        return self._made  # type: ignore[no-any-return]

    async def __aexit__(self, *exc: Any) -> None:
        await self._made.__aexit__(*exc)


def opening(work: Coroutine[Any, Any, T]) -> Opening[T]:
    return Opening(work)
