# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import AsyncIterator, List, Optional

from .. import _routes as routes
from .._decode import decode
from ..types import ConnectionEntry, NetworkCheck, NetworkPolicy, NetworkState, PackageEntry, Preset
from .pages import log_entries
from .transport import AsyncTransport


class AsyncNetwork:
    """What one sandbox may reach, and what it tried to."""

    def __init__(self, transport: AsyncTransport, sandbox_id: str) -> None:
        self._transport = transport
        self._params = {"id": sandbox_id}

    async def get(self) -> NetworkState:
        return decode(NetworkState, await self._transport.json(routes.GET_NETWORK, self._params))

    async def set(self, policy: NetworkPolicy) -> NetworkState:
        """In force when it returns; connections that the new policy does not allow are cut by then."""
        return decode(NetworkState, await self._transport.json(routes.SET_NETWORK, self._params, json=policy))

    def connections(self, *, cursor: Optional[str] = None, follow: bool = False) -> AsyncIterator[ConnectionEntry]:
        """Every attempt with its verdict, oldest first. With `follow` it goes on until it is left."""
        return log_entries(self._transport, routes.LIST_CONNECTIONS, "connections", lambda item: decode(ConnectionEntry, item),
                           self._params, cursor, follow)

    def packages(self, *, cursor: Optional[str] = None, follow: bool = False) -> AsyncIterator[PackageEntry]:
        """What it asked the registry proxy for, likewise."""
        return log_entries(self._transport, routes.LIST_PACKAGES, "packages", lambda item: decode(PackageEntry, item),
                           self._params, cursor, follow)


class AsyncDefaultNetwork:
    """What sandboxes of the tenant may reach when they are created without `network`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def get(self) -> Optional[NetworkPolicy]:
        """None: the operator's default."""
        policy: Optional[NetworkPolicy] = (await self._transport.json(routes.GET_DEFAULT_NETWORK))["policy"]
        return policy

    async def set(self, policy: NetworkPolicy) -> None:
        """Role admin."""
        await self._transport.json(routes.SET_DEFAULT_NETWORK, json=policy)

    async def unset(self) -> None:
        """Role admin."""
        await self._transport.json(routes.UNSET_DEFAULT_NETWORK)

    async def presets(self) -> List[Preset]:
        return [decode(Preset, item) for item in (await self._transport.json(routes.LIST_PRESETS))["presets"]]

    async def check(self) -> NetworkCheck:
        """Whether sandboxes can have a network, found out by making a link. Role admin."""
        return decode(NetworkCheck, await self._transport.json(routes.CHECK_NETWORK))
