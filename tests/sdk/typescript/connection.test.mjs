// SPDX-License-Identifier: Apache-2.0
// What happens when the connection breaks, the server is away or answers nonsense.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import * as sdk from "../../../sdk/typescript/dist/esm/index.js";
import { events } from "../../../sdk/typescript/dist/esm/sse.js";
import { answer, apiKey, breaker, eventually, onEachTier, refusal, scripted, url } from "./world.mjs";

const { Glovebox, Sandbox } = sdk;
const info = {
  id: "sb-1", state: "ready", runtime: "container", template: { name: "base", version: "0" }, metadata: {}, "a field of the future": 1,
};
const clientOf = (server, options = {}) => new Glovebox({ url: server.url, apiKey: "key", ...options });

onEachTier("broken connections", ({ test, sandbox }) => {
  test("output goes on", async () => {
    const server = await breaker(2_000_000);
    const through = await Sandbox.connect(sandbox().id, { client: { url: server.url, apiKey } });
    const execution = await through.start("seq -f 'größe %.0f' 1 800000; echo err >&2");
    const texts = { stdout: "", stderr: "" };
    for await (const chunk of execution.output()) texts[chunk.stream] += chunk.text;
    assert.ok(server.broken > 3);
    assert.ok(texts.stdout === Array.from({ length: 800_000 }, (_, n) => `größe ${n + 1}\n`).join("") && texts.stderr === "err\n");
  });

  test("an attachment goes on", async () => {
    const server = await breaker(300_000);
    const through = await Sandbox.connect(sandbox().id, { client: { url: server.url, apiKey } });
    const result = await (await (await through.start("seq 1 300000")).attach()).result();
    assert.ok(server.broken > 3 && result.ok);
    assert.ok(result.stdout === Array.from({ length: 300_000 }, (_, n) => `${n + 1}\n`).join(""));
  });

  test("a slow reader gets everything, and one who leaves disturbs nobody", async () => {
    const execution = await sandbox().start("seq 1 300000");
    for await (const chunk of execution.output()) if (chunk.data.length > 0) break;
    let text = "";
    for await (const chunk of execution.output()) {
      text += chunk.text;
      if (text.length < 200_000) await new Promise((done) => setTimeout(done, 20));
    }
    assert.ok(text === Array.from({ length: 300_000 }, (_, n) => `${n + 1}\n`).join(""));
  });
});

test("a call that was never sent is tried again", async () => {
  const lost = await new Glovebox({ url: "http://127.0.0.1:9", apiKey: "key", retries: 1 }).info().catch((error) => error);
  assert.ok(lost instanceof sdk.ConnectionError && !lost.sent);
  assert.match(lost.message, /is the server running/);
});

test("a read is repeated and a start is not", async () => {
  const server = await scripted(null, answer(200, info), null);
  const sandbox = await clientOf(server).sandboxes.get("sb-1");
  assert.equal(server.requests.length, 2);
  await assert.rejects(sandbox.exec("rm -rf /"), (error) => error instanceof sdk.ConnectionError && error.sent);
  assert.equal(server.requests.length, 3);
});

test("a create is repeated with its key", async () => {
  const server = await scripted(null, answer(201, info));
  const keys = () => new Set(server.requests.map((request) => /idempotency-key: (\S+)/i.exec(request)[1]));
  await Sandbox.create({ client: clientOf(server) });
  assert.deepEqual([server.requests.length, keys().size], [2, 1]);
  await Sandbox.create({ client: clientOf(server) });
  assert.equal(keys().size, 2);
});

test("a start is repeated with a key", async () => {
  const server = await scripted(answer(200, info), null, null, refusal(409, "conflict"));
  const sandbox = await clientOf(server).sandboxes.get("sb-1");
  await assert.rejects(sandbox.start("true", { idempotencyKey: "mine" }), sdk.ConflictError);
  assert.deepEqual(server.requests.slice(1).map((request) => /idempotency-key: (\S+)/i.exec(request)?.[1]), ["mine", "mine", "mine"]);
});

test("a server that is starting is asked again, other refusals are not repeated", async () => {
  const starting = await scripted(refusal(503, "unavailable", { "Retry-After": "1" }), answer(200, { version: "1" }));
  const began = Date.now();
  assert.equal(await clientOf(starting).version(), "1");
  assert.ok(Date.now() - began >= 990);  // clocks of timers and of dates are not the same
  for (const [status, code, cause] of [[429, "capacity", sdk.CapacityError], [500, "internal", sdk.ServerError], [501, "unsupported", sdk.UnsupportedError],
    [418, "code_of_the_future", sdk.ApiError]]) {
    const server = await scripted(refusal(status, code, { "Retry-After": "1" }));
    await assert.rejects(clientOf(server).info(), (error) => {
      assert.ok(error instanceof cause);
      assert.deepEqual([error.code, error.status, error.requestId, error.advice, error.details, error.retryAfter],
        [code, status, "req-1", "the advice", { some_field: "x" }, 1]);
      return true;
    });
    assert.equal(server.requests.length, 1);
  }
});

