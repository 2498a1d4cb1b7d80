// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { test } from "node:test";
import { forEachTier, isLong, raw } from "./daemon.mjs";

const missing = (error) => {
  assert.deepEqual([error.constructor.name, error.status, error.code], ["NotFoundError", 404, "FILE_NOT_FOUND"]);
  return true;
};

forEachTier("files", (context) => {
  test("bytes come back as they went", async () => {
    const box = await context.shared();
    const every = Uint8Array.from({ length: 256 }, (_, n) => n);
    for (const bytes of [new Uint8Array(), every, randomBytes(100_001)]) {
      await box.fs.write("/tmp/bytes", bytes);
      assert.deepEqual(Buffer.from(await box.fs.readBytes("/tmp/bytes")), Buffer.from(bytes));
    }
    await box.fs.write("/tmp/buffer", every.buffer);
    assert.equal((await box.fs.stat("/tmp/buffer")).size, 256);
  });

  test("text, and names that need care", async () => {
    const box = await context.shared();
    for (const path of ["/tmp/a b+c%d&é.txt", "/tmp/q?x=1#y", "/tmp/😀/deep/er", "/tmp/-rf", "/tmp/line\nbreak", '/tmp/"quoted"']) {
      await box.fs.write(path, `content of ${path}`);
      assert.equal(await box.fs.read(path), `content of ${path}`);
      const info = await box.fs.stat(path);
      assert.deepEqual([info.path, info.type], [path, "file"]);
      await box.fs.remove(path);
      await assert.rejects(box.fs.stat(path), missing);
    }
    await box.fs.write("/tmp/zero", "a\0b");
    assert.equal(await box.fs.read("/tmp/zero"), "a\0b");
  });

  test("a file is described in full", async () => {
    const box = await context.shared();
    await box.fs.write("/tmp/described", "12345", { user: "user" });
    const info = await box.fs.stat("/tmp/described");
    assert.ok(Math.abs(info.modTime - Date.now()) < 60_000 && info.modTime === info.modifiedAt);
    delete info.modTime;
    delete info.modifiedAt;
    assert.deepEqual(info, { name: "described", path: "/tmp/described", type: "file", size: 5, mode: 0o644, permissions: "-rw-r--r--",
      owner: "user", group: "user" });
  });

  test("written by the default user, read by user", async () => {
    const box = await context.shared();
    await box.fs.write("/tmp/shared.txt", "for all");
    assert.equal((await box.fs.stat("/tmp/shared.txt")).owner, "root");
    assert.equal(await box.fs.read("/tmp/shared.txt", { user: "user" }), "for all");
    assert.equal((await box.process.exec(["cat", "/tmp/shared.txt"], { user: "user" })).stdout, "for all");
    assert.equal((await box.fs.stat("/tmp")).permissions, "drwxrwxrwt");
    await box.process.exec("chmod 600 /tmp/shared.txt");
    await assert.rejects(box.fs.read("/tmp/shared.txt", { user: "user" }), (e) => e.code === "PERMISSION_DENIED" && e.status === 400);
  });

  test("directories: makeDir, list, remove", async () => {
    const box = await context.shared();
    await box.fs.makeDir("/tmp/dir/sub");
    await box.fs.write("/tmp/dir/file", "x");
    await box.process.exec("ln -s file /tmp/dir/link; mkfifo /tmp/dir/pipe");
    const listed = await box.fs.list("/tmp/dir");
    assert.deepEqual(listed.map((e) => [e.name, e.type]), [["file", "file"], ["link", "symlink"], ["pipe", "fifo"], ["sub", "dir"]]);
    assert.equal(listed[1].symlinkTarget, "file");
    assert.deepEqual(await box.fs.list("/tmp/dir/sub"), []);
    await box.fs.remove("/tmp/dir");
    await assert.rejects(box.fs.list("/tmp/dir"), missing);
    await assert.rejects(box.fs.remove("/tmp/dir"), missing);
    await assert.rejects(box.fs.read("/tmp/dir"), missing);
  });

  test("large directories come whole", async () => {
    const box = await context.shared();
    await box.process.exec("mkdir /tmp/many && cd /tmp/many && seq 1 2500 | xargs touch");
    const names = (await box.fs.list("/tmp/many")).map((e) => e.name);
    assert.equal(new Set(names).size, 2500);
  });

  test("move makes parents and replaces", async () => {
    const box = await context.shared();
    await box.fs.write("/tmp/m1", "1");
    await box.fs.move("/tmp/m1", "/tmp/moved/deep/m2");
    assert.equal(await box.fs.read("/tmp/moved/deep/m2"), "1");
    await assert.rejects(box.fs.stat("/tmp/m1"), missing);
    await assert.rejects(box.fs.move("/tmp/m1", "/tmp/m3"), missing);
    await box.fs.write("/tmp/m4", "4");
    await box.fs.move("/tmp/m4", "/tmp/moved/deep/m2");
    assert.equal(await box.fs.read("/tmp/moved/deep/m2"), "4");
  });

  test("large files", async () => {
    const box = await context.create();
    const bytes = randomBytes((isLong ? 250 : 24) << 20);
    await box.fs.write("/tmp/large", bytes);
    const digest = createHash("sha256").update(bytes).digest("hex");
    assert.equal((await box.process.exec(["sha256sum", "/tmp/large"])).stdout.split(" ")[0], digest);
    const back = await box.fs.readBytes("/tmp/large");
    assert.equal(createHash("sha256").update(back).digest("hex"), digest);
    await box.kill();
  });

  test("what the calls do not understand is refused and writes nothing", async () => {
    const box = await context.shared();
    const files = `/api/sandboxes/${box.sandboxId}/files`;
    const table = [["POST", files, "{"], ["POST", files, "{}"], ["POST", files, '{"path":"/tmp/bad"}'], ["POST", files, '{"path":"/tmp/bad","content":1}'],
      ["POST", files, '{"path":"/tmp/bad","content":"%","encoding":"base64"}'], ["POST", files, '{"path":"/tmp/bad","content":"x","encoding":"rot13"}'],
      ["POST", files, '{"path":"/tmp/bad","content":"x","surprise":1}'], ["POST", files, '{"path":"","content":"x"}'],
      ["GET", files, undefined], ["GET", files + "?path=", undefined], ["DELETE", files, "{}"], ["DELETE", files, "{"],
      ["POST", files + "/move", '{"from":"/a"}'], ["POST", files, '{"path":"/tmp/bad\\u0000","content":"x"}']];
    for (const [method, path, body] of table) {
      const answer = await raw(method, path, body, {}, await context.key());
      assert.equal(answer.status, 400, `${method} ${body}`);
      assert.match((await answer.json()).code, /^INVALID_(ARGUMENT|PATH)$/);
    }
    await assert.rejects(box.fs.stat("/tmp/bad"), missing);
    await assert.rejects(box.fs.write("/tmp/x", "y", { user: "nobody-here" }), (e) => e.code === "USER_UNKNOWN" && e.status === 400);
  });
});
