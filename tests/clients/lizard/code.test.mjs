// SPDX-License-Identifier: Apache-2.0
// CodeSandbox: the runner comes with the client; the template has what it needs.
import { CodeSandbox } from "@lizard-build/sdk";
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { forEachTier, url } from "./daemon.mjs";

const hasTemplate = existsSync(`${process.env.GLOVEBOX_TEST_DATA_DIR}/templates/names/interpreter`);
const textOf = (done) => done.results.filter((r) => r.type === "result").map((r) => r.data).join("");

if (!hasTemplate) test("CodeSandbox", { skip: "there is no `interpreter` template" }, () => {});
else forEachTier("CodeSandbox", (context) => {
  let made;
  const box = async () => (made ??= CodeSandbox.create("interpreter", { apiUrl: url, apiKey: await context.key(), project: "default" }));
  const run = async (code, options) => (await box()).runCode(code, options);

  test("keeps state, gives results", async () => {
    await run("x = 41");
    assert.equal(textOf(await run("x + 1")), "42");
    assert.equal((await run("print('ä😀')")).stdout, "ä😀\n");
  });
  test("errors have a name and a traceback", async () => {
    const { error } = await run("1 / 0");
    assert.equal(error.name, "ZeroDivisionError");
    assert.match(String(error.traceback), /1 \/ 0/);
  });
  test("100 KB of code, 60000 quotes", async () => {
    assert.equal(textOf(await run(`len('''${"q".repeat(100_000)}''')`)), "100000");
    assert.equal(textOf(await run(`len(${JSON.stringify('"'.repeat(60_000))})`)), "60000");
  });
  test("a long timeout, and a short one that keeps the state", async () => {
    assert.equal(textOf(await run("kept = 1; kept", { timeoutMs: 600_000 })), "1");
    const { error } = await run("import time; time.sleep(60)", { timeoutMs: 1000 });
    assert.equal(error.name, "TimeoutError");
    assert.equal(textOf(await run("kept")), "1");
  });
  test("figures come as png", async () => {
    const { results } = await run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()");
    assert.match(results.find((r) => r.mime === "image/png").data, /^iVBOR/);
  });
  test("contexts", async () => {
    const sandbox = await box();
    const own = await sandbox.createContext({ language: "python" });
    await run("v = 'own'", { context: own });
    assert.match(textOf(await run("v", { context: own })), /own/);
    assert.equal((await run("v")).error.name, "NameError");
    const listed = await sandbox.listContexts();
    assert.ok(listed.some((other) => other.id === own.id));
    await sandbox.restartContext(own);
    assert.equal((await run("v", { context: own })).error.name, "NameError");
    await sandbox.deleteContext(own);
  });
  test("JavaScript and bash", async () => {
    assert.equal((await run("console.log(6 * 7)", { language: "javascript" })).stdout, "42\n");
    assert.equal((await run("echo $((6 * 7))", { language: "bash" })).stdout, "42\n");
    await (await box()).kill();
  });
});
