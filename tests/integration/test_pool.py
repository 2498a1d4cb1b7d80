# SPDX-License-Identifier: Apache-2.0
"""The warm pool: what is claimed differs in nothing from what is started (C24), is mixed up with nothing, and nobody sees the rest."""

import concurrent.futures
import json
import subprocess
import threading
import time

import pytest

import host
from client import Sandbox, eventually, scaled
from daemon import find_program

SIZE = 6
LINKED = 4
# Resolvers that answer nothing: what a policy lets through fails, what it does not is denied.
CONFIG = "[network]\nresolvers = [\"127.0.0.1:9\"]\n[pool]\n" + "".join(
    f"{tier} = [{{count = {SIZE}}}, {{count = {LINKED}, network = true}}, {{count = 1, cpus = 1, memory_mb = 512, processes = 100}}]\n"
    for tier in ("container", "gvisor"))
# Everything an owner can see of a sandbox that is the same for two with the same settings.
LOOK = r"""
import glob, json, os, pwd, resource, stat, subprocess
def text(path):
    try: return open(path).read()
    except OSError as error: return error.strerror
def entry(path):
    s = os.lstat(path)
    return [path, oct(s.st_mode), s.st_uid, s.st_gid]
roots = sorted(glob.glob("/*") + glob.glob("/home/*") + glob.glob("/root/.*") + glob.glob("/etc/host*") + glob.glob("/tmp/*") + glob.glob("/run/*"))
mounts = sorted(" ".join(line.split()[1:3]) for line in text("/proc/mounts").splitlines())
print(json.dumps({
    "environment": {k: v for k, v in sorted(os.environ.items())},
    "who": [os.getuid(), os.getgid(), sorted(os.getgroups()), os.getcwd(), os.umask(0o22)],
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "files": [entry(path) for path in roots + ["/workspace", "/etc/machine-id", "/etc/resolv.conf"]],
    "hosts": text("/etc/hosts").replace(os.uname().nodename, "NAME"),
    "named": os.uname().nodename == text("/etc/hostname").strip(),
    "cgroup": [text(path) for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max")],
    "cpus": os.cpu_count(),
    "memory": [line for line in text("/proc/meminfo").splitlines() if line.startswith("MemTotal")],
    "interfaces": sorted(line.split(":")[0].strip() for line in text("/proc/net/dev").splitlines()[2:]),
    "clients": {path: text(path) for path in ("/etc/pip.conf", "/etc/npmrc", "/usr/etc/npmrc", "/etc/apt/sources.list", "/etc/resolv.conf",
                                              *glob.glob("/etc/apt/sources.list.d/*"), *glob.glob("/etc/apt/apt.conf.d/*"))},
    "processes": resource.getrlimit(resource.RLIMIT_NPROC),
    "disk": os.statvfs("/").f_blocks,
    "shm": os.statvfs("/dev/shm").f_blocks,
    "mounts": mounts,
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
    "first": text("/proc/1/cmdline"),
}))
"""


@pytest.fixture(scope="module")
def pooled(make_daemon):
    daemon = make_daemon(config=CONFIG)
    yield daemon
    daemon.end_sandboxes()


def shelf(daemon, tier, network=False, cpus=2):
    return next(p for p in daemon.admin.call("GET", "/v1/pool")["pools"]
                if (p["runtime"], p["network"], p["limits"]["cpus"]) == (tier, network, cpus))


def wait_full(daemon, tier, **kind):
    def check():
        found = shelf(daemon, tier, **kind)
        return found["ready"] == found["wanted"] and found
    return eventually(check, 60, f"the pool of {tier} is full")


def look(box, **spec):
    box.put("/tmp/look.py", LOOK.encode())
    try:
        return json.loads(box.ok(["python3", "/tmp/look.py"], **spec))
    finally:
        box.ok(["rm", "/tmp/look.py"], user="root")


def public(info):
    """What may not differ between the descriptions of two sandboxes with the same settings."""
    out = {k: v for k, v in info.items() if k not in ("id", "started_from", "ready_ms", "created_at", "expires_at", "frozen")}
    return {**out, "network": {**info["network"], "address": bool(info["network"]["address"])}}


