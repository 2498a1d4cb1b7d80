# SPDX-License-Identifier: Apache-2.0
"""Code that runs cell by cell: contexts that keep their state, results, interrupts, kernels that die."""

import base64
import concurrent.futures
import json
import os
import pathlib
import time

import pytest

from client import LONG, check_error, eventually, patience, promptly

TEMPLATES = pathlib.Path(os.environ.get("GLOVEBOX_TEST_DATA_DIR", "/var/lib/glovebox")) / "templates" / "names"
needs_interpreter = pytest.mark.skipif(not (TEMPLATES / "interpreter").exists(),
                                       reason=f"no `interpreter` template in {TEMPLATES}: running code not proven")
pytestmark = needs_interpreter


class Cells:
    """A sandbox's code, as the API shows it."""

    def __init__(self, box):
        self.box, self.api, self.path = box, box.api, box.path + "/code"

    def run(self, code, **fields):
        return self.api.call("POST", self.path, json={"code": code, "timeout_ms": 120_000, **fields})

    def ok(self, code, **fields):
        done = self.run(code, **fields)
        assert done["error"] is None, done
        return done

    def value(self, code, **fields):
        """The text of the last expression."""
        (main,) = [r for r in self.ok(code, **fields)["results"] if r["main"]]
        return main["data"]["text/plain"]

    def failed(self, code, **fields):
        done = self.run(code, **fields)
        assert done["error"], done
        return done["error"]

    def stream(self, code, **fields):
        with self.api.http.stream("POST", self.path, json={"code": code, **fields},
                                  headers={"Accept": "application/x-ndjson"}) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"] == "application/x-ndjson"
            for line in response.iter_lines():
                yield json.loads(line)

    def contexts(self):
        return {c["id"]: c for c in self.api.call("GET", self.path + "/contexts")["contexts"]}

    def context(self, **fields):
        return self.api.call("POST", self.path + "/contexts", expect=201, json=fields)["id"]


@pytest.fixture
def make_cells(create):
    return lambda **spec: Cells(create(template="interpreter", **spec))


@pytest.fixture
def cells(make_cells):
    return make_cells()


def test_a_context_keeps_its_state(cells):
    assert cells.value("x = 41\nx + 1") == "42"
    done = cells.ok("print('hé 🐍'); import sys; print('to err', file=sys.stderr); x")
    assert (done["stdout"], done["stderr"]) == ("hé 🐍\n", "to err\n")
    assert done["results"] == [{"main": True, "data": {"text/plain": "41"}}]
    assert done["execution_count"] == 2 and done["language"] == "python" and done["context"] == "default-python"
    assert not done["truncated"]
    assert cells.ok("y = 1")["results"] == []
    assert cells.ok("")["results"] == []


def test_errors_have_a_traceback_and_leave_the_state(cells):
    cells.ok("def f(n):\n    return 1 / n\nkept = 5")
    error = cells.failed("f(0)")
    assert (error["name"], error["value"], error["kind"]) == ("ZeroDivisionError", "division by zero", "exception")
    assert "return 1 / n" in error["traceback"] and "\x1b" not in error["traceback"]
    assert cells.failed("def (")["name"] == "SyntaxError"
    assert cells.failed("import sys; sys.exit(3)")["name"] == "SystemExit"
    assert "input()" in cells.failed("input('?')")["value"]
    assert cells.value("kept") == "5"


def test_rich_results(cells):
    done = cells.ok("from IPython.display import display, HTML, Markdown, Latex, SVG, JSON\n"
                    "display(HTML('<b>h</b>')); display(Markdown('# m')); display(Latex('$x$')); display(JSON({'a': [1, None]}))\n"
                    "display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n"
                    "import pandas as pd; pd.DataFrame({'a': [1, 2], 'b': ['x', None]})")
    data = [r["data"] for r in done["results"]]
    assert [r["main"] for r in done["results"]] == [False] * 5 + [True]
    assert data[0]["text/html"] == "<b>h</b>" and data[1]["text/markdown"] == "# m" and data[2]["text/latex"] == "$x$"
    assert data[3]["application/json"] == {"a": [1, None]} and data[4]["image/svg+xml"].startswith("<svg")
    assert data[5]["text/html"].startswith("<div>") and data[5]["data"] == {"a": [1, 2], "b": ["x", None]}


