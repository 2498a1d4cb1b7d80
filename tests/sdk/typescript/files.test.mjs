// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { after, test as plainTest } from "node:test";

import * as sdk from "../../../sdk/typescript/dist/esm/index.js";
import { extract } from "../../../sdk/typescript/dist/esm/tar.js";
import { onEachTier } from "./world.mjs";

const scratch = mkdtempSync(join(tmpdir(), "glovebox-sdk-"));
after(() => rmSync(scratch, { recursive: true, force: true }));
let count = 0;
const directory = () => {
  const path = join(scratch, String(count++));
  mkdirSync(path);
  return path;
};

onEachTier("files", ({ test, sandbox }) => {
  test("bytes, text and ranges", async () => {
    const { files } = sandbox();
    const entry = await files.write("notes/a.txt", "Grüße\n", { mode: "0600" });
    assert.deepEqual([entry.name, entry.type, entry.sizeBytes, entry.mode], ["a.txt", "file", 8, "0600"]);
    assert.equal(await files.readText("notes/a.txt"), "Grüße\n");
    await files.write("notes/a.txt", Buffer.of(0xff), { append: true });
    assert.deepEqual([...await files.read("notes/a.txt", { offset: -2 })], [10, 255]);
    assert.deepEqual([...await files.read("notes/a.txt", { offset: 1, length: 2 })], [114, 195]);
    await assert.rejects(files.write("notes/a.txt", "", { exclusive: true }), sdk.FileExistsError);
    await assert.rejects(files.readText("notes/a.txt"), TypeError);
    await assert.rejects(files.read("nothing"), sdk.FileNotFoundError);
  });

  test("streams of 64 MiB", async () => {
    const piece = randomBytes(1 << 20);
    await sandbox().files.write("large", (function* () { for (let i = 0; i < 64; i++) yield piece; })());
    let seen = 0;
    for await (const part of await sandbox().files.readStream("large")) {
      for (let at = 0; at < part.length; ) {
        const from = (seen + at) % piece.length;
        const length = Math.min(part.length - at, piece.length - from);
        assert.ok(part.subarray(at, at + length).equals(piece.subarray(from, from + length)));
        at += length;
      }
      seen += part.length;
    }
    assert.equal(seen, 64 << 20);
    await sandbox().files.remove("large");
  });

  test("a directory is watched", async () => {
    const { files } = sandbox();
    await files.makeDirectory("/tmp/watched/sub");
    const watch = await files.watch("/tmp/watched", { recursive: true });
    await files.write("/tmp/watched/sub/f", "1");
    await files.write(Buffer.from("/tmp/watched/\xff", "latin1"), "1");
    await sandbox().exec("rm -r /tmp/watched");
    const seen = [];
    for await (const { type, path, pathB64 } of watch) seen.push([type, path, pathB64].join(" ").trim());
    assert.deepEqual(seen.slice(0, 2), ["create sub/f", "write sub/f"]);
    assert.equal(seen.at(-1), "remove");
    assert.ok(seen.includes("create \ufffd /w=="), seen.join());
    await assert.rejects(files.watch("/no/such"), sdk.FileNotFoundError);
  });

  test("a watch ends with its signal, or its loop", async () => {
    const gone = new AbortController();
    const watch = await sandbox().files.watch("/tmp", { signal: gone.signal });
    const following = (async () => { for await (const event of watch) assert.fail(event.type); })();
    gone.abort(new RangeError("enough"));
    await assert.rejects(following, RangeError);
    const other = await sandbox().files.watch("/tmp");
    await sandbox().files.write("/tmp/once", "1");
    for await (const event of other) { assert.equal(event.path, "once"); break; }
    await assert.rejects(async () => { for await (const event of other) assert.equal(event.path, "once"); }, sdk.ConnectionError);
  });

  test("an upload that breaks off leaves what was there", async () => {
    await sandbox().files.write("kept", "before");
    async function* broken() {
      yield Buffer.alloc(100_000);
      throw new RangeError("mine");
    }
    await assert.rejects(sandbox().files.write("kept", broken()), RangeError);
    assert.equal(await sandbox().files.readText("kept"), "before");
  });

  test("directories", async () => {
    const { files } = sandbox();
    assert.equal(await files.makeDirectory("tree/deep"), true);
    assert.equal(await files.makeDirectory("tree/deep"), false);
    for (const name of ["b", "a", "ä"]) await files.write(`tree/${name}`, name);
    assert.deepEqual((await files.list("tree").toArray()).map((e) => e.name), ["a", "b", "deep", "ä"]);
    await files.move("tree/a", "tree/deep/c");
    assert.deepEqual([await files.exists("tree/deep/c"), await files.exists("tree/a")], [true, false]);
    await assert.rejects(files.remove("tree"), sdk.DirectoryNotEmptyError);
    await files.remove("tree", { recursive: true });
    await assert.rejects(files.stat("tree"), sdk.FileNotFoundError);
  });

  test("names that are not text", async () => {
    const { files } = sandbox();
    const name = Buffer.from("odd/\xff\n&?#%", "latin1");
    await files.write(name, "x");
    assert.ok((await files.list("odd").toArray())[0].nameB64);
    assert.equal(await files.readText(name), "x");
    await files.move(name, Buffer.from("odd/\xfe", "latin1"));
    await files.remove("odd", { recursive: true });
  });

  test("a directory there and back", async () => {
    const source = directory(), long = "long".repeat(40);
    mkdirSync(join(source, "sub", long), { recursive: true });
    writeFileSync(join(source, "sub", long, "file"), randomBytes(300_000));
    writeFileSync(join(source, "run.sh"), "#!/bin/sh\necho ran\n");
    chmodSync(join(source, "run.sh"), 0o755);
    symlinkSync("run.sh", join(source, "link"));
    mkdirSync(join(source, "empty"));
    execFileSync("mkfifo", [join(source, "pipe")]);
    await sandbox().files.upload(source, "copied");
    assert.equal((await sandbox().exec("./link", { cwd: "copied" })).stdout, "ran\n");
    assert.equal(await sandbox().files.exists("copied/pipe"), false);
    const back = join(directory(), "back");
    assert.deepEqual(await sandbox().files.download("copied", back), []);
    assert.ok(readFileSync(join(back, "sub", long, "file")).equals(readFileSync(join(source, "sub", long, "file"))));
    assert.equal(readlinkSync(join(back, "link")), "run.sh");
    assert.equal(statSync(join(back, "run.sh")).mode & 0o777, 0o755);
    assert.ok(statSync(join(back, "empty")).isDirectory());
  });

  test("a file there and back", async () => {
    const local = directory();
    writeFileSync(join(local, "tool"), "#!/bin/sh\necho tool\n", { mode: 0o700 });
    await sandbox().files.upload(join(local, "tool"), "bin/tool");
    assert.equal((await sandbox().exec("bin/tool")).stdout, "tool\n");
    await sandbox().files.download("bin/tool", join(local, "new", "tool"));
    assert.ok(statSync(join(local, "new", "tool")).mode & 0o100);
    await assert.rejects(sandbox().files.download("nothing", join(local, "nothing")), sdk.FileNotFoundError);
    assert.deepEqual(readdirSync(local).sort(), ["new", "tool"]);
  });

  test("what a sandbox sends stays in the target", async () => {
    await sandbox().exec("mkdir -p evil && cd evil && ln -s /etc out && ln -s ../../.. up && ln -s fine inside && echo x >fine && chmod 4755 fine", { check: true });
    const target = join(directory(), "target");
    const leftOut = await sandbox().files.download("evil", target);
    assert.deepEqual(leftOut.map((item) => item.name).sort(), ["out", "up"]);
    assert.deepEqual(readdirSync(target).sort(), ["fine", "inside"]);
    assert.equal(statSync(join(target, "fine")).mode & 0o7777, 0o755);
  });

  test("archives", async () => {
    const local = directory();
    writeFileSync(join(local, "file"), "hello");
    const tar = execFileSync("tar", ["-cz", "-C", local, "file"]);
    await sandbox().files.writeArchive("unpacked", tar);
    assert.equal(await sandbox().files.readText("unpacked/file"), "hello");
    for (const gzip of [false, true]) {
      const parts = [];
      for await (const part of await sandbox().files.readArchive("unpacked", { gzip })) parts.push(part);
      const listed = execFileSync("tar", [gzip ? "-tz" : "-t"], { input: Buffer.concat(parts) }).toString();
      assert.match(listed, /file\n/);
    }
    await assert.rejects(sandbox().files.writeArchive("unpacked", "no tar at all".repeat(100)), sdk.ApiError);
  });
});

