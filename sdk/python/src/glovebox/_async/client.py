# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Union

from .. import _routes as routes
from .._decode import decode
from .._io_async import Opening
from ..errors import ApiError
from ..types import Info, Key, Pool, Role, RuntimeStatus, SandboxInfo, SandboxState, Template, Tier
from .network import AsyncDefaultNetwork
from .pages import AsyncPages
from .sandbox import AsyncSandbox
from .snapshots import AsyncSnapshots
from .transport import AsyncTransport, Options
from .volumes import AsyncVolumes


class Runtimes(NamedTuple):
    runtimes: List[RuntimeStatus]
    auto: Optional[Tier]


class AsyncGlovebox:
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
        self.transport = AsyncTransport(url, api_key, data_dir, options, headers)
        self.sandboxes = AsyncSandboxes(self)
        self.snapshots = AsyncSnapshots(self.transport)
        self.volumes = AsyncVolumes(self.transport)
        self.templates = AsyncTemplates(self.transport)
        self.keys = AsyncKeys(self.transport)
        self.network = AsyncDefaultNetwork(self.transport)

    @property
    def url(self) -> str:
        return self.transport.url.geturl()

    async def runtimes(self) -> Runtimes:
        """Which tiers work on the server, strongest first, and what "auto" means there."""
        answer = await self.transport.json(routes.LIST_RUNTIMES)
        return Runtimes([decode(RuntimeStatus, item) for item in answer["runtimes"]], answer["auto"])

    async def info(self) -> Info:
        return decode(Info, await self.transport.json(routes.GET_INFO))

    async def version(self) -> str:
        return str((await self.transport.json(routes.GET_VERSION))["version"])

    async def is_healthy(self) -> bool:
        return bool((await self.transport.json(routes.GET_HEALTH))["status"] == "ok")

    async def is_ready(self) -> bool:
        """Whether sandboxes can be created."""
        try:
            return bool((await self.transport.json(routes.GET_READINESS))["status"] == "ready")
        except ApiError as error:
            if error.status == 503:
                return False
            raise

    async def pool(self) -> List[Pool]:
        """Ready sandboxes that are kept for create calls. Role admin."""
        return [decode(Pool, item) for item in (await self.transport.json(routes.GET_POOL))["pools"]]

    async def metrics(self) -> str:
        """In the text format of Prometheus. Role admin."""
        return (await self.transport.read(routes.METRICS)).decode()

    async def open_api(self) -> Dict[str, Any]:
        """The server's own description of its API."""
        document: Dict[str, Any] = json.loads(await self.transport.read(routes.GET_OPEN_API))
        return document

    async def close(self) -> None:
        self.transport.close()

    async def __aenter__(self) -> AsyncGlovebox:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class AsyncSandboxes:
    def __init__(self, client: AsyncGlovebox) -> None:
        self._client = client

    def create(self, **spec: Any) -> Opening[AsyncSandbox]:
        """As AsyncSandbox.create."""
        return AsyncSandbox.create(client=self._client, **spec)

    async def get(self, sandbox_id: str) -> AsyncSandbox:
        answer = await self._client.transport.json(routes.GET_SANDBOX, {"id": sandbox_id})
        return AsyncSandbox(self._client, decode(SandboxInfo, answer))

    def list(self, *, state: Union[SandboxState, List[SandboxState], None] = None, metadata: Optional[Dict[str, str]] = None,
             ) -> AsyncPages[AsyncSandbox]:
        """The tenant's sandboxes, newest first; without `state`, all but ended ones."""
        states: Any = [state] if isinstance(state, str) else state
        filters = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
        return AsyncPages(self._client.transport, routes.LIST_SANDBOXES, "sandboxes",
                          lambda item: AsyncSandbox(self._client, decode(SandboxInfo, item)),
                          query={"state": states, "metadata_filter": filters})


class AsyncTemplates:
    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Template]:
        return [decode(Template, item) for item in (await self._transport.json(routes.LIST_TEMPLATES))["templates"]]

    async def get(self, name: str) -> Template:
        """By name, or `name@version-prefix`."""
        return decode(Template, await self._transport.json(routes.GET_TEMPLATE, {"name": name}))

    async def remove(self, name: str) -> None:
        """Role admin."""
        await self._transport.json(routes.REMOVE_TEMPLATE, {"name": name})


class NewKey(NamedTuple):
    entry: Key
    key: str  # shown this once


class AsyncKeys:
    """Role admin."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> List[Key]:
        return [decode(Key, item) for item in (await self._transport.json(routes.LIST_KEYS))["keys"]]

    async def create(self, name: str, *, tenant: Optional[str] = None, role: Optional[Role] = None,
                     default_runtime: Optional[str] = None) -> NewKey:
        body = {"name": name, "tenant": tenant, "role": role, "default_runtime": default_runtime}
        answer = await self._transport.json(routes.CREATE_KEY, json=body)
        return NewKey(decode(Key, answer), answer["key"])

    async def remove(self, key_id: str) -> None:
        await self._transport.json(routes.REMOVE_KEY, {"id": key_id})
