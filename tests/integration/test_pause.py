# SPDX-License-Identifier: Apache-2.0
"""Pause and resume: nothing is lost over any number of rounds (C25), nothing is stuck, and a kill -9 of the daemon changes neither."""

import hashlib
import os
import random
import threading
import time

import pytest

from client import Execution, Sandbox, check_error, eventually, patience, scaled, whole_lines

COUNTER = """
import os, socket, threading, time
here, there = socket.socketpair()
n, journal = 0, open("/tmp/journal", "w")
while True:
    n += 1
    here.sendall(b"x"); assert there.recv(1) == b"x"
    journal.write(f"{n}\\n"); journal.flush()
    time.sleep(0.01)
"""


def pause(box):
    info = box.api.call("POST", box.path + "/pause", json={})
    assert info["state"] == "paused" and info["frozen"] and info["ended"] is None
    assert info["paused"]["kept"] == "memory+files" and info["paused"]["cause"] == "call"
    return info


def resume(box):
    info = box.api.call("POST", box.path + "/resume")
    assert info["state"] == "ready" and info["paused"] is None
    return info


def state(box):
    return box.refresh()["state"]


def count(box):
    return int(whole_lines(box.ok("tail -c 100 /tmp/journal"))[-1])


def rounds(box, restart, total=10):
    """C25: files, a counter file and a process counting in memory, over pauses that end by a call and by traffic in turns."""
    box.put("/tmp/counter.py", COUNTER.encode())
    running = box.start(["python3", "/tmp/counter.py"])
    eventually(lambda: box.exists("/tmp/journal") and whole_lines(box.get("/tmp/journal")), what="it counts")
    hashes, seen = {}, 0
    for n in range(total):
        content = os.urandom(20_000)
        box.put(f"/tmp/file-{n}", content)
        hashes[n] = hashlib.sha256(content).hexdigest()
        box.ok(f"echo {n} >>/tmp/counter; sync")
        before = count(box)
        assert before > seen
        pause(box)
        box, running = restart(n, box, running)
        if n % 2 == 0:
            assert resume(box)["running_executions"] == 1
        seen = count(box)  # and without the resume, this is the traffic
        assert state(box) == "ready" and seen >= before
        eventually(lambda: count(box) > seen, 10, "it goes on counting")
    assert box.ok("cd /tmp && sha256sum file-*").split() == [
        word for n in range(total) for word in (hashes[n], f"file-{n}")]
    assert box.ok("cat /tmp/counter").split() == [str(n) for n in range(total)]
    numbers = [int(line) for line in whole_lines(box.get("/tmp/journal"))]
    assert numbers == list(range(1, len(numbers) + 1)), "no gap"
    assert running.refresh()["state"] == "running"
    assert running.kill()["outcome"]["type"] == "killed_by_caller"
    return box


def test_ten_rounds_lose_nothing(create):  # C25
    rounds(create(), lambda n, box, running: (box, running))


@pytest.fixture(scope="module")
def mortal(make_daemon):
    daemon = make_daemon()
    yield daemon
    daemon.end_sandboxes()


def crash(daemon):
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()


def test_ten_rounds_with_a_daemon_that_dies(mortal, tier):  # C25
    def restart(n, box, running):
        if n % 4 != 1:
            return box, running
        crash(mortal)
        box = Sandbox(mortal.admin, mortal.admin.call("GET", box.path))
        assert box.info["state"] == "paused" and box.info["frozen"]
        return box, Execution(box, mortal.admin.call("GET", running.path))

    rounds(mortal.admin.create(runtime=tier, lifetime_ms=600_000), restart).kill()


