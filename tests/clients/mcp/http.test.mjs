// SPDX-License-Identifier: Apache-2.0
// The transport itself, by hand: what the official client does not do, or only when something breaks.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { dropKey, newKey, tiers, url } from "./harness.mjs";

const BOTH = "application/json, text/event-stream";

class Raw {
  constructor(key) {
    this.headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json", Accept: BOTH };
  }
  send(body, headers = {}, method = "POST") {
    const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    const all = { ...this.headers, ...headers };
    for (const name of Object.keys(all)) if (all[name] === undefined) delete all[name];
    return fetch(`${url}/mcp`, { method, headers: all, body: text });
  }
  async begin(version) {
    const answer = await this.send(request(0, "initialize", { protocolVersion: version, capabilities: {}, clientInfo: { name: "t", version: "1" } }));
    assert.equal(answer.status, 200);
    this.headers["Mcp-Session-Id"] = answer.headers.get("Mcp-Session-Id");
    const { result } = await answer.json();
    assert.equal(result.protocolVersion, version);
    this.headers["MCP-Protocol-Version"] = version;
    assert.equal((await this.send({ jsonrpc: "2.0", method: "notifications/initialized" })).status, 202);
    return this;
  }
}
// What answers a request: the JSON, or the last event of a stream where it took longer.
async function answerOf(answer) {
  const text = await answer.text();
  return JSON.parse(answer.headers.get("Content-Type") === "text/event-stream" ? events(text).at(-1).data : text);
}
const request = (id, method, params) => ({ jsonrpc: "2.0", id, method, params });
const exec = (id, command, more = {}) => request(id, "tools/call", { name: "exec", arguments: { command }, ...more });
// [{id, data}] of a whole stream.
function events(text) {
  return text.split("\n\n").filter((block) => /^(id|data):/m.test(block)).map((block) => ({
    id: /^id: (.*)$/m.exec(block)?.[1], data: /^data: (.*)$/m.exec(block)?.[1],
  }));
}

