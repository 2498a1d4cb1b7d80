// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import * as sdk from "../../../sdk/typescript/dist/esm/index.js";
import { client, eventually, onEachTier, url } from "./world.mjs";

const { CommandFailedError, Glovebox, Sandbox } = sdk;

onEachTier("sandboxes", ({ test, sandbox, tier }) => {
  test("disposing ends it", async () => {
    const box = await Sandbox.create({ runtime: tier, metadata: { some_key: "4711" }, env: { SOME_name: "x" }, limits: { memoryMb: 256 } });
    assert.equal(box.info.runtime, tier);
    assert.equal(box.info.limits.memoryMb, 256);
    assert.deepEqual(box.info.metadata, { some_key: "4711" });
    assert.equal((await box.exec("echo $SOME_name")).stdout, "x\n");
    await box[Symbol.asyncDispose]();
    assert.equal((await box.refresh()).ended.reason, "killed");
    await box[Symbol.asyncDispose]();
  });

  test("start with the same key gives the same execution", async () => {
    const box = await Sandbox.create({ runtime: tier });
    const first = await box.start("echo once", { idempotencyKey: "k" });
    assert.equal((await box.start("echo once", { idempotencyKey: "k" })).id, first.id);
    assert.equal((await first.result()).stdout, "once\n");
    await assert.rejects(box.start("echo twice", { idempotencyKey: "k" }), sdk.ConflictError);
    await box.kill();
  });

  test("secrets", async () => {
    const box = await Sandbox.create({ runtime: tier, secrets: { TOKEN_name: "t" } });
    assert.deepEqual(box.info.secretKeys, ["TOKEN_name"]);
    assert.equal((await box.exec("echo $TOKEN_name $OTHER", { secrets: { OTHER: "o" } })).stdout, "t o\n");
    await box.kill();
  });

  test("the same key gives the same sandbox", async () => {
    const idempotencyKey = `typescript-${Date.now()}-${tier}`;
    const first = await Sandbox.create({ runtime: tier, idempotencyKey });
    assert.equal((await Sandbox.create({ runtime: tier, idempotencyKey })).id, first.id);
    await assert.rejects(Sandbox.create({ runtime: tier, idempotencyKey, metadata: { other: "1" } }), sdk.ConflictError);
    await first.kill();
  });

  test("list, update, pause, resume, stats", async () => {
    const box = sandbox();
    await box.update({ metadata: { mine: `ts-${tier}` }, lifetimeMs: 7_200_000 });
    const found = await Sandbox.list({ metadata: { mine: `ts-${tier}` }, state: ["ready", "paused"] }).toArray();
    assert.deepEqual(found.map((s) => s.id), [box.id]);
    assert.equal((await box.pause()).state, "paused");
    assert.equal((await box.resume()).state, "ready");
    assert.ok((await box.exec("true")).ok);
    assert.ok((await box.stats()).memoryPeakBytes > 0);
    assert.equal((await Sandbox.connect(box.id)).info.metadata.mine, `ts-${tier}`);
  });

  test("a result is no error", async () => {
    const result = await sandbox().exec("echo out; echo err >&2; exit 3");
    assert.deepEqual([result.stdout, result.stderr, result.exitCode, result.ok], ["out\n", "err\n", 3, false]);
    assert.throws(() => result.check(), (error) => error instanceof CommandFailedError && error.result === result && /exited with 3:\nerr/.test(error.message));
    await assert.rejects(sandbox().exec("exit 1", { check: true }), CommandFailedError);
    assert.equal((await sandbox().exec(["printf", "%s", "$HOME"], { check: true })).stdout, "$HOME");
  });

  test("outcomes are told apart", async () => {
    assert.equal((await sandbox().exec("kill -TERM $$")).outcome.signalName, "SIGTERM");
    const late = await sandbox().exec("sleep 60", { timeoutMs: 200 });
    assert.deepEqual([late.outcome.type, late.exitCode], ["timed_out", null]);
    const execution = await sandbox().start("sleep 60");
    assert.equal((await execution.kill()).outcome.type, "killed_by_caller");
  });

  test("bytes are bytes and characters whole", async () => {
    const script = "import sys, time\nfor b in 'aé€😀'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.01)\n" +
      "sys.stdout.buffer.write(b'\\xff\\0')";
    const texts = [];
    const result = await sandbox().exec(["python3", "-c", script], { onStdout: (text) => texts.push(text) });
    assert.deepEqual(Buffer.from(result.stdoutBytes), Buffer.concat([Buffer.from("aé€😀"), Buffer.of(0xff, 0)]));
    assert.equal(texts.join(""), "aé€😀\ufffd\0");
    assert.equal(result.stdout, "aé€😀\ufffd\0");
  });

  test("standard input", async () => {
    assert.equal((await sandbox().exec("cat", { stdin: "späte Grüße" })).stdout, "späte Grüße");
    const large = Buffer.alloc(2 << 20, "0123456789");
    assert.ok(large.equals((await sandbox().exec("cat", { stdin: large })).stdoutBytes));
    async function* generated() {
      for (let i = 0; i < 500; i++) yield Buffer.alloc(1000, "x");
    }
    assert.equal((await sandbox().exec("wc -c", { stdin: generated() })).stdout.trim(), "500000");
    assert.equal((await sandbox().exec("head -c 3", { stdin: large })).stdout, "012");
  });

  test("input that never ends or fails", async () => {
    async function* endless() {
      yield Buffer.alloc(120_000, "abcdef");
      await new Promise(() => {});
    }
    assert.equal((await sandbox().exec("head -c 3", { stdin: endless() })).stdout, "abc");
    async function* broken() {
      yield Buffer.from("abc");
      throw new RangeError("mine");
    }
    await assert.rejects(sandbox().exec("cat", { stdin: broken() }), RangeError);
    assert.equal((await sandbox().executions().toArray())[0].info.outcome.type, "killed_by_caller");
  });

  test("aborting a start leaves no command", async () => {
    const before = (await sandbox().executions().toArray()).length;
    for (const delay of [0, 1, 3, 100, 300]) {  // the last ones have begun, however slow the machine is
      await assert.rejects(sandbox().exec("sleep 600", { signal: AbortSignal.timeout(delay) }), { name: "TimeoutError" });
    }
    await eventually(async () => {
      const running = await sandbox().executions({ state: "running" }).toArray();
      return running.length === 0 && (await sandbox().executions().toArray()).length >= before + 2;
    });
  });

  test("10 MiB of output, 200 commands at once", async () => {
    const result = await sandbox().exec("head -c 10485760 /dev/zero | tr '\\0' y");
    assert.ok(result.stdoutBytes.length === 10 << 20 && result.stdoutBytes.every((byte) => byte === 121));
    const results = await Promise.all(Array.from({ length: 200 }, (_, n) => sandbox().exec(["echo", String(n)])));
    assert.deepEqual(results.map((r) => Number(r.stdout)), Array.from({ length: 200 }, (_, n) => n));
  });

  test("a background execution is found again", async () => {
    const started = await sandbox().start("read line; echo got $line; sleep 60", { stdin: true, name: "server" });
    const again = await (await Sandbox.connect(sandbox().id)).execution(started.id);
    await again.writeStdin("hello\n");
    for await (const chunk of again.output()) {
      assert.equal(chunk.text, "got hello\n");
      break;
    }
    assert.equal((await started.wait({ timeoutMs: 50 })).state, "running");
    assert.ok((await sandbox().executions({ state: "running" }).toArray()).some((e) => e.id === started.id));
    await again.signal("TERM", { tree: true });
    assert.equal((await started.wait()).outcome.signalName, "SIGTERM");
  });

  test("output from a cursor and of one stream", async () => {
    const execution = await sandbox().start("echo one; read _; echo two >&2; read _; echo three", { stdin: true });
    const chunks = [];
    for await (const chunk of execution.output()) {
      if (chunks.push(chunk) < 3) await execution.writeStdin("\n");  // the next one comes when this one has been seen
    }
    assert.deepEqual(chunks.map((c) => c.text), ["one\n", "two\n", "three\n"]);
    const later = [];
    for await (const chunk of execution.output({ cursor: chunks[0].cursor })) later.push(chunk.text);
    assert.deepEqual(later, ["two\n", "three\n"]);
    for await (const chunk of execution.output({ stream: "stderr" })) assert.equal(chunk.text, "two\n");
  });

  test("a terminal", async () => {
    const terminal = await sandbox().terminal({ command: ["sh"], cols: 132, rows: 43 });
    await terminal.write("stty size\n");
    let seen = "";
    for await (const chunk of terminal) if ((seen += chunk.text).includes("43 132")) break;
    await terminal.resize(100, 20);
    await terminal.write("stty size; exit 7\n");
    assert.equal((await terminal.execution.wait()).exitCode, 7);
    assert.match((await terminal.execution.result()).stdout, /20 100/);
    terminal.close();
  });

  test("attach: both ways at once, and what is refused", async () => {
    const attachment = await (await sandbox().start("cat", { stdin: true })).attach();
    const refused = [];
    attachment.onError((error) => refused.push(error.code));
    const data = Buffer.alloc(1 << 20, "0123456789\xff");
    const writing = attachment.write(data).then(() => attachment.closeStdin()).then(() => attachment.write("too late"));
    const result = await attachment.result();
    await writing.catch(() => {});
    assert.ok(data.equals(result.stdoutBytes));
    assert.ok(refused.every((code) => code === "conflict"));
  });

  test("processes", async () => {
    const execution = await sandbox().start(["sleep", "60"]);
    const process = await eventually(async () => (await sandbox().processes()).find((p) => p.execution === execution.id));
    await sandbox().signalProcess(process.pid, 9);
    assert.equal((await execution.wait()).outcome.signal, 9);
  });

  test("aborting kills the command", async () => {
    const controller = new AbortController();
    let began;
    const onStdout = () => { began = Date.now(); controller.abort(); };
    await assert.rejects(sandbox().exec("sleep 600 & echo runs; sleep 600", { signal: controller.signal, name: "aborted", onStdout }), { name: "AbortError" });
    assert.ok(Date.now() - began < 40_000);
    const [last] = await sandbox().executions().toArray();
    assert.deepEqual([last.info.name, last.info.outcome.type], ["aborted", "killed_by_caller"]);
    await eventually(async () => !(await sandbox().processes()).some((p) => p.argv[0] === "sleep"));
  });

  test("aborting a create leaves no sandbox", async () => {
    // How soon a request has left, and how soon it is answered, is the machine's: until one was aborted in between.
    for (let delay = 5, isDone = false; !isDone; delay *= 2) {
      const mark = { aborted: `${tier}-${delay}-${Date.now()}` };
      const controller = new AbortController();
      setTimeout(() => controller.abort(), delay);
      const outcome = await Sandbox.create({ runtime: tier, metadata: mark, signal: controller.signal, client }).catch((error) => error);
      if (outcome instanceof Sandbox) {
        await outcome.kill();
        assert.fail("none was aborted while it was made");
      }
      assert.equal(outcome.name, "AbortError");
      const ended = async () => (await client.sandboxes.list({ metadata: mark, state: "ended" }).toArray()).length === 1;
      isDone = await eventually(ended, 5).catch(() => false);
      assert.equal((await client.sandboxes.list({ metadata: mark }).toArray()).length, 0);
    }
  });

  test("a failing callback kills the command", async () => {
    const fail = () => { throw new RangeError("mine"); };
    await assert.rejects(sandbox().exec("echo x; sleep 60", { onStdout: fail }), RangeError);
    assert.equal((await sandbox().executions().toArray())[0].info.outcome.type, "killed_by_caller");
  });

  test("a preview", async () => {
    await sandbox().files.write("site/index.html", "<h1>hello</h1>");
    const server = await sandbox().start(["python3", "-m", "http.server", "8000", "--directory", "site"]);
    await eventually(async () => (await sandbox().port(8000)).listening);
    const response = await sandbox().fetch(8000, "/index.html");
    assert.deepEqual([response.status, await response.text()], [200, "<h1>hello</h1>"]);
    const { token } = await sandbox().port(8000);
    assert.notEqual((await sandbox().openPort(8000, { public: true })).token, token);
    assert.equal((await sandbox().revokePort(8000)).revoked, true);
    assert.equal((await sandbox().fetch(8000)).status, 404);
    await server.kill();
  });

  test("network policy and logs", async () => {
    const box = await Sandbox.create({ runtime: tier, network: { packages: { registries: ["pypi"], minimumAgeHours: 24, installScripts: false } } });
    assert.equal((await box.network.get()).policy.packages.minimumAgeHours, 24);
    const state = await box.network.set({ allow: [{ host: "api.example.com", ports: [443] }] });
    assert.equal(state.effective.egress, "allowlist");
    await box.exec(["python3", "-c", "import socket; socket.getaddrinfo('refused.example', 80)"]);
    const entry = await eventually(async () => (await box.network.connectionPage()).entries[0]);
    assert.deepEqual([entry.verdict, entry.host, typeof entry.howToAllow], ["denied", "refused.example", "string"]);
    for await (const logged of box.network.connections()) assert.equal(logged.sandbox, box.id);
    assert.deepEqual((await box.network.packagePage()).entries, []);
    await box.kill();
  });

  test("volumes", async () => {
    const name = `ts-${tier}-${Date.now()}`;
    const volume = await client.volumes.create({ name, sizeMb: 64, labels: { some_label: "b" } });
    assert.deepEqual([(await client.volumes.create({ name, getOrCreate: true })).id, volume.labels], [volume.id, { some_label: "b" }]);
    const box = await Sandbox.create({ runtime: tier, volumes: [{ volume: name, path: "/data" }] });
    assert.deepEqual(box.info.volumes, [{ volume: volume.id, path: "/data", readOnly: false }]);
    await box.exec("echo kept >/data/file", { user: "root", check: true });
    assert.equal((await client.volumes.get(name)).writer, box.id);
    await assert.rejects(client.volumes.remove(name), sdk.VolumeInUseError);
    await box.kill();
    const parts = [];
    for await (const part of await client.volumes.readArchive(name)) parts.push(part);
    assert.ok(Buffer.concat(parts).includes("kept"));
    await client.volumes.writeArchive(name, Buffer.concat(parts));
    assert.equal((await client.volumes.grow(name, 128)).sizeMb, 128);
    assert.ok((await client.volumes.list().toArray()).some((found) => found.id === volume.id));
    await client.volumes.remove(name);
    await assert.rejects(client.volumes.get(name), sdk.VolumeNotFoundError);
  });

  test("snapshots, forks and resets", async () => {
    const box = await Sandbox.create({ runtime: tier });
    await box.files.write("file", "before");
    const snapshot = await box.snapshot({ name: "sdk", labels: { some_label: tier } });
    assert.deepEqual([snapshot.state, snapshot.sourceSandbox, snapshot.labels], ["ready", box.id, { some_label: tier }]);
    assert.deepEqual((await client.snapshots.list({ sandbox: box.id, labels: { some_label: tier } }).toArray()).map((s) => s.id), [snapshot.id]);
    assert.equal((await client.snapshots.update(snapshot.id, { name: "other" })).name, "other");
    await client.snapshots.verify(snapshot.id);
    const restored = await Sandbox.create({ snapshot: snapshot.id });
    assert.deepEqual([restored.info.startedFrom, restored.info.snapshotId, await restored.files.readText("file")], ["snapshot", snapshot.id, "before"]);
    await restored.files.write("file", "after");
    await restored.reset();
    assert.equal(await restored.files.readText("file"), "before");
    const children = await box.fork({ count: 2, metadata: { some_child: "yes" } });
    for (const child of children) assert.deepEqual([await child.files.readText("file"), child.info.metadata], ["before", { some_child: "yes" }]);
    assert.equal((await box.hibernate()).paused.hibernated, true);
    assert.equal(await box.files.readText("file"), "before");
    await Promise.all([box, restored, ...children].map((each) => each.kill()));
    await client.snapshots.remove(snapshot.id);
    await assert.rejects(client.snapshots.get(snapshot.id), sdk.SnapshotNotFoundError);
  });

  test("what changed", async () => {
    await sandbox().files.write("/srv/new", "x", { user: "root" });
    const changes = await sandbox().diff().toArray();
    const { change, type, size } = changes.find((each) => each.path === "/srv/new");
    assert.deepEqual([change, type, size], ["added", "file", 1]);
  });

  test("code", async () => {
    const first = await sandbox().runCode("x=41; echo to stdout", { language: "bash" });
    assert.deepEqual([first.stdout, first.error], ["to stdout\n", null]);
    const seen = [];
    await sandbox().runCode("echo $((x+1))", { language: "bash", onStdout: (text) => seen.push(text) });
    assert.deepEqual(seen, ["42\n"]);
    assert.equal((await sandbox().runCode("exit 3", { language: "bash" })).error.kind, "exit");
    const made = await sandbox().codeContexts.create({ language: "bash" });
    assert.equal((await sandbox().runCode("echo [$x]", { context: made.id })).stdout, "[]\n");
    assert.ok((await sandbox().codeContexts.list()).some((found) => found.id === made.id));
    assert.equal(await sandbox().codeContexts.interrupt(made.id), false);
    assert.equal((await sandbox().codeContexts.restart(made.id)).id, made.id);
    await sandbox().codeContexts.remove(made.id);
  });

  test("errors have their class and fields", async () => {
    await assert.rejects(Sandbox.create({ limits: { cpus: -1 } }), (error) => {
      assert.ok(error instanceof sdk.InvalidArgumentError && error.name === "InvalidArgumentError");
      assert.deepEqual([error.code, error.status, error.fault, error.isRetryable, error.details.field], ["invalid_argument", 400, "caller", false, "limits.cpus"]);
      return error.requestId.length > 0 && error.advice.length > 0 && String(error).includes(error.requestId);
    });
    await assert.rejects(client.sandboxes.get("sb-nobody"), sdk.SandboxNotFoundError);
    await assert.rejects(sandbox().exec(["no-such-program"]), sdk.CommandNotFoundError);
    await assert.rejects(sandbox().exec("true", { cwd: "/nowhere" }), sdk.WorkdirNotFoundError);
    await assert.rejects(new Glovebox({ url, apiKey: "wrong" }).info(), sdk.UnauthenticatedError);
  });
});

