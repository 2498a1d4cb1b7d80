# SPDX-License-Identifier: Apache-2.0
"""Sandboxes with a kernel of their own, emulated where this host's processor runs no guests: slow, and the same code."""

import json
import os
import platform
import signal
import socket
import time

import pytest

import daemon as daemons
import host
from client import Sandbox, eventually


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


# Ends --------------------------------------------------------------------------------------------------------------------
def monitor(box):
    """The process that runs the box's machine."""
    (line,) = [line for line in host.command_lines([box.id]) if "qemu-system" in line]
    return int(line.split()[0])


def tell_monitor(emulating, box, command):
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(str(emulating.data_dir / "sandboxes" / box.id / "qmp.sock"))
        talk = control.makefile("rw")
        talk.readline()
        for name in ("qmp_capabilities", command):
            talk.write(json.dumps({"execute": name}) + "\n")
            talk.flush()
            while "return" not in json.loads(talk.readline()):
                pass


def end_of(box, seconds):
    return eventually(lambda: box.refresh()["ended"], seconds, "the sandbox has ended")


def test_a_monitor_that_crashes_ends_its_own_sandbox_only(emulating, box):
    other = emulating.admin.create(runtime="microvm")
    running = box.start(["sleep", "600"])
    os.kill(monitor(box), signal.SIGKILL)  # a first process of its namespace ignores what it can
    assert end_of(box, 5)["reason"] == "crashed"
    assert running.refresh()["outcome"]["type"] == "sandbox_ended"
    box.refuse_run(["true"], 410, "sandbox_ended")
    assert other.ok(["echo", "unharmed"]) == "unharmed\n"
    other.kill()


def test_a_machine_that_stands_still_is_given_up(emulating, box):
    running = box.start("while :; do echo x; sleep 0.2; done")
    running.wait_for_output(b"x", 30)
    tell_monitor(emulating, box, "stop")
    ended = end_of(box, 60)
    assert ended["reason"] == "crashed" and ended["message"]
    assert running.refresh()["outcome"]["type"] == "sandbox_ended"


def test_a_machine_that_restarts_has_ended(emulating, box):
    tell_monitor(emulating, box, "system_reset")
    assert end_of(box, 10)["reason"] in ("crashed", "exited")


def test_several_processors(emulating):
    box = emulating.admin.create(runtime="microvm", limits={"cpus": 2})
    try:
        assert box.ok("nproc").strip() == "2" and box.ok("grep -c ^processor /proc/cpuinfo").strip() == "2"
    finally:
        box.kill()


def test_what_it_is_called(emulating, box):
    assert box.info["engine"] == "qemu" and box.info["accel"] in ("kvm", "emulated")
    plain = emulating.admin.create(runtime="container")
    plain.kill()
    assert not {"engine", "accel"} & set(plain.info)


def test_too_little_memory_is_the_callers_mistake(emulating):
    error = emulating.admin.refused("POST", "/v1/sandboxes", 400, "invalid_argument", json={"runtime": "microvm", "limits": {"memory_mb": 64}})
    assert error["details"]["field"] == "limits.memory_mb"


def test_root_inside_does_not_own_its_kernel(box):
    """It is a wall, and no present: the same rights as on the other runtimes."""
    for command in ("mount -t tmpfs none /mnt", "date -s '2020-01-01'", "hostname other", "mknod /tmp/mem c 1 1", "ip link set lo down", "ulimit -n 2000000",
                    "echo 1 > /proc/sys/vm/drop_caches", "cat /proc/kcore | head -c 1 | grep -q .", "echo x > /proc/1/exe"):
        assert box.run(command, user="root")["exit_code"] != 0, command
    assert box.ok("cat /proc/cmdline", user="root") == "" and "glovebox-agent" in box.ok("cat /proc/1/cmdline", user="root")
    assert all(p["argv"] for p in box.processes()), "threads of the kernel are nobody's processes"


# Snapshots -----------------------------------------------------------------------------------------------------------

WORKER = """
import json, os, time
n, secret = 0, os.urandom(8).hex()
while True:
    n += 1
    with open("/tmp/alive.new", "w") as file: json.dump({"n": n, "secret": secret, "pid": os.getpid()}, file)
    os.rename("/tmp/alive.new", "/tmp/alive")
    time.sleep(0.02)
"""
IDENTITY = "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 1024 /dev/urandom | sha256sum"


def alive(box):
    return json.loads(box.get("/tmp/alive"))


def goes_on(box, before):
    """The very process that was there, from where it was."""
    eventually(lambda: alive(box)["n"] > before["n"] + 3, 30, "it goes on counting")
    assert {**alive(box), "n": 0} == {**before, "n": 0}


def address_of(box):
    ask = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('192.0.2.1', 9)); print(s.getsockname()[0])"
    return box.ok(["python3", "-c", ask]).strip()