CHARTS = [
    ("plt.plot([1, 2, 3], [4, 5, 6], label='up'); plt.xlabel('time (s)'); plt.yscale('log')", "line",
     [{"label": "up", "points": [[1, 4], [2, 5], [3, 6]]}], {"x_label": "time (s)", "x_unit": "s", "x_scale": "linear", "y_scale": "log"}),
    ("plt.scatter([1, 2], [3, 4], label='s')", "scatter", [{"label": "s", "points": [[1, 3], [2, 4]]}], {"x_scale": "linear"}),
    ("plt.bar(['a', 'b'], [1, 2], label='g')", "bar",
     [{"label": "a", "group": "g", "value": 1}, {"label": "b", "group": "g", "value": 2}], {"y_label": None}),
    ("plt.pie([1, 3], labels=['a', 'b'])", "pie",
     [{"label": "a", "angle": 90.0, "radius": 1}, {"label": "b", "angle": 270.0, "radius": 1}], {}),
    ("plt.boxplot([[1, 2, 3, 4, 5, 50]])", "box_and_whisker",
     [{"label": "1", "min": 1, "first_quartile": 2.25, "median": 3.5, "third_quartile": 4.75, "max": 5, "outliers": [50]}], {}),
]


def test_charts_are_pictures_and_data(cells):
    cells.ok("import matplotlib.pyplot as plt")
    for code, kind, elements, fields in CHARTS:
        (result,) = cells.ok(f"{code}; plt.title('T'); plt.show()")["results"]
        assert base64.b64decode(result["data"]["image/png"]).startswith(b"\x89PNG\r\n")
        chart = result["data"]["chart"]
        points = [{**e, "angle": round(e["angle"], 3)} if "angle" in e else e for e in chart["elements"]]
        assert (chart["type"], chart["title"], points) == (kind, "T", elements)
        assert {k: chart[k] for k in fields} == fields
    (result,) = cells.ok("_, (l, r) = plt.subplots(1, 2); l.plot([1], [2]); r.bar([1], [2]); plt.show()")["results"]
    assert [c["type"] for c in result["data"]["chart"]["elements"]] == ["line", "bar"]
    (result,) = cells.ok("import datetime as d\nplt.plot([d.date(2026, 1, 1), d.date(2026, 1, 2)], [1, 2])")["results"][-1:]
    assert result["data"]["chart"]["x_scale"] == "datetime"
    assert result["data"]["chart"]["elements"][0]["points"][0][0].startswith("2026-01-01")


def test_top_level_await_and_asyncio_run(cells):
    assert cells.value("import asyncio\nawait asyncio.sleep(0.01)\n'awaited'") == "'awaited'"
    assert cells.value("async def f():\n    return 7\nasyncio.run(f())") == "7"
    cells.ok("done = []\nasync def later():\n    await asyncio.sleep(0.2)\n    done.append(1)\ntask = asyncio.ensure_future(later())"
             "\nawait asyncio.sleep(0)")
    eventually(lambda: cells.value("len(done)") == "1", 5, "a task goes on between cells")


def test_output_of_processes_comes_in_order_and_whole(cells):
    done = cells.ok("import os, subprocess, sys\nprint('1'); os.system('echo 2'); subprocess.run(['echo', '3'])\n!echo 4")
    assert sorted(done["stdout"].split()) == ["1", "2", "3", "4"]
    done = cells.ok("for i in range(50000): print(i)")
    assert done["stdout"] == "".join(f"{i}\n" for i in range(50000))
    done = cells.ok("sys.stdout.buffer.write(b'\\xff\\xfeok\\n'); sys.stdout.buffer.flush(); print('\\ud800 end')")
    assert "\ufffd\ufffdok\n" in done["stdout"] and "\\ud800 end" in done["stdout"]
    done = cells.ok("import multiprocessing\nwith multiprocessing.Pool(2) as p: print(sum(p.map(abs, range(-10, 0))))")
    assert "55\n" in done["stdout"]
    cells.ok("if os.fork() == 0: print('child')\nelse: os.wait()")  # a child that runs on into our code is no second kernel
    assert cells.value("1 + 1") == "2"


