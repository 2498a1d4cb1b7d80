# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from .errors import GloveboxError
from .types import CodeError, CodeOutput, ExecutionInfo, Outcome, StreamName


@dataclass(frozen=True)
class OutputChunk:
    """A piece of output."""

    stream: StreamName
    data: bytes
    text: str  # the same; a character that is split between two chunks is in the second one
    cursor: int  # where to go on after this chunk
    dropped_bytes: int = 0  # so much was written that the server did not keep; `data` is empty then


class TextDecoders:
    """One for each stream, which remember the beginning of a character."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders: Dict[str, Any] = {"stdout": make("replace"), "stderr": make("replace")}

    def chunk(self, stream: StreamName, data: bytes, cursor: int, dropped_bytes: int = 0) -> OutputChunk:
        return OutputChunk(stream, data, self._decoders[stream].decode(data), cursor, dropped_bytes)


def _describe(outcome: Outcome) -> str:
    if outcome.type == "exited":
        return f"exited with {outcome.exit_code}"
    cause = f" ({outcome.signal_name})" if outcome.signal_name else ""
    return f"ended: {outcome.type}{cause}" + (f", {outcome.message}" if outcome.message else "")


class CommandFailedError(GloveboxError):
    """A command was not successful, and success was asked for."""

    def __init__(self, result: ExecResult) -> None:
        tail = result.stderr.rstrip()[-2000:]
        super().__init__(f"the command {_describe(result.outcome)}" + (f":\n{tail}" if tail else ""))
        self.result = result


class ExecResult:
    """What became of a command."""

    def __init__(self, info: ExecutionInfo, stdout: bytes, stderr: bytes) -> None:
        self.info = info
        self.stdout_bytes = stdout
        self.stderr_bytes = stderr

    def __repr__(self) -> str:
        return f"<ExecResult: {_describe(self.outcome)}, {len(self.stdout_bytes)} + {len(self.stderr_bytes)} bytes>"

    @property
    def outcome(self) -> Outcome:
        if self.info.outcome is None:
            raise GloveboxError(f"execution {self.info.id} has not ended")
        return self.info.outcome

    @property
    def exit_code(self) -> Optional[int]:
        """None unless the command exited by itself."""
        return self.outcome.exit_code

    @property
    def ok(self) -> bool:
        """It exited with 0."""
        return self.outcome.type == "exited" and self.outcome.exit_code == 0

    @property
    def stdout(self) -> str:
        """Bytes that are not UTF-8 are U+FFFD here; `stdout_bytes` has them."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        """It wrote more than the server kept."""
        return self.info.output.truncated

    @property
    def duration_ms(self) -> int:
        return self.info.duration_ms

    def check(self) -> ExecResult:
        """Raises CommandFailedError unless it exited with 0."""
        if not self.ok:
            raise CommandFailedError(self)
        return self


@dataclass
class CodeResult:
    """What a cell did. An exception in it is a result: see `error`."""

    context: str = ""
    language: str = ""
    execution_count: int = 0
    stdout: str = ""
    stderr: str = ""
    results: List[CodeOutput] = field(default_factory=lambda: [])
    error: Optional[CodeError] = None

    @property
    def text(self) -> Optional[str]:
        """The value of the last expression as text, if it has one."""
        for output in self.results:
            if output.main and "text/plain" in output.data:
                return str(output.data["text/plain"])
        return None
