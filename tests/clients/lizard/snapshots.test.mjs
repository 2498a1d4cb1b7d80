// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConflictError, LizardError, NotFoundError, Sandbox } from "@lizard-build/sdk";
import { adminKey, forEachTier, raw, until, url } from "./daemon.mjs";

const counter = "i=0; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done";
const read = async (box, path) => (await box.process.exec(`cat ${path}`)).stdout;

forEachTier("snapshots", (context) => {
  const config = async () => ({ apiUrl: url, apiKey: await context.key() });

  test("a snapshot is ready at once, is listed, and starts sandboxes that go their own way", async () => {
    const box = await context.create("base", { size: "nano", metadata: { a: "1" } });
    await box.fs.write("/workspace/kept", "at the snapshot");
    const snapshot = await box.snapshot("after-set-up");
    assert.equal(snapshot.name, "after-set-up");
    assert.equal(snapshot.sourceSandboxId, box.sandboxId);
    assert.deepEqual([snapshot.cpus, snapshot.memoryMb, snapshot.scope, snapshot.error], [0.5, 1024, "project", null]);
    assert.ok(Math.abs(snapshot.createdAt - Date.now()) < 60_000);
    const seen = await raw("GET", `/api/sandbox-snapshots/${snapshot.id}`, undefined, {}, await context.key());
    assert.equal((await seen.json()).status, "ready", "at the first look");
    assert.equal((await Sandbox.waitForSnapshot(snapshot.id, await config())).status, "ready");
    await box.fs.write("/workspace/kept", "later");

    const copy = await Sandbox.restore(snapshot.id, { ...(await config()), timeoutMs: 600_000 });
    assert.notEqual(copy.sandboxId, box.sandboxId);
    assert.equal(await read(copy, "/workspace/kept"), "at the snapshot");
    await copy.fs.write("/workspace/kept", "the copy's");
    assert.equal(await read(box, "/workspace/kept"), "later");
    const info = await copy.getInfo();
    assert.deepEqual([info.size, info.cpus, info.memoryMb, info.runtime], ["nano", 0.5, 1024, context.tier]);
    const named = await (await context.client()).create("no-such-template", { snapshotId: snapshot.id, size: "mini" });
    assert.equal(await read(named, "/workspace/kept"), "at the snapshot");
    assert.equal((await named.getInfo()).size, "mini");
    await box.kill();
    const orphan = await Sandbox.restore(snapshot.id, await config());
    assert.equal(await read(orphan, "/workspace/kept"), "at the snapshot", "it does not need its source");

    assert.deepEqual((await Sandbox.mySnapshots(await config())).map((s) => s.id), [snapshot.id]);
    assert.deepEqual((await Sandbox.snapshots("default", await config())).map((s) => s.name), ["after-set-up"]);
    await assert.rejects(Sandbox.snapshots("other", await config()), NotFoundError);
    for (const changed of [await Sandbox.setSnapshotWarmPool(snapshot.id, 3, await config()), await Sandbox.pauseSnapshot(snapshot.id, await config())]) {
      assert.deepEqual([changed.status, changed.poolSize], ["ready", 0], "calls of the past change nothing");
    }
    await Sandbox.deleteSnapshot(snapshot.id, await config());
    await assert.rejects(Sandbox.getSnapshot(snapshot.id, await config()), NotFoundError);
    await assert.rejects(Sandbox.restore(snapshot.id, await config()), NotFoundError);
    assert.equal(await read(copy, "/workspace/kept"), "the copy's", "what was started from it stays");
    for (const made of [copy, named, orphan]) await made.kill();
  });

  test("another tenant's snapshot does not exist", async () => {
    const box = await context.create();
    const snapshot = await box.snapshot();
    const stranger = { apiUrl: url, apiKey: adminKey };
    await assert.rejects(Sandbox.getSnapshot(snapshot.id, stranger), NotFoundError);
    await assert.rejects(Sandbox.deleteSnapshot(snapshot.id, stranger), NotFoundError);
    const answer = await raw("POST", "/api/sandboxes", JSON.stringify({ snapshotId: snapshot.id }), {}, adminKey);
    assert.deepEqual([answer.status, (await answer.json()).code], [404, "SNAPSHOT_NOT_FOUND"]);
    await Sandbox.deleteSnapshot(snapshot.id, await config());
    await box.kill();
  });

  test("forks go on with memory and processes, or say that they cannot", async () => {
    const box = await context.create("base", { timeoutMs: 900_000 });
    if (context.tier === "container") {
      await assert.rejects(box.fork(), (e) => e instanceof LizardError && e.status === 501 && e.code === "UNSUPPORTED");
      return void (await box.kill());
    }
    await box.process.exec(`(${counter}) >/dev/null 2>&1 &`);
    await until(async () => Number(await read(box, "/tmp/count")) > 3, "it counts");
    const before = Number(await read(box, "/tmp/count"));
    const forks = await box.fork({ count: 2 });
    assert.equal(forks.length, 2);
    const boxes = forks.map((f) => f.sandbox);
    assert.equal(new Set([box, ...boxes].map((b) => b.sandboxId)).size, 3);
    for (const { sandbox, info } of forks) {
      const left = Date.parse(info.endAt) - Date.now();
      assert.ok(left > 600_000 && left <= 901_000, `the source's deadline: ${left}`);
      assert.ok(Number(await read(sandbox, "/tmp/count")) >= before);
      const now = Number(await read(sandbox, "/tmp/count"));
      await until(async () => Number(await read(sandbox, "/tmp/count")) > now + 3, "its counter goes on");
      await sandbox.fs.write("/tmp/mine", sandbox.sandboxId);
    }
    assert.equal(await read(boxes[1], "/tmp/mine"), boxes[1].sandboxId);
    const short = await box.fork({ count: 1, timeoutMs: 200_000 });
    assert.ok(Date.parse(short[0].info.endAt) - Date.now() <= 201_000);
    await assert.rejects(box.fork({ count: 101 }), (e) => e.status === 400);
    for (const made of [box, ...boxes, short[0].sandbox]) assert.equal(await made.kill(), true);
    await assert.rejects(box.fork(), (e) => e instanceof NotFoundError && !(e instanceof ConflictError));
  });
});