def test_output_beyond_the_limit_is_cut_and_said_so(cells):
    done = cells.ok("print('x' * (9 << 20)); print('y')")
    assert done["truncated"] and len(done["stdout"]) == 8 << 20
    done = cells.ok("from IPython.display import display, HTML; display(HTML('x' * (13 << 20)))")
    assert done["results"][0]["dropped"] == ["text/html"]
    assert cells.ok("{'deep': " + "[" * 40 + "]" * 40 + "}")["results"]
    done = cells.ok("from IPython.display import JSON; JSON({'n': 10**30, 'x': float('nan')})")
    assert done["results"][0]["dropped"] == ["application/json"]


def test_a_timeout_interrupts_and_keeps_the_state(cells):
    cells.ok("kept = 'here'; import time")
    for code in ("while True: pass", "time.sleep(600)", "await __import__('asyncio').sleep(600)", "!sleep 600",
                 "try:\n    time.sleep(600)\nexcept KeyboardInterrupt:\n    print('caught')"):
        error = promptly(4, lambda: cells.failed(code, timeout_ms=300))
        assert error["kind"] == "timeout" and error["name"] == "TimeoutError" and "300 ms" in error["value"], code
        assert cells.value("kept") == "'here'", code


def test_code_that_ignores_the_interrupt_loses_its_kernel(cells):
    cells.ok("kept = 1; import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    error = cells.failed("while True: pass", timeout_ms=200)
    assert error["kind"] == "timeout" and "state is lost" in error["value"]
    assert cells.failed("kept")["name"] == "NameError"


def test_a_kernel_that_dies_is_reported_and_replaced(cells):
    error = cells.failed("import os; os.kill(os.getpid(), 9)")
    assert error["kind"] == "died" and error["signal"] == 9 and error["name"] == "KernelDied"
    assert cells.failed("import ctypes; ctypes.string_at(0)")["signal"] == 11
    assert cells.value("1 + 1") == "2"


def test_out_of_memory_is_reported_as_that(make_cells, tier):
    cells = make_cells(limits={"memory_mb": 300})
    cells.ok("1")
    error = cells.failed("x = []\nwhile True: x.append(b'x' * (1 << 20))")
    assert "out of memory" in error["value"] or "ran out of memory" in error["value"], error
    if error["kind"] == "sandbox_ended":
        assert tier == "gvisor" and cells.box.refresh()["ended"]["reason"] == "oom"
    else:
        assert error["kind"] == "died" and error["name"] == "OutOfMemory"
        assert tier == "gvisor" or cells.value("1 + 1") == "2"  # there it may still end the sandbox


def test_javascript(cells):
    run = lambda code, **fields: cells.value(code, language="javascript", **fields)
    assert run("const a = 1; let b = [a, 2]; b") == "[ 1, 2 ]"
    assert run("const a = 5; a + b.length") == "7"
    assert run("await new Promise(r => setTimeout(r, 20)); 'awaited'") == "awaited"
    assert run("import { join } from 'path'; import os from 'os'; join(os.EOL.trim(), 'x')", ) == "x"
    assert run("process.env.CELL", env={"CELL": "only"}) == "only"
    assert cells.ok("process.env.CELL", language="js")["results"] == []
    done = cells.ok("console.log('out'); console.error('err'); display('<b>1</b>', 'text/html'); ({ a: [1] })", language="node")
    assert (done["stdout"], done["stderr"]) == ("out\n", "err\n")
    assert done["results"][0] == {"main": False, "data": {"text/html": "<b>1</b>"}}
    assert done["results"][1]["data"]["application/json"] == {"a": [1]}
    error = cells.failed("function f() { throw new TypeError('no') }\nf()", language="javascript")
    assert (error["name"], error["value"]) == ("TypeError", "no") and "at f (cell:1:" in error["traceback"]
    assert cells.failed("x y", language="javascript")["name"] == "SyntaxError"
    for code in ("while (true) {}", "await new Promise(() => {})"):
        assert cells.failed(code, language="javascript", timeout_ms=300)["kind"] == "timeout"
        assert run("a") == "5"
    assert cells.failed("process.exit(2)", language="javascript")["kind"] == "died"
    assert run("1") == "1"


def test_bash(cells):
    run = lambda code, **fields: cells.ok(code, language="bash", **fields)["stdout"]
    assert run("x='a  b'; f() { echo \"$1!\"; }; cd /tmp; echo \"it's\"") == "it's\n"
    assert run("f \"$x\"; pwd; echo \"$V\"", env={"V": "'q' \"d\""}) == "a  b!\n/tmp\n'q' \"d\"\n"
    assert run("echo \"[${V-unset}]\"; cat") == "[unset]\n"
    error = cells.failed("echo gone >&2; (exit 7)", language="sh")
    assert (error["kind"], error["name"], error["value"]) == ("exit", "ExitError", "exit status 7")
    assert cells.failed("sleep 600; echo not this", language="bash", timeout_ms=300)["kind"] == "timeout"
    assert run("cat <<E\n$x\nE") == "a  b\n"
    assert "exit status 3" in cells.failed("exit 3", language="bash")["value"]
    assert run("echo \"[$x]\"") == "[]\n"


def test_contexts(cells, api):
    a, b = cells.context(cwd="/tmp"), cells.context(language="JavaScript")
    cells.ok("v = 'a'", context=a)
    cells.ok("var v = 'b'", context=b)
    assert cells.value("v", context=a) == "'a'" and cells.value("v", context=b) == "b"
    assert cells.value("import os; os.getcwd()", context=a) == "'/tmp'"
    assert cells.failed("v")["name"] == "NameError"
    listed = cells.contexts()
    assert set(listed) == {a, b, "default-python"} and listed[b]["language"] == "javascript" and listed[a]["cwd"] == "/tmp"
    restarted = api.call("POST", f"{cells.path}/contexts/{a}/restart")
    assert restarted["id"] == a
    assert cells.failed("v", context=a)["name"] == "NameError"
    assert api.request("DELETE", f"{cells.path}/contexts/{b}").status_code == 204
    assert set(cells.contexts()) == {a, "default-python"}
    api.refused("DELETE", f"{cells.path}/contexts/{b}", 404, "not_found")
    api.refused("POST", cells.path, 404, "not_found", json={"code": "1", "context": b})
    assert cells.value("import os; os.environ['V'], os.getcwd()", env={"V": "1"}, cwd="/") == "('1', '/')"
    assert cells.value("os.environ.get('V'), os.getcwd()") == "(None, '/')"


def test_bad_requests_are_refused(cells, api):
    for body in ({}, {"code": 1}, {"code": "1", "language": "cobol"}, {"code": "1", "x": 1}, {"code": "1", "timeout_ms": -1},
                 {"code": "1", "env": {"A-B": "1"}}, {"code": "1", "context": "c", "language": "python"}):
        api.refused("POST", cells.path, 400, "invalid_argument", json=body)
    api.refused("POST", cells.path + "/contexts", 400, "invalid_argument", json={"language": "cobol"})
    api.refused("POST", cells.path + "/contexts", 400, "invalid_argument", json={"cwd": "/proc/nowhere"})
    api.refused("POST", "/v1/sandboxes/sb-nothere/code", 404, "sandbox_not_found", json={"code": "1"})


def test_a_template_without_it_says_so(create, api):
    box = create()
    error = api.refused("POST", box.path + "/code", 501, "unsupported", json={"code": "1"})
    assert "IPython" in error["message"] and error["details"] == {"template": "base"}
    assert Cells(box).value("6 * 7", language="javascript") == "42"


def test_events_come_as_they_happen(cells):
    seen = []
    # It goes on when the event before has been heard of.
    for event in cells.stream("import os, time\nfor i in range(3):\n    print(i)\n    while not os.path.exists(f'/tmp/heard-{i}'): time.sleep(0.02)\ni",
                              timeout_ms=60_000):
        seen.append(event)
        if event["type"] == "stdout":
            cells.box.put("/tmp/heard-" + event["text"].strip(), b"")
    assert [event["type"] for event in seen] == ["start", "stdout", "stdout", "stdout", "result", "end"]
    assert [event["text"] for event in seen[1:4]] == ["0\n", "1\n", "2\n"]
    assert seen[4] == {"type": "result", "main": True, "data": {"text/plain": "2"}}
    with cells.api.http.stream("POST", cells.path, json={"code": "1/0"}, headers={"Accept": "text/event-stream"}) as response:
        text = response.read().decode()
    assert text.startswith("event: start\ndata: {") and "event: error\n" in text and "event: end\n" in text


def test_one_context_runs_in_order_and_several_at_once(cells):
    for gap in (0.02, 0.3, 3):  # between the calls: what counts is the order in which they arrive
        cells.ok("import time; order = []")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for number in range(6):
                pool.submit(cells.ok, f"time.sleep(0.05); order.append({number})")
                time.sleep(gap)
        order = cells.value("order")
        assert order.count(",") == 5, "each has run"
        if order == "[0, 1, 2, 3, 4, 5]":
            break
    assert order == "[0, 1, 2, 3, 4, 5]"
    others = [cells.context() for _ in range(4)]
    meet = "import os, time\nopen(f'/tmp/here-{os.getpid()}', 'w').close()\n" \
           "while len([n for n in os.listdir('/tmp') if n.startswith('here-')]) < 4: time.sleep(0.02)"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda context: cells.ok(meet, context=context), others))


