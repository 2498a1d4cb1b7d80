# SPDX-License-Identifier: Apache-2.0
"""Limits: each is met inside the sandbox, named by a typed outcome, and survived or truthfully not survived."""

import time

import pytest

from client import eventually, patience, promptly

MIB = 1 << 20


def test_cpu_is_a_hard_cap(create):
    box = create(limits={"cpus": 0.5})
    burn = "import time\nend = time.monotonic() + {}\nwhile time.monotonic() < end: pass"
    box.ok(["python3", "-c", burn.format(0.2)])
    shares = []
    while not shares or shares[-1] <= 0.25:  # where the machine is busy with others it may get less
        assert len(shares) < 5, shares
        before, begin = box.stats()["cpu_ms"], time.monotonic()
        runs = [box.start(["python3", "-c", burn.format(3)]) for _ in range(2)]
        for run in runs:
            assert run.wait()["exit_code"] == 0
        shares.append((box.stats()["cpu_ms"] - before) / 1000 / (time.monotonic() - begin))
        assert shares[-1] < 0.62, shares


HOG = """if True:
    import sys
    blocks = []
    for n in range(600):
        blocks.append(bytearray(b'x') * (1 << 20))
        print(n, flush=True)
"""


@pytest.mark.microvm
def test_out_of_memory_is_typed(create, tier):
    box = create(limits={"memory_mb": 128})
    box.put("/tmp/kept", b"kept")
    hog = box.start(["python3", "-c", HOG])
    done = hog.wait(60_000)
    reached = int(hog.raw().content.split()[-1])
    assert 20 < reached < 200, "it grew, and not far past the limit"
    assert done["outcome"]["type"] in ("oom_killed", "sandbox_ended") and "exit_code" not in done, done
    if done["outcome"]["type"] == "sandbox_ended":  # the engine itself was what the host killed
        assert tier == "gvisor"
        assert eventually(lambda: box.refresh()["ended"])["reason"] == "oom"
        assert box.refuse_run(["true"], 410, "sandbox_ended")["details"]["reason"] == "oom"
    else:
        assert box.stats()["oom_kills"] >= 1
        assert box.ok(["cat", "/tmp/kept"]) == "kept"


def test_the_agent_is_not_what_the_kernel_kills_for_memory(create, tier):
    """Many small processes, each smaller than the agent: it would be the first to go if size alone decided."""
    if tier == "gvisor":
        pytest.skip("gvisor: the host's kernel sees the engine, and none of the guest's processes")
    box = create(limits={"memory_mb": 96 if tier == "microvm" else 24, "processes": 1000})
    score = lambda pid: int(box.ok(["cat", f"/proc/{pid}/oom_score_adj"]))
    assert score("self") == score(1) + 500
    # A shell that holds nothing but itself and waits, many times.
    crowd = box.start(["sh", "-c", "mkfifo /tmp/f; i=0; while [ $i -lt 900 ]; do i=$((i+1)); (read x </tmp/f) & done"])
    done = crowd.wait(60_000)
    assert box.stats()["oom_kills"] >= 1, "it was too little for them"
    assert done["outcome"]["type"] in ("oom_killed", "exited"), done
    crowd.kill()
    eventually(lambda: not [p for p in box.processes() if p["execution"] == crowd.id], what="the crowd is gone, and its memory free")
    assert box.refresh()["state"] == "ready"
    assert box.ok(["echo", "alive"]) == "alive\n"


def test_a_child_out_of_memory_does_not_end_its_parent_untruthfully(create, tier):
    if tier == "gvisor":
        pytest.skip("gvisor: the host's kernel chooses a process of the engine, not one of the guest's")
    box = create(limits={"memory_mb": 128})
    done = box.run(["sh", "-c", "python3 -c '" + HOG.replace("'x'", '"x"') + "' >/dev/null; echo child ended with $?"])
    if done["outcome"]["type"] == "exited":  # the shell outlived the child
        assert done["stdout"] == "child ended with 137\n"
    else:
        assert done["outcome"]["type"] == "oom_killed"
    assert box.ok(["echo", "alive"]) == "alive\n"


