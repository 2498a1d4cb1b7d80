# SPDX-License-Identifier: Apache-2.0
"""Waiting, by blocking the thread. _io_async.py has the same names for asyncio."""
from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from typing import Any, BinaryIO, Callable, Iterable, Iterator, Optional, TypeVar, Union

from .errors import ConnectionLostError, ConnectionTimeoutError

T = TypeVar("T")

# Bytes for a request: text goes as UTF-8; files and anything iterable are streamed.
Source = Union[str, bytes, bytearray, memoryview, BinaryIO, Iterable[bytes]]

sleep = time.sleep
Lock = threading.Lock


class PeerAnswered(Exception):
    """There is an answer already, while the request is still being sent."""


class Stream:
    """A connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._is_tls = isinstance(sock, ssl.SSLSocket)
        self._lock = threading.Lock()  # TLS takes one call at a time; a reader and a writer may be two threads
        sock.setblocking(False)

    @staticmethod
    def connect(host: str, port: int, context: Optional[ssl.SSLContext], timeout: float) -> Stream:
        try:
            sock = socket.create_connection((host, port), timeout)
        except socket.timeout as error:
            raise ConnectionTimeoutError(f"{host}:{port} does not accept connections", sent=False) from error
        except OSError as error:
            raise ConnectionLostError(f"{host}:{port}: {error}: is the server running (`glovebox up`)?", sent=False) from error
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return Stream(context.wrap_socket(sock, server_hostname=host) if context else sock)
        except OSError as error:
            sock.close()
            raise ConnectionLostError(f"{host}:{port}: {error}", sent=False) from error

    def _wait(self, events: int, timeout: Optional[float]) -> int:
        poller = select.poll()
        try:
            poller.register(self._socket, events)
            ready = poller.poll(timeout * 1000 if timeout else None)
        except (OSError, ValueError) as error:
            raise ConnectionLostError("the connection was closed", sent=True) from error
        return ready[0][1] if ready else 0

    @property
    def is_stale(self) -> bool:
        """It is of no use for another request: a server that says something unasked closes."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def read(self, timeout: Optional[float]) -> bytes:
        """What there is, waiting for at least one byte; empty at the end."""
        while True:
            try:
                with self._lock:
                    return self._socket.recv(1 << 18)
            except (BlockingIOError, ssl.SSLWantReadError):
                wanted = select.POLLIN
            except ssl.SSLWantWriteError:
                wanted = select.POLLOUT
            except (OSError, ValueError) as error:
                raise ConnectionLostError(f"the connection broke: {error}", sent=True) from error
            if not self._wait(wanted, timeout):
                raise ConnectionTimeoutError("the server is silent", sent=True)

    def write(self, data: bytes, timeout: Optional[float], *, until_answer: bool = False) -> None:
        view = memoryview(data)
        # With TLS, what can be read need not be an answer.
        watched = select.POLLIN if until_answer and not self._is_tls else 0
        while view:
            if watched and self._wait(select.POLLIN | select.POLLOUT, timeout) & (select.POLLIN | select.POLLHUP):
                raise PeerAnswered
            try:
                with self._lock:
                    view = view[self._socket.send(view) :]
                continue
            except (BlockingIOError, ssl.SSLWantWriteError):
                wanted = select.POLLOUT
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            except (OSError, ValueError) as error:
                raise ConnectionLostError(f"the connection broke: {error}", sent=True) from error
            if not self._wait(wanted | watched, timeout):
                raise ConnectionTimeoutError("the server takes nothing", sent=True)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it
        self._socket.close()


class Task:
    """Work beside this."""

    def __init__(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()

    def give_up(self) -> None:
        """Nothing: it ends with what it works on."""


def completed(work: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What must not be left in the middle; a thread is not cancelled."""
    return work()


def in_thread(work: Callable[[], T]) -> T:
    return work()


def last_wish(work: Callable[[], object]) -> None:
    """Cleans up after a failure; a failure to do so is not worth more than the first one."""
    with contextlib.suppress(Exception):
        work()


def later(work: Callable[[], object]) -> None:
    """Like last_wish, without waiting for it."""
    threading.Thread(target=last_wish, args=(work,)).start()


def pieces(source: Source) -> Iterator[bytes]:
    reader: Any = source
    return iter(lambda: reader.read(1 << 18), b"") if hasattr(source, "read") else iter(reader)


def opening(made: T) -> T:
    return made
