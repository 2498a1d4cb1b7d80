# SPDX-License-Identifier: Apache-2.0
"""Snapshots, forks, resets and hibernation: what is kept, what no copy shares (C31), and that nothing is left behind."""

import collections
import json
import os
import random
import threading
import time

import pytest

import host
from client import Execution, Sandbox, check_error, eventually, patience, scaled, whole_lines

# A counter in a thread, an open file, an open loopback connection: all of it must go on.
WORKER = """
import json, os, random, socket, threading, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname()); peer = server.accept()[0]
journal, state = open("/tmp/journal", "a"), {"n": 0}
def count():
    while True:
        n = state["n"] + 1
        client.sendall(b"%d\\n" % n)
        got = b""
        while not got.endswith(b"\\n"): got += peer.recv(100)
        assert int(got) == n
        journal.write(f"{n}\\n"); journal.flush()
        state["n"] = n
        time.sleep(0.01)
threading.Thread(target=count, daemon=True).start()
while True:
    with open("/tmp/alive.new", "w") as f: json.dump({"n": state["n"], "pid": os.getpid()}, f)
    os.rename("/tmp/alive.new", "/tmp/alive")
    time.sleep(0.01)
"""
# What a hook of a template does for a warm interpreter.
HOOK = "#!/bin/sh\necho \"$GLOVEBOX_RESEED\" >>/var/reseeds\n"

keeps = {"gvisor": "memory+files", "container": "files", "microvm": "memory+files"}


def snapshot(box, **spec):
    return box.api.call("POST", box.path + "/snapshots", expect=201, json=spec)


def fork(box, count, **spec):
    answer = box.api.call("POST", box.path + "/fork", expect=201, json={"count": count, **spec})
    return [Sandbox(box.api, info) for info in answer["sandboxes"]]


def hibernate(box, **spec):
    info = box.api.call("POST", box.path + "/hibernate", json=spec)
    assert info["state"] == "paused" and info["paused"]["hibernated"], info
    return info


def needs_memory(tier):
    if keeps[tier] == "files":
        pytest.skip(f"{tier} keeps files only")


def start_worker(box):
    box.put("/tmp/worker.py", WORKER.encode())
    run = box.start(["python3", "/tmp/worker.py"])
    eventually(lambda: box.exists("/tmp/alive") and counted(box) > 3, 10, "it counts")
    return run


def counted(box):
    return json.loads(box.get("/tmp/alive"))["n"]


def goes_on(box, beyond):
    """The worker counts past `beyond` without a gap."""
    eventually(lambda: counted(box) > beyond + 5, 10, "it goes on counting")
    numbers = [int(line) for line in whole_lines(box.get("/tmp/journal"))]
    assert numbers == list(range(1, len(numbers) + 1)), "no gap, no number twice"


@pytest.fixture(scope="module")
def mortal(make_daemon):
    daemon = make_daemon()
    yield daemon
    daemon.end_sandboxes()


def crash(daemon):
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()


def same(daemon, box):
    return Sandbox(daemon.admin, daemon.admin.call("GET", box.path))


@pytest.fixture
def clean(api):
    """Snapshots of the test are deleted, whatever it did."""
    yield
    for snap in api.pages("/v1/snapshots", "snapshots", 100):
        api.request("DELETE", "/v1/snapshots/" + snap["id"])


# Snapshots -----------------------------------------------------------------------------------------------------------

def test_a_snapshot_is_of_its_moment_and_the_source_goes_on(create, api, tier, clean):
    box = create(env={"A": "1"})
    box.put("/tmp/before", b"x" * 300_000)
    made = snapshot(box, name="one", labels={"k": "v"})
    assert made["state"] == "ready" and made["kept"] == keeps[tier] and made["source_sandbox"] == box.id
    assert made["parts"] and all(len(p["sha256"]) == 64 for p in made["parts"])
    box.put("/tmp/after", b"y")
    memory = box.info["limits"]["memory_mb"] if tier == "microvm" else 700  # its machine keeps its size
    copy = create(snapshot=made["id"], env={"B": "2"}, limits={"memory_mb": memory})
    assert copy.info["started_from"] == "snapshot" and copy.info["snapshot_id"] == made["id"]
    assert copy.info["limits"]["memory_mb"] == memory and copy.info["limits"]["disk_mb"] == box.info["limits"]["disk_mb"]
    assert copy.get("/tmp/before") == b"x" * 300_000 and not copy.exists("/tmp/after")
    assert copy.ok("echo $A $B") == "1 2\n"
    copy.put("/tmp/own", b"z")
    assert not box.exists("/tmp/own") and box.exists("/tmp/after")
    api.call("POST", f"/v1/snapshots/{made['id']}/verify")
    assert api.call("GET", "/v1/snapshots?label.k=v&sandbox=" + box.id)["snapshots"][0]["id"] == made["id"]
    child = snapshot(copy)
    assert child["parent"] == made["id"]


