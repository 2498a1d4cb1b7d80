# SPDX-License-Identifier: Apache-2.0
# Made from _async/volumes.py by scripts/make-sync; change that.
from __future__ import annotations

from typing import Any, Iterator, Dict, Optional

from .. import _routes as routes
from .._decode import decode
from .._io_sync import Source
from ..types import Volume
from .pages import Pages
from .transport import Transport


class Volumes:
    """Disks that outlive sandboxes, by id or name. `Sandbox.create(volumes=…)` mounts them."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, *, size_mb: Optional[int] = None, labels: Optional[Dict[str, str]] = None,
                     get_or_create: Optional[bool] = None) -> Volume:
        """`get_or_create`: gives one of this name as it is, if there is one."""
        body: Dict[str, Any] = {"name": name, "size_mb": size_mb, "labels": labels, "get_or_create": get_or_create}
        return decode(Volume, self._transport.json(routes.CREATE_VOLUME, json=body))

    def list(self) -> Pages[Volume]:
        return Pages(self._transport, routes.LIST_VOLUMES, "volumes", lambda item: decode(Volume, item))

    def get(self, ref: str) -> Volume:
        return decode(Volume, self._transport.json(routes.GET_VOLUME, {"volume": ref}))

    def grow(self, ref: str, size_mb: int) -> Volume:
        """It never becomes smaller."""
        return decode(Volume, self._transport.json(routes.GROW_VOLUME, {"volume": ref}, json={"size_mb": size_mb}))

    def remove(self, ref: str) -> None:
        self._transport.json(routes.DELETE_VOLUME, {"volume": ref})

    def read_archive(self, ref: str) -> Iterator[bytes]:
        """A tar of all of it."""
        response = self._transport.open(routes.EXPORT_VOLUME, {"volume": ref})
        for piece in response.pieces():
            yield piece

    def write_archive(self, ref: str, data: Source) -> None:
        """Extracts a tar over what is there; when any of it is refused, the volume is what it was."""
        self._transport.json(routes.IMPORT_VOLUME, {"volume": ref}, content=data, idle_timeout_ms=600_000)
