# SPDX-License-Identifier: Apache-2.0
# Made from _async/network.py by scripts/make-sync; change that.
from __future__ import annotations

from typing import Iterator, List, Optional

from .. import _routes as routes
from .._decode import decode
from ..types import ConnectionEntry, NetworkCheck, NetworkPolicy, NetworkState, PackageEntry, Preset
from .pages import log_entries
from .transport import Transport


class Network:
    """What one sandbox may reach, and what it tried to."""

    def __init__(self, transport: Transport, sandbox_id: str) -> None:
        self._transport = transport
        self._params = {"id": sandbox_id}

    def get(self) -> NetworkState:
        return decode(NetworkState, self._transport.json(routes.GET_NETWORK, self._params))

    def set(self, policy: NetworkPolicy) -> NetworkState:
        """In force when it returns; connections that the new policy does not allow are cut by then."""
        return decode(NetworkState, self._transport.json(routes.SET_NETWORK, self._params, json=policy))

    def connections(self, *, cursor: Optional[str] = None, follow: bool = False) -> Iterator[ConnectionEntry]:
        """Every attempt with its verdict, oldest first. With `follow` it goes on until it is left."""
        return log_entries(self._transport, routes.LIST_CONNECTIONS, "connections", lambda item: decode(ConnectionEntry, item),
                           self._params, cursor, follow)

    def packages(self, *, cursor: Optional[str] = None, follow: bool = False) -> Iterator[PackageEntry]:
        """What it asked the registry proxy for, likewise."""
        return log_entries(self._transport, routes.LIST_PACKAGES, "packages", lambda item: decode(PackageEntry, item),
                           self._params, cursor, follow)


class DefaultNetwork:
    """What sandboxes of the tenant may reach when they are created without `network`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def get(self) -> Optional[NetworkPolicy]:
        """None: the operator's default."""
        policy: Optional[NetworkPolicy] = (self._transport.json(routes.GET_DEFAULT_NETWORK))["policy"]
        return policy

    def set(self, policy: NetworkPolicy) -> None:
        """Role admin."""
        self._transport.json(routes.SET_DEFAULT_NETWORK, json=policy)

    def unset(self) -> None:
        """Role admin."""
        self._transport.json(routes.UNSET_DEFAULT_NETWORK)

    def presets(self) -> List[Preset]:
        return [decode(Preset, item) for item in (self._transport.json(routes.LIST_PRESETS))["presets"]]

    def check(self) -> NetworkCheck:
        """Whether sandboxes can have a network, found out by making a link. Role admin."""
        return decode(NetworkCheck, self._transport.json(routes.CHECK_NETWORK))
