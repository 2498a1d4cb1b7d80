# SPDX-License-Identifier: Apache-2.0
"""Archives of local directories. What is extracted comes from a sandbox and is not trusted."""
from __future__ import annotations

import os
import shutil
import stat
import tarfile
from typing import BinaryIO, List, NamedTuple, Optional, Tuple

from .errors import ProtocolError


class LeftOut(NamedTuple):
    """Something of an archive that was not written, and why."""

    name: str
    reason: str


def pack(directory: str, out: BinaryIO) -> None:
    """A tar of what is in a local directory; sockets, pipes and devices are left out."""

    def anonymous(member: tarfile.TarInfo) -> Optional[tarfile.TarInfo]:
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode &= 0o777
        return member

    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(os.listdir(directory)):
            archive.add(os.path.join(directory, name), arcname=name, filter=anonymous)


def extract(source: BinaryIO, directory: str) -> List[LeftOut]:
    left_out: List[LeftOut] = []
    modes: List[Tuple[str, int]] = []  # of directories: set last, so that a read-only one can be filled
    try:
        with tarfile.open(fileobj=source, mode="r:*") as archive:
            for member in archive:
                reason = _extract_one(archive, member, directory, modes)
                if reason:
                    left_out.append(LeftOut(member.name, reason))
    except tarfile.TarError as error:
        raise ProtocolError(f"the archive is broken: {error}") from error
    for path, mode in reversed(modes):
        os.chmod(path, mode)
    return left_out


def _parts(name: str) -> Optional[List[str]]:
    """The parts of a name below the target; None when it would leave it."""
    if name.startswith("/") or "\0" in name:
        return None
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return None if ".." in parts else parts


def _stays_inside(at: List[str], target: str) -> bool:
    if target.startswith("/") or "\0" in target:
        return False
    depth = len(at) - 1
    for part in target.split("/"):
        depth += -1 if part == ".." else 0 if part in ("", ".") else 1
        if depth < 0:
            return False
    return True


def _kind(path: str) -> int:
    """The type of what stands at `path`, links not followed; 0: nothing."""
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except FileNotFoundError:
        return 0


def _make_directory(path: str) -> bool:
    kind = _kind(path)
    if kind == 0:
        os.mkdir(path, 0o755)
    return kind in (0, stat.S_IFDIR)


def _has_real_parents(directory: str, parts: List[str], make: bool) -> bool:
    for depth in range(1, len(parts)):
        path = os.path.join(directory, *parts[:depth])
        if not (_make_directory(path) if make else _kind(path) == stat.S_IFDIR):
            return False
    return True


def _extract_one(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: str, modes: List[Tuple[str, int]]) -> str:
    """Why it was not written; empty when it was."""
    parts = _parts(member.name)
    if parts is None:
        return "its name leaves the target"
    path = os.path.join(directory, *parts)
    if not _has_real_parents(directory, parts, make=True):
        return "a link or file stands in its way"
    if member.isdir():
        if parts and not _make_directory(path):
            return "something else stands there"
        if parts:
            modes.append((path, member.mode & 0o777))
        return ""
    if not parts:
        return "it has no name"
    if member.issym() and not _stays_inside(parts, member.linkname):
        return "it points outside the target"
    if not (member.isfile() or member.issym() or member.islnk()):
        return "it is neither a file, a directory nor a link"
    if _kind(path) == stat.S_IFDIR:
        return "a directory stands there"
    if member.islnk():
        return _hard_link(directory, path, member.linkname)
    if _kind(path):
        os.unlink(path)
    if member.issym():
        os.symlink(member.linkname, path)
    else:
        _write_file(archive, member, path)
    return ""


def _hard_link(directory: str, path: str, name: str) -> str:
    parts = _parts(name)
    if not parts:
        return "it points outside the target"
    other = os.path.join(directory, *parts)
    if not _has_real_parents(directory, parts, make=False) or _kind(other) != stat.S_IFREG:
        return "what it points to is not there"
    if other == path:
        return "it points to itself"
    if _kind(path):
        os.unlink(path)
    os.link(other, path)
    return ""


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    content = archive.extractfile(member)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, member.mode & 0o777)
    with os.fdopen(descriptor, "wb") as out:
        if content is not None:
            shutil.copyfileobj(content, out, 1 << 18)
    os.utime(path, (member.mtime, member.mtime))