test("the server", async () => {
  assert.ok((await client.isHealthy()) && (await client.isReady()) && (await client.version()));
  assert.ok((await client.info()).limits && (await client.runtimes()).auto);
  assert.deepEqual(await client.pool(), []);
  assert.ok((await client.templates.list()).some((template) => template.name === "base"));
  assert.equal((await client.templates.get("base")).name, "base");
  assert.match(await client.metrics(), /glovebox_sandboxes/);
  assert.ok("/v1/sandboxes" in (await client.openApi()).paths);
  assert.ok((await client.network.presets()).some((preset) => preset.name === "python-packages"));
  assert.equal(typeof (await client.network.check()).enabled, "boolean");
});

test("keys and the tenant's default network", async () => {
  const made = await client.keys.create({ name: "sdk", tenant: "other-typescript", role: "admin", defaultRuntime: "container" });
  assert.equal(made.defaultRuntime, "container");
  const other = new Glovebox({ url, apiKey: made.key });
  assert.deepEqual(await other.sandboxes.list().toArray(), []);
  assert.equal(await other.network.get(), null);
  assert.deepEqual((await other.network.set({ presets: ["python-packages"] })).presets, ["python-packages"]);
  await other.network.unset();
  assert.equal(await other.network.get(), null);
  await client.keys.remove(made.id);
  await assert.rejects(other.info(), sdk.UnauthenticatedError);
});