def test_snapshot_forks_and_hibernation_keep_what_runs_and_share_no_identity(emulating):
    api = emulating.admin
    box = api.create(runtime="microvm", network={"egress": "none"}, limits={"memory_mb": 256})
    box.put("/tmp/worker.py", WORKER.encode())
    box.start(["python3", "/tmp/worker.py"])
    eventually(lambda: box.exists("/tmp/alive") and alive(box)["n"] > 3, 30, "it counts")

    made = api.call("POST", box.path + "/snapshots", expect=201, json={})
    assert made["kept"] == "memory+files" and {"memory", "devices", "disk.img", "machine.json"} <= {part["name"] for part in made["parts"]}
    before = alive(box)
    api.refused("POST", "/v1/sandboxes", 400, "invalid_argument", json={"snapshot": made["id"], "limits": {"memory_mb": 255}})
    copy = api.create(snapshot=made["id"])
    children = [Sandbox(api, info) for info in api.call("POST", copy.path + "/fork", expect=201, json={"count": 2})["sandboxes"]]
    networked = [Sandbox(api, info) for info in api.call("POST", box.path + "/fork", expect=201, json={"count": 1})["sandboxes"]]
    for sandbox in [box, copy, *children, *networked]:
        goes_on(sandbox, {**before, "n": 0})
    answers = [sandbox.ok(IDENTITY).splitlines() for sandbox in [box, copy, *children, *networked]]
    for at, values in enumerate(zip(*answers)):
        assert len(set(values)) == len(answers), (at, values)
    assert [lines[0] for lines in answers] == [box.id, copy.id, *(child.id for child in children + networked)]
    for sandbox in [box, copy]:
        sent = time.time()
        assert sent - 0.1 < float(sandbox.ok("date +%s.%N")) < time.time() + 0.1
    assert copy.run("cat /sys/class/net/eth0/address")["exit_code"] != 0, "it was asked for without a network"
    assert address_of(networked[0]) == networked[0].refresh()["network"]["address"] != address_of(box) == box.refresh()["network"]["address"]

    info = api.call("POST", copy.path + "/hibernate", json={})
    assert info["state"] == "paused" and info["paused"]["kept"] == "memory+files"
    eventually(lambda: not host.command_lines([copy.id]) and not host.cgroups([copy.id]), what="the host has nothing of it")
    identity = answers[1][:3]
    os.kill(emulating.pid, 9)
    emulating.process.wait()
    emulating.start()
    api = emulating.admin
    for sandbox in [box, copy, *children, *networked]:
        sandbox.api = api
    assert copy.refresh()["state"] == "paused"
    api.call("POST", copy.path + "/resume")
    goes_on(copy, {**alive(children[0]), "n": 0})
    assert copy.ok(IDENTITY).splitlines()[:3] == identity, "it is the same one"
    for sandbox in [copy, *children, *networked]:
        api.call("DELETE", sandbox.path)

    memory = emulating.data_dir / "snapshots" / made["id"] / "memory"
    with open(memory, "r+b") as file:
        file.seek(1 << 20)
        byte = file.read(1)
        file.seek(1 << 20)
        file.write(bytes([byte[0] ^ 1]))
    api.refused("POST", "/v1/sandboxes", 500, "corrupt", json={"snapshot": made["id"]})
    api.call("DELETE", "/v1/snapshots/" + made["id"])
    api.call("DELETE", box.path)
    ids = [sandbox.id for sandbox in [box, copy, *children, *networked]]
    eventually(lambda: not host.leftovers(emulating.pid, emulating.data_dir, ids), 10, "nothing is left")


DRAWER = """
import os, socket
name = os.open("/tmp/drawn", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    os.write(name, (os.urandom(8).hex() + " " + socket.gethostname() + "\\n").encode())
"""


def test_nothing_runs_in_a_copy_before_it_is_itself(emulating):
    """Random numbers and the host's name as a program draws them without a pause, from the first moment of the copies on."""
    box = emulating.admin.create(runtime="microvm", limits={"memory_mb": 256})
    box.put("/tmp/drawer.py", DRAWER.encode())
    box.start(["python3", "/tmp/drawer.py"])
    eventually(lambda: box.exists("/tmp/drawn") and len(box.get("/tmp/drawn")) > 2000, 30, "it draws")
    children = [Sandbox(emulating.admin, info) for info in box.api.call("POST", box.path + "/fork", expect=201, json={"count": 2})["sandboxes"]]
    time.sleep(0.5)
    inherited, own = [], []
    for sandbox in [box, *children]:
        lines = [line.split() for line in sandbox.get("/tmp/drawn").decode().split("\n")[:-1]]  # one may be half written
        inherited.append([line for line in lines if line[1] == box.id])
        own.append({line[0] for line in lines if line[1] == sandbox.id})
    assert inherited[1] == inherited[2] == inherited[0][: len(inherited[1])], "all that has the source's name is from before the copy"
    own[0] -= {number for number, _ in inherited[1]}
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len(own[one]) > 10 and len(own[other]) > 10
        assert len(own[one] & own[other]) <= 1, "at most the one that was drawn and not yet written"
    for sandbox in [box, *children]:
        box.api.call("DELETE", sandbox.path)