def test_a_snapshot_may_need_more_than_a_caller_gives(create, api, clean):
    made = snapshot(create())
    least = max(made["min_memory_mb"], 16)
    if least > 16:
        api.refused("POST", "/v1/sandboxes", 400, "invalid_argument", json={"snapshot": made["id"], "limits": {"memory_mb": least - 1}})
    other = "container" if made["runtime"] != "container" else "gvisor"
    api.refused("POST", "/v1/sandboxes", 400, "invalid_argument", json={"snapshot": made["id"], "runtime": other})
    api.refused("POST", "/v1/sandboxes", 404, "snapshot_not_found", json={"snapshot": "snap-none"})


def test_changed_bytes_are_refused_before_anything_starts(create, api, daemon, clean):
    made = snapshot(create())
    # Not the agent's part: that file is the daemon's own, too.
    part = max((p for p in made["parts"] if not p["name"].startswith("agent-")), key=lambda p: p["bytes"])
    path = daemon.data_dir / "snapshots" / made["id"] / part["name"]
    with open(path, "r+b") as file:
        file.seek(4096)
        byte = file.read(1)
        file.seek(4096)
        file.write(bytes([byte[0] ^ 1]))
    before = host.descendants(daemon.pid)
    api.refused("POST", "/v1/sandboxes", 500, "corrupt", json={"snapshot": made["id"]})
    api.refused("POST", f"/v1/snapshots/{made['id']}/verify", 500, "corrupt")
    eventually(lambda: len(host.descendants(daemon.pid)) <= len(before), what="no process is left of it")


def test_another_engine_or_processor_is_refused(make_daemon, tier):
    needs_memory(tier)
    daemon = make_daemon()
    box = daemon.admin.create(runtime=tier)
    made = snapshot(box)
    box.kill()
    daemon.stop()
    import sqlite3
    with sqlite3.connect(daemon.data_dir / "glovebox.db") as db:
        (document,) = db.execute("select document from objects where id = ?", (made["id"],)).fetchone()
        row = json.loads(document)
        assert set(row["needs"]) == {"engine", "processor"} | ({"monitor", "accel", "machine"} if tier == "microvm" else set())
        row["needs"]["processor"] = "x86_64-0000000000000000"
        db.execute("update objects set document = ? where id = ?", (json.dumps(row), made["id"]))
    daemon.start()
    error = daemon.admin.refused("POST", "/v1/sandboxes", 409, "snapshot_mismatch", json={"snapshot": made["id"]})
    assert error["details"]["need"] == "processor"
    assert not daemon.live_ids()
    daemon.admin.call("DELETE", "/v1/snapshots/" + made["id"])


def test_what_a_tier_cannot_keep_can_be_insisted_on(create, api, tier):
    box = create()
    for path, body in (("/snapshots", {}), ("/fork", {"count": 1}), ("/hibernate", {})):
        if keeps[tier] == "files":
            api.refused("POST", box.path + path, 501, "unsupported", json={**body, "require": "memory+files"})
    assert box.refresh()["state"] == "ready" and box.ok("echo x") == "x\n"


def test_snapshots_of_paused_and_frozen_sandboxes(create, tier, clean):
    box = create()
    box.put("/tmp/f", b"kept")
    box.api.call("POST", box.path + "/pause", json={})
    made = snapshot(box)
    assert box.refresh()["state"] == "paused" and not box.info["paused"]["hibernated"]
    assert create(snapshot=made["id"]).get("/tmp/f") == b"kept"
    assert box.refresh()["state"] == "paused"
    hibernate(box)
    made = snapshot(box)
    assert box.refresh()["paused"]["hibernated"], "looking at its image does not wake it"
    assert create(snapshot=made["id"]).get("/tmp/f") == b"kept"
    assert box.get("/tmp/f") == b"kept"


