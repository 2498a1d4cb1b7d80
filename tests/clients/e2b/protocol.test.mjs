// SPDX-License-Identifier: Apache-2.0
// What no client sends: other people's tokens, half-made addresses, broken messages. On the lightest tier; nothing here reaches the wall.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before, describe, test } from "node:test";
import { e2bForm, native, until, url } from "./daemon.mjs";

const tier = (await native("GET", "/v1/runtimes")).json.runtimes.filter((r) => r.usable).at(-1).runtime;
const made = [];
async function keyOf(tenant) {
  const { json } = await native("POST", "/v1/keys", { name: tenant, tenant: `${tenant}-${process.pid}`, role: "user", default_runtime: tier });
  made.push(json.id);
  return json.key;
}

// `begun` is called when the answer's first bytes are here.
function call(method, path, { headers = {}, body, begun = () => {} } = {}) {
  const { hostname, port, host } = new URL(url);
  if (body !== undefined) headers = { "Content-Length": Buffer.byteLength(body), ...headers };
  return new Promise((resolve, reject) => {
    const request = http.request({ hostname, port, method, path, headers: { Host: host, ...headers } }, (answer) => {
      const pieces = [];
      answer.on("data", (piece) => { pieces.push(piece); begun(); }).on("error", reject).on("end", () => {
        const bytes = Buffer.concat(pieces);
        let json;
        try { json = JSON.parse(bytes); } catch {}
        resolve({ status: answer.statusCode, headers: answer.headers, bytes, json });
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}
const envelope = (text) => {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(Buffer.byteLength(text), 1);
  return Buffer.concat([head, Buffer.from(text)]);
};
function messages(bytes) {
  const out = [];
  for (let at = 0; at < bytes.length; ) {
    const size = bytes.readUInt32BE(at + 1);
    out.push([bytes[at], JSON.parse(bytes.subarray(at + 5, at + 5 + size))]);
    at += 5 + size;
  }
  return out;
}

describe(`the protocol on ${tier}`, { concurrency: false }, () => {
  let one, other, key;
  const control = (method, path, value, secret = key) =>
    call(method, path, { headers: { "X-API-Key": secret, "Content-Type": "application/json" }, body: value && JSON.stringify(value) });
  const at = (box, port = "49983", more = {}) => ({ "E2b-Sandbox-Id": box.sandboxID, "E2b-Sandbox-Port": port, ...more });
  const asOwner = (box, more) => at(box, "49983", { "X-Access-Token": box.envdAccessToken, ...more });
  const rpc = (box, method, value, more) =>
    call("POST", method, { headers: asOwner(box, { "Content-Type": "application/json", ...more }), body: JSON.stringify(value) });
  const stream = (box, method, body, more, begun) =>
    call("POST", method, { headers: asOwner(box, { "Content-Type": "application/connect+json", ...more }), body, begun });

  before(async () => {
    key = await keyOf("protocol");
    one = (await control("POST", "/v2/sandboxes", { templateID: "base", timeout: 900, unknownField: 1 })).json;
    other = (await control("POST", "/sandboxes", { templateID: "base", timeout: 900, secure: false })).json;
  });
  after(async () => {
    for (const box of [one, other]) await control("DELETE", `/sandboxes/${box.sandboxID}`);
    for (const id of made) await native("DELETE", `/v1/keys/${id}`);
  });

  test("a token opens its own sandbox only", async () => {
    const list = (headers) => call("POST", "/process.Process/List", { headers: { "Content-Type": "application/json", ...headers }, body: "{}" });
    assert.equal((await list(asOwner(one))).status, 200);
    assert.equal((await list({ "X-Access-Token": one.envdAccessToken })).status, 200);
    for (const token of [other.envdAccessToken, "x", one.envdAccessToken.slice(0, -1), one.sandboxID + "." + other.envdAccessToken.split(".")[1]]) {
      assert.equal((await list(at(one, "49983", { "X-Access-Token": token }))).status, 401, token);
    }
    assert.equal((await list(at(one))).status, 401);
    assert.equal((await list(at(one, "49983", { "X-API-Key": key }))).status, 401);
    assert.equal((await list({ "X-Access-Token": "sb" + "z".repeat(12) + ".00" })).status, 502);
    assert.equal((await call("GET", "/files?path=/etc/passwd", { headers: at(other) })).status, 401);
  });

  test("another tenant's sandbox is not there", async () => {
    const stranger = await keyOf("stranger");
    for (const [method, path] of [["GET", ""], ["DELETE", ""], ["POST", "/connect"], ["POST", "/timeout"], ["PUT", "/network"], ["GET", "/metrics"]]) {
      const answer = await control(method, `/sandboxes/${one.sandboxID}${path}`, method === "GET" ? undefined : { timeout: 5 }, stranger);
      assert.deepEqual([answer.status, answer.json.code], [404, 404], method + path);
    }
    assert.deepEqual((await control("GET", "/v2/sandboxes", undefined, stranger)).json, []);
    assert.equal((await control("GET", "/v2/sandboxes", undefined, "nonsense")).json.code, 401);
    assert.equal((await control("GET", "/v2/sandboxes", undefined, e2bForm(key))).json.length, 2);
  });

  test("addresses that name nothing", async () => {
    assert.equal((await call("GET", "/health", { headers: { "E2b-Sandbox-Id": one.sandboxID } })).status, 400);
    assert.equal((await call("GET", "/health", { headers: { "E2b-Sandbox-Port": "49983" } })).status, 400);
    assert.equal((await call("GET", "/health", { headers: at(one, "0") })).status, 400);
    const gone = await call("GET", "/health", { headers: at({ sandboxID: "sb" + "z".repeat(12) }) });
    assert.deepEqual([gone.status, gone.json.code, gone.json.sandboxId], [502, 502, "sb" + "z".repeat(12)]);
    assert.equal((await call("GET", "/health", { headers: at(one) })).status, 204);
    assert.equal((await call("GET", "/health")).status, 200);
    assert.equal((await call("POST", "/init", { headers: asOwner(one) })).status, 404);
    assert.equal((await control("GET", `/sandboxes/${one.sandboxID}-6532622b`)).json.sandboxID, one.sandboxID);
  });

  test("control calls that make no sense are refused with an integer code", async () => {
    for (const body of ["{", "[]", "1", '{"templateID":1}', "{}", '{"templateID":"base","timeout":0}', '{"templateID":"base","timeout":1e99}',
      '{"templateID":"base","metadata":{"a":1}}', '{"templateID":"base","network":[]}', '{"templateID":"base","network":{"denyOut":["a.com"]}}']) {
      const answer = await call("POST", "/v2/sandboxes", { headers: { "X-API-Key": key, "Content-Type": "application/json" }, body });
      assert.deepEqual([answer.status, answer.json.code], [400, 400], body);
    }
    for (const query of ["limit=0", "limit=101", "nextToken=zz", "state=odd", "metadata=%25zz"]) {
      assert.equal((await control("GET", "/v2/sandboxes?" + query)).status, 400, query);
    }
    for (const [method, path] of [["GET", "/secrets"], ["GET", "/volumes"], ["POST", "/templates/tags"]]) {
      const answer = await control(method, path, method === "POST" ? {} : undefined);
      assert.deepEqual([answer.status, answer.json.code], [501, 501], path);
    }
  });

  test("a watch tells why it ends", async () => {
    const box = (await control("POST", "/sandboxes", { templateID: "base", timeout: 900 })).json;
    const watch = (path, begun) => stream(box, "/filesystem.Filesystem/WatchDir", envelope(JSON.stringify({ path })), {}, begun);
    const removed = watch("/tmp/watched");
    assert.deepEqual(messages((await removed).bytes).at(-1)[1].error.code, "not_found");
    assert.equal((await rpc(box, "/filesystem.Filesystem/MakeDir", { path: "/tmp/watched" })).status, 200);
    const timed = await stream(box, "/filesystem.Filesystem/WatchDir", envelope('{"path":"/tmp"}'), { "Connect-Timeout-Ms": "1000" });
    assert.deepEqual(messages(timed.bytes).map(([, message]) => message.error?.code ?? Object.keys(message)[0]), ["start", "deadline_exceeded"]);
    const watching = (path) => new Promise((resolve) => { const all = watch(path, () => resolve({ all })); });
    const [{ all: open }, { all: killed }] = [await watching("/tmp/watched"), await watching("/tmp")];
    await rpc(box, "/filesystem.Filesystem/Remove", { path: "/tmp/watched" });
    const seen = messages((await open).bytes);
    assert.deepEqual(seen.map(([flags, message]) => [flags, message.filesystem?.type]), [[0, undefined], [0, "EVENT_TYPE_REMOVE"], [2, undefined]]);
    assert.equal(seen[2][1].error, undefined);
    // The clients then ask whether the sandbox is healthy.
    const cut = assert.rejects(killed, { code: "ECONNRESET" });
    await control("DELETE", `/sandboxes/${box.sandboxID}`);
    await cut;
    assert.equal((await call("GET", "/health", { headers: at(box) })).status, 502);
  });

  test("unary errors have a code of the protocol", async () => {
    const table = [["/filesystem.Filesystem/Stat", { path: "/no" }, 404, "not_found"], ["/filesystem.Filesystem/Stat", { path: 5 }, 400, "invalid_argument"],
      ["/filesystem.Filesystem/MakeDir", { path: "/tmp" }, 409, "already_exists"], ["/filesystem.Filesystem/MakeDir", { path: "/etc/passwd" }, 400, "invalid_argument"],
      ["/filesystem.Filesystem/Nothing", {}, 501, "unimplemented"], ["/filesystem.Filesystem/CreateWatcher", { path: "/no" }, 404, "not_found"],
      ["/filesystem.Filesystem/CreateWatcher", { path: "/etc/passwd" }, 400, "invalid_argument"], ["/filesystem.Filesystem/GetWatcherEvents", { watcherId: "x" }, 404, "not_found"],
      ["/process.Process/SendSignal", { process: { pid: 999999 }, signal: "SIGNAL_SIGKILL" }, 404, "not_found"],
      ["/process.Process/SendInput", {}, 400, "invalid_argument"], ["/process.Process/SendInput", { process: { pid: "x" } }, 400, "invalid_argument"]];
    for (const [method, body, status, code] of table) {
      const answer = await rpc(one, method, body);
      assert.deepEqual([answer.status, answer.json.code], [status, code], method);
    }
    assert.equal((await rpc(one, "/filesystem.Filesystem/Stat", { path: "/tmp" }, { "Content-Type": "application/proto" })).json.code, "unimplemented");
    const nobody = "Basic " + Buffer.from("nobody-here:").toString("base64");
    assert.equal((await rpc(one, "/filesystem.Filesystem/Stat", { path: "/tmp" }, { Authorization: nobody })).json.code, "unauthenticated");
  });

  test("streams end with an envelope, whatever was sent", async () => {
    const start = "/process.Process/Start";
    const bad = [Buffer.alloc(0), Buffer.from("{}"), Buffer.concat([envelope("{}"), Buffer.from("x")]), envelope("{"), envelope("{}"),
      envelope('{"process":{"cmd":""}}'), envelope('{"process":{"cmd":"/bin/true","args":[1]}}'), envelope('{"process":{"cmd":"/bin/true","envs":{"A=B":"c"}}}'),
      envelope('{"process":{"cmd":"/no/such/program"}}'), Buffer.from([1, 0, 0, 0, 2, 123, 125])];
    for (const body of bad) {
      const answer = await stream(one, start, body);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers["content-type"], "application/connect+json");
      const [[flags, last]] = messages(answer.bytes);
      assert.equal(flags, 2);
      assert.match(last.error.code, /invalid_argument|unimplemented/, body.toString());
    }
    const late = await stream(one, "/process.Process/Connect", envelope('{"process":{"pid":999999}}'));
    assert.equal(messages(late.bytes)[0][1].error.code, "not_found");
    assert.equal((await stream(one, start, envelope("{}"), { "Content-Type": "application/json" })).status, 415);
  });

  test("snake_case, text numbers and a tag are understood; a late Connect gets the end", async () => {
    const body = envelope('{"process":{"cmd":"/bin/sh","args":["-c","echo $A; exit 9"],"envs":{"A":"b"}},"tag":"mark","stdin":false}');
    const events = messages((await stream(one, "/process.Process/Start", body)).bytes);
    assert.ok(events[0][1].event.start.pid > 0);
    assert.equal(Buffer.from(events[1][1].event.data.stdout, "base64").toString(), "b\n");
    assert.equal(events[2][1].event.end.exitCode, 9);
    assert.deepEqual(events[3], [2, {}]);
    const late = messages((await stream(one, "/process.Process/Connect", envelope('{"process":{"tag":"mark"}}'))).bytes);
    assert.deepEqual(late.map(([, m]) => Object.keys(m.event ?? {})[0]), ["start", "end", undefined]);
  });

  test("a silent stream is kept alive", async () => {
    const body = envelope('{"process":{"cmd":"/bin/sleep","args":["2.5"]},"stdin":false}');
    const begin = performance.now();
    const events = messages((await stream(one, "/process.Process/Start", body, { "Keepalive-Ping-Interval": "1" })).bytes);
    const seconds = (performance.now() - begin) / 1000;
    const kinds = events.map(([, m]) => Object.keys(m.event ?? {})[0]);
    const kept = kinds.slice(1, -2);
    assert.deepEqual([kinds[0], ...new Set(kept), ...kinds.slice(-2)], ["start", "keepalive", "end", undefined]);
    assert.ok(kept.length >= 2 && kept.length <= seconds, `${kept.length} in ${seconds} s`);
  });

  test("file calls that make no sense", async () => {
    const post = (path, type, body, more = {}) => call("POST", path, { headers: asOwner(one, { "Content-Type": type, ...more }), body });
    assert.equal((await post("/files?path=/tmp/x", "text/plain", "x")).status, 400);
    assert.equal((await post("/files", "application/octet-stream", "x")).status, 400);
    assert.equal((await post("/files?path=/tmp/x", "multipart/form-data", "x")).status, 400);
    assert.equal((await post("/files?path=/tmp/cut", "multipart/form-data; boundary=b", '--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nabc')).status, 400);
    assert.equal((await call("GET", "/files?path=/tmp/cut", { headers: asOwner(one) })).status, 404);  // an unfinished upload leaves nothing
    const twice = '--b\r\nContent-Disposition: form-data; name="file"; filename="/tmp/t"\r\n\r\n1\r\n'.repeat(2) + "--b--\r\n";
    assert.equal((await post("/files", "multipart/form-data; boundary=b", twice)).status, 400);
    assert.equal((await post("/files?path=/tmp/x", "application/octet-stream", "not gzip", { "Content-Encoding": "br" })).status, 400);
    assert.equal((await post("/files?path=/tmp/r", "application/octet-stream", "0123456789")).status, 200);
    const part = await call("GET", "/files?path=/tmp/r", { headers: asOwner(one, { Range: "bytes=2-4" }) });
    assert.deepEqual([part.status, part.bytes.toString(), part.headers["content-range"]], [206, "234", "bytes 2-4/10"]);
    assert.equal((await call("GET", "/files?path=/tmp/r", { headers: asOwner(one, { Range: "bytes=20-" }) })).status, 416);
    const head = await call("HEAD", "/files?path=/tmp/r", { headers: asOwner(one) });
    assert.deepEqual([head.status, head.headers["content-length"], head.bytes.length], [200, "10", 0]);
    assert.equal((await call("GET", "/files?path=/tmp/r&username=nobody-here", { headers: asOwner(one) })).status, 401);
  });

  test("what lets a request in does not reach an app", async () => {
    const script = "import http.server as h\nclass H(h.BaseHTTPRequestHandler):\n def do_GET(s):\n  b=str(s.headers).encode();s.send_response(200);" +
      "s.send_header('Content-Length',str(len(b)));s.end_headers();s.wfile.write(b)\nh.HTTPServer(('127.0.0.1',8200),H).serve_forever()\n";
    await call("POST", "/files?path=/tmp/echo.py", { headers: asOwner(one, { "Content-Type": "application/octet-stream" }), body: script });
    const running = stream(one, "/process.Process/Start", envelope('{"process":{"cmd":"/usr/bin/python3","args":["/tmp/echo.py"]},"tag":"echo","stdin":false}'));
    const seen = await until(async () => {
      const answer = await call("GET", "/", { headers: at(one, "8200", { "X-Access-Token": one.envdAccessToken, "X-API-Key": key, "X-Own": "kept" }) });
      return answer.status === 200 && answer;
    }, "the app answers");
    assert.match(seen.bytes.toString(), /x-own: kept/i);
    assert.ok(!new RegExp(`${one.envdAccessToken}|${key}|e2b-sandbox`, "i").test(seen.bytes.toString()));
    await rpc(one, "/process.Process/SendSignal", { process: { tag: "echo" }, signal: "SIGNAL_SIGKILL" });
    await running;
  });

  test("browsers may ask first", async () => {
    const asked = await call("OPTIONS", "/files", { headers: { Origin: "https://a.example", "Access-Control-Request-Method": "POST",
      "Access-Control-Request-Headers": "e2b-sandbox-id,e2b-sandbox-port,x-access-token" } });
    assert.equal(asked.status, 204);
    assert.equal(asked.headers["access-control-allow-origin"], "*");
  });
});