@pytest.mark.skipif(not LONG, reason="waits longer than a keepalive's interval")
def test_an_answer_begins_when_there_is_something_to_say(cells, api):
    """A cell that waits for its turn longer than a keepalive's interval, and then has no context, is refused as one that has none at once."""
    context = cells.context(language="bash")
    as_e2b = {"X-API-Key": "e2b_" + api.key.encode().hex()}
    there = api.http.post(f"/sandboxes/{cells.box.id.replace('-', '')}/connect", json={"timeout": 60}, headers=as_e2b).json()
    port = {"E2b-Sandbox-Id": there["sandboxID"], "E2b-Sandbox-Port": "49999", "X-Access-Token": there["envdAccessToken"]}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        pool.submit(cells.run, "sleep 60", context=context)
        eventually(lambda: cells.contexts()[context]["running"], 10, "it runs")
        waiting = pool.submit(api.http.post, cells.path, json={"code": "1", "context": context}, headers={"Accept": "application/x-ndjson"})
        as_vendor = pool.submit(api.http.post, "/execute", json={"code": "1", "context_id": context}, headers=port)
        time.sleep(11)
        assert not waiting.done() and not as_vendor.done()
        assert api.http.delete(f"{cells.path}/contexts/{context}").status_code == 204
        check_error(waiting.result(10), 404, "not_found")
        assert as_vendor.result(10).status_code == 404


