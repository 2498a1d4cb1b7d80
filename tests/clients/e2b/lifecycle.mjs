// SPDX-License-Identifier: Apache-2.0
// Rows of the table: sandboxes that stop and go on.

import assert from "node:assert/strict";
import { native, until } from "./daemon.mjs";

const nativeId = (id) => "sb-" + id.slice(2);

// Counts in memory, and writes where it is.
const counter = "i=0; while :; do i=$((i+1)); echo $i >/tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done";
export async function startCounter(box) {
  await box.commands.run(counter, { background: true, timeoutMs: 0 });
  await until(() => box.files.exists("/tmp/count"), "it counts");
}
export const count = async (box) => Number(await box.files.read("/tmp/count"));

async function hasGoneOn(box, from) {
  assert.ok((await count(box)) >= from, "it did not begin again");
  await until(async () => (await count(box)) > from + 5, "it counts on");
}

const withMemory = (tier) => (tier === "container" ? "not supported" : "pass");
const throwErrors = (results) => results.forEach((r) => { if (r instanceof Error) throw r; });

export function lifecycleRows(sdk, has, { create, get }) {
  const { Sandbox } = sdk;
  return [
    ["Lifecycle", "pause, connect", "pass", async (c) => {
      const box = await create(c);
      await startCounter(box);
      const before = await count(box);
      const pausing = Date.now();
      assert.equal(await box.pause(), true);
      const isPaused = Date.now();
      assert.equal(await box.pause(), false);
      assert.equal(await box.isRunning(), false);
      await assert.rejects(box.commands.run("true"), (e) => /TimeoutError|NotFound/.test(e.name));
      await assert.rejects(box.setTimeout(60_000), /NotFound|404|not found|paused/i);
      const info = await box.getInfo();
      assert.equal(info.state, "paused");
      assert.ok(info.endAt >= pausing - 1000 && info.endAt <= isPaused + 1000, "its end is the pause");
      const listed = await Sandbox.list({ query: { state: ["paused"] } }).nextItems();
      assert.deepEqual(listed.map((i) => i.sandboxId), [box.sandboxId]);
      const connecting = Date.now();
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 });
      const isConnected = Date.now();
      const { endAt } = await again.getInfo();
      assert.ok(endAt >= connecting + 299_000 && endAt <= isConnected + 301_000, `${endAt - connecting} ${endAt - isConnected}`);
      await hasGoneOn(again, before);
      await box.kill();
    }],
    ["Lifecycle", "a paused sandbox outlives its timeout", "pass", async (c) => {
      const box = await create(c);
      await box.setTimeout(4000);  // its start does not count
      await box.pause();
      await new Promise((done) => setTimeout(done, 4500));
      assert.equal((await box.getInfo()).state, "paused");
      await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 });
      assert.equal((await box.commands.run("echo here")).stdout, "here\n");
      await box.pause();
      assert.equal(await Sandbox.kill(box.sandboxId), true);
      assert.equal(await Sandbox.kill(box.sandboxId), false);
    }],
    ["Lifecycle", "pause at the end of the timeout", "pass", async (c) => {
      const box = await create(c, { lifecycle: { onTimeout: "pause" }, autoPause: true });
      await box.files.write("/tmp/mark", "here");
      await box.setTimeout(1000);
      await until(async () => (await box.getInfo()).state === "paused", "it is paused");
      await assert.rejects(box.files.read("/tmp/mark"));
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 });
      assert.equal(await again.files.read("/tmp/mark"), "here");
      if (has.newest) assert.deepEqual((await again.getInfo()).lifecycle, { onTimeout: "pause", autoResume: false });
      await box.kill();
    }],
    ["Lifecycle", "resume by traffic", has.lifecycle && "pass", async (c) => {
      const box = await create(c, { lifecycle: { onTimeout: "pause", autoResume: true } });
      await startCounter(box);
      const before = await count(box);
      await box.pause();
      assert.equal(await box.isRunning(), false);
      const asleep = Date.now();
      await hasGoneOn(box, before);
      const { endAt } = await box.getInfo();
      assert.ok(endAt >= asleep + 119_000 && endAt <= Date.now() + 121_000, `the timeout of its creation: ${endAt - asleep}`);
      await box.commands.run("mkdir -p /tmp/www; echo inside >/tmp/www/index.html; python3 -m http.server 8125 -d /tmp/www", { background: true, timeoutMs: 0 });
      await until(async () => (await get(box.getHost(8125), "/")).status === 200, "it serves");
      await box.pause();
      assert.equal((await get(box.getHost(8125), "/")).body, "inside\n");
      assert.equal((await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}`, undefined, c.key)).json.state, "ready");
      await box.kill();
    }],
    ["Lifecycle", "pause without memory", has.newest && ((tier) => (tier === "container" ? "pass" : "not supported")), async (c) => {
      const box = await create(c, { lifecycle: { onTimeout: "pause", autoResume: true } });
      await startCounter(box);
      assert.equal(await box.pause({ keepMemory: false }), true);
      await assert.rejects(box.commands.run("true"), "traffic does not boot it");
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 300_000 });
      const files = await count(again);
      assert.ok(files > 0, "its files are there");
      assert.deepEqual(await again.commands.list(), [], "and no process is");
      await box.kill();
    }],
    ["Snapshots", "create, list, create from it, delete", "pass", async (c) => {
      const box = await create(c, { metadata: { a: "1" } });
      await box.files.write("/home/user/kept", "at the snapshot");
      const snapshot = await box.createSnapshot(...(has.newest ? [{ name: `set-up-${c.tier}` }] : []));
      if (has.newest) assert.deepEqual(snapshot.names, [`set-up-${c.tier}`]);
      await box.files.write("/home/user/kept", "later");
      const copy = await create(c, { timeoutMs: 300_000 }, snapshot.snapshotId);
      assert.equal(await copy.files.read("/home/user/kept"), "at the snapshot");
      await copy.files.write("/home/user/kept", "the copy's");
      assert.equal(await box.files.read("/home/user/kept"), "later");
      if (has.newest) {
        const named = await create(c, { timeoutMs: 300_000 }, `set-up-${c.tier}`);
        assert.equal(await named.files.read("/home/user/kept"), "at the snapshot");
        await named.kill();
      }
      const listed = await box.listSnapshots().nextItems();
      assert.deepEqual(listed.map((s) => s.snapshotId), [snapshot.snapshotId]);
      const second = await box.createSnapshot();
      const pages = Sandbox.listSnapshots({ sandboxId: box.sandboxId, limit: 1 });
      assert.equal((await pages.nextItems())[0].snapshotId, second.snapshotId);
      assert.equal(pages.hasNext, true);
      assert.equal((await pages.nextItems())[0].snapshotId, snapshot.snapshotId);
      for (const { snapshotId } of [snapshot, second]) assert.equal(await Sandbox.deleteSnapshot(snapshotId), true);
      assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false);
      await assert.rejects(create(c, {}, snapshot.snapshotId), /404/);
      await box.kill();
      await copy.kill();
    }],
    ["Snapshots", "fork", has.newest && withMemory, async (c) => {
      const box = await create(c);
      await startCounter(box);
      const before = await count(box);
      const forks = await box.fork({ count: 2, timeoutMs: 300_000 });
      throwErrors(forks);
      assert.equal(new Set([box, ...forks].map((b) => b.sandboxId)).size, 3);
      for (const fork of forks) {
        await hasGoneOn(fork, before);
        await fork.files.write("/tmp/mine", fork.sandboxId);
      }
      assert.equal(await forks[0].files.read("/tmp/mine"), forks[0].sandboxId);
      await hasGoneOn(box, before);
      for (const made of [box, ...forks]) await made.kill();
    }],
    ["Snapshots", "clone", has.novita && withMemory, async (c) => {
      const box = await create(c);
      await startCounter(box);
      const before = await count(box);
      const { sandboxes } = await Sandbox.clone(box.sandboxId, { count: 2, timeoutMs: 300_000 });
      assert.equal(sandboxes.length, 2);
      for (const copy of sandboxes) await hasGoneOn(copy, before);
      for (const made of [box, ...sandboxes]) await made.kill();
    }],
    ["Snapshots", "reset", has.novita && "pass", async (c) => {
      const source = await create(c);
      await source.files.write("/tmp/kept", "first");
      const { snapshotId } = await source.createSnapshot();
      const box = await create(c, {}, snapshotId);
      await box.files.write("/tmp/kept", "second");
      assert.equal(await box.reset({ timeoutMs: 300_000 }), true);
      assert.equal(await box.files.read("/tmp/kept"), "first");
      await Sandbox.deleteSnapshot(snapshotId);
      for (const made of [source, box]) await made.kill();
    }],
  ].filter((row) => row[2]);
}
