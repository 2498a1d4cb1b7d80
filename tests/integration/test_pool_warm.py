# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of the pool whose kernels are up already: their first cell finds one, and nothing else differs."""

import concurrent.futures
import json
import os
import re
import signal
import time

import pytest

import host
from client import eventually, scaled
from test_code import Cells, needs_interpreter

pytestmark = needs_interpreter
SIZE = 2
LANGUAGES = '["python", "javascript", "bash"]'
CONFIG = f"[pool.interpreter]\ncontainer = {{count = {SIZE}, warm = {LANGUAGES}}}\ngvisor = {{count = {SIZE}, warm = {LANGUAGES}}}\n"
# What a first cell can see of where it runs.
LOOK = r"""
import json, os, resource, signal, socket, sys
print(json.dumps({
    "environment": {k: v for k, v in sorted(os.environ.items())},
    "who": [os.getuid(), os.getgid(), sorted(os.getgroups()), os.getcwd(), os.umask(0o22), sys.argv, sys.path, sys.executable],
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "signals": [str(signal.getsignal(n)).split(" at ")[0] for n in sorted(signal.valid_signals()) if n < 32],
    "descriptors": sorted(os.listdir("/proc/self/fd"), key=int)[:-1],
    "named": socket.gethostname() == open("/etc/hostname").read().strip(),
    "home": sorted(os.listdir(os.path.expanduser("~"))),
    "modules": sorted(name for name in sys.modules if not name.startswith("glovebox")),
    "names": sorted(name for name in globals() if not name.startswith("_")),
    "hash": hash("a") if "PYTHONHASHSEED" in os.environ else None,
}))
"""


@pytest.fixture(scope="module")
def pooled(make_daemon):
    daemon = make_daemon(config=CONFIG)
    yield daemon
    daemon.end_sandboxes()


def shelf(daemon, tier):
    return next(p for p in daemon.admin.call("GET", "/v1/pool")["pools"] if p["runtime"] == tier)


def wait_warm(daemon, tier, count=SIZE):
    def check():
        found = shelf(daemon, tier)
        return found["ready_warm"] >= count and found
    return eventually(check, 120, f"the pool of {tier} is warm")


def starts(daemon):
    """Code runners that calls had to wait for."""
    found = re.search(r'^glovebox_code_runner_starts_total\{for="call"\} (\d+)', daemon.admin.request("GET", "/metrics").text, re.M)
    return int(found[1]) if found else 0


def claim(daemon, tier, expect="pool", **spec):
    box = daemon.admin.create(runtime=tier, template="interpreter", lifetime_ms=600_000, **spec)
    assert box.info["started_from"] == expect
    return Cells(box)


def look(cells):
    return json.loads(cells.ok(LOOK)["stdout"])


def ran(cells):
    """What its owner is told of what runs in it."""
    own = ("id", "sandbox", "sandbox_id", "pid", "started_at", "ended_at", "duration_ms")
    return [{k: v for k, v in e.items() if k not in own} for e in cells.box.executions()]


def test_the_first_cell_finds_its_kernel(pooled, tier):
    before = wait_warm(pooled, tier)
    assert before["warm"] == ["python", "javascript", "bash"]
    had_to_start, now = starts(pooled), time.time()
    cells = claim(pooled, tier)
    assert cells.value("6 * 7") == "42"
    lived = "import time; float(open('/proc/uptime').read().split()[0]) - int(open('/proc/self/stat').read().rsplit(')')[1].split()[19]) / 100, time.time()"
    age, at = json.loads(cells.value(lived).translate(str.maketrans("()", "[]")))
    assert age > at - now, "its kernel is older than the call that made it"
    assert cells.value("[1, 2].map(x => x * 2)", language="javascript") == "[ 2, 4 ]"
    assert cells.ok("echo $((6 * 7))", language="bash")["stdout"] == "42\n"
    assert starts(pooled) == had_to_start, "no runner was started for it"
    page = pooled.admin.request("GET", "/metrics").text
    assert f'glovebox_pool_warm{{network="no",runtime="{tier}",template="interpreter"}}' in page
    eventually(lambda: cells.box.refresh()["frozen"], 10, "it stands still when nothing runs")
    assert cells.value("_ if False else 'state'") == "'state'" and cells.ok("kept = 1") and cells.value("kept") == "1"
    cells.box.kill()


