# SPDX-License-Identifier: Apache-2.0
"""Every call of the API by its operationId: method, path, query parameters and fields of a JSON body.

A call with an unknown parameter is refused here; tests/sdk compares the table with spec/openapi.yaml.
"""
from __future__ import annotations

from typing import FrozenSet, NamedTuple, Optional


class Route(NamedTuple):
    method: str
    path: str
    query: FrozenSet[str]
    body: FrozenSet[str]
    repeatable: bool  # doing it twice is as good as once, so a call whose connection broke may be sent again


def _route(method: str, path: str, *, query: str = "", body: str = "", repeatable: Optional[bool] = None) -> Route:
    return Route(method, path, frozenset(query.split()), frozenset(body.split()), method == "GET" if repeatable is None else repeatable)


_SANDBOX = "/v1/sandboxes/{id}"
_EXECUTION = _SANDBOX + "/executions/{eid}"
_PAGE = "limit cursor"
_POLICY = "egress presets allow deny limits packages"

CREATE_SANDBOX = _route("POST", "/v1/sandboxes", body="template snapshot runtime limits env secrets metadata user workdir lifetime_ms idle_timeout_ms fresh on_timeout network volumes", repeatable=True)
LIST_SANDBOXES = _route("GET", "/v1/sandboxes", query="state metadata_filter " + _PAGE)
GET_SANDBOX = _route("GET", _SANDBOX)
UPDATE_SANDBOX = _route("PATCH", _SANDBOX, body="lifetime_ms idle_timeout_ms metadata")
KILL_SANDBOX = _route("DELETE", _SANDBOX, repeatable=True)
PAUSE_SANDBOX = _route("POST", _SANDBOX + "/pause", repeatable=True)
RESUME_SANDBOX = _route("POST", _SANDBOX + "/resume", repeatable=True)
HIBERNATE_SANDBOX = _route("POST", _SANDBOX + "/hibernate", body="require", repeatable=True)
FORK_SANDBOX = _route("POST", _SANDBOX + "/fork", body="count lifetime_ms env secrets inherit_secrets metadata network require")
RESET_SANDBOX = _route("POST", _SANDBOX + "/reset", body="snapshot")
DIFF_SANDBOX = _route("GET", _SANDBOX + "/diff", query="against " + _PAGE)
GET_SANDBOX_STATS = _route("GET", _SANDBOX + "/stats")
START_EXECUTION = _route("POST", _SANDBOX + "/executions", query="wait", body="argv command env secrets cwd user stdin stdin_text stdin_b64 pty timeout_ms kill_grace_ms name")
LIST_EXECUTIONS = _route("GET", _SANDBOX + "/executions", query="state " + _PAGE)
GET_EXECUTION = _route("GET", _EXECUTION)
WAIT_EXECUTION = _route("GET", _EXECUTION + "/wait", query="timeout_ms")
READ_OUTPUT = _route("GET", _EXECUTION + "/output", query="cursor stream format wait_ms follow")
WRITE_STDIN = _route("POST", _EXECUTION + "/stdin", query="close")
SIGNAL_EXECUTION = _route("POST", _EXECUTION + "/signal", body="signal tree")
KILL_EXECUTION = _route("POST", _EXECUTION + "/kill", repeatable=True)
RESIZE_EXECUTION = _route("POST", _EXECUTION + "/resize", body="cols rows", repeatable=True)
ATTACH_EXECUTION = _route("GET", _EXECUTION + "/attach", query="cursor")
LIST_PROCESSES = _route("GET", _SANDBOX + "/processes")
SIGNAL_PROCESS = _route("POST", _SANDBOX + "/processes/{pid}/signal", body="signal tree")
READ_FILE = _route("GET", _SANDBOX + "/files", query="path user")
WRITE_FILE = _route("PUT", _SANDBOX + "/files", query="path user mode parents exclusive append")
REMOVE_FILE = _route("DELETE", _SANDBOX + "/files", query="path user recursive")
STAT_FILE = _route("GET", _SANDBOX + "/files/stat", query="path user follow")
LIST_FILES = _route("GET", _SANDBOX + "/files/list", query="path user " + _PAGE)
WATCH_FILES = _route("GET", _SANDBOX + "/files/watch", query="path user recursive")
MAKE_DIRECTORY = _route("POST", _SANDBOX + "/files/mkdir", query="user", body="path path_b64 parents mode")
MOVE_FILE = _route("POST", _SANDBOX + "/files/move", query="user", body="from from_b64 to to_b64 parents overwrite")
READ_ARCHIVE = _route("GET", _SANDBOX + "/archive", query="path user gzip")
WRITE_ARCHIVE = _route("PUT", _SANDBOX + "/archive", query="path user")
RUN_CODE = _route("POST", _SANDBOX + "/code", body="code language context env timeout_ms cwd")
LIST_CODE_CONTEXTS = _route("GET", _SANDBOX + "/code/contexts")
CREATE_CODE_CONTEXT = _route("POST", _SANDBOX + "/code/contexts", body="language cwd")
DELETE_CODE_CONTEXT = _route("DELETE", _SANDBOX + "/code/contexts/{context}", repeatable=True)
RESTART_CODE_CONTEXT = _route("POST", _SANDBOX + "/code/contexts/{context}/restart")
INTERRUPT_CODE = _route("POST", _SANDBOX + "/code/contexts/{context}/interrupt")
GET_NETWORK = _route("GET", _SANDBOX + "/network")
SET_NETWORK = _route("PUT", _SANDBOX + "/network", body=_POLICY, repeatable=True)
LIST_CONNECTIONS = _route("GET", _SANDBOX + "/network/connections", query=_PAGE)
LIST_PACKAGES = _route("GET", _SANDBOX + "/packages", query=_PAGE)
GET_PORT = _route("GET", _SANDBOX + "/ports/{port}")
OPEN_PORT = _route("POST", _SANDBOX + "/ports/{port}", body="public")
REVOKE_PORT = _route("DELETE", _SANDBOX + "/ports/{port}", repeatable=True)
CHECK_NETWORK = _route("GET", "/v1/network")
GET_DEFAULT_NETWORK = _route("GET", "/v1/network/default")
SET_DEFAULT_NETWORK = _route("PUT", "/v1/network/default", body=_POLICY, repeatable=True)
UNSET_DEFAULT_NETWORK = _route("DELETE", "/v1/network/default", repeatable=True)
LIST_PRESETS = _route("GET", "/v1/network/presets")
CREATE_SNAPSHOT = _route("POST", _SANDBOX + "/snapshots", body="name labels require")
LIST_SNAPSHOTS = _route("GET", "/v1/snapshots", query="sandbox name label_filter " + _PAGE)
GET_SNAPSHOT = _route("GET", "/v1/snapshots/{id}")
UPDATE_SNAPSHOT = _route("PATCH", "/v1/snapshots/{id}", body="name labels")
DELETE_SNAPSHOT = _route("DELETE", "/v1/snapshots/{id}")
VERIFY_SNAPSHOT = _route("POST", "/v1/snapshots/{id}/verify", repeatable=True)
CREATE_VOLUME = _route("POST", "/v1/volumes", body="name size_mb labels get_or_create")
LIST_VOLUMES = _route("GET", "/v1/volumes", query=_PAGE)
GET_VOLUME = _route("GET", "/v1/volumes/{volume}")
GROW_VOLUME = _route("PATCH", "/v1/volumes/{volume}", body="size_mb", repeatable=True)
DELETE_VOLUME = _route("DELETE", "/v1/volumes/{volume}")
EXPORT_VOLUME = _route("GET", "/v1/volumes/{volume}/archive")
IMPORT_VOLUME = _route("PUT", "/v1/volumes/{volume}/archive")
LIST_TEMPLATES = _route("GET", "/v1/templates")
GET_TEMPLATE = _route("GET", "/v1/templates/{name}")
REMOVE_TEMPLATE = _route("DELETE", "/v1/templates/{name}")
LIST_RUNTIMES = _route("GET", "/v1/runtimes")
GET_POOL = _route("GET", "/v1/pool")
LIST_KEYS = _route("GET", "/v1/keys")
CREATE_KEY = _route("POST", "/v1/keys", body="name tenant role default_runtime")
REMOVE_KEY = _route("DELETE", "/v1/keys/{id}")
GET_INFO = _route("GET", "/v1/info")
GET_HEALTH = _route("GET", "/healthz")
GET_READINESS = _route("GET", "/readyz")
METRICS = _route("GET", "/metrics")
GET_OPEN_API = _route("GET", "/openapi.json")
GET_VERSION = _route("GET", "/version")