@pytest.mark.parametrize("wishes", [
    {},
    {"env": {"WHOSE": "mine", "PATH": "/usr/bin:/bin"}, "metadata": {"task": "4711"}, "workdir": "/var"},
    {"user": "nobody"},
    {"user": "root", "idle_timeout_ms": 60_000, "on_timeout": "pause"},
    {"limits": {"cpus": 1, "memory_mb": 512, "processes": 100}},
    {"network": {"egress": "none"}},
    {"network": {"egress": "allowlist", "allow": [{"host": "one.example"}], "limits": {"connections": 5}}},
    {"network": {"presets": ["python-packages", "node-packages", "debian-packages"]}, "env": {"WHOSE": "mine"}, "user": "nobody"},
], ids=["plain", "environment", "nobody", "root", "small", "closed", "one host", "packages"])
def test_a_claimed_sandbox_cannot_be_told_from_a_started_one(pooled, tier, wishes):  # C24
    wait_full(pooled, tier, network="network" in wishes, cpus=wishes.get("limits", {}).get("cpus", 2))
    claimed = pooled.admin.create(runtime=tier, lifetime_ms=600_000, **wishes)
    started = pooled.admin.create(runtime=tier, lifetime_ms=600_000, fresh=True, **wishes)
    assert (claimed.info["started_from"], started.info["started_from"]) == ("pool", "cold")
    assert public(claimed.info) == public(started.info)
    assert look(claimed) == look(started)
    assert look(claimed, user="root") == look(started, user="root")
    if "network" in wishes:
        policies = [{k: v for k, v in pooled.admin.call("GET", box.path + "/network").items() if k in ("policy", "effective", "link")} for box in (claimed, started)]
        assert policies[0] == policies[1] and claimed.info["network"]["address"] != started.info["network"]["address"]
    for box in (claimed, started):
        assert box.ok("hostname") == box.id + "\n"
        before = time.time()
        assert before - 1 < float(box.ok("date +%s.%N")) < time.time() + 1  # a clock that stood still would be minutes off
        assert box.refresh()["expires_at"] and box.executions()
    unique = "cat /etc/machine-id /proc/sys/kernel/hostname; head -c 64 /dev/urandom | od -An -tx1; python3 -c 'import random; print(random.random())'"
    assert claimed.ok(unique) != started.ok(unique)
    eventually(lambda: len(claimed.processes()) == len(started.processes()), what="as many processes")
    claimed.kill()
    started.kill()


def test_an_unknown_user_is_refused_as_ever(pooled, tier):
    wait_full(pooled, tier)
    pooled.admin.refused("POST", "/v1/sandboxes", 400, "user_unknown", json={"runtime": tier, "user": "nobody-at-all"})
    eventually(lambda: not pooled.live_ids(), what="nothing is left of it")


def test_fifty_claims_at_once_are_not_mixed_up(pooled, tier):
    """Fifty callers with their own environment, limits and metadata: some are served by the pool, the others are started."""
    wait_full(pooled, tier)

    def claim(n):
        limits = {"processes": 64 + n} if n % 5 == 0 else {}
        user = ("root", "nobody")[n % 2]
        box = pooled.admin.create(runtime=tier, lifetime_ms=600_000, env={"N": str(n), f"ONLY_{n}": "1"}, metadata={"n": str(n)},
                                  user=user, limits=limits)
        seen = box.ok("echo $N $(id -un) $(hostname) $(env | grep -c ^ONLY_)").split()
        assert seen == [str(n), user, box.id, "1"], (n, box.info)
        assert box.refresh()["metadata"] == {"n": str(n)} and box.info["user"] == user
        assert box.info["limits"]["processes"] == limits.get("processes", 512)
        if limits:
            assert box.info["started_from"] == "cold", "the pool has others"
        random = box.ok("head -c 16 /dev/urandom | od -An -tx1; cat /etc/machine-id")
        box.kill()
        return box.info["started_from"], random

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        results = list(pool.map(claim, range(50)))
    assert [kind for kind, _ in results].count("pool") >= SIZE
    assert len({random for _, random in results}) == 50


def test_fifty_policies_are_not_mixed_up(pooled, tier):  # C24
    """Each caller may reach a host of his own: it is let through (and fails, as nothing answers), his neighbour's is denied."""
    wait_full(pooled, tier, network=True)
    before = shelf(pooled, tier, network=True)["claimed"]

    def claim(n):
        mine, neighbours = f"h{n}.example", f"h{(n + 1) % 50}.example"
        policy = {"egress": "allowlist", "allow": [{"host": mine}]} if n % 5 else {"egress": "none"}
        box = pooled.admin.create(runtime=tier, lifetime_ms=600_000, env={"N": str(n)}, metadata={"n": str(n)}, network=policy,
                                  user=("root", "nobody")[n % 2])
        seen = box.run(f"echo $N $(id -un); getent hosts {mine}; getent hosts {neighbours}", timeout_ms=60_000)
        assert seen["stdout"].split() == [str(n), ("root", "nobody")[n % 2]], (n, seen)
        state = pooled.admin.call("GET", box.path + "/network")
        assert state["policy"]["egress"] == policy["egress"] and [r["host"] for r in state["policy"].get("allow", [])] == ([mine] if n % 5 else [])
        eventually(lambda: any(e.get("host") == neighbours for e in connections(box)), 20, "it is logged")
        log = connections(box)
        verdicts = {(e["host"], e["verdict"]) for e in log if e.get("host") in (mine, neighbours)}
        assert (neighbours, "denied") in verdicts and (neighbours, "allowed") not in verdicts, (n, log)
        assert ((mine, "denied") in verdicts) == (n % 5 == 0), (n, log)
        assert all(e["sandbox"] == box.id for e in log if "sandbox" in e)
        box.kill()
        return box.info["started_from"]

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        results = list(pool.map(claim, range(50)))
    assert results.count("pool") >= LINKED and results.count("pool") == shelf(pooled, tier, network=True)["claimed"] - before