@pytest.mark.parametrize("wishes", [
    {},
    {"env": {"WHOSE": "mine", "TZ": "Asia/Tokyo", "NAME": "q\"'\n\u00fc$x"}, "secrets": {"KEY": "hidden"}, "workdir": "/var", "metadata": {"a": "b"}},
    {"env": {"PYTHONHASHSEED": "7", "PATH": "/usr/bin:/bin", "WHOSE": "mine"}},
], ids=["plain", "environment", "read at start"])
def test_a_first_cell_cannot_tell_where_it_came_from(pooled, tier, wishes):
    wait_warm(pooled, tier, 1)
    had_to_start = starts(pooled)
    claimed, started = claim(pooled, tier, **wishes), claim(pooled, tier, "cold", fresh=True, **wishes)
    assert claimed.contexts() == {}
    assert look(claimed) == look(started)
    assert starts(pooled) == had_to_start + 1
    tokyo = "import time, datetime; (time.tzname[0], time.localtime(0).tm_hour, datetime.datetime.fromtimestamp(0).hour)"
    assert claimed.value(tokyo) == started.value(tokyo)
    node = "JSON.stringify([Object.entries(process.env).sort(), process.cwd(), process.getuid(), process.argv, process.execArgv, new Date(0).getHours()])"
    assert claimed.value(node, language="javascript") == started.value(node, language="javascript")
    shell = "env | grep -v '^_=' | sort; pwd; id; ulimit -a; [ $(hostname) = $(cat /etc/hostname) ] && echo named"
    assert claimed.ok(shell, language="bash")["stdout"] == started.ok(shell, language="bash")["stdout"]
    assert claimed.value("import os; [os.environ.get(n) for n in ('WHOSE', 'KEY', 'NAME')]") == repr(
        [{**wishes.get("env", {}), **wishes.get("secrets", {})}.get(n) for n in ("WHOSE", "KEY", "NAME")])
    made = [cells.value("import os; [os.environ.get('WHOSE')]", context=cells.context(language="python")) for cells in (claimed, started)]
    assert made == [repr([wishes.get("env", {}).get("WHOSE")])] * 2, "in a context that is made later, too"
    assert sorted(claimed.contexts()) and len(claimed.contexts()) == len(started.contexts()) == 4
    assert ran(claimed) == ran(started)
    for cells in (claimed, started):
        (runner,) = cells.box.executions()
        assert runner["started_at"] >= cells.box.info["created_at"]
    for draw, language in (("import random, numpy; (random.random(), numpy.random.random(), hash('x'))", "python"), ("Math.random()", "javascript")):
        if "PYTHONHASHSEED" not in wishes.get("env", {}):
            assert claimed.value(draw, language=language) != started.value(draw, language=language)
    claimed.box.kill()
    started.box.kill()


def test_its_cpu_time_begins_with_its_owner(pooled, tier):
    wait_warm(pooled, tier, 1)
    cells = claim(pooled, tier)
    started = claim(pooled, tier, "cold", fresh=True)
    started.ok("1")
    used = [c.box.stats()["cpu_ms"] for c in (cells, started)]
    assert used[0] < used[1] / 2, "starting its kernels was not for him"
    cells.box.kill()
    started.box.kill()


def test_what_is_installed_before_the_first_cell_is_found(pooled, tier):
    wait_warm(pooled, tier, 1)
    cells = claim(pooled, tier)
    where = cells.box.ok(["python3", "-c", "import site; print(site.getusersitepackages())"]).strip()
    cells.box.ok(f"mkdir -p {where} && echo 'answer = 42' >{where}/installed_late.py")
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # also when several ask at once
        assert list(pool.map(lambda _: cells.value("import installed_late; installed_late.answer"), range(3))) == ["42"] * 3
    assert len(cells.box.executions()) == 3 and [e["name"] for e in cells.box.executions() if e["name"]] == ["code-runner"]
    defunct = lambda: cells.box.ok("cat /proc/[0-9]*/stat | awk '$3 == \"Z\" {print \"defunct\"}'", user="root")
    eventually(lambda: "defunct" not in defunct(), what="all that ended was waited for")
    cells.box.kill()


def test_for_another_user_one_is_started(pooled, tier):
    wait_warm(pooled, tier, 1)
    cells = claim(pooled, tier, "cold", user="root")
    assert cells.value("import os; (os.getuid(), os.environ['HOME'])") == "(0, '/root')"
    assert cells.ok("id -un", language="bash")["stdout"] == "root\n"
    cells.box.kill()


