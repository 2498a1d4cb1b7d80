// SPDX-License-Identifier: Apache-2.0
// Every tool through the official client, on both transports and every tier.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { closeLeft, connect, dropKey, fails, native, newKey, textOf, tiers, until, works } from "./harness.mjs";

// 1x1 pixel.
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const TOOLS = ["create_sandbox", "edit_file", "exec", "exec_kill", "exec_output", "get_preview_url", "get_sandbox", "kill_sandbox",
  "list_files", "list_sandboxes", "read_file", "remove_file", "run_code", "write_file", "snapshot_sandbox",
  "reset_sandbox", "fork_sandbox", "list_snapshots", "delete_snapshot"];
const hasInterpreter = (await native("GET", "/v1/templates")).json.templates.some((t) => t.name === "interpreter");

function suite(transport, tier) {
  let key, mcp;
  before(async () => {
    key = await newKey(tier);
    mcp = await connect(transport, key.key);
  });
  after(async () => {
    await mcp.close();
    await closeLeft();
    assert.deepEqual(mcp.troubles.map(String), []);
    await dropKey(key);
  });
  const run = async (command, args = {}) => (await works(mcp, "exec", { command, ...args })).structuredContent;
  const stateOf = async (id) => (await native("GET", `/v1/sandboxes/${id}`, undefined, key.key)).json.state;

  test("introduces itself", async () => {
    assert.equal(mcp.client.getServerVersion().name, "glovebox");
    assert.match(mcp.client.getInstructions(), /sandbox/);
    assert.deepEqual(mcp.client.getServerCapabilities(), { tools: { listChanged: false } });
    await mcp.client.ping();
  });

  test("lists its tools", async () => {
    const { tools } = await mcp.client.listTools();
    for (const name of TOOLS) assert.ok(tools.some((tool) => tool.name === name), name);
    for (const tool of tools) {
      assert.equal(tool.inputSchema.type, "object");
      assert.equal(tool.inputSchema.additionalProperties, false);
      assert.equal(typeof tool.annotations.readOnlyHint, "boolean");
      for (const [name, property] of Object.entries(tool.inputSchema.properties)) {
        assert.ok(property.description || property.default !== undefined, `${tool.name}.${name} is not described`);
      }
    }
  });

  test("runs commands", async () => {
    const result = await works(mcp, "exec", { command: "echo out; echo err >&2; exit 3" });
    const { structuredContent: s } = result;
    assert.deepEqual([s.stdout, s.stderr, s.exit_code, s.outcome, s.truncated, s.ended], ["out\n", "err\n", 3, "exited", false, true]);
    assert.match(textOf(result), /out\n[^]*\[exit code 3\]/);
    assert.equal((await run("cat", { stdin: "ü\u0000x" })).stdout, "ü\u0000x");
    assert.equal((await run("pwd; echo $A", { cwd: "/tmp", env: { A: "b c" } })).stdout, "/tmp\nb c\n");
    assert.equal((await run("id -u", { user: "root" })).stdout, "0\n");
    const argv = await works(mcp, "exec", { argv: ["printf", "%s|", "a b", "$HOME"] });
    assert.equal(argv.structuredContent.stdout, "a b|$HOME|");
    assert.equal((await run("kill -9 $$")).outcome, "signalled");
  });

  test("keeps its own sandbox between calls", async () => {
    const first = await run("echo kept > /tmp/kept");
    assert.equal((await run("cat /tmp/kept")).stdout, "kept\n");
    assert.equal((await works(mcp, "get_sandbox", {})).structuredContent.id, first.sandbox_id);
    const info = (await works(mcp, "get_sandbox", {})).structuredContent;
    assert.equal(info.runtime, tier);
    assert.equal(info.state, "ready");
  });

  test("many first calls start one sandbox", async () => {
    const other = await connect(transport, key.key);
    const results = await Promise.all(Array.from({ length: 10 }, (_, i) => works(other, "exec", { command: `echo ${i}` })));
    assert.equal(new Set(results.map((r) => r.structuredContent.sandbox_id)).size, 1);
    assert.deepEqual(results.map((r) => r.structuredContent.stdout), Array.from({ length: 10 }, (_, i) => `${i}\n`));
    await other.close();
  });

  test("invalid output bytes are shown, not lost", async () => {
    assert.equal((await run("printf 'a\\377b'")).stdout, "a\ufffdb");
  });

  test("writes, reads, edits, lists and removes files", async () => {
    const path = "/tmp/d/ü.txt";
    assert.equal((await works(mcp, "write_file", { path, content: "one two two\n" })).structuredContent.written_bytes, 12);
    await works(mcp, "write_file", { path, content: "three\n", append: true });
    const read = await works(mcp, "read_file", { path });
    assert.equal(read.content[0].text, "one two two\nthree\n");
    assert.equal(read.structuredContent.truncated, false);
    await fails(mcp, "file_exists", "write_file", { path, content: "", exclusive: true });
    await works(mcp, "edit_file", { path, old_text: "one", new_text: "1" });
    await fails(mcp, "invalid_argument", "edit_file", { path, old_text: "two", new_text: "2" });
    await fails(mcp, "invalid_argument", "edit_file", { path, old_text: "absent", new_text: "2" });
    assert.equal((await works(mcp, "edit_file", { path, old_text: "two", new_text: "2", replace_all: true })).structuredContent.replacements, 2);
    assert.equal((await run("cat /tmp/d/*")).stdout, "1 2 2\nthree\n");
    await works(mcp, "write_file", { path: "/tmp/d/run", content: "#!/bin/sh\necho ran\n", executable: true });
    assert.equal((await run("/tmp/d/run")).stdout, "ran\n");
    const list = await works(mcp, "list_files", { path: "/tmp/d", limit: 1 });
    const rest = await works(mcp, "list_files", { path: "/tmp/d", cursor: list.structuredContent.next_cursor });
    assert.deepEqual([...list.structuredContent.entries, ...rest.structuredContent.entries].map((e) => e.name), ["run", "ü.txt"]);
    await fails(mcp, "directory_not_empty", "remove_file", { path: "/tmp/d" });
    await works(mcp, "remove_file", { path: "/tmp/d", recursive: true });
    await fails(mcp, "file_not_found", "read_file", { path });
  });

  test("reads long files in pieces that are whole characters", async () => {
    await run("python3 -c \"print('é' * 100_000, end='')\" > /tmp/long");
    let text = "", offset = 0;
    for (let i = 0; i < 100; ++i) {
      const { content, structuredContent: s } = await works(mcp, "read_file", { path: "/tmp/long", offset, max_bytes: 65_535 });
      text += content[0].text;
      offset = s.next_offset;
      assert.equal(s.size_bytes, 200_000);
      if (!s.truncated) break;
    }
    assert.equal(text, "é".repeat(100_000));
  });

  test("returns images as images, other binary files described", async () => {
    await works(mcp, "write_file", { path: "/tmp/dot.png", content: PNG, encoding: "base64" });
    const image = await works(mcp, "read_file", { path: "/tmp/dot.png" });
    assert.deepEqual(image.content[0], { type: "image", data: PNG, mimeType: "image/png" });
    assert.equal(image.structuredContent.kind, "image");
    // One that comes in several pieces, and one that is too large.
    await run("(cat /tmp/dot.png; head -c 3000000 /dev/zero) > /tmp/big.png; (cat /tmp/dot.png; head -c 5000000 /dev/zero) > /tmp/huge.png");
    const big = await works(mcp, "read_file", { path: "/tmp/big.png" });
    assert.equal(Buffer.from(big.content[0].data, "base64").length, 3_000_000 + Buffer.from(PNG, "base64").length);
    await fails(mcp, "payload_too_large", "read_file", { path: "/tmp/huge.png" });
    await run("printf 'a\\000b' > /tmp/binary");
    const binary = await works(mcp, "read_file", { path: "/tmp/binary" });
    assert.equal(binary.structuredContent.kind, "binary");
    assert.match(textOf(binary), /binary file of 3 bytes/);
    assert.equal((await works(mcp, "read_file", { path: "/tmp/binary", as: "base64" })).content[0].text, "YQBi");
  });

  test("long output is shortened, and all of it can be read", async () => {
    const result = await works(mcp, "exec", { command: "seq 1 100000", max_output_bytes: 10_000 });
    const s = result.structuredContent;
    assert.equal(s.truncated, true);
    assert.ok(textOf(result).length < 11_000);
    assert.match(s.stdout, /^1\n2\n/);
    assert.match(s.stdout, /\n99999\n100000\n$/);
    assert.match(textOf(result), /bytes left out, from cursor 5000/);
    let text = "", cursor = 0;
    for (let i = 0; i < 100; ++i) {
      const part = (await works(mcp, "exec_output", { execution_id: s.execution_id, cursor })).structuredContent;
      text += part.stdout;
      cursor = part.next_cursor;
      if (!part.truncated) break;
    }
    assert.equal(text, Array.from({ length: 100_000 }, (_, i) => `${i + 1}\n`).join(""));
  });

  test("a timeout is an outcome, with the output so far", async () => {
    const s = await run("echo begun; sleep 1000", { timeout_s: 2 });
    assert.deepEqual([s.outcome, s.exit_code, s.stdout], ["timed_out", null, "begun\n"]);
  });

  test("tells of progress", async () => {
    const seen = [];
    await works(mcp, "exec", { command: "for i in 1 2 3 4 5; do echo step $i; sleep 1; done" }, { onprogress: (p) => seen.push(p) });
    assert.ok(seen.length >= 1, "no progress");
    assert.match(seen.at(-1).message, /step \d/);
    for (let i = 1; i < seen.length; ++i) assert.ok(seen[i].progress > seen[i - 1].progress);
  });

  test("a cancelled call kills its command", async () => {
    const abort = new AbortController();
    const call = mcp.call("exec", { command: "sleep 4242", timeout_s: 600 }, { signal: abort.signal });
    await until(async () => (await run("pgrep -f 'sleep 424[2]' || true")).stdout !== "", "the command runs");
    abort.abort();
    await assert.rejects(call);
    await until(async () => (await run("pgrep -f 'sleep 424[2]' || true")).stdout === "", "the command is gone");
  });

  test("runs servers in the background and shows them", async () => {
    const command = "mkdir -p /tmp/www && cd /tmp/www && echo hello > index.html && exec python3 -u -m http.server 8123";
    const started = (await works(mcp, "exec", { command, background: true })).structuredContent;
    assert.deepEqual([started.ended, started.outcome], [false, null]);
    const output = await until(async () => {
      const part = (await works(mcp, "exec_output", { execution_id: started.execution_id, wait_s: 10 })).structuredContent;
      return part.stdout.includes("Serving") && part;
    }, "the server says that it serves");
    assert.equal(output.ended, false);
    const preview = (await works(mcp, "get_preview_url", { port: 8123 })).structuredContent;
    assert.equal(preview.listening, true);
    const page = await fetch(preview.urls.path, { headers: { Authorization: `Bearer ${key.key}` } });
    assert.equal(await page.text(), "hello\n");
    const killed = (await works(mcp, "exec_kill", { execution_id: started.execution_id })).structuredContent;
    assert.equal(killed.outcome, "killed_by_caller");
  });

  test("makes, lists and ends sandboxes", async () => {
    const made = (await works(mcp, "create_sandbox", { metadata: { a: "b" }, env: { X: "y" }, memory_mb: 256, cpus: 0.5 })).structuredContent;
    assert.equal(made.limits.memory_mb, 256);
    const ran = (await works(mcp, "exec", { command: "echo $X", sandbox_id: made.id })).structuredContent;
    assert.deepEqual([ran.stdout, ran.sandbox_id], ["y\n", made.id]);
    assert.notEqual((await run("true")).sandbox_id, made.id);
    const listed = (await works(mcp, "list_sandboxes", {})).structuredContent.sandboxes.map((s) => s.id);
    assert.ok(listed.includes(made.id));
    assert.equal((await works(mcp, "kill_sandbox", { sandbox_id: made.id })).structuredContent.already_ended, false);
    assert.equal((await works(mcp, "kill_sandbox", { sandbox_id: made.id })).structuredContent.already_ended, true);
    await fails(mcp, "sandbox_ended", "exec", { command: "true", sandbox_id: made.id });
  });

  test("runs code in cells that keep their state", { skip: hasInterpreter ? false : "needs the template interpreter" }, async () => {
    const cell = async (code, args = {}, options = {}) => await works(mcp, "run_code", { code, ...args }, options);
    await cell("x = 6 * 7");
    const value = await cell("print('out'); x");
    assert.equal(textOf(value), "out\n42\n");
    assert.deepEqual(value.structuredContent.results, [{ main: true, "text/plain": "42" }]);
    assert.deepEqual([value.structuredContent.stdout, value.structuredContent.error], ["out\n", null]);
    const chart = await cell("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()");
    const [image] = chart.content.filter((c) => c.type === "image");
    assert.equal(image.mimeType, "image/png");
    assert.equal(Buffer.from(image.data, "base64").subarray(1, 4).toString(), "PNG");
    const raised = await cell("1 / 0");
    assert.equal(raised.structuredContent.error.name, "ZeroDivisionError");
    assert.match(textOf(raised), /Traceback[^]*ZeroDivisionError/);
    const slow = await cell("import time\nprint('begun')\ntime.sleep(1000)", { timeout_s: 2 });
    assert.deepEqual([slow.structuredContent.error.kind, slow.structuredContent.stdout], ["timeout", "begun\n"]);
    assert.equal(textOf(await cell("x")), "42\n");
    assert.equal(textOf(await cell("const y = [1, 2].map((n) => n * 2); y.length", { language: "javascript" })), "2\n");
    assert.equal(textOf(await cell("z=5; echo $z", { language: "bash" })), "5\n");
    const long = await cell("print('é' * 300_000)", { max_output_bytes: 2048 });
    assert.equal(long.structuredContent.truncated, true);
    assert.ok(Buffer.byteLength(textOf(long)) < 2300);
    const abort = new AbortController();
    const call = cell("import time\ntime.sleep(1000)", { timeout_s: 600 }, { signal: abort.signal });
    setTimeout(() => abort.abort(), 500);
    await assert.rejects(call);
    assert.equal(textOf(await cell("x")), "42\n");
    const plain = (await works(mcp, "create_sandbox", { template: "base" })).structuredContent.id;
    await fails(mcp, "unsupported", "run_code", { code: "1", sandbox_id: plain });
  });

  test("keeps states, goes back to them and copies them", async () => {
    const other = await connect(transport, key.key);
    const say = async (command, sandbox_id) => (await works(other, "exec", { command, sandbox_id })).structuredContent.stdout;
    const write = (content) => works(other, "write_file", { path: "state", content });
    await write("first");
    const snapshot = (await works(other, "snapshot_sandbox", { name: "kept" })).structuredContent;
    assert.equal(snapshot.state, "ready");
    assert.ok(["files", "memory+files"].includes(snapshot.kept));
    await write("second");
    const forks = (await works(other, "fork_sandbox", { count: 2 })).structuredContent.sandboxes.map((s) => s.id);
    for (const id of forks) assert.equal(await say("cat state", id), "second");
    await say("echo own > state", forks[0]);
    assert.equal(await say("cat state", forks[1]), "second");
    const again = (await works(other, "create_sandbox", { snapshot_id: snapshot.id })).structuredContent.id;
    assert.equal(await say("cat state", again), "first");
    await works(other, "reset_sandbox", { snapshot_id: snapshot.id });
    assert.equal(await say("cat state"), "first");
    assert.ok((await works(other, "list_snapshots", {})).structuredContent.snapshots.some((s) => s.id === snapshot.id && s.name === "kept"));
    await fails(other, "snapshot_not_found", "reset_sandbox", { snapshot_id: "sn-none" });
    await fails(other, "invalid_argument", "create_sandbox", { snapshot_id: snapshot.id, template: "base" });
    await other.close();
    for (const id of [...forks, again]) await until(async () => (await stateOf(id)) === "ended", "it has ended");
    await works(mcp, "delete_snapshot", { snapshot_id: snapshot.id });
    await fails(mcp, "snapshot_not_found", "delete_snapshot", { snapshot_id: snapshot.id });
  });

  test("errors of tools are results with our code", async () => {
    await fails(mcp, "sandbox_not_found", "exec", { command: "true", sandbox_id: "sb-none" });
    await fails(mcp, "invalid_argument", "exec", {});
    await fails(mcp, "invalid_argument", "exec", { command: "a", argv: ["a"] });
    await fails(mcp, "invalid_argument", "exec", { command: "true", tiemout: 1 });
    await fails(mcp, "invalid_argument", "exec", { command: "true", timeout_s: 4000 });
    await fails(mcp, "command_not_found", "exec", { argv: ["/no/such"] });
    await fails(mcp, "workdir_not_found", "exec", { command: "true", cwd: "/no/such" });
    await fails(mcp, "template_not_found", "create_sandbox", { template: "none" });
    await fails(mcp, "permission_denied", "write_file", { path: "/etc/passwd", content: "" });
    await fails(mcp, "is_a_directory", "read_file", { path: "/tmp" });
  });

  test("faults of the protocol are its errors", async () => {
    await assert.rejects(mcp.client.callTool({ name: "no_such_tool" }), { code: -32602 });
    await assert.rejects(mcp.client.listTools({ cursor: "x" }), { code: -32602 });
    await assert.rejects(mcp.client.listResources(), /does not support resources|-32601/);
  });

  test("another tenant's sandboxes are not there", async () => {
    const foreign = await newKey(tier);
    const made = await native("POST", "/v1/sandboxes", {}, foreign.key);
    for (const [name, args] of [["exec", { command: "true" }], ["read_file", { path: "/etc/passwd" }], ["get_sandbox", {}],
      ["kill_sandbox", {}], ["get_preview_url", { port: 80 }], ["exec_kill", { execution_id: "ex-none" }]]) {
      await fails(mcp, "sandbox_not_found", name, { ...args, sandbox_id: made.json.id });
    }
    const listed = (await works(mcp, "list_sandboxes", { include_ended: true })).structuredContent.sandboxes;
    assert.ok(!listed.some((s) => s.id === made.json.id));
    await dropKey(foreign);
  });

  test("says so when its own sandbox was replaced", async () => {
    const before = await run("true");
    await native("DELETE", `/v1/sandboxes/${before.sandbox_id}`, undefined, key.key);
    const result = await works(mcp, "exec", { command: "true" });
    assert.notEqual(result.structuredContent.sandbox_id, before.sandbox_id);
    assert.match(textOf(result), /has ended \(killed\), so a new, empty one was started/);
  });

  test("the end of a session ends its sandboxes, but not those that stay", async () => {
    const other = await connect(transport, key.key);
    const own = (await works(other, "exec", { command: "true" })).structuredContent.sandbox_id;
    const more = (await works(other, "create_sandbox", {})).structuredContent.id;
    const stays = (await works(other, "create_sandbox", { stays: true, make_default: true })).structuredContent.id;
    assert.equal((await works(other, "exec", { command: "true" })).structuredContent.sandbox_id, stays);
    await other.close();
    await until(async () => (await stateOf(own)) === "ended" && (await stateOf(more)) === "ended", "they have ended");
    assert.equal(await stateOf(stays), "ready");
  });
}

for (const transport of ["http", "stdio"]) {
  for (const [tier, reason] of tiers) describe(`${transport} on ${tier}`, { concurrency: false, skip: reason }, () => suite(transport, tier));
}
