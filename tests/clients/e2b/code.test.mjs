// SPDX-License-Identifier: Apache-2.0
// What users of the code interpreter's client do, a row for each.
import { Sandbox } from "@e2b/code-interpreter";
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { native, runTable, until } from "./daemon.mjs";

const variables = { apiUrl: "E2B_API_URL", sandboxUrl: "E2B_SANDBOX_URL", apiKey: "E2B_API_KEY" };
const hasTemplate = existsSync(`${process.env.GLOVEBOX_TEST_DATA_DIR}/templates/names/interpreter`);
const shared = (c) => c.shared(Sandbox, "code-interpreter-v1");
const run = async (c, code, options) => (await shared(c)).runCode(code, options);

const table = [
  ["Code", "create without a template's name", "pass", async () => {
    const box = await Sandbox.create({ timeoutMs: 60_000 });
    assert.equal((await box.getInfo()).templateId, "code-interpreter-v1");
    assert.equal((await box.runCode("1 + 1")).text, "2");
    await box.kill();
  }],
  ["Code", "runCode: state, text, execution count", "pass", async (c) => {
    await run(c, "x = 41");
    const done = await run(c, "x + 1");
    assert.equal(done.text, "42");
    assert.ok(done.executionCount >= 2);
    assert.equal((await run(c, "'quoted'")).text, "quoted");
  }],
  ["Code", "runCode: output as it comes", "pass", async (c) => {
    const heard = [];
    const done = await run(c, "import sys, time\nprint('ä😀'); time.sleep(0.3); print('err', file=sys.stderr); time.sleep(0.3); 7", {
      onStdout: (m) => heard.push(m.line), onStderr: (m) => heard.push(m.line), onResult: (r) => heard.push(r.text),
    });
    assert.deepEqual(heard, ["ä😀\n", "err\n", "7"]);
    assert.deepEqual([done.logs.stdout, done.logs.stderr], [["ä😀\n"], ["err\n"]]);
  }],
  ["Code", "runCode: errors", "pass", async (c) => {
    const { error } = await run(c, "def f():\n    return 1 / 0\nf()");
    assert.deepEqual([error.name, error.value], ["ZeroDivisionError", "division by zero"]);
    assert.match(error.traceback, /return 1 \/ 0/);
    assert.equal((await run(c, "x = ")).error.name, "SyntaxError");
  }],
  ["Code", "runCode: envs", "pass", async (c) => {
    assert.equal((await run(c, "import os; os.environ['CELL']", { envs: { CELL: "only here" } })).text, "only here");
    assert.equal((await run(c, "os.environ.get('CELL', 'gone')")).text, "gone");
  }],
  ["Code", "runCode: html, markdown, json, latex, svg", "pass", async (c) => {
    const { results } = await run(c, `
from IPython.display import display, HTML, Markdown, JSON, Latex, SVG
for shown in (HTML("<b>ü</b>"), Markdown("# m"), JSON({"a": [1]}), Latex("$x$"), SVG('<svg xmlns="http://www.w3.org/2000/svg"/>')):
    display(shown)`);
    assert.deepEqual([results[0].html, results[1].markdown, results[2].json, results[3].latex], ["<b>ü</b>", "# m", { a: [1] }, "$x$"]);
    assert.match(results[4].svg, /^<svg/);
    assert.ok(results.every((r) => !r.isMainResult));
  }],
  ["Code", "runCode: a table", "pass", async (c) => {
    const { results: [table] } = await run(c, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})");
    assert.deepEqual(table.data, { a: [1, 2], b: ["x", "y"] });
    assert.match(table.html, /<table/);
    assert.ok(table.isMainResult && table.formats().includes("html"));
  }],
  ["Code", "runCode: a figure's picture and chart", "pass", async (c) => {
    const { results: [figure] } = await run(c, `
import matplotlib.pyplot as plt
plt.bar(["a", "b"], [1, 2], label="g"); plt.title("T"); plt.xlabel("X"); plt.ylabel("Y (kg)")
plt.show()`);
    assert.deepEqual([...Buffer.from(figure.png, "base64").subarray(0, 4)], [0x89, 0x50, 0x4e, 0x47]);
    assert.equal(figure.chart.type, "bar");
    assert.deepEqual([figure.chart.title, figure.chart.x_label, figure.chart.y_unit], ["T", "X", "kg"]);
    assert.deepEqual(figure.chart.elements, [{ label: "a", group: "g", value: 1 }, { label: "b", group: "g", value: 2 }]);
  }],
  ["Code", "runCode: line, scatter, pie, box, several", "pass", async (c) => {
    const { results } = await run(c, `
import matplotlib.pyplot as plt
plt.plot([1, 2], [3, 4]); plt.show()
plt.scatter([1, 2], [3, 4]); plt.show()
plt.pie([1, 1], labels=["a", "b"]); plt.show()
plt.boxplot([1, 2, 3, 4]); plt.show()
_, (l, r) = plt.subplots(1, 2); l.plot([1, 2]); r.bar(["a"], [1]); plt.show()`);
    assert.deepEqual(results.map((r) => r.chart.type), ["line", "scatter", "pie", "box_and_whisker", "superchart"]);
    assert.deepEqual(results[0].chart.elements[0].points, [[1, 3], [2, 4]]);
    assert.deepEqual(results[4].chart.elements.map((e) => e.type), ["line", "bar"]);
  }],
  ["Code", "runCode: timeoutMs keeps the state", "pass", async (c) => {
    await run(c, "kept = 'here'; import time");
    await assert.rejects(run(c, "time.sleep(60)", { timeoutMs: 500 }), (e) => e.name === "TimeoutError");
    await until(async () => (await run(c, "kept")).text === "here", "it was interrupted");
  }],
  ["Code", "runCode: 100 KB of code, 5 MB of output", "pass", async (c) => {
    assert.equal((await run(c, `len('''${"q".repeat(100_000)}''')`)).text, "100000");
    const done = await run(c, "print('z' * 5_000_000)");
    assert.equal(done.logs.stdout.join("").length, 5_000_001);
  }],
  ["Code", "runCode: JavaScript", "pass", async (c) => {
    await run(c, "const n = 6", { language: "javascript" });
    assert.equal((await run(c, "console.log('hi'); await Promise.resolve(n * 7)", { language: "js" })).text, "42");
    assert.equal((await run(c, "nothing.here", { language: "javascript" })).error.name, "ReferenceError");
  }],
  ["Code", "runCode: bash", "pass", async (c) => {
    await run(c, "x=5", { language: "bash" });
    assert.deepEqual((await run(c, "echo $((x + 1))", { language: "bash" })).logs.stdout, ["6\n"]);
  }],
  ["Code", "runCode: an unknown language", "pass", async (c) => {
    await assert.rejects(run(c, "1", { language: "cobol" }), /cobol/);
  }],
  ["Code", "createCodeContext, its state and directory", "pass", async (c) => {
    const box = await shared(c);
    const context = await box.createCodeContext({ cwd: "/tmp" });
    assert.deepEqual([context.language, context.cwd], ["python", "/tmp"]);
    await box.runCode("own = 1", { context });
    assert.equal((await box.runCode("import os; (own, os.getcwd())", { context })).text, "(1, '/tmp')");
    assert.equal((await box.runCode("own")).error.name, "NameError");
  }],
  ["Code", "listCodeContexts, restart, remove", "pass", async (c) => {
    const box = await shared(c);
    const context = await box.createCodeContext({ language: "python" });
    assert.ok((await box.listCodeContexts()).some((other) => other.id === context.id));
    await box.runCode("own = 1", { context });
    await box.restartCodeContext(context);
    assert.equal((await box.runCode("own", { context })).error.name, "NameError");
    await box.removeCodeContext(context);
    assert.ok(!(await box.listCodeContexts()).some((other) => other.id === context.id));
    await assert.rejects(box.runCode("1", { context }), (e) => /NotFound/.test(e.name));
  }],
  ["Code", "a kernel that dies", "pass", async (c) => {
    const { error } = await run(c, "import os; os.kill(os.getpid(), 9)");
    assert.match(`${error.name}: ${error.value}`, /KernelDied.*signal 9/);
    assert.equal((await run(c, "1 + 1")).text, "2");
  }],
  ["Code", "files and commands beside it", "pass", async (c) => {
    const box = await shared(c);
    await box.files.write("/tmp/data.csv", "a,b\n1,2\n");
    assert.equal((await box.runCode("import pandas as pd; int(pd.read_csv('/tmp/data.csv').b.sum())")).text, "2");
    await box.runCode("open('made.txt', 'w').write('by code')");
    assert.equal((await box.commands.run("cat made.txt")).stdout, "by code");
  }],
  ["Code", "10 contexts at once", "pass", async (c) => {
    const box = await shared(c);
    const contexts = await Promise.all(Array.from({ length: 10 }, () => box.createCodeContext()));
    const done = await Promise.all(contexts.map((context, i) => box.runCode(`import time; time.sleep(0.2); ${i}`, { context })));
    assert.deepEqual(done.map((d) => d.text), contexts.map((_, i) => String(i)));
  }],
  ["Code", "a killed sandbox", "pass", async (c) => {
    const box = await c.create(Sandbox, "code-interpreter-v1");
    await box.runCode("1");
    await native("DELETE", `/v1/sandboxes/sb-${box.sandboxId.slice(2)}`, undefined, c.key);
    await assert.rejects(box.runCode("1"), (e) => /TimeoutError|NotFound/.test(e.name));
  }],
];

if (hasTemplate) {
  runTable({ client: "@e2b/code-interpreter (JavaScript)", version: "2.8.0", variables, table });
} else {
  test("@e2b/code-interpreter", { skip: "there is no `interpreter` template" }, () => {});
}
