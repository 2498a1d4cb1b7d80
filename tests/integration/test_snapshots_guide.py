# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/snapshots.md do what the page says, on each runtime."""

import os
import pathlib
import re
import shlex
import subprocess

from client import Api

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/snapshots.md"


def script():
    """One script of all examples. "COMMAND  # prints TEXT" must print that."""
    lines = ["set -euo pipefail"]
    for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S):
        for line in block.splitlines():
            command, mark, expected = line.partition("# prints ")
            if not mark:
                lines.append(line)
                continue
            lines += [f"printed=$({command.strip()})",
                      f'[ "$printed" = "{expected}" ] || {{ echo {shlex.quote(command.strip())} printed "$printed" >&2; exit 1; }}']
    return "\n".join(lines)


def test_the_guide(daemon, tier, tmp_path):
    assert script().count("printed=$(") > 10
    (tmp_path / "glovebox").symlink_to(pathlib.Path(daemon.program).resolve())
    key = daemon.new_key(f"guide-{tier}", default_runtime=tier)["key"]
    try:
        run(daemon, key, tmp_path)
    finally:
        api = Api(daemon.url, key)
        for box in api.pages("/v1/sandboxes", "sandboxes", 100):
            api.call("DELETE", f"/v1/sandboxes/{box['id']}")


def run(daemon, key, tmp_path):
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "GLOVEBOX_API_URL": daemon.url, "GLOVEBOX_API_KEY": key}
    done = subprocess.run(["bash", "-c", script()], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr + done.stdout