def test_the_output_of_what_runs_goes_on_in_copies(create, tier, clean):
    needs_memory(tier)
    box = create()
    run = box.start("i=0; while :; do i=$((i+1)); echo $i; [ $i -gt 40000 ] && sleep 0.01; done")
    run.wait_for_output(b"39000\n", 30)
    made = snapshot(box)
    copies = [create(snapshot=made["id"])] + fork(box, 1)
    for sandbox in [box] + copies:
        mine = Execution(sandbox, sandbox.api.call("GET", f"{sandbox.path}/executions/{run.id}"))
        assert mine.info["state"] == "running" and mine.info["command"].startswith("i=0")
        seen = len(mine.raw().content)
        eventually(lambda: len(mine.raw().content) > seen, 10, "more output")
        assert mine.kill()["outcome"]["type"] == "killed_by_caller"
        numbers = [int(word) for word in mine.raw().content.split()]
        assert numbers == list(range(1, len(numbers) + 1)), "nothing is lost, nothing comes twice"
    for copy in copies:
        copy.kill()


def test_volumes_are_not_in_images(create, api, tier, clean):
    volume = api.call("POST", "/v1/volumes", expect=201, json={"name": f"of-{tier}", "size_mb": 64})
    box = create(volumes=[{"volume": volume["id"], "path": "/data"}])
    box.put("/data/f", b"one")
    try:
        if keeps[tier] == "memory+files":
            for path in ("/snapshots", "/hibernate"):
                api.refused("POST", box.path + path, 501, "unsupported", json={})
        api.refused("POST", box.path + "/fork", 409, "conflict", json={"count": 1})
        if keeps[tier] == "files":
            made = snapshot(box)
            copy = create(snapshot=made["id"])
            assert not copy.exists("/data/f")
            hibernate(box)
            assert box.get("/data/f") == b"one"
    finally:
        box.kill()
        api.call("DELETE", "/v1/volumes/" + volume["id"])


# Forks ---------------------------------------------------------------------------------------------------------------

IDENTITY = """
hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id
head -c 1024 /dev/urandom | sha256sum
python3 -c 'import random, uuid, os, ssl; print(uuid.uuid4()); print(random.random()); print(os.urandom(16).hex()); print(ssl.RAND_bytes(16).hex())'
"""


def test_copies_share_no_identity(create, api, tier, clean):  # C31
    box = create()
    made = snapshot(box)
    count = scaled(4, 16)
    children = fork(box, count)
    copies = [create(snapshot=made["id"]) for _ in range(2)]
    everybody = [box] + children + copies
    columns = collections.defaultdict(list)
    for sandbox in everybody:
        for at, line in enumerate(sandbox.ok(IDENTITY).splitlines()):
            columns[at].append(line)
        assert columns[0][-1] == sandbox.id, "its own host name"
    assert len(columns) == 8
    for at, values in columns.items():
        assert len(set(values)) == len(everybody), (at, values)
    for child in children:
        assert child.info["started_from"] == "fork"
        child.kill()


def test_hooks_run_in_every_copy_and_can_refuse_it(create, api, clean):
    box = create(user="root")
    box.put("/etc/glovebox/resume.d/10-reseed", HOOK.encode(), mode="0755")
    children = fork(box, 3)
    seeds = [child.get("/var/reseeds").decode().split() for child in children]
    assert all(len(s) == 1 and len(s[0]) == 64 for s in seeds) and len({s[0] for s in seeds}) == 3
    for child in children:
        child.kill()
    box.put("/etc/glovebox/resume.d/20-no", b"#!/bin/sh\nexit 3\n", mode="0755")
    live = lambda: {info["id"] for info in api.call("GET", "/v1/sandboxes")["sandboxes"]}
    before = live()
    error = api.refused("POST", box.path + "/fork", 500, "start_failed", json={"count": 2})
    assert error["details"]["cause"] == "hook" and "20-no" in error["message"]
    assert live() <= before, "all or none"
    assert box.ok("echo x") == "x\n"


