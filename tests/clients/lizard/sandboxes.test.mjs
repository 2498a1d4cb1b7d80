// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { AuthenticationError, Lizard, NotFoundError, Sandbox } from "@lizard-build/sdk";
import { adminKey, forEachTier, native, raw, until, url } from "./daemon.mjs";

// The class by exact name: NotFoundError and the others extend LizardError.
const refused = (name, status, code) => (error) => {
  assert.equal(error.constructor.name, name, String(error));
  assert.equal(error.status, status);
  assert.equal(error.code, code);
  return true;
};

test("a wrong key is an AuthenticationError with a code", async () => {
  const stranger = new Lizard({ apiUrl: url, apiKey: "liz_wrong", project: "default" });
  await assert.rejects(stranger.create("base"), (e) => e instanceof AuthenticationError && refused("AuthenticationError", 401, "UNAUTHENTICATED")(e));
});

test("the vendor's command line form of the key works", async () => {
  const answer = await fetch(`${url}/api/projects`, { headers: { Authorization: `Bearer ${adminKey}` } });
  assert.equal(answer.status, 200);
});

test("an unknown project is found out before anything is created", async () => {
  const client = new Lizard({ apiUrl: url, apiKey: adminKey, project: "no-such-project" });
  await assert.rejects(client.create("base"), /Project "no-such-project" not found/);
});

test("unknown routes are JSON with a code", async () => {
  for (const [method, path] of [["GET", "/api/nope"], ["POST", "/api/apps/x/deploy"], ["GET", "/api/sandboxes/x/nope"]]) {
    const answer = await raw(method, path);
    assert.equal(answer.status, 404);
    assert.match((await answer.json()).code, /^(ROUTE|SANDBOX)_NOT_FOUND$/);
  }
});