def test_many_claims_at_once_are_not_mixed_up(pooled, tier):
    wait_warm(pooled, tier)
    count = scaled(6, 20)

    def first_cell(n):
        box = pooled.admin.create(runtime=tier, template="interpreter", lifetime_ms=600_000, env={"N": str(n), f"ONLY_{n}": "1"}, secrets={"S": f"s{n}"})
        cells = Cells(box)
        seen = cells.value("import os, random, socket; (os.environ['N'], os.environ['S'], sum(k.startswith('ONLY_') for k in os.environ), socket.gethostname())")
        assert seen == repr((str(n), f"s{n}", 1, box.id)), box.info
        drawn = cells.value("(random.random(), os.urandom(8).hex())")
        assert cells.ok("echo $N $S $(hostname) $(env | grep -c ^ONLY_)", language="bash")["stdout"].split() == [str(n), f"s{n}", box.id, "1"]
        seen = cells.value("[process.env.N, process.env.S, require('os').hostname(), Math.random()].join()", language="javascript")
        assert seen.startswith(f"{n},s{n},{box.id},")
        box.kill()
        return box.info["started_from"], drawn, seen.split(",")[-1]

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        results = list(pool.map(first_cell, range(count)))
    assert [kind for kind, _, _ in results].count("pool") >= SIZE
    assert len({drawn for _, drawn, _ in results}) == len({drawn for _, _, drawn in results}) == count


def test_a_copy_made_before_the_first_cell_has_its_own_environment(pooled, tier):
    wait_warm(pooled, tier, 1)
    parent = claim(pooled, tier, env={"WHOSE": "parent"}, secrets={"KEY": "hidden"})
    snapshot = pooled.admin.call("POST", parent.box.path + "/snapshots", expect=201, json={})
    copies = [Cells(pooled.admin.create(snapshot=snapshot["id"], lifetime_ms=600_000, env={"WHOSE": f"copy {n}"})) for n in range(2)]
    ask = "import os, random, socket; (os.environ['WHOSE'], os.environ.get('KEY'), socket.gethostname())"
    assert parent.value(ask) == repr(("parent", "hidden", parent.box.id))
    assert [copy.value(ask) for copy in copies] == [repr((f"copy {n}", None, copy.box.id)) for n, copy in enumerate(copies)]
    assert len({cells.value("(random.random(), os.urandom(8))") for cells in (parent, *copies)}) == 3
    parent.ok("spoilt = 1")
    parent.box.api.call("POST", parent.box.path + "/reset", json={"snapshot": snapshot["id"]})
    assert parent.value(ask) == repr(("parent", "hidden", parent.box.id)), "the runner of then is told anew"
    assert parent.failed("spoilt")["name"] == "NameError"
    for cells in (parent, *copies):
        cells.box.kill()
    pooled.admin.call("DELETE", "/v1/snapshots/" + snapshot["id"])


def test_a_restarted_daemon_tells_the_owners_environment(pooled, tier):
    """Killed with warm ones ready and one being warmed; a claimed one has not run a cell yet."""
    wait_warm(pooled, tier)
    kept = claim(pooled, tier, env={"WHOSE": "mine"})
    eventually(lambda: (s := shelf(pooled, tier))["starting"] or s["ready_warm"] >= SIZE, what="another one is being made, or already there")
    before = {path.name for path in (pooled.data_dir / "sandboxes").iterdir()}
    pooled.process.kill()
    pooled.process.wait()
    pooled.start()
    kept = Cells(type(kept.box)(pooled.admin, pooled.admin.call("GET", kept.box.path)))
    assert kept.value("import os; os.environ['WHOSE']") == "'mine'" and starts(pooled) == 0
    gone = before - {kept.box.id}
    eventually(lambda: not gone & {path.name for path in (pooled.data_dir / "sandboxes").iterdir()}, 30, "the old ones are gone")
    eventually(lambda: not host.cgroups(list(gone)), what="and their control groups")
    wait_warm(pooled, tier, 1)
    kept.box.kill()


def test_a_runner_that_died_in_the_pool_is_no_loss(make_daemon, tier):
    if tier != "container":
        pytest.skip(f"{tier}: its processes are not the host's")
    daemon = make_daemon(config=f'[pool.interpreter]\n{tier} = {{count = 1, warm = ["python"]}}\n')
    wait_warm(daemon, tier, 1)
    runners = [pid for pid, line in host.descendants(daemon.pid).items() if line.startswith("python3")]
    assert runners, host.descendants(daemon.pid)
    for pid in runners:
        os.kill(pid, signal.SIGKILL)
    cells = Cells(daemon.admin.create(runtime=tier, template="interpreter"))
    assert cells.value("1 + 1") == "2"
    cells.box.kill()


def test_a_template_that_cannot_be_warm_is_kept_as_it_starts(make_daemon, tier):
    daemon = make_daemon(config=f'[pool]\n{tier} = {{count = 1, warm = ["python"]}}\n')
    found = eventually(lambda: shelf(daemon, tier)["ready"] and shelf(daemon, tier), 60, "it is full")
    assert found["warm"] == ["python"] and found["ready_warm"] == 0
    eventually(lambda: "pool.warm_failed" in daemon.log_path.read_text(), what="it is said")
    box = daemon.admin.create(runtime=tier)
    assert box.info["started_from"] == "pool" and box.executions() == [] and box.ok("echo yes") == "yes\n"
    box.kill()