test("nonsense is an error of this package", async () => {
  for (const nonsense of [answer(502, "<html>"), answer(200, "{"), "SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nbroken\r\n\r\n"]) {
    await assert.rejects(clientOf(await scripted(nonsense), { retries: 0 }).info(), sdk.GloveboxError);
  }
});

test("a silent server is given up, a body that breaks off is no body", async () => {
  await assert.rejects(clientOf(await scripted(""), { idleTimeoutMs: 200, retries: 0 }).info(), sdk.ConnectionTimeoutError);
  const server = await scripted("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc");
  await assert.rejects(clientOf(server, { retries: 1 }).info(), sdk.ConnectionError);
  assert.equal(server.requests.length, 2);
});

test("an early refusal of an endless upload is heard", { timeout: 120_000 }, async () => {
  const server = await scripted(refusal(404, "volume_not_found"));
  let isLeft = false;
  async function* endless() {
    try {
      for (;;) yield Buffer.alloc(1 << 16);
    } finally {
      isLeft = true;
    }
  }
  await assert.rejects(clientOf(server).volumes.writeArchive("x", endless()), sdk.VolumeNotFoundError);
  await eventually(() => isLeft);
});

test("an abort is what was thrown", async () => {
  const reason = new RangeError("mine");
  const server = await scripted("");
  const controller = new AbortController();
  setTimeout(() => controller.abort(reason), 50);
  const sandbox = await clientOf(await scripted(answer(200, info))).sandboxes.get("sb-1");
  const silent = await Sandbox.connect("x", { client: clientOf(await scripted(answer(200, info), "")) });
  await assert.rejects(silent.files.read("x", { signal: controller.signal }), (error) => error === reason);
  await assert.rejects(sandbox.files.read("x", { signal: controller.signal }), (error) => error === reason);
  assert.equal(server.requests.length, 0);
});

test("every split of events reads the same", async () => {
  const text = Buffer.from('id: 5\nevent: output\ndata: {"a": "größe"}\n\n: awake\n\nid: 9\nevent: exit\ndata: 1\ndata: 2\n\nid: 10\ndata: unfinished');
  for (let cut = 0; cut < text.length; cut++) {
    const seen = [];
    for await (const event of events((async function* () { yield text.subarray(0, cut); yield text.subarray(cut); })())) seen.push(event);
    assert.deepEqual(seen, [{ id: "5", event: "output", data: '{"a": "größe"}' }, { id: "9", event: "exit", data: "1\n2" }]);
  }
});

test("where the server is, and that the admin key stays on this host", () => {
  const names = ["GLOVEBOX_API_URL", "GLOVEBOX_URL", "GLOVEBOX_API_KEY", "GLOVEBOX_DATA_DIR"];
  const before = names.map((name) => process.env[name]);
  const dataDir = mkdtempSync(join(tmpdir(), "glovebox-sdk-"));
  after(() => rmSync(dataDir, { recursive: true }));
  const urlOf = (env, options) => {
    for (const name of names) delete process.env[name];
    Object.assign(process.env, { GLOVEBOX_DATA_DIR: dataDir, ...env });
    return new Glovebox(options).url;
  };
  try {
    assert.equal(urlOf({ GLOVEBOX_API_URL: "http://one:1", GLOVEBOX_URL: "http://two:2", GLOVEBOX_API_KEY: "k" }), "http://one:1/");
    assert.equal(urlOf({ GLOVEBOX_URL: "http://two:2", GLOVEBOX_API_KEY: "k" }), "http://two:2/");
    assert.equal(urlOf({ GLOVEBOX_API_KEY: "k" }), "http://127.0.0.1:7070/");
    assert.throws(() => urlOf({}), sdk.SettingsError);
    writeFileSync(join(dataDir, "admin.key"), "the key\n");
    for (const elsewhere of ["http://example.com", "http://127.0.0.1.example.com", "http://localhost.example", "http://10.0.0.1"]) {
      assert.throws(() => urlOf({}, { url: elsewhere }), /no key for/);
    }
    assert.equal(urlOf({}, { url: "http://localhost:1" }), "http://localhost:1/");
    writeFileSync(join(dataDir, "daemon.json"), JSON.stringify({ url: "http://127.0.0.1:1234", pid: process.pid }));
    assert.equal(urlOf({}), "http://127.0.0.1:1234/");
    writeFileSync(join(dataDir, "daemon.json"), JSON.stringify({ url: "http://127.0.0.1:1234", pid: 1 << 22 }));
    assert.throws(() => urlOf({}), /no server runs on/);
  } finally {
    names.forEach((name, n) => (before[n] === undefined ? delete process.env[name] : (process.env[name] = before[n])));
  }
  assert.equal(new Glovebox().url, url + "/");
});