const [tier, reason] = tiers.at(-1);
describe(`Streamable HTTP on ${tier}`, { concurrency: false, skip: reason }, () => {
  let key, other, raw;
  before(async () => {
    [key, other] = [await newKey(tier), await newKey(tier)];
    raw = await new Raw(key.key).begin("2025-06-18");
  });
  after(async () => {
    await raw.send(undefined, {}, "DELETE");
    await dropKey(key);
    await dropKey(other);
  });
  // Sends and expects a fault of the transport.
  async function refused(status, body, headers, method) {
    const answer = await raw.send(body, headers, method);
    assert.equal(answer.status, status);
    return answer;
  }

  test("needs a key", async () => {
    for (const Authorization of [undefined, "Bearer wrong", "Basic x"]) {
      const answer = await refused(401, request(1, "ping"), { Authorization });
      assert.match(answer.headers.get("WWW-Authenticate"), /^Bearer/);
      assert.equal((await answer.json()).error.data.code, "unauthenticated");
    }
    await refused(401, undefined, { Authorization: undefined, "Content-Type": undefined }, "GET");
    await refused(401, undefined, { Authorization: undefined, "Content-Type": undefined }, "DELETE");
  });

  test("takes no requests of web pages elsewhere", async () => {
    for (const Origin of ["http://evil.example", "null", "http://localhost.evil.example", "http://1-sb.localhost:80", "http://127.0.0.1.evil.example", "x"]) {
      assert.equal((await (await refused(403, request(1, "ping"), { Origin })).json()).error.data.code, "forbidden");
    }
    for (const Origin of ["http://localhost:6274", "http://127.0.0.1", "http://[::1]:80", "HTTP://LOCALHOST"]) {
      assert.equal((await raw.send(request(1, "ping"), { Origin })).status, 200, Origin);
    }
  });

  test("needs a session of this key", async () => {
    await refused(400, request(1, "ping"), { "Mcp-Session-Id": undefined });
    await refused(404, request(1, "ping"), { "Mcp-Session-Id": "mcp-" + "a".repeat(40) });
    await refused(404, request(1, "ping"), { Authorization: `Bearer ${other.key}` });
    await refused(404, undefined, { Authorization: `Bearer ${other.key}`, "Content-Type": undefined }, "DELETE");
    assert.equal((await raw.send(request(1, "ping"))).status, 200);
  });

  test("refuses unknown versions and content", async () => {
    await refused(400, request(1, "ping"), { "MCP-Protocol-Version": "2020-01-01" });
    await refused(400, request(1, "ping"), { "Content-Type": "text/plain" });
    assert.equal((await raw.send(request(1, "ping"), { "MCP-Protocol-Version": undefined })).status, 200);
    assert.equal((await raw.send(request(1, "ping"), { "Content-Type": "application/json; charset=utf-8" })).status, 200);
  });

  test("names faults of messages", async () => {
    const rows = [["{", -32700], ["[]", -32600], ["5", -32600], ['{"jsonrpc":"2.0"}', -32600], ["[".repeat(100_000), -32700],
      [[request(1, "ping")], -32600], ['{"jsonrpc":"2.0","id":1,"method":"ping","id":2}', -32700]];
    for (const [body, code] of rows) assert.equal((await (await refused(400, body)).json()).error.code, code, JSON.stringify(body).slice(0, 80));
    await refused(413, JSON.stringify(exec(1, "x".repeat(9 << 20))));
    const unknown = await (await raw.send(request(5, "no/such"))).json();
    assert.deepEqual([unknown.id, unknown.error.code], [5, -32601]);
    const again = await (await raw.send(request(6, "initialize", { protocolVersion: "2025-06-18" }))).json();
    assert.equal(again.error.code, -32600);
  });

  test("quick answers are JSON, slow ones events", async () => {
    await answerOf(await raw.send(exec("a", "echo 1"))); // the first starts the sandbox
    let quick;
    for (let i = 0; i < 20; ++i) {  // half a second may be short on a busy machine, but not each time
      const answer = await raw.send(exec(`b${i}`, "echo 1"));
      quick = answer.headers.get("Content-Type");
      assert.equal((await answerOf(answer)).result.structuredContent.stdout, "1\n");
      if (quick === "application/json") break;
    }
    assert.equal(quick, "application/json");
    const slow = await raw.send(exec("c", "sleep 1; echo 2"));
    assert.equal(slow.headers.get("Content-Type"), "text/event-stream");
    const [only] = events(await slow.text());
    assert.equal(JSON.parse(only.data).result.structuredContent.stdout, "2\n");
  });

  test("a client that takes only JSON gets JSON", async () => {
    const slow = await raw.send(exec("d", "sleep 1; echo 3"), { Accept: "application/json" });
    assert.equal(slow.headers.get("Content-Type"), "application/json");
    assert.equal((await slow.json()).result.structuredContent.stdout, "3\n");
  });

  test("older clients get no newer fields, and may send batches", async () => {
    const old = await new Raw(key.key).begin("2025-03-26");
    const { result } = await (await old.send(request(1, "tools/list"))).json();
    assert.ok(result.tools.every((tool) => !("outputSchema" in tool) && !("title" in tool)));
    const body = [exec("x", "echo 1"), { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "none" } }, request("y", "ping"), exec("z", "sleep 1")];
    const answer = await old.send(body);
    const all = events(await answer.text()).map((event) => JSON.parse(event.data));
    assert.deepEqual(all.map((one) => one.id).sort(), ["x", "y", "z"]);
    assert.ok(!("structuredContent" in all.find((one) => one.id === "x").result));
    const json = await (await old.send([request("p", "ping"), request("q", "ping")])).json();
    assert.deepEqual(json.map((one) => one.id), ["p", "q"]);
    assert.equal((await old.send([{ jsonrpc: "2.0", method: "notifications/initialized" }])).status, 202);
    assert.equal((await old.send(undefined, { "Content-Type": undefined }, "DELETE")).status, 204);
  });

  test("a cancelled request has no response", async () => {
    const stream = await raw.send(exec("e", "sleep 1000", { _meta: { progressToken: 1 } }), {});
    const text = stream.text();
    assert.equal((await raw.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "e" } })).status, 202);
    assert.ok(!(await text).includes('"id":"e"'));
    // Cancelled before it came: nothing runs.
    await raw.send({ jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "f" } });
    const early = await raw.send(exec("f", "sleep 1000"));
    assert.ok(!(await early.text()).includes('"id":"f"'));
  });

  test("ids of requests under way are not taken twice", async () => {
    const first = await raw.send(exec("g", "until [ -e /tmp/g ]; do sleep 0.05; done"));  // it has been taken: its events begin
    const second = await answerOf(await raw.send(exec("g", "true")));
    assert.equal(second.error.data.code, "conflict");
    await answerOf(await raw.send(exec("g2", "touch /tmp/g")));
    assert.match(await first.text(), /exit_code/);
  });

  test("a broken stream is gone on with", async () => {
    const now = await new Raw(key.key).begin("2025-11-25");
    await (await now.send(exec("h", "true"))).text();
    const abort = new AbortController();
    const answer = await fetch(`${url}/mcp`, { method: "POST", headers: now.headers, body: JSON.stringify(exec("i", "sleep 3; echo late")), signal: abort.signal });
    const reader = answer.body.getReader();
    const [first] = events(new TextDecoder().decode((await reader.read()).value));
    assert.equal(first.data, "");
    abort.abort();
    const rest = await now.send(undefined, { Accept: "text/event-stream", "Last-Event-ID": first.id, "Content-Type": undefined }, "GET");
    assert.equal(rest.status, 200);
    const [late] = events(await rest.text());
    assert.equal(JSON.parse(late.data).result.structuredContent.stdout, "late\n");
    // Once more, when all is there: the same again; after it there is nothing.
    const again = await now.send(undefined, { Accept: "text/event-stream", "Last-Event-ID": first.id, "Content-Type": undefined }, "GET");
    assert.deepEqual(events(await again.text()), [late]);
    assert.equal((await now.send(undefined, { "Last-Event-ID": late.id, "Content-Type": undefined }, "GET")).status, 405);
    // Another session does not get it.
    assert.equal((await raw.send(undefined, { "Last-Event-ID": first.id, "Content-Type": undefined }, "GET")).status, 405);
    await now.send(undefined, { "Content-Type": undefined }, "DELETE");
  });

  test("nothing comes unasked", async () => {
    const answer = await refused(405, undefined, { Accept: "text/event-stream", "Content-Type": undefined }, "GET");
    assert.match(answer.headers.get("Allow"), /POST/);
  });

  test("an ended session is gone, and its requests with it", async () => {
    const short = await new Raw(key.key).begin("2025-06-18");
    const running = await short.send(exec("j", "sleep 1000"));  // until its events begin
    assert.equal((await short.send(undefined, { "Content-Type": undefined }, "DELETE")).status, 204);
    assert.ok(!(await running.text()).includes("result"));
    assert.equal((await short.send(request(1, "ping"))).status, 404);
    assert.equal((await short.send(undefined, { "Content-Type": undefined }, "DELETE")).status, 404);
  });
});