// Made by another tar, so that not only what this one writes is read.
const hostile = `
import io, sys, tarfile
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=getattr(tarfile, sys.argv[1]))
def add(name, kind, content):
    member = tarfile.TarInfo(name)
    member.type = kind
    if kind == tarfile.REGTYPE:
        member.size = len(content)
        out.addfile(member, io.BytesIO(content))
    else:
        member.linkname = content
        out.addfile(member)
for entry in [("../outside", tarfile.REGTYPE, b"x"), ("/absolute", tarfile.REGTYPE, b"x"), ("a/../../outside", tarfile.REGTYPE, b"x"),
              ("link", tarfile.SYMTYPE, "a"), ("link/through", tarfile.REGTYPE, b"x"), ("out", tarfile.SYMTYPE, "../.."),
              ("device", tarfile.CHRTYPE, ""), ("pipe", tarfile.FIFOTYPE, ""), ("hard", tarfile.LNKTYPE, "../../etc/passwd"),
              ("hard2", tarfile.LNKTYPE, "existing/secret"), ("fine", tarfile.REGTYPE, b"fine"), ("same", tarfile.LNKTYPE, "fine"),
              ("replaced", tarfile.REGTYPE, b"new"), ("existing/new", tarfile.REGTYPE, b"x"), ("l" * 150 + "/" + "n" * 150, tarfile.REGTYPE, b"long"),
              ("grüße", tarfile.REGTYPE, b"text")]:
    add(*entry)
out.close()
`;

