# SPDX-License-Identifier: Apache-2.0
"""Sandboxes with a kernel of their own, emulated where this host's processor runs no guests: slow, and the same code."""

import os
import platform

import pytest

import daemon as daemons
from client import eventually


@pytest.fixture(scope="module")
def emulating(tmp_path_factory):
    data_dir = tmp_path_factory.mktemp("microvm")
    daemons.share_templates(data_dir)
    daemons.share_kernel(data_dir)
    own = daemons.Daemon(data_dir, "--microvm-allow-emulation").start()
    runtimes = {r["runtime"]: r for r in own.admin.call("GET", "/v1/runtimes")["runtimes"]}
    if not runtimes["microvm"]["usable"]:
        own.stop()
        pytest.skip(f"microvm: {runtimes['microvm']['problem']}")
    yield own
    own.end_sandboxes()
    own.stop()
    assert not own.died_by_itself(), own.died_by_itself()


@pytest.fixture
def box(emulating):
    made = emulating.admin.create(runtime="microvm")
    yield made
    made.kill()


def test_a_kernel_of_its_own(box, emulating):
    assert box.info["runtime"] == "microvm"
    release = box.ok("uname -r").strip()
    assert release != platform.release() and "cloud" in release
    assert box.ok("hostname").strip() == box.id
    assert "0::/sandbox" in box.ok("cat /proc/self/cgroup")


def test_commands_files_and_ends(box):
    assert box.run("exit 7")["outcome"] == {"type": "exited", "exit_code": 7}
    box.put("/tmp/numbers", b"1\n2\n39\n")
    assert box.ok("python3 -c 'print(sum(map(int, open(\"/tmp/numbers\"))))'") == "42\n"
    box.ok("head -c 3000000 /dev/urandom > /tmp/big")
    assert len(box.get("/tmp/big")) == 3_000_000


def test_it_reaches_nothing(box):
    assert box.run("getent hosts example.com")["exit_code"] != 0
    assert box.run("python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 2)'")["exit_code"] != 0


def test_it_outlives_its_daemon(emulating, box):
    box.put("/tmp/kept", b"yes")
    os.kill(emulating.pid, 9)
    emulating.process.wait()
    emulating.start()
    after = emulating.admin.call("GET", f"/v1/sandboxes/{box.id}")
    assert after["state"] == "ready" and after["runtime"] == "microvm"
    assert emulating.admin.request("GET", f"/v1/sandboxes/{box.id}/files?path=/tmp/kept").content == b"yes"
    emulating.admin.call("DELETE", f"/v1/sandboxes/{box.id}")
    eventually(lambda: box.id not in emulating.live_ids(), 10, "it is gone")
    box.api = emulating.admin
