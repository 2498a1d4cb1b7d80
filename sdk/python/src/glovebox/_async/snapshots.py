# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Dict, Optional

from .. import _routes as routes
from .._decode import decode
from ..types import Snapshot
from .pages import AsyncPages
from .transport import AsyncTransport


class AsyncSnapshots:
    """Kept states of sandboxes. `sandbox.snapshot()` makes one, `AsyncSandbox.create(snapshot=…)` starts from one."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, sandbox: Optional[str] = None, name: Optional[str] = None, labels: Optional[Dict[str, str]] = None,
             ) -> AsyncPages[Snapshot]:
        filters = {f"label.{key}": value for key, value in (labels or {}).items()}
        return AsyncPages(self._transport, routes.LIST_SNAPSHOTS, "snapshots", lambda item: decode(Snapshot, item),
                          query={"sandbox": sandbox, "name": name, "label_filter": filters})

    async def get(self, snapshot_id: str) -> Snapshot:
        return decode(Snapshot, await self._transport.json(routes.GET_SNAPSHOT, {"id": snapshot_id}))

    async def update(self, snapshot_id: str, *, name: Optional[str] = None, labels: Optional[Dict[str, str]] = None) -> Snapshot:
        changes = {"name": name, "labels": labels}
        return decode(Snapshot, await self._transport.json(routes.UPDATE_SNAPSHOT, {"id": snapshot_id}, json=changes))

    async def remove(self, snapshot_id: str) -> None:
        await self._transport.json(routes.DELETE_SNAPSHOT, {"id": snapshot_id})

    async def verify(self, snapshot_id: str) -> None:
        """Reads all of it and compares: fails with the code `corrupt` when a byte differs."""
        await self._transport.json(routes.VERIFY_SNAPSHOT, {"id": snapshot_id}, idle_timeout_ms=0)