for (const format of ["PAX_FORMAT", "GNU_FORMAT"]) {
  plainTest(`a hostile archive stays in the target (${format})`, async () => {
    const root = directory();
    mkdirSync(join(root, "target"));
    mkdirSync(join(root, "elsewhere"));
    writeFileSync(join(root, "elsewhere", "secret"), "secret");
    symlinkSync(join(root, "elsewhere"), join(root, "target", "existing"));
    symlinkSync(join(root, "elsewhere", "secret"), join(root, "target", "replaced"));
    const tar = execFileSync("python3", ["-c", hostile, format]);
    const leftOut = await extract(Readable.from([tar], { objectMode: false }), join(root, "target"));
    assert.deepEqual(leftOut.map((item) => item.name).sort(), ["../outside", "/absolute", "a/../../outside", "device", "existing/new", "hard", "hard2",
      "link/through", "out", "pipe"]);
    assert.deepEqual(readdirSync(root).sort(), ["elsewhere", "target"]);
    assert.deepEqual(readdirSync(join(root, "elsewhere")), ["secret"]);
    assert.equal(readFileSync(join(root, "elsewhere", "secret"), "utf8"), "secret");
    for (const [name, text] of [["replaced", "new"], ["same", "fine"], ["grüße", "text"], [`${"l".repeat(150)}/${"n".repeat(150)}`, "long"]]) {
      assert.equal(readFileSync(join(root, "target", name), "utf8"), text);
    }
  });
}

plainTest("a broken archive is an error, and every split of a whole one reads the same", async () => {
  const source = directory();
  writeFileSync(join(source, "a"), "x".repeat(2000));
  const tar = execFileSync("tar", ["-c", "-C", source, "a"]);
  for (const broken of [tar.subarray(0, 100), tar.subarray(0, 1000), Buffer.alloc(1024, 0xff), Buffer.alloc(0)]) {
    await assert.rejects(extract(Readable.from([broken], { objectMode: false }), directory()), sdk.ProtocolError);
  }
  for (let cut = 1; cut < 3000; cut += 97) {
    const target = directory();
    await extract(Readable.from([tar.subarray(0, cut), tar.subarray(cut)], { objectMode: false }), target);
    assert.equal(readFileSync(join(target, "a"), "utf8").length, 2000);
  }
  assert.ok(existsSync(source));
});
