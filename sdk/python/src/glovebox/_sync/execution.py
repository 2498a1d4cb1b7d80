# SPDX-License-Identifier: Apache-2.0
# Made from _async/execution.py by scripts/make-sync; change that.
from __future__ import annotations

import base64
import json
import time
from typing import Any, Iterator, Callable, Dict, List, Mapping, Optional

from .. import _routes as routes
from .._decode import decode
from .._io_sync import Source
from .._results import ExecResult, OutputChunk, TextDecoders
from .._sse import EventParser
from ..errors import ConnectionLostError
from ..types import ExecutionInfo, Signal, StreamName
from .attachment import Attachment
from .transport import Transport, back_off, is_refused_for_now

TextHandler = Callable[[str], object]
MAX_SILENCE_MS = 60_000  # the server says something every 15 s


class Patience:
    """How long to try to come back to a command whose connection broke."""

    def __init__(self, reattach_ms: int) -> None:
        self._seconds = reattach_ms / 1000
        self.reset()

    def reset(self) -> None:
        self._lost_at: Optional[float] = None
        self._attempt = 0

    def after(self, error: Exception) -> None:
        """Waits, or raises the error when it is too late or of another kind."""
        if not isinstance(error, ConnectionLostError) and not is_refused_for_now(error):
            raise error
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at > self._seconds:
            raise error
        back_off(self._attempt)
        self._attempt += 1


class Execution:
    """A command that was started. It goes on whether anybody listens or not."""

    def __init__(self, transport: Transport, info: ExecutionInfo) -> None:
        self.info = info  # as of the last call that told
        self._transport = transport
        self._params = {"id": info.sandbox_id, "eid": info.id}

    @property
    def id(self) -> str:
        return self.info.id

    def _told(self, answer: Mapping[str, Any]) -> ExecutionInfo:
        self.info = decode(ExecutionInfo, answer)
        return self.info

    def refresh(self) -> ExecutionInfo:
        return self._told(self._transport.json(routes.GET_EXECUTION, self._params))

    def output(self, *, cursor: int = 0, stream: Optional[StreamName] = None) -> Iterator[OutputChunk]:
        """Its output from `cursor` on, to its end.

        When the connection breaks, the iteration goes on from the last cursor: nothing is lost and nothing comes twice.
        """
        decoders = TextDecoders()
        dropped: Dict[str, int] = {}
        patience = Patience(self._transport.options.reattach_ms)
        while True:
            failure: Optional[Exception] = None
            query: Dict[str, Any] = {"cursor": cursor, "format": "sse", "stream": stream}
            try:
                response = self._transport.open(routes.READ_OUTPUT, self._params, query=query, idle_timeout_ms=MAX_SILENCE_MS)
            except Exception as error:
                patience.after(error)
                continue
            parser = EventParser()
            parts = response.pieces()
            try:
                while True:
                    # Only the reading may fail like this: what the loop's body raises is none of ours.
                    try:
                        piece = parts.__next__()
                    except StopIteration:
                        failure = ConnectionLostError("the output ended before the execution did", sent=True)
                        break
                    except ConnectionLostError as error:
                        failure = error
                        break
                    for event in parser.feed(piece):
                        patience.reset()
                        if event.event == "exit":
                            self._told(json.loads(event.data))
                            return
                        if event.event != "output":
                            continue
                        wire = json.loads(event.data)
                        cursor = int(event.id)
                        lost = int(wire.get("dropped_bytes", 0))
                        if lost and dropped.get(wire["stream"]) == lost:
                            continue  # told before the connection broke
                        dropped[wire["stream"]] = lost
                        data = base64.b64decode(wire["data_b64"]) if "data_b64" in wire else wire.get("data", "").encode()
                        yield decoders.chunk(wire["stream"], data, cursor, lost)
            finally:
                response.close()
            patience.after(failure)

    def result(self, *, on_stdout: Optional[TextHandler] = None, on_stderr: Optional[TextHandler] = None) -> ExecResult:
        """Waits for its end and gives all its output."""
        parts: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        for chunk in self.output():
            parts[chunk.stream].append(chunk.data)
            tell = on_stdout if chunk.stream == "stdout" else on_stderr
            if tell and chunk.text:
                tell(chunk.text)
        return ExecResult(self.info, b"".join(parts["stdout"]), b"".join(parts["stderr"]))

    def wait(self, *, timeout_ms: Optional[int] = None) -> ExecutionInfo:
        """Waits for its end, without its output; at most `timeout_ms` if that is given: `info.state` tells which."""
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        patience = Patience(self._transport.options.reattach_ms)
        while True:
            left = 60_000 if deadline is None else max(0, min(60_000, int((deadline - time.monotonic()) * 1000)))
            try:
                self._told(self._transport.json(routes.WAIT_EXECUTION, self._params, query={"timeout_ms": left},
                                                      idle_timeout_ms=MAX_SILENCE_MS))
                patience.reset()
            except Exception as error:
                patience.after(error)
            if self.info.state == "ended" or (deadline is not None and time.monotonic() >= deadline - 0.001):
                return self.info

    def write_stdin(self, data: Source, *, close: bool = False) -> None:
        """Returns when the process's side has taken the bytes; it may be slow to, so there is no time limit."""
        self._transport.json(routes.WRITE_STDIN, self._params, query={"close": close}, content=data, idle_timeout_ms=0)

    def close_stdin(self) -> None:
        self.write_stdin(b"", close=True)

    def signal(self, signal: Signal, *, tree: bool = False) -> ExecutionInfo:
        """`tree`: to every process it started as well."""
        return self._told(self._transport.json(routes.SIGNAL_EXECUTION, self._params, json={"signal": signal, "tree": tree}))

    def kill(self) -> ExecutionInfo:
        """Ends it and every process it started; returns when they are gone."""
        return self._told(self._transport.json(routes.KILL_EXECUTION, self._params))

    def resize(self, cols: int, rows: int) -> ExecutionInfo:
        return self._told(self._transport.json(routes.RESIZE_EXECUTION, self._params, json={"cols": cols, "rows": rows}))

    def attach(self, *, cursor: int = 0) -> Attachment:
        """A two-way connection: its output as it comes, and its standard input."""
        return Attachment.open(self._transport, self, cursor)