def test_a_copy_has_the_time_of_the_host(create, clean):
    box = create()
    made = snapshot(box)
    time.sleep(1.5)
    copy = create(snapshot=made["id"])
    before = time.time()
    there = float(copy.ok("date +%s.%N"))
    assert before - 0.1 <= there <= time.time() + 0.1


def test_a_fork_has_its_own_network(create, tier, clean):
    box = create(network={"egress": "none"})
    (child,) = fork(box, 1)
    assert child.info["network"]["address"] and child.info["network"]["address"] != box.refresh()["network"]["address"]
    addresses = "python3 -c 'import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((\"192.0.2.1\", 9)); print(s.getsockname()[0])'"
    assert child.ok(addresses).strip() == child.info["network"]["address"]
    assert box.ok(addresses).strip() == box.info["network"]["address"]
    child.kill()


TALKER = """
import socket, time
outside = socket.create_connection(("192.0.2.80", 80), 5)
listening = socket.create_server(("127.0.0.1", 8099))
print("connected", flush=True)
while True:
    try:
        if not outside.recv(10): raise OSError("closed")
    except OSError as error:
        print("ended", flush=True)
        break
while True: listening.accept()[0].sendall(b"hello")
"""


def test_connections_to_the_outside_do_not_stop_a_copy(create, tier, clean):
    needs_memory(tier)
    box = create(network={"egress": "open"})
    box.put("/tmp/talker.py", TALKER.encode())
    run = box.start(["python3", "/tmp/talker.py"])
    run.wait_for_output(b"connected")
    (child,) = fork(box, 1)
    hello = "python3 -c 'import socket; print(socket.create_connection((\"127.0.0.1\", 8099), 5).recv(9).decode())'"
    for sandbox in (box, child):
        there = Execution(sandbox, {**run.info, "sandbox_id": sandbox.id})
        if tier == "microvm" and sandbox is box:  # the connections of a kernel of its own know nothing of its copies
            assert b"ended" not in there.raw().content
            continue
        there.wait_for_output(b"ended", 20)
        assert sandbox.ok(hello) == "hello\n"
    child.kill()


# Reset ---------------------------------------------------------------------------------------------------------------

def test_a_reset_goes_back_in_place(create, api, clean):
    box = create()
    box.put("/tmp/f", b"first")
    made = snapshot(box)
    for _ in range(2):
        box.put("/tmp/f", b"second")
        run = box.start(["sleep", "600"])
        info = api.call("POST", box.path + "/reset", json={"snapshot": made["id"]})
        assert info["id"] == box.id and info["state"] == "ready" and info["snapshot_id"] == made["id"]
        assert box.get("/tmp/f") == b"first"
        assert run.wait()["outcome"]["type"] == "sandbox_ended"
    assert api.call("POST", box.path + "/reset", json={})["state"] == "ready", "to the same one again"
    api.call("DELETE", "/v1/snapshots/" + made["id"])
    api.refused("POST", box.path + "/reset", 404, "snapshot_not_found", json={})
    assert box.get("/tmp/f") == b"first"


# Hibernation ---------------------------------------------------------------------------------------------------------

def test_hibernated_it_has_no_process_and_is_resumed_by_use(create, daemon, tier):
    box = create()
    box.put("/tmp/f", b"kept")
    info = hibernate(box)
    assert info["paused"]["kept"] == keeps[tier]
    eventually(lambda: not host.command_lines([box.id]) and not host.cgroups([box.id]) and not host.loop_devices([box.id]), what="the host has nothing of it")
    assert box.executions() == [] and box.refresh()["state"] == "paused", "looking does not wake it"
    assert box.get("/tmp/f") == b"kept"
    assert box.refresh()["state"] == "ready" and box.info["paused"] is None
    assert not (daemon.data_dir / "hibernated" / box.id).exists()