def test_interrupt_and_a_caller_who_goes_away(cells, api):
    cells.ok("kept = 1; import time")
    api.refused("POST", cells.path + "/contexts/nowhere/interrupt", 404, "not_found")
    assert api.call("POST", cells.path + "/contexts/default-python/interrupt") == {"interrupted": False}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(cells.failed, "time.sleep(600)")
        eventually(lambda: cells.contexts()["default-python"]["running"], 10, "it runs")
        assert api.call("POST", cells.path + "/contexts/default-python/interrupt") == {"interrupted": True}
        assert running.result(90)["kind"] == "interrupted"
    stream = cells.stream("time.sleep(600)")
    assert next(stream)["type"] == "start"
    stream.close()
    eventually(lambda: not cells.contexts()["default-python"]["running"], 10, "nobody waits for it, so it was interrupted")
    assert cells.value("kept") == "1"


def test_idle_kernels_let_the_sandbox_stand_still(make_cells):
    cells = make_cells()
    cells.ok("x = 1")
    cells.ok("1", language="javascript")
    cells.ok("true", language="bash")
    assert cells.box.refresh()["running_executions"] == 0
    eventually(lambda: cells.box.refresh()["frozen"], 10, "idle kernels are no work")
    assert cells.value("x") == "1"
    cells.api.call("PATCH", cells.box.path, json={"idle_timeout_ms": patience(1500)})
    assert eventually(lambda: cells.box.refresh()["ended"], 15, "and no use")["reason"] == "idle"