SIZES = [100, 110, 120, 130, 140]  # in processes: a class of the pool for each


def test_a_burst_that_the_pool_serves_alone_is_not_mixed_up(make_daemon, tier):  # C24, done-when 4
    """All claims at the same moment, each with its own environment, policy, limits, user, directory and metadata."""
    each = scaled(1, 10)
    classes = ", ".join(f"{{count = {each}, network = true, processes = {size}}}" for size in SIZES)
    daemon = make_daemon(config=f"[network]\nresolvers = [\"127.0.0.1:9\"]\n[pool]\n{tier} = [{classes}]\n")
    eventually(lambda: sum(p["ready"] for p in daemon.admin.call("GET", "/v1/pool")["pools"]) == each * len(SIZES), 180, "the pool is full")
    count = each * len(SIZES)
    together = threading.Barrier(count)
    ask = "import os, pwd, resource; print(os.environ['N'], pwd.getpwuid(os.getuid()).pw_name, os.getcwd(), os.uname().nodename, " \
          "resource.getrlimit(resource.RLIMIT_NPROC)[0], sum(k.startswith('ONLY_') for k in os.environ), os.urandom(16).hex())"

    def claim(n):
        own, other = f"h{n}.example", f"h{(n + 1) % count}.example"
        user, directory, size = ("root", "nobody")[n % 2], ("/", "/tmp", "/var")[n % 3], SIZES[n % len(SIZES)]
        together.wait(300)
        box = daemon.admin.create(runtime=tier, lifetime_ms=600_000 + n, env={"N": str(n), f"ONLY_{n}": "1"}, metadata={"n": str(n)}, user=user,
                                  workdir=directory, limits={"processes": size}, network={"egress": "allowlist", "allow": [{"host": own}]})
        assert box.info["started_from"] == "pool" and box.info["metadata"] == {"n": str(n)} and box.info["limits"]["processes"] == size, box.info
        *seen, drawn = box.ok(["python3", "-c", ask], timeout_ms=60_000).split()
        assert seen == [str(n), user, directory, box.id, str(size), "1"], (n, seen)
        policy = daemon.admin.call("GET", box.path + "/network")["policy"]
        assert [rule["host"] for rule in policy["allow"]] == [own]
        box.run(f"getent hosts {own}; getent hosts {other}", timeout_ms=60_000)
        eventually(lambda: any(e.get("host") == other for e in connections(box)), 8, "it is logged")
        verdicts = {(e["host"], e["verdict"]) for e in connections(box) if e.get("host")}
        assert (other, "denied") in verdicts and (other, "allowed") not in verdicts and (own, "denied") not in verdicts, (n, verdicts)
        return box, drawn

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        results = list(pool.map(claim, range(count)))
    assert len({box.id for box, _ in results}) == len({drawn for _, drawn in results}) == count
    for box, _ in results:
        box.kill()
    assert daemon.log_path.read_text().count(" network.router ") == 1, "the pool and the recovery share one"


def connections(box):
    return box.api.call("GET", box.path + "/network/connections?limit=1000")["connections"]


def test_a_link_of_the_pool_lets_nothing_pass_before_its_claim(pooled, tier):
    """What was tried with the pool's policy would be in the log; the first thing there is the owner's."""
    wait_full(pooled, tier, network=True)
    box = pooled.admin.create(runtime=tier, lifetime_ms=600_000, network={"egress": "none"})
    assert box.info["started_from"] == "pool" and connections(box) == []
    box.run("getent hosts one.example", timeout_ms=60_000)
    assert all(e["verdict"] == "denied" for e in eventually(lambda: connections(box), 10, "it is logged"))
    changed = pooled.admin.call("PUT", box.path + "/network", json={"egress": "allowlist", "allow": [{"host": "two.example"}]})
    assert changed["policy"]["allow"][0]["host"] == "two.example"
    box.kill()


def want_at_once(daemon, tier, count, wanted):
    """What counts is what comes within two seconds: a few times, as this machine may stand still in the middle."""
    for _ in range(4):
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            for box in list(pool.map(lambda _: daemon.admin.create(runtime=tier), range(count))):
                box.kill()
        if shelf(daemon, tier)["wanted"] == wanted:
            return
    raise AssertionError(f"{count} were wanted at once: {shelf(daemon, tier)}")


