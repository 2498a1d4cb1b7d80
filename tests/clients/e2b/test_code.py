# SPDX-License-Identifier: Apache-2.0
"""What users of the code interpreter's Python client do, a row for each. See daemon.mjs for the variables."""
import asyncio
import base64
import json
import os
import pathlib

import pytest

pytest.importorskip("e2b_code_interpreter")
from e2b_code_interpreter import AsyncSandbox, Sandbox  # noqa: E402

from test_e2b import TIERS, Context, until  # noqa: E402

VERSION = "2.11.5"
TEMPLATE = pathlib.Path(os.environ.get("GLOVEBOX_TEST_DATA_DIR", "/var/lib/glovebox"), "templates/names/interpreter")
pytestmark = pytest.mark.skipif(not TEMPLATE.exists(), reason="there is no `interpreter` template")
ROWS = []


def row(method):
    def add(work):
        ROWS.append((method, work))
        return work
    return add


@row("create without a template's name")
def create(box):
    with Sandbox.create(timeout=300) as other:
        assert other.run_code("1 + 1").text == "2"


@row("run_code: state, text, output")
def state(box):
    box.run_code("x = 41")
    heard = []
    done = box.run_code("import sys\nprint('ä😀'); print('err', file=sys.stderr); x + 1",
                        on_stdout=lambda m: heard.append(m.line), on_stderr=lambda m: heard.append(m.line))
    assert done.text == "42" and done.logs.stdout == ["ä😀\n"] and done.logs.stderr == ["err\n"] and len(heard) == 2
    assert done.results[0].is_main_result


@row("run_code: errors")
def errors(box):
    error = box.run_code("1 / 0").error
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero") and "1 / 0" in error.traceback


@row("run_code: html, json, a table, a figure, its chart")
def results(box):
    shown = box.run_code("from IPython.display import display, HTML, JSON\ndisplay(HTML('<b>h</b>')); display(JSON({'a': 1}))\n"
                         "import pandas as pd; pd.DataFrame({'a': [1, 2]})").results
    assert shown[0].html == "<b>h</b>" and shown[1].json == {"a": 1} and shown[2].data == {"a": [1, 2]}
    (figure,) = box.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='l'); plt.title('T'); plt.show()").results
    assert base64.b64decode(figure.png).startswith(b"\x89PNG")
    assert figure.chart.type.value == "line" and figure.chart.title == "T"
    assert figure.chart.elements[0].label == "l" and [tuple(p) for p in figure.chart.elements[0].points] == [(1, 3), (2, 4)]


@row("run_code: envs, timeout")
def envs(box):
    assert box.run_code("import os; os.environ['CELL']", envs={"CELL": "here"}).text == "here"
    with pytest.raises(Exception, match="(?i)timed? ?out"):
        box.run_code("import time; time.sleep(60)", timeout=0.5)
    until(lambda: box.run_code("'CELL' in os.environ").text == "False")


@row("run_code: JavaScript and bash")
def languages(box):
    assert box.run_code("const n = 6; n * 7", language="javascript").text == "42"
    assert box.run_code("x=5; echo $((x + 1))", language="bash").logs.stdout == ["6\n"]


@row("contexts: create, list, restart, remove")
def contexts(box):
    context = box.create_code_context(cwd="/tmp")
    box.run_code("own = 1", context=context)
    assert box.run_code("import os; (own, os.getcwd())", context=context).text == "(1, '/tmp')"
    assert context.id in [other.id for other in box.list_code_contexts()]
    box.restart_code_context(context)
    assert box.run_code("own", context=context).error.name == "NameError"
    box.remove_code_context(context)
    with pytest.raises(Exception, match="(?i)not found|no context"):
        box.run_code("1", context=context)


@row("AsyncSandbox: several at once")
def asynchronous(box):
    async def work():
        other = await AsyncSandbox.create(timeout=300)
        contexts = await asyncio.gather(*[other.create_code_context() for _ in range(3)])
        done = await asyncio.gather(*[other.run_code(f"{i} * 2", context=c) for i, c in enumerate(contexts)])
        assert [d.text for d in done] == ["0", "2", "4"]
        await other.kill()
    asyncio.run(work())


@pytest.fixture(scope="module", params=[t["runtime"] for t in TIERS if t["usable"]])
def tier(request):
    context = Context(request.param)
    context.results = []
    context.box = Sandbox.create(timeout=3000)
    yield context
    context.close()
    if directory := os.environ.get("E2B_RESULTS"):
        out = {"client": "e2b-code-interpreter (Python)", "version": VERSION, "tier": context.tier, "results": context.results}
        pathlib.Path(directory, f"e2b-code-interpreter-{VERSION}-{context.tier}.json").write_text(json.dumps(out, indent=1))


@pytest.mark.parametrize("entry", ROWS, ids=lambda r: r[0])
def test_row(tier, entry):
    method, work = entry
    result = {"area": "Code", "method": method, "result": "fail"}
    tier.results.append(result)
    work(tier.box)
    result["result"] = "pass"
