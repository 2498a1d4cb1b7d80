# SPDX-License-Identifier: Apache-2.0
"""The real daemon as a process of the tests. The environment variables that choose what runs are listed in fixtures.py."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from client import Api, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_program():
    places = [os.environ.get("GLOVEBOX_BIN")] if os.environ.get("GLOVEBOX_BIN") else [
        ROOT / "build" / preset / "src/programs/glovebox/glovebox" for preset in ("release", "dev")]
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    pytest.exit(f"no glovebox program at {', '.join(map(str, places))}: build it or set GLOVEBOX_BIN", 2)


class Daemon:
    """A running daemon with its own data directory; the templates are shared with an existing one.

    `place` is a context manager in which the daemon is started and called, such as a network namespace of the test's.
    """

    def __init__(self, data_dir, *options, place=contextlib.nullcontext(), emulate=False):
        self.program = find_program()
        self.environment = {k: v for k, v in os.environ.items() if k != "GLOVEBOX_MICROVM_ALLOW_EMULATION"}
        if emulate:
            self.environment["GLOVEBOX_MICROVM_ALLOW_EMULATION"] = "1"
        self.data_dir = pathlib.Path(data_dir)
        self.options = options
        self.place = place
        self.log_path = self.data_dir / "test-daemon.log"
        self.process = None
        self.stopped_in_time = True

    def start(self):
        (self.data_dir / "daemon.json").unlink(missing_ok=True)
        command = [self.program, "up", "--data-dir", str(self.data_dir), "--listen", "127.0.0.1:0", *self.options]
        with open(self.log_path, "ab") as log, self.place:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            start_new_session=True, env=self.environment)
        self.state = eventually(self.ready_state, 120, "the daemon is ready")
        self.url, self.pid = self.state["url"], self.state["pid"]
        self.admin = Api(self.url, (self.data_dir / "admin.key").read_text().strip(), place=self.place)
        assert self.admin.request("GET", "/readyz").status_code == 200
        return self

    def ready_state(self):
        assert self.process.poll() is None, f"the daemon ended with {self.process.returncode}:\n{self.log_tail()}"
        try:
            return json.loads((self.data_dir / "daemon.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def end_sandboxes(self):
        """What failed tests left: sandboxes outlive their daemon."""
        if self.process and self.process.poll() is None:
            for sandbox_id in self.live_ids():
                self.admin.request("DELETE", f"/v1/sandboxes/{sandbox_id}")

    def died_by_itself(self):
        """What it said when it ended without having been told to; None when it did not."""
        if self.process and self.process.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
            return f"the daemon ended with {self.process.returncode}:\n{self.log_tail(20000)}"

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.stopped_in_time = False

    def log_tail(self, size=4000):
        return self.log_path.read_text(errors="replace")[-size:]

    def new_key(self, tenant, role="user", **fields):
        return self.admin.call("POST", "/v1/keys", expect=201,
                               json={"name": f"test-{tenant}", "tenant": tenant, "role": role, **fields})

    def api(self, tenant, role="user"):
        return Api(self.url, self.new_key(tenant, role)["key"], place=self.place)

    def sandbox_ids(self, states=("creating", "ready", "paused", "ending", "ended")):
        query = "&".join(f"state={state}" for state in states)
        return [s["id"] for s in self.admin.pages("/v1/sandboxes?" + query, "sandboxes", 1000)]

    def live_ids(self):
        return self.sandbox_ids(("creating", "ready", "paused", "ending"))


TEST_DATA = pathlib.Path(os.environ.get("GLOVEBOX_TEST_DATA_DIR", "/var/lib/glovebox"))


def share_kernel(data_dir):
    """The guest's kernel of microvm sandboxes, where one has been made."""
    if (TEST_DATA / "kernels" / "current").exists():
        (data_dir / "kernels").symlink_to(TEST_DATA / "kernels")


def share_templates(data_dir):
    source = TEST_DATA / "templates"
    if not (source / "names" / "base").exists():
        pytest.exit(f"no `base` template in {source}: run `glovebox template build base`, "
                    "or set GLOVEBOX_TEST_DATA_DIR", 2)
    for part in ("versions", "names"):  # not what a build is at work on: that has devices in it
        try:
            shutil.copytree(source / part, data_dir / "templates" / part, copy_function=os.link, symlinks=True)
        except shutil.Error:  # another file system
            shutil.rmtree(data_dir / "templates" / part)
            shutil.copytree(source / part, data_dir / "templates" / part, symlinks=True)
