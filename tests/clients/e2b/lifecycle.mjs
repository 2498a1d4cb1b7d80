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

export function lifecycleRows(sdk, has, { create, get }) {
  const { Sandbox } = sdk;
  return [
    ["Lifecycle", "pause, connect", "pass", async (c) => {
      const box = await create(c);
      await startCounter(box);
      const before = await count(box);
      assert.equal(await box.pause(), true);
      assert.equal(await box.pause(), false);
      assert.equal(await box.isRunning(), false);
      await assert.rejects(box.commands.run("true"), (e) => /TimeoutError|NotFound/.test(e.name));
      await assert.rejects(box.setTimeout(60_000), /NotFound|404|not found|paused/i);
      const info = await box.getInfo();
      assert.equal(info.state, "paused");
      assert.ok(Math.abs(info.endAt - Date.now()) < 10_000, "its end is the pause");
      const listed = await Sandbox.list({ query: { state: ["paused"] } }).nextItems();
      assert.deepEqual(listed.map((i) => i.sandboxId), [box.sandboxId]);
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 60_000 });
      const left = (await again.getInfo()).endAt - Date.now();
      assert.ok(left > 50_000 && left < 65_000, `${left}`);
      await hasGoneOn(again, before);
      await box.kill();
    }],
    ["Lifecycle", "a paused sandbox outlives its timeout", "pass", async (c) => {
      const box = await create(c, { timeoutMs: 2000 });
      await box.pause();
      await new Promise((done) => setTimeout(done, 2500));
      assert.equal((await box.getInfo()).state, "paused");
      await Sandbox.connect(box.sandboxId, { timeoutMs: 60_000 });
      assert.equal((await box.commands.run("echo here")).stdout, "here\n");
      await box.pause();
      assert.equal(await Sandbox.kill(box.sandboxId), true);
      assert.equal(await Sandbox.kill(box.sandboxId), false);
    }],
    ["Lifecycle", "pause at the end of the timeout", "pass", async (c) => {
      const box = await create(c, { lifecycle: { onTimeout: "pause" }, autoPause: true, timeoutMs: 1500 });
      await box.files.write("/tmp/mark", "here");
      await until(async () => (await box.getInfo()).state === "paused", "it is paused");
      await assert.rejects(box.files.read("/tmp/mark"));
      const again = await Sandbox.connect(box.sandboxId, { timeoutMs: 60_000 });
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
      await hasGoneOn(box, before);
      const left = (await box.getInfo()).endAt - Date.now();
      assert.ok(left > 110_000 && left < 125_000, `the timeout of its creation: ${left}`);
      await box.commands.run("mkdir -p /tmp/www; echo inside >/tmp/www/index.html; python3 -m http.server 8125 -d /tmp/www", { background: true, timeoutMs: 0 });
      await until(async () => (await get(box.getHost(8125), "/")).status === 200, "it serves");
      await box.pause();
      assert.equal((await get(box.getHost(8125), "/")).body, "inside\n");
      assert.equal((await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}`, undefined, c.key)).json.state, "ready");
      await box.kill();
    }],
    ["Lifecycle", "files without memory", has.newest && "not supported", async (c) => {
      const box = await create(c);
      await box.pause({ keepMemory: false });
    }],
  ].filter((row) => row[2]);
}
