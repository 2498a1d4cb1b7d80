# SPDX-License-Identifier: Apache-2.0
# Made from _async/snapshots.py by scripts/make-sync; change that.
from __future__ import annotations

from typing import Dict, Optional

from .. import _routes as routes
from .._decode import decode
from ..types import Snapshot
from .pages import Pages
from .transport import Transport


class Snapshots:
    """Kept states of sandboxes. `sandbox.snapshot()` makes one, `Sandbox.create(snapshot=…)` starts from one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, sandbox: Optional[str] = None, name: Optional[str] = None, labels: Optional[Dict[str, str]] = None,
             ) -> Pages[Snapshot]:
        filters = {f"label.{key}": value for key, value in (labels or {}).items()}
        return Pages(self._transport, routes.LIST_SNAPSHOTS, "snapshots", lambda item: decode(Snapshot, item),
                          query={"sandbox": sandbox, "name": name, "label_filter": filters})

    def get(self, snapshot_id: str) -> Snapshot:
        return decode(Snapshot, self._transport.json(routes.GET_SNAPSHOT, {"id": snapshot_id}))

    def update(self, snapshot_id: str, *, name: Optional[str] = None, labels: Optional[Dict[str, str]] = None) -> Snapshot:
        changes = {"name": name, "labels": labels}
        return decode(Snapshot, self._transport.json(routes.UPDATE_SNAPSHOT, {"id": snapshot_id}, json=changes))

    def remove(self, snapshot_id: str) -> None:
        self._transport.json(routes.DELETE_SNAPSHOT, {"id": snapshot_id})

    def verify(self, snapshot_id: str) -> None:
        """Reads all of it and compares: fails with the code `corrupt` when a byte differs."""
        self._transport.json(routes.VERIFY_SNAPSHOT, {"id": snapshot_id}, idle_timeout_ms=0)