def test_the_pool_follows_demand_and_gives_back(make_daemon, tier):
    daemon = make_daemon(config=f"[pool]\n{tier} = {{count = 1, max = 5}}\n")
    assert wait_full(daemon, tier)["wanted"] == 1 and shelf(daemon, tier)["max"] == 5
    want_at_once(daemon, tier, 8, 5)  # five is the most
    wait_full(daemon, tier)
    page = daemon.admin.request("GET", "/metrics").text
    assert f'glovebox_pool_ready{{network="no",runtime="{tier}",template="base"}} 5' in page, [x for x in page.splitlines() if "pool_ready" in x]


def test_a_pool_does_not_grow_where_memory_is_short(make_daemon, tier):
    daemon = make_daemon(config=f"[pool]\n{tier} = {{count = 1, max = 5}}\nfree_memory_mb = 1000000\n")
    wait_full(daemon, tier)
    want_at_once(daemon, tier, 4, 4)
    eventually(lambda: shelf(daemon, tier)["ready"] == 1, 30, "its count is kept")
    time.sleep(1)
    assert shelf(daemon, tier)["ready"] == 1 and shelf(daemon, tier)["wanted"] == 4


def test_the_pool_is_seen_by_the_operator_only(pooled, tier):
    before = wait_full(pooled, tier)
    assert before["wanted"] == SIZE and before["template"]["name"] == "base" and before["limits"]["memory_mb"] == 1024
    assert pooled.sandbox_ids() == [] or not pooled.live_ids()
    user = pooled.api("somebody")
    user.refused("GET", "/v1/pool", 403, "forbidden")
    assert user.call("GET", "/v1/sandboxes")["sandboxes"] == []
    ids = [path.name for path in (pooled.data_dir / "sandboxes").iterdir()]
    assert len(ids) >= SIZE + LINKED + 1
    for box_id in ids:
        pooled.admin.refused("GET", f"/v1/sandboxes/{box_id}", 404, "sandbox_not_found")
        pooled.admin.refused("DELETE", f"/v1/sandboxes/{box_id}", 404, "sandbox_not_found")
    box = user.create(runtime=tier)
    assert box.info["started_from"] == "pool" and box.id in ids
    after = wait_full(pooled, tier)
    assert after["claimed"] == before["claimed"] + 1 and after["refill_ms"] > 0
    box.kill()


def test_a_dead_daemons_pool_is_replaced(pooled, tier):
    wait_full(pooled, tier)
    mine = pooled.admin.create(runtime=tier, lifetime_ms=600_000, env={"KEPT": "yes"})
    wait_full(pooled, tier)
    before = {path.name for path in (pooled.data_dir / "sandboxes").iterdir()}
    pooled.process.kill()
    pooled.process.wait()
    pooled.start()
    for p in pooled.admin.call("GET", "/v1/pool")["pools"]:
        if p["template"]["version"]:
            wait_full(pooled, p["runtime"], network=p["network"], cpus=p["limits"]["cpus"])
    gone = before - {mine.id}
    eventually(lambda: not gone & {path.name for path in (pooled.data_dir / "sandboxes").iterdir()}, 20, "the old ones are gone")
    eventually(lambda: not host.cgroups(list(gone)), what="and their control groups")
    mine = Sandbox(pooled.admin, pooled.admin.call("GET", mine.path))
    assert mine.ok("echo $KEPT") == "yes\n"
    mine.kill()


@pytest.mark.parametrize("wrong", ["container = -1", "gvisor = 1001", "microvm = -1", "gvisor = true", "base.contaner = 1", "gvisor = {count = 2, max = 1}",
                                   "gvisor = {size = 1}", "gvisor = [{count = 1}, {network = 1}]", "gvisor = {memory_mb = 1}", "free_memory_mb = -1",
                                   "gvisor = {warm = true}", "gvisor = {warm = [\"ruby\"]}", "gvisor = {warm = [\"python\", \"python\"]}"])
def test_settings_that_make_no_sense_stop_the_start(tmp_path, wrong):
    (tmp_path / "config.toml").write_text(f"[pool]\n{wrong}\n")
    done = subprocess.run([find_program(), "up", "--data-dir", tmp_path, "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "config.toml:1:2: pool " in done.stderr, done.stderr


def test_a_stopped_daemon_keeps_no_pool(make_daemon, tier):
    daemon = make_daemon(config=f"[pool]\n{tier} = 2\n")
    eventually(lambda: shelf(daemon, tier)["ready"] == 2, 60, "it is full")
    ids = [path.name for path in (daemon.data_dir / "sandboxes").iterdir()]
    assert len(ids) == 2
    pid = daemon.pid
    daemon.stop()
    assert list((daemon.data_dir / "sandboxes").iterdir()) == []
    eventually(lambda: not host.leftovers(pid, daemon.data_dir, ids), what="nothing of it is left")
