# SPDX-License-Identifier: Apache-2.0
# Made from _async/sandbox.py by scripts/make-sync; change that.
from __future__ import annotations

import base64
import uuid
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union
from urllib.parse import urlsplit

from .. import _routes as routes
from .._decode import decode
from .._io_sync import Source, Task, completed, last_wish, later, opening
from .._results import CodeResult, ExecResult
from ..errors import ConflictError, NotFoundError
from ..types import (
    Change, CodeOutput, ExecutionInfo, ExecutionState, Kept, LimitsRequest, NetworkPolicy, OnTimeout, Port, ProcessInfo, Pty, SandboxInfo, SandboxState,
    Signal, Snapshot, Stats, Tier, VolumeMount)
from .attachment import Attachment
from .code import CodeContexts, run_code
from .execution import Execution, TextHandler
from .files import Files
from .network import Network
from .pages import Pages

if TYPE_CHECKING:
    from .client import Glovebox

# A command line for `/bin/sh -c`, or a program and its arguments.
Command = Union[str, Sequence[str]]
MAX_INLINE_STDIN = 64 << 10
SLOW_MS = 600_000  # for what has to move a sandbox's memory


class PreviewResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    content: bytes


def _client_or_new(client: Optional[Glovebox]) -> Glovebox:
    from .client import Glovebox

    return client or Glovebox()


def _inline_stdin(stdin: Optional[Source]) -> Optional[Dict[str, str]]:
    """Fields of the start call; None when it has to be streamed."""
    if stdin is None:
        return {}
    if isinstance(stdin, str):
        stdin = stdin.encode()
    if isinstance(stdin, (bytes, bytearray, memoryview)) and len(stdin) <= MAX_INLINE_STDIN:
        return {"stdin_b64": base64.b64encode(stdin).decode()}
    return None