def test_paused_stays_paused_when_the_daemon_dies(mortal, tier):
    box = mortal.admin.create(runtime=tier, lifetime_ms=600_000)
    doomed = mortal.admin.create(runtime=tier, lifetime_ms=600_000)
    run = box.start("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done")
    run.wait_for_output(b"5\n")
    pause(box)
    pause(doomed)
    kept = run.raw().content
    crash(mortal)
    box, doomed = (Sandbox(mortal.admin, mortal.admin.call("GET", b.path)) for b in (box, doomed))
    before = box.stats()["cpu_ms"]
    time.sleep(0.5)  # the claim is about a span of time
    assert box.stats()["cpu_ms"] == before and state(box) == "paused"
    assert doomed.kill()["state"] == "ended"
    run = Execution(box, mortal.admin.call("GET", run.path))
    assert run.info["state"] == "running"
    assert run.kill()["outcome"]["type"] == "killed_by_caller"
    assert state(box) == "ready", "a kill needs it"
    output = run.raw().content
    assert output.startswith(kept)
    numbers = [int(word) for word in output.split()]
    assert numbers == list(range(1, len(numbers) + 1))
    box.kill()


def test_a_paused_sandbox_uses_no_cpu_and_can_be_looked_at(create, api):
    box = create()
    run = box.start("echo begun; while :; do :; done")
    run.wait_for_output(b"begun")
    pause(box)
    before = box.stats()["cpu_ms"]
    time.sleep(0.3)  # the claim is about a span of time
    assert box.stats()["cpu_ms"] - before == 0
    assert run.refresh()["state"] == "running" and run.raw().content == b"begun\n"
    assert box.executions()[0]["id"] == run.id
    assert [s["id"] for s in api.pages("/v1/sandboxes?state=paused", "sandboxes", 100)] == [box.id]
    assert api.call("GET", f"{box.path}/ports/80")["listening"] is None
    assert api.call("PATCH", box.path, json={"metadata": {"a": "b"}})["state"] == "paused"
    api.refused("POST", box.path + "/pause", 400, "invalid_argument", json={"keep": "files"})
    assert pause(box)["metadata"] == {"a": "b"}, "repeated"
    run.signal("TERM")
    assert state(box) == "ready"
    assert run.wait()["outcome"]["signal_name"] == "SIGTERM"


def test_an_upload_under_way_is_a_conflict(create):
    box = create()

    def slow():
        yield b"begun"
        while not enough.is_set():
            time.sleep(0.05)
            yield b"more"

    enough = threading.Event()
    box.ok("mkdir /tmp/up")
    upload = threading.Thread(target=lambda: box.put("/tmp/up/slow", slow()))
    upload.start()
    try:
        eventually(lambda: box.ls("/tmp/up"), what="the upload is under way")
        error = box.api.refused("POST", box.path + "/pause", 409, "conflict")
        assert error["details"]["state"] == "busy"
        assert state(box) == "ready"
    finally:
        enough.set()
        upload.join()
    assert box.get("/tmp/up/slow").startswith(b"begun")
    pause(box)


def test_clocks_of_executions_do_not_stop(create):
    box = create()
    for timeout_ms in (1000, 5000, 20_000):
        run = box.start(["sleep", "600"], timeout_ms=timeout_ms)
        pause(box)
        if run.refresh()["state"] == "running":  # it was paused before its time was over
            break
    time.sleep(timeout_ms / 1000 + 0.5)
    assert run.refresh()["state"] == "running", "nothing ends in a paused sandbox"
    resume(box)
    assert run.wait()["outcome"]["type"] == "timed_out"


def test_timeouts_can_pause(create, api):
    box = create(on_timeout="pause")
    run = box.start("i=0; while :; do i=$((i+1)); echo $i >/tmp/n; sleep 0.01; done")
    api.call("PATCH", box.path, json={"lifetime_ms": patience(3000)})
    eventually(lambda: state(box) == "paused", 12, "the end of its lifetime pauses it")
    assert box.info["paused"]["cause"] == "lifetime" and box.info["on_timeout"] == "pause"
    eventually(lambda: int(box.ok("cat /tmp/n") or 0) > 10, what="used, it goes on")
    eventually(lambda: box.ok("true") == "" and state(box) == "ready", what="it is ready")
    assert run.refresh()["state"] == "running"
    eventually(lambda: state(box) == "paused", 12, "its new lifetime ends, too")
    idle = create(on_timeout="pause", idle_timeout_ms=patience(700))
    eventually(lambda: state(idle) == "paused", 6, "idleness pauses it")
    assert idle.info["paused"]["cause"] == "idle"
    mortal = create()
    pause(mortal)
    assert api.call("PATCH", mortal.path, json={"lifetime_ms": patience(1000)})["state"] == "paused"
    eventually(lambda: state(mortal) == "ended", 12, "without it the lifetime ends a paused one")