def test_a_silent_cell_is_use(make_cells):
    cells = make_cells()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        silent = pool.submit(cells.value, "import time; time.sleep(5); 'awake'")
        eventually(lambda: cells.contexts().get("default-python", {}).get("running"), what="it runs")
        cells.api.call("PATCH", cells.box.path, json={"idle_timeout_ms": patience(2000)})
        assert silent.result(90) == "'awake'"


def test_what_a_cell_leaves_running_keeps_it_awake(cells):
    def stays_awake(begin):
        time.sleep(2)
        frozen = cells.box.refresh()["frozen"]
        assert not frozen or time.monotonic() - begin > 3, "what takes three seconds goes on"

    begin = time.monotonic()
    cells.ok("import threading, time\nticks = []\ndef tick():\n    for _ in range(30): time.sleep(0.1); ticks.append(1)\n"
             "thread = threading.Thread(target=tick); thread.start()")
    stays_awake(begin)
    eventually(lambda: cells.box.refresh()["frozen"], 15, "it has ended")
    assert cells.value("len(ticks)") == "30"
    begin = time.monotonic()
    cells.ok("import subprocess; p = subprocess.Popen('setsid sh -c \"sleep 3; echo done > /tmp/left\" &', shell=True)")
    stays_awake(begin)
    eventually(lambda: cells.box.refresh()["frozen"], 15, "it has ended")
    assert cells.box.get("/tmp/left") == b"done\n"


def test_hostile_code_harms_only_its_sandbox(cells, api):
    """What it writes into our pipes, and a runner of its own on our port."""
    cells.run("import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'garbage' * 100)\n    except OSError: pass")
    cells.run("for (let fd = 3; fd < 64; fd++) try { require('fs').writeSync(fd, 'garbage') } catch {}", language="javascript")
    assert cells.value("1 + 1", language="javascript") == "2"
    eventually(lambda: cells.run("1 + 1")["error"] is None, 20, "it works again")
    code = ("import os, socket, subprocess, sys\n"
            "subprocess.Popen([sys.executable, '-c', '''\nimport os, signal, socket, time\n"
            "for p in os.listdir('/proc'):\n"
            "    if p.isdigit() and int(p) not in (1, os.getpid()):\n"
            "        try:\n            if b'glovebox-code' in open(f'/proc/{p}/cmdline', 'rb').read(): os.kill(int(p), 9)\n"
            "        except OSError: pass\n"
            "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            "while True:\n    try: s.bind((\"127.0.0.1\", 49998)); break\n    except OSError: time.sleep(0.05)\n"
            "s.listen(9)\nfor answer in (b\"nonsense\\\\n\", b\"{}\\\\n\" , b\"[\" * 100000 + b\"\\\\n\", b\"x\" * 40000000):\n"
            "    c, _ = s.accept(); c.recv(9)\n    try: c.sendall(answer)\n    except OSError: pass\n    c.close()\ns.close()\n''' ])")
    cells.run(code)
    for _ in range(4):
        response = api.request("POST", cells.path, json={"code": "1"})
        if response.status_code == 200:  # before it has taken the port over
            continue
        check_error(response, response.status_code, "sandbox_io")
    eventually(lambda: api.request("POST", cells.path, json={"code": "1 + 1"}).status_code == 200, 20, "a new runner works")
    api.call("GET", "/v1/sandboxes")
