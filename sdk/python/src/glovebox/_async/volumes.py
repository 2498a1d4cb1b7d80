# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, AsyncIterator, Dict, Optional

from .. import _routes as routes
from .._decode import decode
from .._io_async import AsyncSource
from ..types import Volume
from .pages import AsyncPages
from .transport import AsyncTransport


class AsyncVolumes:
    """Disks that outlive sandboxes, by id or name. `AsyncSandbox.create(volumes=…)` mounts them."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str, *, size_mb: Optional[int] = None, labels: Optional[Dict[str, str]] = None,
                     get_or_create: Optional[bool] = None) -> Volume:
        """`get_or_create`: gives one of this name as it is, if there is one."""
        body: Dict[str, Any] = {"name": name, "size_mb": size_mb, "labels": labels, "get_or_create": get_or_create}
        return decode(Volume, await self._transport.json(routes.CREATE_VOLUME, json=body))

    def list(self) -> AsyncPages[Volume]:
        return AsyncPages(self._transport, routes.LIST_VOLUMES, "volumes", lambda item: decode(Volume, item))

    async def get(self, ref: str) -> Volume:
        return decode(Volume, await self._transport.json(routes.GET_VOLUME, {"volume": ref}))

    async def grow(self, ref: str, size_mb: int) -> Volume:
        """It never becomes smaller."""
        return decode(Volume, await self._transport.json(routes.GROW_VOLUME, {"volume": ref}, json={"size_mb": size_mb}))

    async def remove(self, ref: str) -> None:
        await self._transport.json(routes.DELETE_VOLUME, {"volume": ref})

    async def read_archive(self, ref: str) -> AsyncIterator[bytes]:
        """A tar of all of it."""
        response = await self._transport.open(routes.EXPORT_VOLUME, {"volume": ref})
        async for piece in response.pieces():
            yield piece

    async def write_archive(self, ref: str, data: AsyncSource) -> None:
        """Extracts a tar over what is there; when any of it is refused, the volume is what it was."""
        await self._transport.json(routes.IMPORT_VOLUME, {"volume": ref}, content=data, idle_timeout_ms=600_000)