def test_delete_works_from_every_state(create, api):
    box = create()
    killers = [threading.Thread(target=api.request, args=("DELETE", box.path))]
    changes = [threading.Thread(target=api.request, args=("POST", f"{box.path}/{change}")) for change in ("pause", "resume") * 5]
    for thread in changes[:5] + killers + changes[5:]:
        thread.start()
    for thread in changes + killers:
        thread.join()
    assert state(box) == "ended"
    for change in ("pause", "resume"):
        api.refused("POST", f"{box.path}/{change}", 410, "sandbox_ended")
        api.refused("POST", f"/v1/sandboxes/sb-never/{change}", 404, "sandbox_not_found")


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
def test_pausing_and_calling_at_once_leaves_nothing_stuck(mortal, tier, dies):
    """Five sandboxes paused and resumed without a rest while a second client calls at random, also with a daemon that dies."""
    boxes = [mortal.admin.create(runtime=tier, lifetime_ms=600_000) for _ in range(5)]
    total = scaled(20, 100)
    cycle = scaled(10, 25) if dies else total
    for _ in range(total // cycle):
        errors = one_storm(boxes, cycle)
        assert not errors, errors[:3]
        if dies:
            paused = boxes[::2]
            for box in boxes:
                (pause if box in paused else resume)(box)
            crash(mortal)
            boxes = [Sandbox(mortal.admin, mortal.admin.call("GET", box.path)) for box in boxes]
            assert [box.info["state"] for box in boxes] == ["paused", "ready", "paused", "ready", "paused"]
    for box in boxes:
        pause(box)
        assert box.ok("echo alive") == "alive\n"
        assert state(box) == "ready"
        box.kill()


def one_storm(boxes, cycle):
    errors, over = [], threading.Event()

    def checked(box, method, path, **options):
        answer = box.api.request(method, box.path + path, **options)
        if answer.status_code == 409:
            check_error(answer, 409, answer.json()["error"]["code"])
        elif answer.status_code >= 400:
            errors.append((path, answer.text))
        return answer

    def pauses(box):
        for _ in range(cycle):
            for change, name in (("/pause", "paused"), ("/resume", "ready")):
                answer = checked(box, "POST", change)
                if answer.status_code == 200 and answer.json()["state"] not in ("paused", "ready"):
                    errors.append((change, answer.text))

    def calls():
        chance = random.Random(20)
        while not over.is_set():
            box = chance.choice(boxes)
            chance.choice([
                lambda: checked(box, "POST", "/executions?wait=true", json={"argv": ["true"]}),
                lambda: checked(box, "GET", ""),
                lambda: checked(box, "PUT", "/files?path=/tmp/f", content=b"x" * 1000),
                lambda: checked(box, "GET", "/processes"),
                lambda: checked(box, "POST", "/" + chance.choice(["pause", "resume"])),
            ])()

    threads = [threading.Thread(target=pauses, args=(box,)) for box in boxes]
    caller = threading.Thread(target=calls)
    for thread in threads + [caller]:
        thread.start()
    for thread in threads:
        thread.join()
    # The second client may wait for a command that its own pause stopped: nobody else resumes it now.
    over.set()
    while caller.is_alive():
        for box in boxes:
            box.api.request("POST", box.path + "/resume")
        caller.join(0.2)
    return errors
