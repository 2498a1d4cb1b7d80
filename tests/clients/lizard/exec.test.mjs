// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";
import { forEachTier, isLong, raw, until, url } from "./daemon.mjs";

const quiet = { onStdout() {} };
const modes = [["JSON", {}], ["stream", quiet]];
const seconds = async (work) => {
  const begin = performance.now();
  const value = await work();
  return [(performance.now() - begin) / 1000, value];
};

forEachTier("commands", (context) => {
  test("strings go to a shell, arrays do not", async () => {
    const box = await context.shared();
    assert.equal((await box.process.exec("echo $((1+1)) | tr 2 x")).stdout, "x\n");
    assert.equal((await box.process.exec(["echo", "$((1+1))", "a  b", ""])).stdout, "$((1+1)) a  b \n");
  });

  for (const [mode, callbacks] of modes) {
    test(`exit codes in ${mode} mode`, async () => {
      const box = await context.shared();
      const table = [["exit 0", 0], ["exit 3", 3], ["exit 255", 255], ["kill -9 $$", 137], ["kill -TERM $$", 143],
        [["no-such-command"], 127], [["/no/such/file"], 127], [["/etc"], 126], [["/etc/passwd"], 126], ["no-such-command", 127]];
      for (const [cmd, code] of table) {
        assert.equal((await box.process.exec(cmd, callbacks)).exitCode, code, String(cmd));
      }
    });

    test(`a background child does not hold the call in ${mode} mode`, async () => {
      const box = await context.shared();
      const [took, done] = await seconds(() => box.process.exec("sleep 61 & echo hi", callbacks));
      assert.ok(took < 30, `${took}`);
      assert.equal(done.stdout.trimEnd(), "hi");
      assert.equal(done.exitCode, 0);
      const child = await until(async () => (await box.process.list()).find((p) => p.cmd.join(" ") === "sleep 61"), "it is listed");
      await box.process.kill(child.pid, "SIGKILL");
      await until(async () => !(await box.process.list()).some((p) => p.pid === child.pid), "it is gone");
    });

    test(`the server enforces timeoutMs in ${mode} mode`, async () => {
      const box = await context.shared();
      const headers = mode === "JSON" ? {} : { Accept: "text/event-stream" };
      const path = `/api/sandboxes/${box.sandboxId}/exec`;
      const body = JSON.stringify({ cmd: "echo begun; sleep 300 & sleep 300", timeoutMs: 1500 });
      const [took, text] = await seconds(async () => (await raw("POST", path, body, headers, await context.key())).text());
      assert.ok(took > 1.4 && took < 30, `${took}`);
      assert.match(text, /begun/);
      assert.match(text, /"exitCode":124/);
      await until(async () => (await box.process.list()).length === 0, "nothing of it is left");
    });

    test(`user, envs and workdir in ${mode} mode`, async () => {
      const box = await context.shared();
      const done = await box.process.exec('echo $USER $HOME $LOGNAME "$X"; pwd; id -un; test -n "$SHELL$PATH"',
        { user: "user", envs: { X: "a b" }, workdir: "/tmp", ...callbacks });
      assert.equal(done.stdout.trimEnd(), "user /home/user user a b\n/tmp\nuser");
      assert.equal(done.exitCode, 0);
      assert.equal((await box.process.exec("id -un", callbacks)).stdout.trimEnd(), "root");
      assert.equal((await box.process.exec(["cat"], callbacks)).stdout, "", "standard input is empty");
      for (const options of [{ user: "nobody-here" }, { workdir: "/no/such/dir" }]) {
        await assert.rejects(box.process.exec("true", { ...options, ...callbacks }), (e) => e.status === 400 && e.code.length > 0);
      }
    });
  }

  test("JSON output is exact, and cut with a flag after 512 KiB", async () => {
    const box = await context.shared();
    const exact = await box.process.exec("printf 'a\\n\\n'; printf '\\377' >&2");
    assert.deepEqual([exact.stdout, exact.stderr, exact.truncated], ["a\n\n", "\ufffd", undefined]);
    const large = await box.process.exec("seq -f %09.0f 1 70000; seq -f %09.0f 1 10 >&2");
    assert.equal(large.truncated, true);
    assert.equal(large.stdout.length, 512 * 1024);
    assert.ok(large.stdout.startsWith("000000001\n000000002\n"));
    assert.equal(large.stderr.length, 100);
    const fits = await box.process.exec("head -c 524288 /dev/zero | tr '\\0' x");
    assert.deepEqual([fits.stdout.length, fits.truncated], [524288, undefined]);
  });

  test("streamed output is complete and in lines", async () => {
    const box = await context.shared();
    const lines = [];
    const done = await box.process.exec("seq -f %09.0f 1 70000; printf 'no newline'", { onStdout: (line) => lines.push(line) });
    assert.equal(lines.length, 70001);
    assert.equal(lines[69999], "000070000");
    assert.equal(lines[70000], "no newline");
    assert.equal(done.exitCode, 0);
  });

  test("lines keep characters, blanks, empty and long ones", async () => {
    const box = await context.shared();
    const lines = [];
    await box.process.exec("printf '\\344\\270'; sleep 0.3; printf '\\255\\n\\n  x \\n'; head -c 900000 /dev/zero | tr '\\0' y; echo",
      { onStdout: (line) => lines.push(line) });
    assert.deepEqual(lines.slice(0, 3), ["\u4e2d", "", "  x "]);
    assert.deepEqual([lines.length, lines[3].length], [4, 900000]);
  });

  test("lines arrive while the command runs, on their own stream", async () => {
    const box = await context.shared();
    const seen = [];
    let pid;
    // The second is printed only when the first has been seen here.
    const done = await box.process.exec("echo first; until [ -e /tmp/first-seen ]; do sleep 0.05; done; echo second >&2; exit 4", {
      onPid: (p) => { pid = p; },
      onStdout: (line) => { seen.push(["out", line]); void box.fs.write("/tmp/first-seen", ""); },
      onStderr: (line) => seen.push(["err", line]),
      timeoutMs: 60_000,
    });
    assert.deepEqual(seen, [["out", "first"], ["err", "second"]]);
    assert.equal(done.exitCode, 4);
    assert.ok(Number.isInteger(pid) && pid > 1);
  });

  test("processes are listed and signalled with their tree", async () => {
    const box = await context.shared();
    let started, printed;
    const pid = new Promise((resolve) => { started = resolve; });
    const forked = new Promise((resolve) => { printed = resolve; });
    const command = "sleep 62 & echo forked; sleep 62";  // a signal that comes before the fork would miss the child
    const running = box.process.exec(command, { onPid: started, onStdout: () => printed(), workdir: "/tmp" });
    const id = await pid;
    await forked;
    const listed = (await box.process.list()).find((p) => p.pid === id);
    assert.deepEqual(listed.cmd, ["/bin/sh", "-c", command]);
    assert.equal(listed.cwd, "/tmp");
    assert.ok(Math.abs(listed.startedAt - Date.now()) < 60_000);
    await box.process.kill(id);
    assert.equal((await running).exitCode, 143);
    await until(async () => (await box.process.list()).length === 0, "nothing of the tree is left");
    await assert.rejects(box.process.kill(id), (e) => e.status === 404);
    await assert.rejects(box.process.kill(1), (e) => e.status === 404, "only what exec started");
    const bad = await raw("POST", `/api/sandboxes/${box.sandboxId}/processes/signal`, JSON.stringify({ pid: id, signal: "SIGNOPE" }), {}, await context.key());
    assert.equal(bad.status, 400);
  });

  test("a client that goes away leaves its command running until the timeout", async () => {
    const box = await context.shared();
    // Client and server give up at the same time; whichever is faster has the word.
    const late = await box.process.exec("sleep 63", { timeoutMs: 300 }).catch((error) => error);
    assert.ok(late.name === "TimeoutError" || late.exitCode === 124, JSON.stringify(late));
    const controller = new AbortController();
    const lost = fetch(`${url}/api/sandboxes/${box.sandboxId}/exec`, {
      method: "POST", headers: { "X-API-Key": await context.key() }, signal: controller.signal,
      body: JSON.stringify({ cmd: "sleep 640", timeoutMs: 5000 }),
    });
    const find = async () => (await box.process.list()).find((p) => p.command.includes("sleep 640"));
    const found = await until(find, "it runs");
    controller.abort();
    await assert.rejects(lost);
    assert.equal((await find())?.pid, found.pid);
    await until(async () => !(await find()), "its timeout ended it");
  });

  test("a killed sandbox ends a stream with 137", async () => {
    const box = await context.create();
    let ready;
    const started = new Promise((resolve) => { ready = resolve; });
    const running = box.process.exec("echo up; sleep 65", { onStdout: ready });
    await started;
    await box.kill();
    assert.equal((await running).exitCode, 137);
  });

  test("a lost guest is never success", async (t) => {
    for (const [mode, callbacks] of modes) {
      const box = await context.create();
      const running = box.process.exec("kill -9 -1; kill -9 1; kill -SEGV 1; sleep 5; exit 9", { timeoutMs: 20_000, ...callbacks })
        .then((done) => done.exitCode, (error) => error);
      const outcome = await running;
      assert.ok(outcome instanceof Error || outcome !== 0, `${mode}: ${outcome}`);
      await box.kill();
    }
  });

  test("arguments of 100 KB, and text that only looks dangerous", async () => {
    const box = await context.shared();
    const large = "x".repeat(120_000);
    assert.equal((await box.process.exec(["sh", "-c", 'printf %s "$1" | wc -c', "sh", large])).stdout.trim(), "120000");
    const hostile = "'; rm -rf / #$(reboot)`reboot`\n\\";
    assert.equal((await box.process.exec(["printf", "%s", hostile])).stdout, hostile);
    const quotes = await box.process.exec(["python3", "-c", "print('\"' * 60000)"]);
    assert.equal(quotes.stdout, '"'.repeat(60000) + "\n");
  });

  test("what exec does not understand is refused", async () => {
    const box = await context.shared();
    for (const body of ["", "{", "[]", "{}", '{"cmd":""}', '{"cmd":[]}', '{"cmd":[1]}', '{"cmd":"x","stdin":"y"}', '{"cmd":"x\\u0000"}']) {
      const answer = await raw("POST", `/api/sandboxes/${box.sandboxId}/exec`, body, {}, await context.key());
      assert.equal(answer.status, 400, body);
      assert.equal((await answer.json()).code, "INVALID_ARGUMENT", body);
    }
  });

  test("timeouts outside the vendor's range are taken", async () => {
    const box = await context.shared();
    assert.equal((await box.process.exec("echo ok", { timeoutMs: 645_000 })).stdout, "ok\n");
  });

  for (const [mode, callbacks] of modes) {
    test(`330 seconds in ${mode} mode`, { skip: !isLong && "set GLOVEBOX_LONG=1" }, async () => {
      const box = await context.create("base", { timeoutMs: 900_000 });
      const done = await box.process.exec("sleep 330; echo done; exit 7", { timeoutMs: 400_000, ...callbacks });
      assert.deepEqual([done.stdout.trimEnd(), done.exitCode], ["done", 7]);
      await box.kill();
    });
  }

  test("silence is filled before a JSON answer", async () => {
    const box = await context.shared();
    const answer = await raw("POST", `/api/sandboxes/${box.sandboxId}/exec`, JSON.stringify({ cmd: "sleep 17; echo late", timeoutMs: 30_000 }), {}, await context.key());
    const text = await answer.text();
    assert.match(text, /^ +\{/);
    assert.deepEqual(JSON.parse(text), { stdout: "late\n", stderr: "", exitCode: 0 });
  });

  test("silence is filled in a stream", async () => {
    const box = await context.shared();
    const answer = await raw("POST", `/api/sandboxes/${box.sandboxId}/exec`, JSON.stringify({ cmd: "sleep 17", timeoutMs: 30_000 }),
      { Accept: "text/event-stream" }, await context.key());
    assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
    assert.match(await answer.text(), /\n: keepalive\n\nevent: exit\ndata: \{"exitCode":0\}\n\n$/);
  });
});

