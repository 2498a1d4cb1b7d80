// SPDX-License-Identifier: Apache-2.0
// Measures what a program sees through the clients, on loopback, for each runtime; bench/clients starts it.
//   GLOVEBOX_URL, GLOVEBOX_ADMIN_KEY   a daemon and its admin key

import { createRequire } from "node:module";

const require = createRequire(new URL("../tests/clients/e2b/package.json", import.meta.url));
const { Sandbox: E2b } = require("e2b");
const { Sandbox: Interpreter } = require("@e2b/code-interpreter");
const own = await import(new URL("../sdk/typescript/dist/esm/index.js", import.meta.url));
const url = process.env.GLOVEBOX_URL;
const quick = process.argv.includes("--quick");

async function native(method, path, body, key, options = {}) {
  const headers = { Authorization: `Bearer ${key}`, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
  const answer = await fetch(url + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), ...options });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}
const json = async (...call) => (await native(...call)).json();

function show(tier, what, unit, values, aim = "") {
  const sorted = [...values].sort((a, b) => (unit === "MB/s" ? b - a : a - b));
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
  const text = [0.5, 0.95, 0.99].map((q) => at(q).toPrecision(3)).join(" / ");
  console.log(`| ${tier} | ${what} | ${unit} | ${values.length} | ${text} | ${aim} |`);
  return at(0.5);
}

// The sides take turns, so that whatever else the machine does hits both.
async function alternate(rounds, sides) {
  const times = sides.map(() => []);
  for (let i = -2; i < rounds; ++i) {
    for (const [side, work] of sides.entries()) {
      const begin = performance.now();
      await work();
      if (i >= 0) times[side].push(performance.now() - begin);
    }
  }
  return times;
}

async function measure(tier, admin) {
  const made = await json("POST", "/v1/keys", { name: `bench-${tier}`, tenant: `bench-${tier}`, role: "user", default_runtime: tier }, admin);
  Object.assign(process.env, { E2B_API_URL: url, E2B_SANDBOX_URL: url, E2B_API_KEY: "e2b_" + Buffer.from(made.key).toString("hex") });
  const client = new own.Glovebox({ url, apiKey: made.key });
  const n = quick ? 20 : 200;

  const box = await E2b.create("base", { timeoutMs: 300_000 });
  const id = "sb-" + box.sandboxId.slice(2);
  const exec = { argv: ["/bin/bash", "-l", "-c", "true"], user: "user" };
  const [theirs, ours] = await alternate(n, [
    () => box.commands.run("true"),
    async () => (await native("POST", `/v1/sandboxes/${id}/executions?wait=true`, exec, made.key)).text(),
  ]);
  const a = show(tier, "e2b: `commands.run('true')`", "ms", theirs, "≤ 2 × the next row");
  const b = show(tier, "REST: an execution of the same login shell", "ms", ours);
  console.log(`| ${tier} | ratio of the two medians |  |  | ${(a / b).toFixed(2)} | ≤ 2 |`);

  const bytes = Buffer.alloc(64 << 20, "x");
  const rates = { up: [], down: [] };
  for (let i = 0; i < 5; ++i) {
    let begin = performance.now();
    const answer = await fetch(`${url}/v1/sandboxes/${id}/files?path=/tmp/big`, { method: "PUT", body: bytes, headers: { Authorization: `Bearer ${made.key}` } });
    if (!answer.ok) throw new Error(await answer.text());
    rates.up.push(bytes.length / 1e3 / (performance.now() - begin));
    begin = performance.now();
    const read = await (await native("GET", `/v1/sandboxes/${id}/files?path=/tmp/big`, undefined, made.key)).arrayBuffer();
    if (read.byteLength !== bytes.length) throw new Error("it came back cut");
    rates.down.push(bytes.length / 1e3 / (performance.now() - begin));
  }
  show(tier, "REST: upload of 64 MiB", "MB/s", rates.up, "≥ 200");
  show(tier, "REST: download of 64 MiB", "MB/s", rates.down, "≥ 200");
  await box.kill();

  const [e2bLives, ownLives] = await alternate(quick ? 5 : 30, [
    async () => {
      const one = await E2b.create("base");
      await one.commands.run("true");
      await one.kill();
    },
    async () => {
      const one = await own.Sandbox.create({ client });
      await one.exec("true");
      await one.kill();
    },
  ]);
  show(tier, "e2b: create, run, kill", "ms", e2bLives);
  show(tier, "own SDK: create, exec, kill", "ms", ownLives);

  const templates = (await json("GET", "/v1/templates", undefined, made.key)).templates.map((t) => t.name);
  if (templates.includes("interpreter")) {
    const cells = await Interpreter.create();
    await cells.runCode("1");
    const [warm] = await alternate(n, [() => cells.runCode("1+1")]);
    show(tier, "@e2b/code-interpreter: `runCode('1+1')`, warm", "ms", warm, tier === "gvisor" ? "≤ 20" : "≤ 10");
    await cells.kill();
  }
  await json("DELETE", `/v1/keys/${made.id}`, undefined, admin).catch(() => {});
}

const admin = process.env.GLOVEBOX_ADMIN_KEY;
console.log("| runtime | what | unit | n | p50 / p95 / p99 | aim |\n|---|---|---|---|---|---|");
for (const { runtime, usable } of (await json("GET", "/v1/runtimes", undefined, admin)).runtimes) if (usable) await measure(runtime, admin);
process.exit(0);
