// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { ConflictError, LizardError, NotFoundError } from "@lizard-build/sdk";
import { forEachTier } from "./daemon.mjs";

const withCode = (type, code) => (error) => {
  assert.ok(error instanceof type, String(error));
  assert.equal(error.code, code);
  return true;
};

forEachTier("volumes", (context) => {
  test("a volume outlives its sandboxes", async () => {
    const client = await context.client();
    const volume = await client.volumes.create("kept", { sizeGb: 1 });
    const info = (name) => client.volumes.list().then((all) => all.find((v) => v.name === name));
    const made = await info("kept");
    assert.deepEqual([made.id, made.sizeGb, made.attachedTo, made.status], [volume.volumeId, 1, null, "available"]);
    const first = await client.create("base", { size: "nano", volumeName: "kept" });
    assert.equal((await info("kept")).attachedTo, first.sandboxId);
    await first.process.exec("echo hello > /workspace/note");
    await assert.rejects(client.create("base", { size: "nano", volumeId: volume.volumeId }), withCode(ConflictError, "VOLUME_IN_USE"));
    await assert.rejects(client.volumes.delete("kept"), withCode(ConflictError, "VOLUME_IN_USE"));
    await assert.rejects(first.fork({ count: 1 }), (error) => error instanceof ConflictError && error.status === 409);
    assert.equal(await first.kill(), true);
    const second = await client.create("base", { size: "nano", volumeId: volume.volumeId });
    assert.equal((await second.process.exec("cat /workspace/note")).stdout, "hello\n");
    await second.kill();
    assert.equal((await info("kept")).attachedTo, null);
    await client.volumes.delete(volume.volumeId);
    await assert.rejects(client.volumes.get("kept"), withCode(NotFoundError, "VOLUME_NOT_FOUND"));
  });

  test("names, sizes and their codes", async () => {
    const client = await context.client();
    const made = await client.volumes.create("sized");
    assert.equal((await made.getInfo("default")).sizeGb, 5, "the client's default");
    await assert.rejects(client.volumes.create("sized", { sizeGb: 1 }), ConflictError);
    assert.equal((await client.volumes.getOrCreate("sized", { sizeGb: 9 })).volumeId, made.volumeId);
    assert.equal((await client.volumes.list()).filter((v) => v.name === "sized").length, 1);
    assert.equal((await client.volumes.resize("sized", 6)).sizeGb, 6);
    await assert.rejects(client.volumes.resize("sized", 5), withCode(LizardError, "volume_shrink_unsupported"));
    await assert.rejects(client.volumes.resize("sized", 1e6), withCode(LizardError, "volume_too_large"));
    await assert.rejects(client.volumes.create("Wrong Name", { sizeGb: 1 }), LizardError);
    await assert.rejects(client.create("base", { size: "nano", volumeName: "no-such" }), withCode(NotFoundError, "VOLUME_NOT_FOUND"));
    await client.volumes.delete("sized");
  });
});
