# SPDX-License-Identifier: Apache-2.0
# Made from _async/client.py by scripts/make-sync; change that.
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

from .. import _routes as routes
from .._decode import decode
from ..errors import ApiError
from ..types import Info, Key, Pool, Role, RuntimeStatus, SandboxInfo, SandboxState, Template, Tier
from .network import DefaultNetwork
from .pages import Pages
from .sandbox import Sandbox
from .snapshots import Snapshots
from .transport import Transport, Options
from .volumes import Volumes


class Runtimes(NamedTuple):
    runtimes: List[RuntimeStatus]
    auto: Optional[Tier]


class Glovebox:
    """A server and a key for it. Connections are kept and shared; `close` gives them up.

    Without `url`: GLOVEBOX_API_URL, or GLOVEBOX_URL, or the server that runs on this host's data directory. Without `api_key`:
    GLOVEBOX_API_KEY, or the admin key of the data directory, for a server on this host only. `idle_timeout_ms` is how long the server
    may be silent; while a command runs it never is for long, so this does not limit commands. `reattach_ms` is how long to try to
    come back to a running command after the connection broke.
    """

    def __init__(self, url: Optional[str] = None, api_key: Optional[str] = None, *, data_dir: Optional[str] = None, retries: int = 3,
                 connect_timeout_ms: int = 10_000, idle_timeout_ms: int = 120_000, reattach_ms: int = 60_000,
                 headers: Optional[Mapping[str, str]] = None) -> None:
        options = Options(retries, connect_timeout_ms, idle_timeout_ms, reattach_ms)
        self.transport = Transport(url, api_key, data_dir, options, headers)
        self.sandboxes = Sandboxes(self)
        self.snapshots = Snapshots(self.transport)
        self.volumes = Volumes(self.transport)
        self.templates = Templates(self.transport)
        self.keys = Keys(self.transport)
        self.network = DefaultNetwork(self.transport)

    @property
    def url(self) -> str:
        return self.transport.url.geturl()

    def runtimes(self) -> Runtimes:
        """Which tiers work on the server, strongest first, and what "auto" means there."""
        answer = self.transport.json(routes.LIST_RUNTIMES)
        return Runtimes([decode(RuntimeStatus, item) for item in answer["runtimes"]], answer["auto"])

    def info(self) -> Info:
        return decode(Info, self.transport.json(routes.GET_INFO))

    def version(self) -> str:
        return str((self.transport.json(routes.GET_VERSION))["version"])

    def is_healthy(self) -> bool:
        return bool((self.transport.json(routes.GET_HEALTH))["status"] == "ok")

    def is_ready(self) -> bool:
        """Whether sandboxes can be created."""
        try:
            return bool((self.transport.json(routes.GET_READINESS))["status"] == "ready")
        except ApiError as error:
            if error.status == 503:
                return False
            raise

    def pool(self) -> List[Pool]:
        """Ready sandboxes that are kept for create calls. Role admin."""
        return [decode(Pool, item) for item in (self.transport.json(routes.GET_POOL))["pools"]]

    def metrics(self) -> str:
        """In the text format of Prometheus. Role admin."""
        return (self.transport.read(routes.METRICS)).decode()

    def open_api(self) -> Dict[str, Any]:
        """The server's own description of its API."""
        document: Dict[str, Any] = json.loads(self.transport.read(routes.GET_OPEN_API))
        return document

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Glovebox:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Sandboxes:
    def __init__(self, client: Glovebox) -> None:
        self._client = client

    def create(self, **spec: Any) -> Sandbox:
        """As Sandbox.create."""
        return Sandbox.create(client=self._client, **spec)

    def get(self, sandbox_id: str) -> Sandbox:
        answer = self._client.transport.json(routes.GET_SANDBOX, {"id": sandbox_id})
        return Sandbox(self._client, decode(SandboxInfo, answer))

    def list(self, *, state: Union[SandboxState, List[SandboxState], None] = None, metadata: Optional[Dict[str, str]] = None,
             ) -> Pages[Sandbox]:
        """The tenant's sandboxes, newest first; without `state`, all but ended ones."""
        states: Any = [state] if isinstance(state, str) else state
        filters = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
        return Pages(self._client.transport, routes.LIST_SANDBOXES, "sandboxes",
                          lambda item: Sandbox(self._client, decode(SandboxInfo, item)),
                          query={"state": states, "metadata_filter": filters})


class Templates:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Template]:
        return [decode(Template, item) for item in (self._transport.json(routes.LIST_TEMPLATES))["templates"]]

    def get(self, name: str) -> Template:
        """By name, or `name@version-prefix`."""
        return decode(Template, self._transport.json(routes.GET_TEMPLATE, {"name": name}))

    def remove(self, name: str) -> None:
        """Role admin."""
        self._transport.json(routes.REMOVE_TEMPLATE, {"name": name})


class NewKey(NamedTuple):
    entry: Key
    key: str  # shown this once


class Keys:
    """Role admin."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> List[Key]:
        return [decode(Key, item) for item in (self._transport.json(routes.LIST_KEYS))["keys"]]

    def create(self, name: str, *, tenant: Optional[str] = None, role: Optional[Role] = None,
                     default_runtime: Optional[str] = None) -> NewKey:
        body = {"name": name, "tenant": tenant, "role": role, "default_runtime": default_runtime}
        answer = self._transport.json(routes.CREATE_KEY, json=body)
        return NewKey(decode(Key, answer), answer["key"])

    def remove(self, key_id: str) -> None:
        self._transport.json(routes.REMOVE_KEY, {"id": key_id})