class Sandbox:
    """A machine of its own for one task. Used as a context it ends with the block; otherwise `kill()` or its lifetime ends it."""

    def __init__(self, client: Glovebox, info: SandboxInfo) -> None:
        self.client = client
        self.info = info  # as of the last call that told
        self.files = Files(client.transport, info.id)
        self.network = Network(client.transport, info.id)
        self.code_contexts = CodeContexts(client.transport, info.id)
        self._transport = client.transport
        self._params = {"id": info.id}
        self._owns_client = False

    @classmethod
    def create(cls, *, template: Optional[str] = None, snapshot: Optional[str] = None, runtime: Union[Tier, str, None] = None,
               limits: Optional[LimitsRequest] = None, env: Optional[Dict[str, str]] = None,
               secrets: Optional[Dict[str, str]] = None, metadata: Optional[Dict[str, str]] = None, user: Optional[str] = None,
               workdir: Optional[str] = None, lifetime_ms: Optional[int] = None, idle_timeout_ms: Optional[int] = None,
               fresh: Optional[bool] = None, on_timeout: Optional[OnTimeout] = None, network: Optional[NetworkPolicy] = None,
               volumes: Optional[List[VolumeMount]] = None,
               client: Optional[Glovebox] = None, idempotency_key: Optional[str] = None) -> Sandbox:
        """Gives a sandbox that is ready.

        `runtime`: "auto", the default, is the strongest tier that works on the server; a named one is never replaced by another.
        `secrets` are environment that snapshots and copies do not take along. `lifetime_ms` and `idle_timeout_ms`: 0 for none. Two
        calls with the same `idempotency_key` give one sandbox; without one each call gets its own, so that it can be repeated safely.
        Without `client`, the environment says which server.
        """
        body: Dict[str, Any] = {
            "template": template, "snapshot": snapshot, "runtime": runtime, "limits": limits, "env": env, "secrets": secrets,
            "metadata": metadata, "user": user, "workdir": workdir, "lifetime_ms": lifetime_ms, "idle_timeout_ms": idle_timeout_ms,
            "fresh": fresh, "on_timeout": on_timeout, "network": network, "volumes": volumes}
        return opening(cls._create(client, body, idempotency_key or str(uuid.uuid4())))

    @classmethod
    def _create(cls, given: Optional[Glovebox], body: Dict[str, Any], key: str) -> Sandbox:
        client = _client_or_new(given)

        def ask() -> Sandbox:
            answer = client.transport.json(routes.CREATE_SANDBOX, json=body, headers={"Idempotency-Key": key})
            return Sandbox(client, decode(SandboxInfo, answer))

        def find_and_kill() -> None:
            (ask()).kill()

        try:
            sandbox = ask()
        except BaseException as error:
            # Whoever gave up the wait does not know the sandbox that may have been made; the key finds it again.
            if not isinstance(error, Exception):
                later(find_and_kill)
            raise
        sandbox._owns_client = given is None
        return sandbox

    @classmethod
    def connect(cls, sandbox_id: str, *, client: Optional[Glovebox] = None) -> Sandbox:
        """A sandbox that is there already."""
        sandbox = _client_or_new(client).sandboxes.get(sandbox_id)
        sandbox._owns_client = client is None
        return sandbox

    @classmethod
    def list(cls, *, state: Union[SandboxState, List[SandboxState], None] = None, metadata: Optional[Dict[str, str]] = None,
             client: Optional[Glovebox] = None) -> Pages[Sandbox]:
        return _client_or_new(client).sandboxes.list(state=state, metadata=metadata)

    @property
    def id(self) -> str:
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.id} {self.info.runtime} {self.info.state}>"

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.kill()
        except NotFoundError:
            pass  # it had ended long ago
        finally:
            if self._owns_client:
                self.client.close()

    # Life -------------------------------------------------------------------------------------------------------------------------
    def _told(self, answer: Mapping[str, Any]) -> SandboxInfo:
        self.info = decode(SandboxInfo, answer)
        return self.info

    def refresh(self) -> SandboxInfo:
        return self._told(self._transport.json(routes.GET_SANDBOX, self._params))

    def update(self, *, lifetime_ms: Optional[int] = None, idle_timeout_ms: Optional[int] = None,
                     metadata: Optional[Dict[str, str]] = None) -> SandboxInfo:
        """The lifetime counts from now, 0 for none; metadata replaces the whole of it."""
        body: Dict[str, Any] = {"lifetime_ms": lifetime_ms, "idle_timeout_ms": idle_timeout_ms, "metadata": metadata}
        return self._told(self._transport.json(routes.UPDATE_SANDBOX, self._params, json=body))

    def kill(self) -> SandboxInfo:
        """Ends it; returns when nothing of it is left. Fine to repeat."""
        return self._told(self._transport.json(routes.KILL_SANDBOX, self._params))

    def pause(self) -> SandboxInfo:
        """Stops it as it is, memory included. A call that needs it resumes it."""
        return self._told(self._transport.json(routes.PAUSE_SANDBOX, self._params))

    def resume(self) -> SandboxInfo:
        return self._told(self._transport.json(routes.RESUME_SANDBOX, self._params, idle_timeout_ms=SLOW_MS))

    def hibernate(self, *, require: Optional[Kept] = None) -> SandboxInfo:
        """Like a pause, and its memory on the server is freed as well."""
        answer = self._transport.json(routes.HIBERNATE_SANDBOX, self._params, json={"require": require}, idle_timeout_ms=SLOW_MS)
        return self._told(answer)

    def snapshot(self, *, name: Optional[str] = None, labels: Optional[Dict[str, str]] = None,
                       require: Optional[Kept] = None) -> Snapshot:
        """Keeps its state under an id; it goes on running. `require` fails with `unsupported` where less would be kept."""
        body: Dict[str, Any] = {"name": name, "labels": labels, "require": require}
        return decode(Snapshot, self._transport.json(routes.CREATE_SNAPSHOT, self._params, json=body, idle_timeout_ms=SLOW_MS))

    def fork(self, count: int = 1, *, lifetime_ms: Optional[int] = None, env: Optional[Dict[str, str]] = None,
                   secrets: Optional[Dict[str, str]] = None, inherit_secrets: bool = False,
                   metadata: Optional[Dict[str, str]] = None, network: Optional[NetworkPolicy] = None,
                   require: Optional[Kept] = None) -> List[Sandbox]:
        """Children that go on from here, each with an identity of its own; all or none. They begin without its secrets, or inherit them."""
        body: Dict[str, Any] = {
            "count": count, "lifetime_ms": lifetime_ms, "env": env, "secrets": secrets, "inherit_secrets": inherit_secrets,
            "metadata": metadata, "network": network, "require": require}
        answer = self._transport.json(routes.FORK_SANDBOX, self._params, json=body, idle_timeout_ms=SLOW_MS)
        return [Sandbox(self.client, decode(SandboxInfo, item)) for item in answer["sandboxes"]]

    def reset(self, *, snapshot: Optional[str] = None) -> SandboxInfo:
        """Back to a snapshot of its own lineage, in place; without one, that it was started from or reset to last."""
        answer = self._transport.json(routes.RESET_SANDBOX, self._params, json={"snapshot": snapshot}, idle_timeout_ms=SLOW_MS)
        return self._told(answer)

    def diff(self, *, against: Optional[str] = None) -> Pages[Change]:
        """Files that differ from its template's ("template", the default), or from a snapshot's (its id)."""
        return Pages(self._transport, routes.DIFF_SANDBOX, "items", lambda item: decode(Change, item), self._params, {"against": against})

    def stats(self) -> Stats:
        """What it uses now."""
        return decode(Stats, self._transport.json(routes.GET_SANDBOX_STATS, self._params))

    # Commands ---------------------------------------------------------------------------------------------------------------------
    def start(self, command: Command, *, env: Optional[Dict[str, str]] = None, secrets: Optional[Dict[str, str]] = None,
                    cwd: Optional[str] = None, user: Optional[str] = None, stdin: bool = False, pty: Optional[Pty] = None,
                    timeout_ms: Optional[int] = None, kill_grace_ms: Optional[int] = None, name: Optional[str] = None,
                    idempotency_key: Optional[str] = None) -> Execution:
        """Starts a command and does not wait for it. `stdin` keeps its standard input open, for `write_stdin` and `attach`.

        Two calls with the same `idempotency_key` start one command, as long as the server remembers it.
        """
        return self._start(command, {
            "env": env, "secrets": secrets, "cwd": cwd, "user": user, "stdin": stdin, "pty": pty, "timeout_ms": timeout_ms,
            "kill_grace_ms": kill_grace_ms, "name": name}, idempotency_key)

    def _start(self, command: Command, body: Dict[str, Any], key: Optional[str] = None) -> Execution:
        spelled = {"command": command} if isinstance(command, str) else {"argv": [*command]}
        headers = {} if key is None else {"Idempotency-Key": key}

        def ask() -> Execution:
            answer = self._transport.json(routes.START_EXECUTION, self._params, json={**spelled, **body}, headers=headers)
            return Execution(self._transport, decode(ExecutionInfo, answer))

        return completed(ask, lambda execution: execution.kill())

    def exec(self, command: Command, *, env: Optional[Dict[str, str]] = None, secrets: Optional[Dict[str, str]] = None,
                   cwd: Optional[str] = None, user: Optional[str] = None, stdin: Optional[Source] = None,
                   timeout_ms: Optional[int] = None, kill_grace_ms: Optional[int] = None, name: Optional[str] = None,
                   idempotency_key: Optional[str] = None, check: bool = False, on_stdout: Optional[TextHandler] = None,
                   on_stderr: Optional[TextHandler] = None) -> ExecResult:
        """Runs a command to its end. `idempotency_key`: as for `start`.

        How it ended is a result, not an error: see `ok`, `exit_code`, `outcome`. Only the command's own `timeout_ms` limits it. When
        the wait for it is given up, the command and all it started are killed.
        """
        inline = _inline_stdin(stdin)
        execution = self._start(command, {
            "env": env, "secrets": secrets, "cwd": cwd, "user": user, "timeout_ms": timeout_ms, "kill_grace_ms": kill_grace_ms,
            "name": name, **({"stdin": True} if inline is None else inline)}, idempotency_key)
        feeding: Optional[Task] = None
        failures: List[Exception] = []
        try:
            if inline is None and stdin is not None:
                feeding = Task(lambda: _feed(execution, stdin, failures))
            result = execution.result(on_stdout=on_stdout, on_stderr=on_stderr)
        except BaseException:
            if execution.info.state != "ended":
                last_wish(execution.kill)
            raise
        finally:
            if feeding:
                feeding.give_up()  # a command need not read its input to the end, nor the input have one
        if failures:
            raise failures[0]
        return result.check() if check else result

    def run_code(self, code: str, *, language: Optional[str] = None, context: Optional[str] = None, env: Optional[Dict[str, str]] = None,
                       cwd: Optional[str] = None, timeout_ms: Optional[int] = None, on_stdout: Optional[TextHandler] = None,
                       on_stderr: Optional[TextHandler] = None, on_output: Optional[Callable[[CodeOutput], object]] = None) -> CodeResult:
        """Runs a cell of code in a context that keeps its state. Needs a template with an interpreter. An exception is a result.

        `language` ("python", the default, "javascript", "bash") uses its default context. When the wait is given up, the cell is
        interrupted, and the context keeps its state.
        """
        body: Dict[str, Any] = {
            "code": code, "language": language, "context": context, "env": env, "cwd": cwd, "timeout_ms": timeout_ms}
        return run_code(self._transport, self.id, body, on_stdout, on_stderr, on_output)

    def terminal(self, command: Optional[Command] = None, *, cols: int = 80, rows: int = 24, term: str = "xterm-256color",
                       env: Optional[Dict[str, str]] = None, cwd: Optional[str] = None, user: Optional[str] = None,
                       timeout_ms: Optional[int] = None, name: Optional[str] = None) -> Attachment:
        """A terminal, attached. Without a command, a login shell."""
        execution = self.start(command or ["/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -l'], env=env, cwd=cwd, user=user, stdin=True,
                                     pty={"cols": cols, "rows": rows, "term": term}, timeout_ms=timeout_ms, name=name)
        return execution.attach()

    def execution(self, execution_id: str) -> Execution:
        """An execution that was started earlier, by anybody."""
        answer = self._transport.json(routes.GET_EXECUTION, {"id": self.id, "eid": execution_id})
        return Execution(self._transport, decode(ExecutionInfo, answer))

    def executions(self, *, state: Optional[ExecutionState] = None) -> Pages[Execution]:
        """Newest first."""
        return Pages(self._transport, routes.LIST_EXECUTIONS, "executions",
                          lambda item: Execution(self._transport, decode(ExecutionInfo, item)), self._params, {"state": state})

    def processes(self) -> List[ProcessInfo]:
        """Every process in it, whoever started it."""
        answer = self._transport.json(routes.LIST_PROCESSES, self._params)
        return [decode(ProcessInfo, item) for item in answer["processes"]]

    def signal_process(self, pid: int, signal: Signal, *, tree: bool = False) -> None:
        self._transport.json(routes.SIGNAL_PROCESS, {"id": self.id, "pid": pid}, json={"signal": signal, "tree": tree})

    # Previews ---------------------------------------------------------------------------------------------------------------------
    def port(self, port: int) -> Port:
        """How to reach a port of it, and whether something listens there."""
        return decode(Port, self._transport.json(routes.GET_PORT, {"id": self.id, "port": port}))

    def open_port(self, port: int, *, public: bool = False) -> Port:
        """Makes a new token: links given out before end."""
        return decode(Port, self._transport.json(routes.OPEN_PORT, {"id": self.id, "port": port}, json={"public": public}))

    def revoke_port(self, port: int) -> Port:
        """Lets nobody in until a new token is made."""
        return decode(Port, self._transport.json(routes.REVOKE_PORT, {"id": self.id, "port": port}))

    def fetch(self, port: int, path: str = "/", *, method: str = "GET", content: Optional[Source] = None,
                    headers: Optional[Mapping[str, str]] = None) -> PreviewResponse:
        """An HTTP request to what listens on a port of it. `path` begins with a slash; every status is an answer."""
        preview = self.port(port)
        sent = dict(headers or {})
        if preview.token:
            sent["X-Glovebox-Preview-Token"] = preview.token
        target = urlsplit(preview.urls.path).path.rstrip("/") + path
        response = self._transport.request_url(method, target, sent, content)
        return PreviewResponse(response.status, response.headers, response.read())


def _feed(execution: Execution, stdin: Source, failures: List[Exception]) -> None:
    try:
        execution.write_stdin(stdin, close=True)
    except (ConflictError, NotFoundError):
        pass  # it has ended
    except Exception as error:
        failures.append(error)
        last_wish(execution.kill)  # it would wait for the rest