@pytest.mark.microvm
def test_a_full_disk_is_typed(create):
    box = create(limits={"disk_mb": 64})
    error = box.api.refused("PUT", box.file_url("/tmp/too-large"), 507, "disk_full", content=bytes(200 * MIB))
    assert error["fault"] == "sandbox"
    assert box.ls("/tmp") == [], "no part of it is left"
    done = box.run("dd if=/dev/zero of=/tmp/filler bs=1M count=200")
    assert done["outcome"]["type"] == "exited" and done["exit_code"] == 1
    assert "No space left on device" in done["stderr"]
    assert 20 * MIB < box.stat("/tmp/filler")["size_bytes"] <= 64 * MIB
    box.api.refused("PUT", box.file_url("/tmp/more"), 507, "disk_full", content=bytes(8 * MIB))
    box.api.call("DELETE", box.file_url("/tmp/filler"))
    box.put("/tmp/after", bytes(8 * MIB))
    assert box.ok(["stat", "-c", "%s", "/tmp/after"]) == f"{8 * MIB}\n"


def test_inodes_cannot_be_eaten_without_end(create, tier):
    if tier == "gvisor":
        pytest.skip("gvisor: names and attributes of new files are in the engine's memory, so memory_mb bounds them")
    box = create(limits={"disk_mb": 64})
    done = box.run(["python3", "-c", """if True:
        import os
        os.mkdir('/tmp/many')
        n = 0
        try:
            while n < 2_000_000:
                open(f'/tmp/many/{n}', 'w').close()
                n += 1
        except OSError as error:
            print(error.errno)
    """], timeout_ms=100_000)
    assert done["stdout"] == "28\n", done
    box.ok(["rm", "-r", "/tmp/many"])
    box.put("/tmp/after", b"works")


def test_a_fork_bomb_stays_inside(create):
    box, neighbour = create(limits={"processes": 64}), create()
    bomb = box.start(["python3", "-c", """if True:
        import os, time
        while True:
            try:
                os.fork()
            except OSError:
                time.sleep(0.01)
    """], user="user")
    eventually(lambda: len([p for p in box.processes() if p["execution"] == bomb.id]) > 32, 20, "the bomb has grown")
    assert promptly(3, lambda: neighbour.ok(["echo", "unharmed"])) == "unharmed\n"
    assert len(box.processes()) <= 66  # gvisor counts per user, and the agent is root's
    assert bomb.kill()["outcome"]["type"] == "killed_by_caller"
    eventually(lambda: not [p for p in box.processes() if p["execution"] == bomb.id], what="the bomb is gone")
    assert box.ok(["echo", "alive"], user="user") == "alive\n"


def test_open_files(create):
    box = create(limits={"open_files": 64})
    done = box.run(["python3", "-c", """if True:
        files = []
        try:
            while len(files) < 1000:
                files.append(open('/dev/null'))
        except OSError as error:
            print(len(files) + 3 <= 64, error.errno)
    """])
    assert done["stdout"] == "True 24\n", done
    assert box.ok("ulimit -Hn") == "64\n"


@pytest.mark.microvm
def test_limits_hold_for_root_inside(create):
    box = create(limits={"open_files": 100, "memory_mb": 256})
    assert box.run("ulimit -n 200", user="root")["exit_code"] != 0
    meminfo = box.ok(["cat", "/proc/meminfo"], user="root")
    assert meminfo.startswith("MemTotal:")
    box.run("echo -1 > /sys/fs/cgroup/memory.max; echo 9999999999 > /sys/fs/cgroup/memory/memory.limit_in_bytes",
            user="root")
    hog = box.start(["python3", "-c", HOG], user="root")
    assert hog.wait(60_000)["outcome"]["type"] in ("oom_killed", "sandbox_ended")


def test_tmpfs_counts_as_memory(create, tier):
    box = create(limits={"memory_mb": 128})
    done = box.run("dd if=/dev/zero of=/dev/shm/fill bs=1M count=400 2>&1 | tail -1; echo end", timeout_ms=60_000)
    size = box.stat("/dev/shm/fill")["size_bytes"] if box.refresh()["state"] == "ready" else 0
    assert size < 200 * MIB
    assert done["outcome"]["type"] in ("exited", "oom_killed", "sandbox_ended")


def test_a_memory_hog_does_not_slow_a_neighbour_to_death(create):
    neighbour = create()
    neighbour.run(["true"])
    for _ in range(5):
        hog = create(limits={"memory_mb": 96})
        running = hog.start(["python3", "-c", HOG])
        begin = time.monotonic()
        assert neighbour.ok(["echo", "unharmed"]) == "unharmed\n"
        taken = time.monotonic() - begin
        running.wait()
        assert taken < 60, taken
        if taken < patience(3):
            break
    else:
        pytest.fail(f"a call beside a hog took {taken} s, and long each time")
