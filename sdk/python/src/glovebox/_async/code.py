# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional

from .. import _routes as routes
from .._decode import decode
from .._results import CodeResult
from ..errors import ConnectionLostError
from ..types import CodeContext, CodeError, CodeOutput
from .transport import AsyncTransport

TextHandler = Callable[[str], object]


async def run_code(transport: AsyncTransport, sandbox_id: str, body: Dict[str, Any], on_stdout: Optional[TextHandler],
                   on_stderr: Optional[TextHandler], on_output: Optional[Callable[[CodeOutput], object]]) -> CodeResult:
    response = await transport.open(routes.RUN_CODE, {"id": sandbox_id}, json=body, headers={"Accept": "application/x-ndjson"},
                                    idle_timeout_ms=60_000)
    out = CodeResult()
    try:
        rest: List[bytes] = []
        async for piece in response.pieces():
            *lines, last = piece.split(b"\n")
            for line in lines:
                event = json.loads(b"".join([*rest, line]))
                rest = []
                kind = event["type"]
                if kind == "start":
                    out.context, out.language, out.execution_count = event["context"], event["language"], event["execution_count"]
                elif kind in ("stdout", "stderr"):
                    setattr(out, kind, getattr(out, kind) + event["text"])
                    tell = on_stdout if kind == "stdout" else on_stderr
                    if tell:
                        tell(event["text"])
                elif kind == "result":
                    out.results.append(decode(CodeOutput, event))
                    if on_output:
                        on_output(out.results[-1])
                elif kind == "error":
                    out.error = decode(CodeError, event)
                elif kind == "end":
                    out.execution_count = event["execution_count"]
                    return out
            rest.append(last)
    finally:
        response.close()  # in the middle of it: the cell is interrupted
    raise ConnectionLostError("the connection broke while the cell ran", sent=True)


class AsyncCodeContexts:
    """Contexts that keep the state of code between its cells."""

    def __init__(self, transport: AsyncTransport, sandbox_id: str) -> None:
        self._transport = transport
        self._id = sandbox_id

    async def list(self) -> List[CodeContext]:
        answer = await self._transport.json(routes.LIST_CODE_CONTEXTS, {"id": self._id})
        return [decode(CodeContext, item) for item in answer["contexts"]]

    async def create(self, *, language: Optional[str] = None, cwd: Optional[str] = None) -> CodeContext:
        body = {"language": language, "cwd": cwd}
        return decode(CodeContext, await self._transport.json(routes.CREATE_CODE_CONTEXT, {"id": self._id}, json=body))

    async def remove(self, context: str) -> None:
        await self._transport.read(routes.DELETE_CODE_CONTEXT, {"id": self._id, "context": context})

    async def restart(self, context: str) -> CodeContext:
        """A new kernel without the state of the old one."""
        return decode(CodeContext, await self._transport.json(routes.RESTART_CODE_CONTEXT, {"id": self._id, "context": context}))

    async def interrupt(self, context: str) -> bool:
        """Whether a cell ran; the state is kept."""
        answer = await self._transport.json(routes.INTERRUPT_CODE, {"id": self._id, "context": context})
        return bool(answer["interrupted"])
