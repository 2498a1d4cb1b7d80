# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import os
import tempfile
from typing import Any, AsyncIterator, BinaryIO, Dict, List, Optional, Union

from .. import _routes as routes
from .._decode import decode
from .._io_async import AsyncSource, Opening, in_thread, opening
from .._tar import LeftOut, extract, pack
from ..errors import SandboxFileNotFoundError
from ..types import Entry
from .pages import AsyncPages
from .transport import AsyncTransport
from .watch import AsyncWatch

# A path inside a sandbox: absolute, or relative to its workdir. Bytes, for names that are not UTF-8.
Path = Union[str, bytes]


def _range(offset: Optional[int], length: Optional[int]) -> Dict[str, str]:
    if offset is None and length is None:
        return {}
    begin = offset or 0
    if begin < 0:
        return {"Range": f"bytes={begin}"}
    return {"Range": f"bytes={begin}-" + ("" if length is None else str(begin + length - 1))}


def _in_body(name: str, path: Path) -> Dict[str, str]:
    if isinstance(path, str):
        return {name: path}
    return {name + "_b64": base64.b64encode(path).decode()}


class AsyncFiles:
    """Files and directories inside a sandbox. `user`: whose rights apply; without it, the sandbox's user's."""

    def __init__(self, transport: AsyncTransport, sandbox_id: str) -> None:
        self._transport = transport
        self._params = {"id": sandbox_id}

    async def read(self, path: Path, *, offset: Optional[int] = None, length: Optional[int] = None, user: Optional[str] = None) -> bytes:
        """A negative offset counts from the end."""
        if length == 0:
            return b""
        return await self._transport.read(routes.READ_FILE, self._params, query={"path": path, "user": user}, headers=_range(offset, length))

    async def read_text(self, path: Path, *, user: Optional[str] = None) -> str:
        """UTF-8; fails on other bytes."""
        return (await self.read(path, user=user)).decode("utf-8")

    async def read_stream(self, path: Path, *, offset: Optional[int] = None, length: Optional[int] = None,
                          user: Optional[str] = None) -> AsyncIterator[bytes]:
        """The bytes as they come; memory does not grow with the file."""
        response = await self._transport.open(routes.READ_FILE, self._params, query={"path": path, "user": user},
                                              headers=_range(offset, length))
        async for piece in response.pieces():
            yield piece

    async def write(self, path: Path, data: AsyncSource, *, mode: Optional[str] = None, parents: bool = True, exclusive: bool = False,
                    append: bool = False, user: Optional[str] = None) -> Entry:
        """The file appears whole or not at all: a write that breaks off leaves what was there."""
        query = {"path": path, "mode": mode, "parents": parents, "exclusive": exclusive, "append": append, "user": user}
        return decode(Entry, await self._transport.json(routes.WRITE_FILE, self._params, query=query, content=data))

    async def stat(self, path: Path, *, follow: bool = False, user: Optional[str] = None) -> Entry:
        query = {"path": path, "follow": follow, "user": user}
        return decode(Entry, await self._transport.json(routes.STAT_FILE, self._params, query=query))

    async def exists(self, path: Path, *, user: Optional[str] = None) -> bool:
        try:
            await self.stat(path, user=user)
        except SandboxFileNotFoundError:
            return False
        return True

    def list(self, path: Path = ".", *, user: Optional[str] = None) -> AsyncPages[Entry]:
        """A directory's entries, in byte order of names."""
        return AsyncPages(self._transport, routes.LIST_FILES, "entries", lambda item: decode(Entry, item), self._params,
                          {"path": path, "user": user})

    async def make_directory(self, path: Path, *, parents: bool = True, mode: Optional[str] = None, user: Optional[str] = None) -> bool:
        """False when it was there already."""
        body: Dict[str, Any] = {**_in_body("path", path), "parents": parents, "mode": mode}
        answer = await self._transport.json(routes.MAKE_DIRECTORY, self._params, query={"user": user}, json=body)
        return bool(answer["created"])

    async def move(self, source: Path, target: Path, *, parents: bool = False, overwrite: bool = False, user: Optional[str] = None) -> None:
        body = {**_in_body("from", source), **_in_body("to", target), "parents": parents, "overwrite": overwrite}
        await self._transport.json(routes.MOVE_FILE, self._params, query={"user": user}, json=body)

    async def remove(self, path: Path, *, recursive: bool = False, user: Optional[str] = None) -> None:
        query = {"path": path, "recursive": recursive, "user": user}
        await self._transport.json(routes.REMOVE_FILE, self._params, query=query)

    def watch(self, path: Path, *, recursive: bool = False, user: Optional[str] = None) -> Opening[AsyncWatch]:
        """What changes in a directory from now on; `recursive`: also in those below it."""
        query = {"path": path, "recursive": recursive, "user": user}
        return opening(AsyncWatch.open(self._transport, self._params, query))

    async def read_archive(self, path: Path, *, gzip: bool = False, user: Optional[str] = None) -> AsyncIterator[bytes]:
        """A tar of a directory, names relative to it, or of a file. A stream that breaks off fails."""
        query = {"path": path, "gzip": gzip, "user": user}
        response = await self._transport.open(routes.READ_ARCHIVE, self._params, query=query)
        async for piece in response.pieces():
            yield piece

    async def write_archive(self, path: Path, data: AsyncSource, *, user: Optional[str] = None) -> None:
        """Extracts a tar, gzipped or not, below a directory, which is made if it is missing."""
        query = {"path": path, "user": user}
        await self._transport.json(routes.WRITE_ARCHIVE, self._params, query=query, content=data, idle_timeout_ms=600_000)

    async def upload(self, local: str, path: Path, *, user: Optional[str] = None) -> None:
        """A local file to `path`, or what is in a local directory to below `path`. Symbolic links are copied as links."""
        if os.path.isdir(local):
            with tempfile.TemporaryFile() as archive:
                await in_thread(lambda: pack(local, archive))
                archive.seek(0)
                await self.write_archive(path, archive, user=user)
            return
        with open(local, "rb") as file:
            await self.write(path, file, mode=f"{os.fstat(file.fileno()).st_mode & 0o777:04o}", user=user)

    async def download(self, path: Path, local: str, *, user: Optional[str] = None) -> List[LeftOut]:
        """A file to `local`, or what is in a directory to below `local`.

        What comes out of a sandbox is not trusted: names and links that leave the target, devices and pipes are left out, and
        returned.
        """
        entry = await self.stat(path, follow=True, user=user)
        if entry.type != "directory":
            await self._download_file(path, local, int(entry.mode, 8) & 0o777, user)
            return []
        with tempfile.TemporaryFile() as archive:
            await self._save(self.read_archive(path, user=user), archive)
            archive.seek(0)
            os.makedirs(local, exist_ok=True)
            return await in_thread(lambda: extract(archive, local))

    async def _download_file(self, path: Path, local: str, mode: int, user: Optional[str]) -> None:
        directory = os.path.dirname(local) or "."
        os.makedirs(directory, exist_ok=True)
        # Beside it first: a download that breaks off leaves what was there.
        descriptor, partial = tempfile.mkstemp(dir=directory, prefix=f".{os.path.basename(local)}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                await self._save(self.read_stream(path, user=user), file)
            os.chmod(partial, mode)
            os.replace(partial, local)
        except BaseException:
            os.unlink(partial)
            raise

    async def _save(self, pieces: AsyncIterator[bytes], file: BinaryIO) -> None:
        async for piece in pieces:
            file.write(piece)
