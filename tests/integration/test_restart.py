# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the daemon: sandboxes and their executions live on, nothing is lost, misreported or left behind.

The soak at the end creates, runs and kills while the daemon is killed at random (C29; GLOVEBOX_LONG=1 for its full size).
"""

import collections
import concurrent.futures
import fcntl
import os
import random
import signal
import subprocess
import threading
import time

import httpx
import pytest

import host
from client import Execution, Sandbox, eventually, patience, scaled


class Restartable:
    """A daemon that tests may kill. Each start has another port, so handles are looked up anew."""

    def __init__(self, daemon):
        self.daemon = daemon

    @property
    def api(self):
        return self.daemon.admin

    def kill_9(self):
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait()

    def start(self):
        self.daemon.start()

    def restart(self):
        self.kill_9()
        self.start()

    def sandbox(self, old):
        """The same sandbox through the daemon that runs now, once it has been taken over."""
        box = Sandbox(self.api, self.api.call("GET", old.path))
        return box

    def execution(self, old):
        box = self.sandbox(old.sandbox)
        return Execution(box, self.api.call("GET", old.path))


@pytest.fixture(scope="module")
def mortal(make_daemon):
    daemon = make_daemon()
    yield Restartable(daemon)
    for sandbox_id in daemon.live_ids():
        daemon.admin.call("DELETE", f"/v1/sandboxes/{sandbox_id}")
    ids = daemon.sandbox_ids()
    eventually(lambda: not host.leftovers(daemon.pid, daemon.data_dir, ids), 10,
               f"nothing is left: {host.leftovers(daemon.pid, daemon.data_dir, ids)}")


def make(mortal, tier, **spec):
    return mortal.api.create(**{"runtime": tier, "lifetime_ms": 600_000, **spec})


@pytest.mark.microvm
def test_running_execution_goes_on_and_loses_no_byte(mortal, tier):
    box = make(mortal, tier)
    lines = 60
    run = box.start(f"for i in $(seq 1 {lines}); do echo out $i; echo err $i >&2; sleep 0.05; done; exit 9")
    run.wait_for_output(b"out 5\n")
    mortal.kill_9()
    time.sleep(0.5)  # output goes on with nobody there
    mortal.start()
    run = mortal.execution(run)
    done = run.wait()
    assert done["outcome"] == {"type": "exited", "exit_code": 9}
    assert run.raw("&stream=stdout").content == b"".join(b"out %d\n" % i for i in range(1, lines + 1))
    assert run.raw("&stream=stderr").content == b"".join(b"err %d\n" % i for i in range(1, lines + 1))
    assert done["output"]["truncated"] is False
    mortal.sandbox(box).kill()


def test_execution_that_ends_while_the_daemon_is_down_keeps_its_status(mortal, tier):
    box = make(mortal, tier)
    code = box.start("read line; exit 77", stdin=True)
    died = box.start("sleep 1; kill -KILL $$")
    for timeout_ms in (1500, 6000, 20_000):
        slow = box.start("echo started; sleep 600", timeout_ms=timeout_ms)
        slow.output(f"&wait_ms={timeout_ms}")
        if slow.refresh()["state"] == "running":  # it has begun, and the daemon will not see its end
            break
    code.send(b"go\n")
    mortal.kill_9()
    time.sleep(timeout_ms / 1000 + 1)
    mortal.start()
    assert mortal.execution(code).wait()["outcome"] == {"type": "exited", "exit_code": 77}
    killed = mortal.execution(died).wait()["outcome"]
    assert killed["type"] == "signalled" and killed["signal"] == 9
    late = mortal.execution(slow).wait()
    assert late["outcome"]["type"] == "timed_out", late  # the deadline held with no daemon to watch it
    assert mortal.execution(slow).raw().content == b"started\n"
    mortal.sandbox(box).kill()


def test_pids_files_and_background_processes_are_the_same_after(mortal, tier):
    box = make(mortal, tier, metadata={"kept": "yes"}, env={"SECRET": "s3cret"})
    box.put("kept.txt", b"before")
    server = box.start(["sleep", "300"])
    pid = server.refresh()["pid"]
    mortal.restart()
    box = mortal.sandbox(box)
    assert box.info["state"] == "ready" and box.info["metadata"] == {"kept": "yes"}
    assert box.get("kept.txt") == b"before"
    assert [p["pid"] for p in box.processes() if p["argv"] == ["sleep", "300"]] == [pid]
    assert box.ok("echo $SECRET") == "s3cret\n"
    assert mortal.execution(server).kill()["outcome"]["type"] == "killed_by_caller"
    box.kill()


def test_ended_executions_and_sandboxes_are_still_known(mortal, tier):
    box = make(mortal, tier)
    small = box.start("echo small; exit 3")
    small.wait()
    large = box.start("head -c 3000000 /dev/zero | tr '\\0' x")
    large.wait()
    gone = make(mortal, tier)
    gone.kill()
    mortal.restart()
    assert mortal.execution(small).refresh()["outcome"] == {"type": "exited", "exit_code": 3}
    assert mortal.execution(small).raw().content == b"small\n"
    assert mortal.execution(large).raw().content == b"x" * 3_000_000
    assert mortal.sandbox(gone).refresh()["ended"]["reason"] == "killed"
    mortal.sandbox(box).kill()


def test_terminal_and_standard_input_go_on(mortal, tier):
    box = make(mortal, tier)
    cat = box.start(["cat"], stdin=True)
    cat.send(b"one\n")
    cat.wait_for_output(b"one\n")
    mortal.restart()
    cat = mortal.execution(cat)
    cat.send(b"two\n", close=True)
    assert cat.wait()["exit_code"] == 0
    assert cat.raw().content == b"one\ntwo\n"
    mortal.sandbox(box).kill()


def test_sandbox_that_died_meanwhile_is_reported_lost(mortal, tier):
    box = make(mortal, tier)
    run = box.start(["sleep", "300"])
    mortal.kill_9()
    # The sandbox's processes carry its cgroup: end them as an operator or the OOM killer would.
    eventually(lambda: kill_all_in_cgroups(box.id) == 0, 10, "every process of the sandbox is gone")
    mortal.start()
    info = eventually(lambda: (i := mortal.sandbox(box).refresh())["state"] == "ended" and i, 10, "it is reported ended")
    assert info["ended"]["reason"] in ("host_lost", "crashed"), info["ended"]
    outcome = mortal.execution(run).refresh()["outcome"]
    assert outcome["type"] in ("sandbox_ended", "interrupted") and "exit_code" not in outcome
    eventually(lambda: not host.leftovers(mortal.daemon.pid, mortal.daemon.data_dir, [box.id]), what="nothing of it is left")


def kill_all_in_cgroups(sandbox_id):
    """SIGKILL to every process of the sandbox's cgroups; how many there were. Thaws first: frozen processes do not die on v1."""
    pids = set()
    for path in host.cgroups([sandbox_id]):
        if "/freezer/" in path:
            with open(os.path.join(path, "freezer.state"), "w") as state:
                state.write("THAWED")
        pids |= {int(p) for p in host.read(os.path.join(path, "cgroup.procs")).split()}
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return len(pids)