def test_timeouts_can_hibernate(create):
    box = create(on_timeout="hibernate")
    box.put("/tmp/f", b"kept")
    box.api.call("PATCH", box.path, json={"lifetime_ms": patience(2500)})
    eventually(lambda: box.refresh()["state"] == "paused", 12, "the end of its lifetime")
    assert box.info["paused"]["hibernated"] and box.info["paused"]["cause"] == "lifetime"
    eventually(lambda: box.get("/tmp/f") == b"kept" and box.refresh()["state"] == "ready", what="used, it is ready")


def test_ten_rounds_of_hibernation_with_a_daemon_that_dies(mortal, tier):  # C25
    box = mortal.admin.create(runtime=tier, lifetime_ms=600_000)
    has_memory = keeps[tier] == "memory+files"
    run = start_worker(box) if has_memory else None
    for n in range(10):
        box.put(f"/tmp/file-{n}", f"file {n}".encode())
        box.ok(f"echo {n} >>/tmp/counter; sync")
        before = counted(box) if has_memory else 0
        hibernate(box)
        if n % 3 == 1:
            crash(mortal)
            box = same(mortal, box)
            assert box.info["state"] == "paused" and box.info["paused"]["hibernated"]
        if n % 2 == 0:
            assert box.api.call("POST", box.path + "/resume")["state"] == "ready"
        if has_memory:
            goes_on(box, before)
        if n == 5:
            (child,) = fork(box, 1)
            child.put("/tmp/of-the-child", b"x")
            box.put("/tmp/of-the-parent", b"y")
            assert not box.exists("/tmp/of-the-child") and not child.exists("/tmp/of-the-parent")
            if has_memory:
                goes_on(child, before)
            child.kill()
    assert box.ok("cd /tmp && cat file-?") == "".join(f"file {n}" for n in range(10))
    assert box.ok("cat /tmp/counter").split() == [str(n) for n in range(10)]
    if has_memory:
        run = Execution(box, mortal.admin.call("GET", f"{box.path}/executions/{run.id}"))
        assert run.info["state"] == "running"
    box.kill()


def test_a_process_goes_through_hibernation_restart_and_fork(mortal, tier):  # done-when 3
    needs_memory(tier)
    box = mortal.admin.create(runtime=tier, lifetime_ms=600_000)
    start_worker(box)
    hibernate(box)
    crash(mortal)
    box = same(mortal, box)
    mortal.admin.call("POST", box.path + "/resume")
    before = counted(box)
    children = fork(box, 4)
    for sandbox in [box] + children:
        goes_on(sandbox, before)
    pid = json.loads(box.get("/tmp/alive"))["pid"]
    box.ok(f"kill {pid}")
    for child in children:
        goes_on(child, counted(child))
    for sandbox in [box] + children:
        sandbox.kill()


def test_a_daemon_that_dies_in_a_hibernation_loses_nothing(mortal, tier):
    box = mortal.admin.create(runtime=tier, lifetime_ms=600_000)
    box.put("/tmp/f", b"kept")
    for n in range(scaled(4, 30)):
        call = threading.Thread(target=lambda: quiet(lambda: hibernate(box)))
        call.start()
        time.sleep(random.uniform(0, 0.25))
        crash(mortal)
        call.join()
        box = same(mortal, box)
        assert box.info["state"] in ("ready", "paused"), box.info
        assert box.get("/tmp/f") == b"kept"
        call = threading.Thread(target=lambda: quiet(lambda: hibernate(box)))
        quiet(lambda: hibernate(box))
        call = threading.Thread(target=lambda: quiet(lambda: box.ok("true")))
        call.start()
        time.sleep(random.uniform(0, 0.25))
        crash(mortal)
        call.join()
        box = same(mortal, box)
        assert box.get("/tmp/f") == b"kept"
    box.kill()


def quiet(call):
    try:
        return call()
    except Exception:  # the daemon dies under it: what counts is what the next one finds
        return None


