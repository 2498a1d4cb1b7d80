# SPDX-License-Identifier: Apache-2.0
# Made from _async/attachment.py by scripts/make-sync; change that.
from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Iterator, Callable, Dict, List, Optional, Union

from .. import _routes as routes
from .. import _ws
from .._decode import decode
from .._io_sync import Lock, Stream
from .._results import ExecResult, OutputChunk, TextDecoders
from ..errors import ApiError, ConnectionLostError, ConnectionTimeoutError, ProtocolError
from ..types import ExecutionInfo, Signal
from .transport import Transport, back_off, is_refused_for_now

if TYPE_CHECKING:
    from .execution import Execution

SILENCE_SECONDS = 30.0  # then a ping; twice that without a word means that nobody is there


class WebSocket:
    def __init__(self, stream: Stream, rest: bytes) -> None:
        self._stream = stream
        self._parser = _ws.FrameParser()
        self._messages: List[_ws.Message] = self._parser.feed(rest)
        self._write_lock = Lock()
        self._heard_at = time.monotonic()

    @staticmethod
    def open(transport: Transport, sandbox_id: str, execution_id: str, cursor: int) -> WebSocket:
        key = _ws.new_key()
        stream, head, rest = transport.upgrade(
            routes.ATTACH_EXECUTION, {"id": sandbox_id, "eid": execution_id}, {"cursor": cursor},
            {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key})
        if head.headers.get("sec-websocket-accept") != _ws.accept_of(key):
            stream.close()
            raise ProtocolError("the server did not accept the WebSocket")
        return WebSocket(stream, rest)

    def receive(self) -> Optional[_ws.Message]:
        """None when the server has closed properly."""
        while not self._messages:
            for reply in self._parser.replies:
                self._write(reply)
            self._parser.replies.clear()
            if self._parser.is_closed:
                self._stream.close()
                if self._parser.error:
                    raise self._parser.error
                return None
            self._read()
        return self._messages.pop(0)

    def _read(self) -> None:
        try:
            data = self._stream.read(SILENCE_SECONDS)
        except ConnectionTimeoutError:
            if time.monotonic() - self._heard_at > 2 * SILENCE_SECONDS - 1:
                raise
            self._write(_ws.frame(_ws.PING, b""))
            return
        if not data:
            raise ConnectionLostError("the connection broke", sent=True)
        self._heard_at = time.monotonic()
        self._messages += self._parser.feed(data)

    def send(self, message: Union[str, bytes]) -> None:
        if isinstance(message, str):
            self._write(_ws.frame(_ws.TEXT, message.encode()))
        else:
            self._write(_ws.frame(_ws.BINARY, message))

    def _write(self, data: bytes) -> None:
        with self._write_lock:
            self._stream.write(data, None)

    def close(self) -> None:
        try:
            self._write(_ws.frame(_ws.CLOSE, b"\x03\xe8"))
        except ConnectionLostError:
            pass
        self._stream.close()


class Attachment:
    """An attached execution: iterate for its output, write to its standard input.

    Leaving it does not touch the execution. When the connection breaks, the output goes on from where it was; a write that was on
    its way then fails, and nobody can tell how much of it arrived.
    """

    def __init__(self, transport: Transport, execution: Execution, socket: WebSocket, cursor: int) -> None:
        self.execution = execution
        self.on_error: Optional[Callable[[Dict[str, Any]], None]] = None  # for inputs that the server refused
        self._transport = transport
        self._socket = socket
        self._cursor = cursor
        self._is_closed = False

    @staticmethod
    def open(transport: Transport, execution: Execution, cursor: int) -> Attachment:
        socket = WebSocket.open(transport, execution.info.sandbox_id, execution.id, cursor)
        return Attachment(transport, execution, socket, cursor)

    def __iter__(self) -> Iterator[OutputChunk]:
        decoders = TextDecoders()
        while True:
            message = self._receive()
            if message is None:
                return
            if isinstance(message, str):
                if self._told(message):
                    self.close()
                    return
            elif len(message) > 1:
                self._cursor += len(message) - 1
                yield decoders.chunk("stdout" if message[0] == 1 else "stderr", message[1:], self._cursor)

    def _receive(self) -> Optional[_ws.Message]:
        """The next message, over a new connection if need be; None when this side has closed."""
        lost_at: Optional[float] = None
        attempt = 0
        while True:
            try:
                if lost_at is not None:
                    self._socket = WebSocket.open(self._transport, self.execution.info.sandbox_id, self.execution.id, self._cursor)
                message = self._socket.receive()
                if message is None and not self._is_closed:
                    raise ConnectionLostError("the server closed the attachment before the execution's end", sent=True)
                return message
            except (ConnectionLostError, ApiError) as error:
                if self._is_closed:
                    return None
                if isinstance(error, ApiError) and not is_refused_for_now(error):
                    raise
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > self._transport.options.reattach_ms / 1000:
                    raise
                back_off(attempt)
                attempt += 1

    def _told(self, text: str) -> bool:
        """True at the end."""
        message = json.loads(text)
        if "execution" in message:
            self.execution.info = decode(ExecutionInfo, message["execution"])
        if message["type"] == "cursor":
            self._cursor = int(message["cursor"])
        if message["type"] == "error" and self.on_error:
            self.on_error(message["error"])
        return bool(message["type"] == "exit")

    def result(self) -> ExecResult:
        """Reads to the end."""
        parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        for chunk in self:
            parts[chunk.stream].append(chunk.data)
        return ExecResult(self.execution.info, b"".join(parts["stdout"]), b"".join(parts["stderr"]))

    def write(self, data: Union[str, bytes]) -> None:
        content = data.encode() if isinstance(data, str) else data
        for begin in range(0, len(content), 1 << 16):
            self._socket.send(b"\0" + content[begin : begin + (1 << 16)])

    def close_stdin(self) -> None:
        self._socket.send(b"\0")

    def resize(self, cols: int, rows: int) -> None:
        self._socket.send(json.dumps({"type": "resize", "cols": cols, "rows": rows}))

    def signal(self, signal: Signal) -> None:
        """To the command and every process it started."""
        self._socket.send(json.dumps({"type": "signal", "signal": signal}))

    def close(self) -> None:
        self._is_closed = True
        self._socket.close()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
