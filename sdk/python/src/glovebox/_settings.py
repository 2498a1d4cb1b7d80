# SPDX-License-Identifier: Apache-2.0
"""Where the server is and with which key: the same rules as the command line's."""
from __future__ import annotations

import json
import os
import re
from typing import NamedTuple, Optional
from urllib.parse import SplitResult, urlsplit

from .errors import SettingsError

DEFAULT_URL = "http://127.0.0.1:7070"


class Server(NamedTuple):
    url: SplitResult
    api_key: str


def _read_text(path: str) -> Optional[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True


def _running_server(data_dir: str) -> Optional[str]:
    try:
        state = json.loads(_read_text(os.path.join(data_dir, "daemon.json")) or "null")
        url, pid = state["url"], state["pid"]
    except (ValueError, TypeError, KeyError):
        return None
    return url if isinstance(url, str) and isinstance(pid, int) and pid > 0 and _is_alive(pid) else None


def _is_local(url: SplitResult) -> bool:
    return bool(re.fullmatch(r"localhost|::1|127\.\d+\.\d+\.\d+", url.hostname or ""))


def find_server(url: Optional[str], api_key: Optional[str], data_dir: Optional[str]) -> Server:
    """The admin key goes to no other server than that of its own directory, or one on this host that was named."""
    env = os.environ
    data_dir = data_dir or env.get("GLOVEBOX_DATA_DIR") or "/var/lib/glovebox"
    named = url or env.get("GLOVEBOX_API_URL") or env.get("GLOVEBOX_URL")
    key = api_key or env.get("GLOVEBOX_API_KEY")
    running = None if named else _running_server(data_dir)
    parts = urlsplit(named or running or DEFAULT_URL)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(f"not an http or https URL: {parts.geturl()}")
    if key:
        return Server(parts, key)
    if not named and not running:
        raise SettingsError(f"no server runs on {data_dir}: set GLOVEBOX_API_URL and GLOVEBOX_API_KEY")
    admin_key = _read_text(os.path.join(data_dir, "admin.key")) if _is_local(parts) else None
    if not admin_key:
        raise SettingsError(f"no key for {parts.scheme}://{parts.netloc}: set GLOVEBOX_API_KEY")
    return Server(parts, admin_key)