def test_half_made_and_half_deleted_are_rolled_back(mortal, tier):
    """Killed in the middle of creates and deletes: what the ledger lists afterwards is what the host has."""
    doomed = [make(mortal, tier) for _ in range(4)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for box in doomed:
            pool.submit(quietly, mortal, "DELETE", box.path)
        for _ in range(4):
            pool.submit(quietly, mortal, "POST", "/v1/sandboxes", {"runtime": tier, "lifetime_ms": 600_000})
        time.sleep(0.03)
        mortal.kill_9()
    mortal.start()
    settled = lambda: not mortal.daemon.sandbox_ids(("creating", "ending"))
    eventually(settled, 20, "no sandbox stays between two states")
    for box_id in mortal.daemon.live_ids():
        box = Sandbox(mortal.api, mortal.api.call("GET", f"/v1/sandboxes/{box_id}"))
        assert box.ok("echo alive") == "alive\n"
        box.kill()
    ids = mortal.daemon.sandbox_ids()
    eventually(lambda: not host.leftovers(mortal.daemon.pid, mortal.daemon.data_dir, ids), 5,
               f"nothing is left: {host.leftovers(mortal.daemon.pid, mortal.daemon.data_dir, ids)}")


def quietly(mortal, method, path, body=None):
    try:
        mortal.api.request(method, path, json=body)
    except httpx.HTTPError:
        pass  # the daemon died under the call


def owners_on_host(data_dir, ids):
    """Which of the sandboxes have a control group, and which a disk, found on the host."""
    groups = {id for id in ids if host.cgroups([id])}
    sandboxes = str(data_dir / "sandboxes")  # a machine's monitor has its disk open, and needs no device for it
    disks = {file.split("/")[-2] for file in host.loop_devices([sandboxes]) + host.open_files([sandboxes]) if file.endswith("/disk.img")}
    directories = {path.name for path in (data_dir / "sandboxes").iterdir()}
    return groups, disks, directories


def test_a_full_house_is_taken_over_and_the_host_has_what_the_list_has(mortal, tier):
    """C29, with the states there are: running and idle (frozen), three being made, two being ended."""
    size = 22 if patience.factor == 1 else 10  # emulated machines are all of this host's processors
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        boxes = list(pool.map(lambda n: make(mortal, tier, metadata={"n": str(n)}, limits={"memory_mb": 128, "disk_mb": 64}), range(size)))
    busy, idle, doomed = boxes[:-7], boxes[-7:-2], boxes[-2:]
    runs = [box.start("sleep 600; exit 5") for box in busy]
    pids = [run.refresh()["pid"] for run in runs]
    for box in idle:
        box.put("kept", box.id.encode())
    time.sleep(0.6)  # longer than a quiet sandbox stays thawed
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for _ in range(3):
            pool.submit(quietly, mortal, "POST", "/v1/sandboxes", {"runtime": tier, "lifetime_ms": 600_000})
        for box in doomed:
            pool.submit(quietly, mortal, "DELETE", box.path)
        time.sleep(0.02)
        mortal.kill_9()
    mortal.start()
    eventually(lambda: not mortal.daemon.sandbox_ids(("creating", "ending")), 30, "no sandbox stays between two states")
    live = set(mortal.daemon.live_ids())
    assert live >= {box.id for box in busy + idle}, "none that was ready is lost"
    eventually(lambda: owners_on_host(mortal.daemon.data_dir, mortal.daemon.sandbox_ids()) == (live, live, live), 10,
               "the host has the sandboxes of the list, and no other")
    for number, (box, run, pid) in enumerate(zip(busy, runs, pids)):
        box = mortal.sandbox(box)
        assert box.info["metadata"] == {"n": str(number)}
        assert box.ok("echo alive") == "alive\n"
        assert pid in [p["pid"] for p in box.processes() if "sleep 600" in " ".join(p["argv"])]
        assert mortal.execution(run).refresh()["state"] == "running"
    for box in idle:
        assert mortal.sandbox(box).get("kept") == box.id.encode()
    for box_id in live:
        mortal.api.call("DELETE", f"/v1/sandboxes/{box_id}")
    eventually(lambda: owners_on_host(mortal.daemon.data_dir, mortal.daemon.sandbox_ids()) == (set(), set(), set()), what="the host has none")


def test_graceful_stop_leaves_sandboxes_to_the_next_daemon(mortal, tier):
    box = make(mortal, tier)
    run = box.start("echo begun; read line; echo got $line", stdin=True)
    run.wait_for_output(b"begun")
    mortal.daemon.stop()
    mortal.start()
    run = mortal.execution(run)
    run.send(b"more\n")
    assert run.wait()["exit_code"] == 0
    assert run.raw().content == b"begun\ngot more\n"
    mortal.sandbox(box).kill()


def test_a_lock_that_outlives_its_daemon_for_a_moment_is_waited_for(mortal):
    """A child of the killed daemon that was about to start an engine still has it, on a busy machine for seconds."""
    mortal.kill_9()
    with open(mortal.daemon.data_dir / "daemon.lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        release = threading.Timer(4, fcntl.flock, (lock, fcntl.LOCK_UN))
        release.start()
        mortal.start()
        assert time.monotonic() - began > 4
        release.join()
    second = subprocess.run([mortal.daemon.program, "up", "--data-dir", str(mortal.daemon.data_dir), "--listen", "127.0.0.1:0"],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 1 and "another daemon uses this data directory" in second.stderr + second.stdout
    assert mortal.api.request("GET", "/readyz").status_code == 200


def test_create_with_an_idempotency_key_survives_a_restart(mortal, tier):
    key = {"Idempotency-Key": f"restart-{tier}"}
    body = {"runtime": tier}
    first = mortal.api.call("POST", "/v1/sandboxes", expect=201, json=body, headers=key)
    mortal.restart()
    again = mortal.api.request("POST", "/v1/sandboxes", json=body, headers=key)
    assert again.status_code == 201 and again.json()["id"] == first["id"]
    assert again.headers["idempotency-replayed"] == "true"
    mortal.api.refused("POST", "/v1/sandboxes", 409, "conflict", json={"runtime": tier, "metadata": {"x": "y"}}, headers=key)
    mortal.api.call("DELETE", f"/v1/sandboxes/{first['id']}")


def test_an_execution_with_an_idempotency_key_runs_once(mortal, tier):
    box = mortal.api.create(runtime=tier)
    key = {"Idempotency-Key": "once"}
    body = {"command": "echo run >>/tmp/runs; sleep 0.3; wc -l </tmp/runs"}
    path = box.path + "/executions"
    first = mortal.api.request("POST", path, json=body, headers=key)
    assert first.status_code == 201 and "idempotency-replayed" not in first.headers
    mortal.restart()
    for query in ("", "?wait=true", "?wait=true"):
        again = mortal.api.request("POST", path + query, json=body, headers=key)
        assert again.status_code == (200 if query else 201) and again.headers["idempotency-replayed"] == "true"
        assert again.json()["id"] == first.json()["id"]
    assert again.json()["stdout"].strip() == "1"
    error = mortal.api.refused("POST", path, 409, "conflict", json={"command": "true"}, headers=key)
    assert error["details"] == {"execution": first.json()["id"], "state": "key_used"}
    mortal.api.refused("POST", path, 400, "command_not_found", json={"argv": ["/nothing"]}, headers={"Idempotency-Key": "free"})
    assert mortal.api.call("POST", path + "?wait=true", json=body, headers={"Idempotency-Key": "free"})["stdout"].strip() == "2"
    mortal.api.refused("POST", path, 400, "invalid_argument", json=body, headers={"Idempotency-Key": "x" * 256})
    assert len(mortal.sandbox(box).executions()) == 2
    mortal.api.call("DELETE", box.path)


def test_copies_begin_without_the_keys_of_their_source(mortal, tier):
    if tier != "gvisor":
        pytest.skip("executions go on in copies where memory is kept")
    box = mortal.api.create(runtime=tier)
    key, body = {"Idempotency-Key": "once"}, {"command": "sleep 600"}
    first = mortal.api.call("POST", box.path + "/executions", expect=201, json=body, headers=key)
    (child,) = mortal.api.call("POST", box.path + "/fork", expect=201, json={"count": 1})["sandboxes"]
    started = mortal.api.request("POST", f"/v1/sandboxes/{child['id']}/executions", json=body, headers=key)
    assert "idempotency-replayed" not in started.headers and started.json()["id"] != first["id"]
    for made in (child["id"], box.id):
        mortal.api.call("DELETE", f"/v1/sandboxes/{made}")


class Soak:
    """Workers that create, run and kill with patience for a daemon that keeps dying."""

    def __init__(self, mortal, tier, rounds, kills):
        self.mortal, self.tier, self.rounds, self.kills = mortal, tier, rounds, kills
        self.up = threading.Event()
        self.up.set()
        self.faults = []
        self.done = collections.Counter()

    def call(self, method, path, **options):
        """The JSON of an answer from whichever daemon is alive; None for a 404."""
        for _ in range(300):
            assert self.up.wait(150), "the daemon did not come back"
            try:
                response = self.mortal.api.request(method, path, timeout=120, **options)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if response.status_code in (200, 201):
                return response.json()
            if response.status_code == 404:
                return None
            # Whatever a dying or starting daemon says must be a retryable or state error, never a wrong answer.
            assert response.status_code in (409, 429, 499, 503, 504), f"{method} {path}: {response.status_code} {response.text}"
            time.sleep(0.05)
        raise AssertionError(f"{method} {path} never succeeded")

    def round(self, number):
        key = {"Idempotency-Key": f"soak-{self.tier}-{number}-{os.getpid()}"}
        box = self.call("POST", "/v1/sandboxes", json={"runtime": self.tier, "lifetime_ms": 600_000}, headers=key)
        assert box["state"] == "ready", f"round {number}: lost before its first command: {box['ended']}"
        path = f"/v1/sandboxes/{box['id']}"
        code = number % 200
        started = self.call("POST", path + "/executions",
                            json={"command": f"echo round {number}; sleep 0.2; exit {code}", "name": f"r{number}"})
        if started is None:
            raise AssertionError(f"round {number}: sandbox {box['id']} was lost")
        run = f"{path}/executions/{started['id']}"
        while True:
            info = self.call("GET", run + "/wait?timeout_ms=20000")
            assert info is not None, f"round {number}: execution {run} was forgotten"
            if info["state"] == "ended":
                break
        assert info["outcome"] == {"type": "exited", "exit_code": code}, f"round {number}: {info['outcome']}"
        assert info["output"]["stdout_bytes"] == len(f"round {number}\n"), f"round {number}: {info['output']}"
        assert self.call("DELETE", path)["state"] == "ended"
        self.done["rounds"] += 1

    def work(self, numbers):
        for number in numbers:
            try:
                self.round(number)
            except AssertionError as fault:
                self.faults.append(str(fault))

    def murder(self):
        """Over all of the rounds, each time at a random moment of some round."""
        rng = random.Random(20261)
        for kill in range(self.kills):
            while self.done["rounds"] + len(self.faults) < kill * self.rounds / self.kills:
                time.sleep(0.05)
            time.sleep(rng.uniform(0.3, 1.5))
            self.up.clear()
            self.mortal.kill_9()
            self.mortal.start()
            self.done["kills"] += 1
            self.up.set()

    def run(self):
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            workers = [pool.submit(self.work, range(i, self.rounds, 8)) for i in range(8)]
            killer = pool.submit(self.murder)
            for future in [*workers, killer]:
                future.result()


def test_soak(mortal, tier):
    rounds, kills = scaled(48, 1000), scaled(4, 20)
    count = lambda: host_counts(str(mortal.daemon.data_dir))
    before = count()
    soak = Soak(mortal, tier, rounds, kills)
    soak.run()
    assert not soak.faults, f"{len(soak.faults)} of {rounds} rounds failed: " + "\n".join(soak.faults[:5])
    assert soak.done == {"rounds": rounds, "kills": kills}
    eventually(lambda: not mortal.daemon.live_ids(), 20, f"no sandbox that nobody knows: {mortal.daemon.live_ids()}")
    eventually(lambda: count() <= before, 10, f"host objects before {before}, after {count()}")
    eventually(lambda: not os.listdir(mortal.daemon.data_dir / "sandboxes"), what="no files are left of one")


def host_counts(data_dir):
    """Objects of this daemon's on the host, other than the daemon itself; counters compare piece by piece."""
    processes = [line for line in host.command_lines([data_dir]) if " up " not in line]
    return collections.Counter({
        "engines": len(processes),
        "loops": len(host.loop_devices([data_dir])),
        "mounts": len(host.mounts("self", [data_dir])),
    })