forEachTier("sandboxes", (context) => {
  test("the default create works and is described truthfully", async () => {
    const client = await context.client();
    const box = await client.create();
    try {
      const info = await box.getInfo();
      assert.equal(info.sandboxId, box.sandboxId);
      assert.match(info.sandboxId, /^[a-z0-9-]{1,50}$/);
      assert.equal(info.template, "base");
      assert.equal(info.status, "running");
      assert.equal(info.runtime, context.tier);
      assert.equal(info.region, "us-east-1");
      assert.equal(info.internetAccess, false, "the operator has not opened the internet");
      assert.deepEqual(info.allowedHosts, []);
      assert.deepEqual(info.metadata, {});
      assert.equal(info.pauseError, null);
      const life = Date.parse(info.endAt) - Date.parse(info.startedAt);
      assert.ok(Math.abs(life - 300_000) < 60_000, `${life}`);
    } finally {
      assert.equal(await box.kill(), true);
    }
  });

  test("a trailing slash in the URL does no harm", async () => {
    const client = new Lizard({ apiUrl: url + "/", apiKey: await context.key(), project: "default" });
    const box = await client.create("base", { size: "nano" });
    assert.equal((await box.process.exec("echo hi")).stdout, "hi\n");
    assert.equal(await box.kill(), true);
  });

  test("sizes are what the sandbox gets", async () => {
    for (const [size, cpus, memoryMb] of [["nano", 0.5, 1024], ["mini", 1, 2048], ["small", 2, 4096]]) {
      const box = await context.create("base", { size });
      const info = await box.getInfo();
      assert.deepEqual([info.size, info.cpus, info.memoryMb], [size, cpus, memoryMb]);
      const inside = (await native("GET", `/v1/sandboxes/${box.sandboxId}`, undefined, await context.key())).json.limits;
      assert.deepEqual([inside.cpus, inside.memory_mb], [cpus, memoryMb]);
      await box.kill();
    }
  });

  test("a size that is not there is refused", async () => {
    await assert.rejects(context.create("base", { size: "gigantic" }), refused("LizardError", 400, "SANDBOX_SIZE_NOT_ALLOWED"));
  });

  test("envs and metadata", async () => {
    const box = await context.create("base", { envs: { A: "1", B: "x=y\nz" }, metadata: { job: "7", "ü": "😀" } });
    assert.deepEqual((await box.getInfo()).metadata, { job: "7", "ü": "😀" });
    assert.equal((await box.process.exec('printf "%s|%s|%s" "$A" "$B" "$C"', { envs: { A: "2", C: "3" } })).stdout, "2|x=y\nz|3");
    await box.kill();
  });

  test("what create does not understand is refused", async () => {
    await assert.rejects(context.create("no-such-template"), refused("LizardError", 400, "TEMPLATE_NOT_FOUND"));
    const table = [[{ surprise: 1 }, 400], [{ template: 5 }, 400], [{ timeoutMs: -1 }, 400], [{ timeoutMs: "5" }, 400],
      [{ envs: { A: 1 } }, 400], [{ metadata: [] }, 400], [{ projectId: "other" }, 404], [{ volumeName: "v" }, 404],
      [{ snapshotId: "s" }, 404], [{ environment: "prod" }, 400], [{ allowedHosts: "x" }, 400]];
    for (const [body, status] of table) {
      const answer = await raw("POST", "/api/sandboxes", JSON.stringify(body), {}, await context.key());
      const reply = await answer.json();
      assert.equal(answer.status, status, JSON.stringify([body, reply]));
      assert.match(reply.code, /^[A-Z][A-Z_]*$/);
      assert.ok(reply.error.length > 0);
    }
    assert.deepEqual(await (await context.client()).list(), []);
  });

  test("lists hold what runs, for the server and for the project", async () => {
    const one = await context.create();
    const two = await context.create();
    const config = { apiUrl: url, apiKey: await context.key() };
    const ids = (infos) => infos.map((i) => i.sandboxId).sort();
    const expected = [one.sandboxId, two.sandboxId].sort();
    assert.deepEqual(ids(await Sandbox.list(config)), expected);
    assert.deepEqual(ids(await Sandbox.list({ ...config, projectId: "default" })), expected);
    await assert.rejects(Sandbox.list({ ...config, projectId: "other" }), refused("NotFoundError", 404, "PROJECT_NOT_FOUND"));
    await one.kill();
    assert.deepEqual(ids(await Sandbox.list(config)), [two.sandboxId]);
    await two.kill();
  });

  test("setTimeout counts from now, and the sandbox ends then", async () => {
    const box = await context.create();
    const before = Date.now();
    await box.setTimeout(60_000);
    const after = Date.now();
    const end = Date.parse((await box.getInfo()).endAt);
    assert.ok(end >= before + 59_000 && end <= after + 61_000, `${end - before} ${end - after}`);
    for (const bad of [999, 0, -1, 2 ** 31]) {
      await assert.rejects(box.setTimeout(bad), refused("LizardError", 400, "INVALID_ARGUMENT"));
    }
    await box.setTimeout(1000);
    await until(async () => (await box.getInfo().catch((e) => e)) instanceof NotFoundError, "the sandbox has expired");
  });

  test("timeoutMs 0 means no deadline", async () => {
    const box = await context.create("base", { timeoutMs: 0 });
    assert.equal((await box.getInfo()).endAt, null);
    await box.kill();
  });

  test("kill twice: true, then false; everything is 404 afterwards", async () => {
    const box = await context.create();
    assert.equal(await box.kill(), true);
    assert.equal(await box.kill(), false);
    const gone = refused("NotFoundError", 404, "SANDBOX_NOT_FOUND");
    for (const call of [() => box.getInfo(), () => box.process.exec("true"), () => box.process.list(), () => box.fs.read("/etc/passwd"),
      () => box.fs.write("/tmp/x", "y"), () => box.setTimeout(5000), () => Sandbox.connect(box.sandboxId, { apiUrl: url, apiKey: adminKey })]) {
      await assert.rejects(call(), gone);
    }
    assert.equal(await box.pause(), false);
  });

  test("pause keeps memory and files; a command resumes", async () => {
    const box = await context.create();
    await box.process.exec("echo kept >/tmp/file");
    assert.equal(await box.pause(), true);
    assert.equal((await box.getInfo()).status, "paused");
    assert.equal(await box.resume(), true);
    assert.equal((await box.getInfo()).status, "running");
    assert.equal(await box.pause(), true);
    assert.equal((await box.process.exec("cat /tmp/file")).stdout, "kept\n");
    assert.equal((await box.getInfo()).status, "running");
    await box.pause();
    assert.equal(await box.kill(), true);
  });

  test("connect finds a running sandbox; another tenant's key does not", async () => {
    const box = await context.create();
    const again = await Sandbox.connect(box.sandboxId, { apiUrl: url, apiKey: await context.key() });
    assert.equal((await again.process.exec("echo same")).stdout, "same\n");
    await assert.rejects(Sandbox.connect(box.sandboxId, { apiUrl: url, apiKey: adminKey }), NotFoundError);
    await box.kill();
  });

  test("a directory is watched by polling", async () => {
    const box = await context.shared();
    await box.process.exec("mkdir -p /tmp/watched/sub");
    const watcher = await box.fs.watch("/tmp/watched", { recursive: true });
    assert.deepEqual(await watcher.getEvents(), []);
    await box.process.exec("echo 1 >/tmp/watched/sub/f; rm /tmp/watched/sub/f");
    const events = await watcher.getEvents();
    assert.deepEqual(events.map((e) => e.type + " " + e.name), ["create sub/f", "write sub/f", "remove sub/f"]);
    assert.equal(events[0].path, "/tmp/watched/sub/f");
    await watcher.close();
    await assert.rejects(watcher.getEvents(), refused("NotFoundError", 404, "NOT_FOUND"));
  });

  test("what this server does not have says so", async () => {
    const box = await context.shared();
    const missing = refused("LizardError", 501, "UNSUPPORTED");
    for (const call of [() => box.desktop.start(), () => box.schedules()]) {
      await assert.rejects(async () => call(), missing, String(call));
    }
    const client = await context.client();
    await assert.rejects(async () => { for await (const _ of box.logs()); }, missing);
    assert.equal((await box.getInfo()).status, "running");
  });

  test("account calls", async () => {
    const client = await context.client();
    const me = await client.whoami();
    assert.ok(typeof me.id === "string" && me.id.length > 0);
    assert.equal((await client.regions.list()).length, 1);
    assert.equal((await client.workspaces.list()).length, 1);
    assert.deepEqual((await client.projects.list()).map((p) => p.id), ["default"]);
    await assert.rejects(client.apiKeys.list(), refused("AuthenticationError", 403, "FORBIDDEN"));
  });
});

test("an admin makes keys for the own tenant", async () => {
  const admin = new Lizard({ apiUrl: url, apiKey: adminKey, project: "default" });
  const made = await admin.apiKeys.create({ name: "from-the-client", projects: ["default"] });
  assert.ok(made.key.length > 20);
  const listed = await admin.apiKeys.list();
  assert.ok(listed.some((k) => k.id === made.id && k.name === "from-the-client" && !k.key));
  assert.equal((await raw("GET", "/api/projects", undefined, {}, made.key)).status, 200);
  await admin.apiKeys.delete(made.id);
  assert.equal((await raw("GET", "/api/projects", undefined, {}, made.key)).status, 401);
});