def test_pause_and_resume_race_with_calls(create, tier):  # done-when 2
    boxes = [create(lifetime_ms=3_600_000) for _ in range(scaled(2, 5))]
    wrong, stop = [], threading.Event()

    def visit(box):
        while not stop.is_set():
            response = box.api.request("POST", box.path + "/executions?wait=true", json={"command": "echo x"})
            if response.status_code == 200 and response.json()["stdout"] != "x\n":
                wrong.append(response.text)
            elif response.status_code not in (200, 409, 410):
                wrong.append(response.text)
            time.sleep(random.uniform(0, 0.02))

    visitors = [threading.Thread(target=visit, args=(box,)) for box in boxes]
    for visitor in visitors:
        visitor.start()
    for n in range(scaled(6, 100)):
        for box in boxes:
            how = "/hibernate" if n % 5 == 4 else "/pause"
            response = box.api.request("POST", box.path + how, json={})
            if response.status_code != 200:
                check_error(response, 409, "conflict")
            assert box.api.call("POST", box.path + "/resume")["state"] == "ready"
    stop.set()
    for visitor in visitors:
        visitor.join()
    if keeps[tier] == "files":  # a hibernation ends what runs, and says so
        wrong = [text for text in wrong if "sandbox_ended" not in text]
    assert not wrong, wrong[:3]
    for box in boxes:
        assert box.ok("echo x") == "x\n" and box.refresh()["state"] == "ready"


def test_every_state_can_be_killed(create, api, clean):
    box = create()
    made = snapshot(box)
    hibernate(box)
    assert box.kill()["state"] == "ended"
    for path, body, delay in (("/snapshots", {}, 0.02), ("/fork", {"count": 2}, 0.1), ("/hibernate", {}, 0.05), ("/reset", {"snapshot": made["id"]}, 0.1)):
        box = create()
        call = threading.Thread(target=lambda: api.request("POST", box.path + path, json=body))
        call.start()
        time.sleep(delay)
        assert box.kill()["state"] == "ended", path
        call.join()
    for info in api.call("GET", "/v1/sandboxes")["sandboxes"]:
        api.call("DELETE", "/v1/sandboxes/" + info["id"])


# Leaving nothing -----------------------------------------------------------------------------------------------------

def used(path):
    return sum(on_disk for _, on_disk in host.sizes_below(path).values())


def test_many_rounds_leave_nothing(create, api, daemon, tier):  # done-when 5
    source = create()
    source.put("/tmp/f", os.urandom(2_000_000))
    source.ok("sync")

    def round_():
        made = snapshot(source)
        copy = api.create(snapshot=made["id"])
        assert copy.get("/tmp/f")[:10]
        copy.kill()
        api.call("DELETE", "/v1/snapshots/" + made["id"])

    round_()
    os.sync()  # what the source wrote takes its room on the host's disk now, not in the middle of the rounds
    folders = [daemon.data_dir / name for name in ("snapshots", "hibernated", "sandboxes", "run")]
    before = (len(host.descendants(daemon.pid)), sum(used(f) for f in folders), len(host.mounts(daemon.pid, [str(daemon.data_dir)])),
              len(host.loop_devices([str(daemon.data_dir)])))
    for _ in range(scaled(8, 500)):
        round_()
    after = lambda: (len(host.descendants(daemon.pid)), sum(used(f) for f in folders), len(host.mounts(daemon.pid, [str(daemon.data_dir)])),
                     len(host.loop_devices([str(daemon.data_dir)])))
    # The source itself writes a little now and then.
    eventually(lambda: all(a <= b + slack for a, b, slack in zip(after(), before, (0, 200_000, 0, 0))), 10, f"{before} before, {after()} after")


def test_a_daemon_that_dies_in_a_snapshot_leaves_no_half_one(mortal, tier):
    box = mortal.admin.create(runtime=tier, lifetime_ms=600_000)
    box.put("/tmp/f", os.urandom(8_000_000))
    for _ in range(scaled(3, 20)):
        call = threading.Thread(target=lambda: quiet(lambda: snapshot(box)))
        call.start()
        time.sleep(random.uniform(0.01, 0.3))
        crash(mortal)
        call.join()
        box = same(mortal, box)
        assert box.ok("echo x") == "x\n"
    for made in mortal.admin.pages("/v1/snapshots", "snapshots", 100):
        assert made["state"] == "ready", "what was cut short is forgotten"
        mortal.admin.call("POST", f"/v1/snapshots/{made['id']}/verify")
        mortal.admin.call("DELETE", "/v1/snapshots/" + made["id"])
    eventually(lambda: not os.listdir(mortal.data_dir / "snapshots"), what="no files are left of one")
    box.kill()
