// SPDX-License-Identifier: Apache-2.0
// What the tests share: tiers, connections that break, servers that misbehave.
import net from "node:net";
import { after, before, describe, test } from "node:test";

import { Glovebox, Sandbox } from "../../../sdk/typescript/dist/esm/index.js";

export const url = process.env.GLOVEBOX_API_URL;
export const apiKey = process.env.GLOVEBOX_API_KEY;
export const client = new Glovebox();

const wanted = process.env.GLOVEBOX_TIERS;
const { runtimes } = await client.runtimes();
export const tiers = runtimes.filter((r) => r.usable && (!wanted || wanted.split(",").includes(r.runtime))).map((r) => r.runtime);

/** Runs `cases({ test, sandbox, tier })` for each tier that works; `sandbox()` is one for all of them. */
export function onEachTier(name, cases) {
  for (const tier of tiers) {
    describe(`${name} on ${tier}`, () => {
      let sandbox;
      before(async () => (sandbox = await Sandbox.create({ runtime: tier, lifetimeMs: 3_600_000 })));
      after(() => sandbox?.kill());
      cases({ tier, sandbox: () => sandbox, test: (title, work) => test(title, { timeout: 900_000 }, work) });
    });
  }
}

export async function eventually(check, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`did not come true in ${seconds} s`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

async function listening(server) {
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}

/** A TCP relay that breaks each connection after so many bytes from the server. */
export async function breaker(afterBytes) {
  const target = new URL(url);
  const state = { broken: 0, url: "" };
  const server = net.createServer((near) => {
    const far = net.connect(Number(target.port), target.hostname);
    let left = afterBytes;
    near.pipe(far);
    far.on("data", (data) => {
      near.write(data.subarray(0, left));
      left -= data.length;
      if (left > 0) return;
      state.broken++;
      near.destroySoon();
      far.destroy();
    });
    for (const end of [near, far]) end.on("error", () => {}).on("close", () => (near.destroy(), far.destroy()));
  });
  state.url = await listening(server);
  return state;
}

/** Answers the n-th request with the n-th answer, given as text; the last one stays. Null: closes without a word; "": says nothing. */
export async function scripted(...answers) {
  const state = { requests: [], url: "", answers };
  const server = net.createServer((socket) => {
    socket.on("error", () => {});
    let text = "";
    socket.on("data", (data) => {
      text += data.toString("latin1");
      const head = text.indexOf("\r\n\r\n");
      if (head < 0) return;
      const length = Number(/content-length: (\d+)/i.exec(text.slice(0, head))?.[1] ?? 0);
      if (text.length < head + 4 + length) return;
      state.requests.push(text.slice(0, head + 4 + length));
      text = text.slice(head + 4 + length);
      const answer = answers[Math.min(state.requests.length, answers.length) - 1];
      if (answer === null) return void socket.destroy();
      socket.write(answer);
      if (answer.includes("Connection: close")) socket.end();
    });
  });
  state.url = await listening(server);
  return state;
}

export function answer(status, body, headers = {}) {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  const lines = Object.entries({ "Content-Length": Buffer.byteLength(text), ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `HTTP/1.1 ${status} Status\r\n${lines.join("")}\r\n${text}`;
}

export const refusal = (status, code, headers = {}) =>
  answer(status, { error: { code, message: "the message", hint: "the advice", retryable: false, fault: "caller", details: { some_field: "x" } } },
    { "X-Request-Id": "req-1", ...headers });
