// SPDX-License-Identifier: Apache-2.0
// What users of the JavaScript clients do, a row for each. `sdk` is the client's module; `has` says what its release knows.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import http from "node:http";
import { native, until, url } from "./daemon.mjs";
import { lifecycleRows } from "./lifecycle.mjs";

const bytesOf = (n) => Uint8Array.from({ length: n }, (_, i) => (i * 31 + (i >> 8)) & 255);
const nativeId = (id) => "sb-" + id.slice(2);

function request(host, path, headers = {}) {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    http.get({ hostname, port, path, headers: { Host: host, ...headers } }, (answer) => {
      let body = "";
      answer.on("data", (piece) => (body += piece)).on("end", () => resolve({ status: answer.statusCode, body }));
    }).on("error", reject);
  });
}

async function serve(box, port) {
  await box.files.write("/tmp/www/index.html", "from inside");
  await box.commands.run(`python3 -m http.server ${port} --bind 127.0.0.1 -d /tmp/www`, { background: true, timeoutMs: 0 });
  await box.commands.run(`for i in $(seq 100); do ss -Hltn | grep -q :${port} && exit 0; sleep 0.1; done; exit 1`);
}

export function rows(sdk, has) {
  const { Sandbox } = sdk;
  const shared = (context) => context.shared(Sandbox);
  const create = (context, options, template = "base") => context.create(Sandbox, template, options);
  const missing = has.newest ? "not supported" : undefined;
  const all = [
    ["Sandbox", "create", "pass", async (c) => {
      const box = await create(c, { metadata: { who: "a b&c=d/ä" }, envs: { COLOUR: "blue" } });
      assert.match(box.sandboxId, /^[a-z0-9]+$/);
      assert.equal((await box.commands.run("echo $COLOUR $E2B_SANDBOX $E2B_SANDBOX_ID")).stdout, `blue true ${box.sandboxId}\n`);
      const info = (await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}`, undefined, c.key)).json;
      assert.equal(info.runtime, c.tier);
      await box.kill();
    }],
    ["Sandbox", "create of an unknown template", "pass", async (c) => {
      await assert.rejects(create(c, {}, "no-such-template"), /404/);
    }],
    ["Sandbox", "a wrong key", "pass", async (c) => {
      const wrong = "e2b_" + "00".repeat(20);
      await assert.rejects(Sandbox.create("base", { apiKey: wrong }), (e) => e.name === "AuthenticationError" || /401/.test(e.message));
    }],
    ["Sandbox", "connect", "pass", async (c) => {
      const box = await shared(c);
      await box.files.write("/tmp/mark", "here");
      const again = await Sandbox.connect(box.sandboxId);
      assert.equal(await again.files.read("/tmp/mark"), "here");
      await assert.rejects(Sandbox.connect("sb" + "z".repeat(12)), (e) => /not found/i.test(e.name + e.message));
    }],
    ["Sandbox", "getInfo", "pass", async (c) => {
      const box = await create(c, { metadata: { a: "1" } });
      const info = await box.getInfo();
      assert.equal(info.sandboxId, box.sandboxId);
      assert.deepEqual(info.metadata, { a: "1" });
      assert.equal(info.templateId, "base");
      assert.ok(info.endAt - info.startedAt > 110_000 && info.endAt - info.startedAt < 200_000);
      await box.kill();
    }],
    ["Sandbox", "setTimeout, and its end", "pass", async (c) => {
      const box = await create(c);
      await box.setTimeout(1000);
      await until(async () => !(await box.isRunning()), "it has ended");
      await assert.rejects(box.commands.run("true"), (e) => /TimeoutError|NotFound/.test(e.name));
    }],
    ["Sandbox", "kill", "pass", async (c) => {
      const box = await create(c);
      assert.equal(await box.isRunning(), true);
      assert.equal(await Sandbox.kill(box.sandboxId), true);
      assert.equal(await box.isRunning(), false);
      assert.equal(await Sandbox.kill(box.sandboxId), false);
    }],
    ["Sandbox", "list: filter, pages", "pass", async (c) => {
      const mark = `m ${process.pid} ${c.tier} &=%/ä`;
      const made = [];
      for (let i = 0; i < 3; ++i) made.push(await create(c, { metadata: { mark, n: String(i) } }));
      const pages = Sandbox.list({ query: { metadata: { mark } }, limit: 2 });
      const first = await pages.nextItems();
      assert.equal(first.length, 2);
      assert.equal(pages.hasNext, true);
      const rest = await pages.nextItems();
      assert.equal(pages.hasNext, false);
      assert.deepEqual([...first, ...rest].map((i) => i.sandboxId), made.map((b) => b.sandboxId).reverse());
      const one = await Sandbox.list({ query: { metadata: { mark, n: "1" }, state: ["running"] } }).nextItems();
      assert.deepEqual(one.map((i) => i.sandboxId), [made[1].sandboxId]);
      for (const box of made) await box.kill();
    }],
    ["Sandbox", "getMetrics", "pass", async (c) => {
      const [point] = await (await shared(c)).getMetrics();
      assert.ok(point.memTotal > 0 && point.memUsed > 0 && point.cpuCount > 0 && point.diskTotal > 0);
    }],
    ["Network", "no choice: the server's default", has.newest && "pass", async (c) => {
      const box = await create(c);
      assert.equal((await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}/network`, undefined, c.key)).json.link, false);
      assert.equal((await box.getInfo()).allowInternetAccess, false);
      await box.kill();
    }],
    ["Network", "allowInternetAccess: true", "pass", async (c) => {
      const box = await create(c, { allowInternetAccess: true });
      const { policy } = (await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}/network`, undefined, c.key)).json;
      assert.equal(policy.egress, "open");
      await box.kill();
    }],
    ["Network", "allowInternetAccess: false", "pass", async (c) => {
      const box = await create(c, { allowInternetAccess: false });
      const { policy } = (await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}/network`, undefined, c.key)).json;
      assert.equal(policy.egress, "none");
      await box.kill();
    }],
    ["Network", "allowOut and denyOut", has.network && "pass", async (c) => {
      const box = await create(c, { network: { denyOut: ["0.0.0.0/0"], allowOut: ["example.com", "*.example.org", "8.8.8.0/24"] } });
      const { policy } = (await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}/network`, undefined, c.key)).json;
      assert.equal(policy.egress, "allowlist");
      assert.deepEqual(policy.allow.map((r) => r.host ?? r.cidr), ["example.com", "*.example.org", "8.8.8.0/24"]);
      await box.kill();
      const other = await create(c, { network: { denyOut: ["1.1.1.0/24"], allowOut: ["1.1.1.128/25"] } });
      const open = (await native("GET", `/v1/sandboxes/${nativeId(other.sandboxId)}/network`, undefined, c.key)).json.policy;
      assert.equal(open.egress, "open");
      assert.deepEqual(open.deny.map((r) => r.cidr), ["1.1.1.0/25"]);
      await other.kill();
      await assert.rejects(create(c, { network: { allowOut: ["example.com"] } }), /400|denyOut/);
    }],
    ["Network", "updateNetwork", has.newest && "pass", async (c) => {
      const box = await create(c, { allowInternetAccess: true });
      await box.updateNetwork({ denyOut: ["0.0.0.0/0"] });
      const { policy } = (await native("GET", `/v1/sandboxes/${nativeId(box.sandboxId)}/network`, undefined, c.key)).json;
      assert.equal(policy.egress, "none");
      await box.kill();
    }],
    ["Network", "rules of request headers", missing, (c) =>
      create(c, { network: { rules: { "example.com": [{ transform: { headers: { "X-A": "b" } } }] } } })],
    ["Ports", "getHost", "pass", async (c) => {
      const box = await shared(c);
      await serve(box, 8123);
      assert.equal((await request(box.getHost(8123), "/")).body, "from inside");
      const byHeader = await request(new URL(url).host, "/", { "E2b-Sandbox-Id": box.sandboxId, "E2b-Sandbox-Port": "8123" });
      assert.equal(byHeader.body, "from inside");
      const closed = await request(box.getHost(8124), "/");
      assert.equal(closed.status, 502);
      assert.equal(JSON.parse(closed.body).port, 8124);
    }],
    ["Ports", "allowPublicTraffic: false", has.network && "pass", async (c) => {
      const box = await create(c, { network: { allowPublicTraffic: false } });
      await serve(box, 8123);
      assert.equal((await request(box.getHost(8123), "/")).status, 403);
      const headers = { "e2b-traffic-access-token": box.trafficAccessToken };
      assert.equal((await request(box.getHost(8123), "/", headers)).body, "from inside");
      await box.kill();
    }],
    ["Commands", "run", "pass", async (c) => {
      const box = await shared(c);
      const heard = { out: "", err: "" };
      const done = await box.commands.run("echo out; echo err >&2; printf ä€😀", {
        onStdout: (t) => (heard.out += t), onStderr: (t) => (heard.err += t),
      });
      assert.deepEqual([done.exitCode, done.stdout, done.stderr], [0, "out\nä€😀", "err\n"]);
      assert.deepEqual(heard, { out: "out\nä€😀", err: "err\n" });
    }],
    ["Commands", "run: exit codes", "pass", async (c) => {
      const box = await shared(c);
      for (const [line, code] of [["exit 1", 1], ["exit 255", 255], ["no-such-command", 127], ["/etc/passwd", 126]]) {
        await assert.rejects(box.commands.run(line), (e) => e.name === "CommandExitError" && e.exitCode === code, line);
      }
      await assert.rejects(box.commands.run("kill -9 $$"), (e) => e.name === "CommandExitError" && e.exitCode === -1 && /killed/.test(e.error));
    }],
    ["Commands", "run: cwd, envs, user", "pass", async (c) => {
      const box = await shared(c);
      assert.equal((await box.commands.run("pwd; echo $A; id -un", { cwd: "/tmp", envs: { A: "a b" } })).stdout, "/tmp\na b\nuser\n");
      assert.equal((await box.commands.run("id -un; pwd", { user: "root" })).stdout, "root\n/root\n");
      await assert.rejects(box.commands.run("true", { cwd: "/no/such" }), /cwd '\/no\/such' does not exist/);
      await assert.rejects(box.commands.run("true", { user: "nobody-here" }), (e) => e.name === "AuthenticationError");
    }],
    ["Commands", "run: timeoutMs", "pass", async (c) => {
      const box = await shared(c);
      await assert.rejects(box.commands.run("sleep 300.25", { timeoutMs: 700 }), (e) => e.name === "TimeoutError");
      await until(async () => (await box.commands.run("pgrep -f 'sleep 300.2[5]' || true")).stdout === "", "it was killed");
    }],
    ["Commands", "run: large, split and invalid output", "pass", async (c) => {
      const box = await shared(c);
      const big = await box.commands.run("python3 -c \"print('é' * 3000000, end='')\"");
      assert.equal(big.stdout.length, 3_000_000);
      assert.ok(!/[^é]/.test(big.stdout));
      const split = await box.commands.run("printf '\\303'; sleep 0.3; printf '\\251'");
      assert.equal(split.stdout, "é");
      assert.equal((await box.commands.run("printf 'a\\377b'")).stdout, "a\ufffdb");
    }],
    ["Commands", "background, list, kill", "pass", async (c) => {
      const box = await shared(c);
      const handle = await box.commands.run("sleep 31", { background: true, timeoutMs: 0 });
      assert.ok(handle.pid > 0);
      const listed = (await box.commands.list()).find((p) => p.pid === handle.pid);
      assert.deepEqual([listed.cmd, listed.args], ["/bin/bash", ["-l", "-c", "sleep 31"]]);
      assert.equal(await handle.kill(), true);
      await assert.rejects(handle.wait(), (e) => e.exitCode === -1);
      assert.equal(await box.commands.kill(handle.pid), false);
      assert.equal(await box.commands.kill(999_999), false);
    }],
    ["Commands", "connect", "pass", async (c) => {
      const box = await shared(c);
      const first = await box.commands.run("read x; echo got $x; exit 4", { background: true, stdin: true });
      const second = await box.commands.connect(first.pid);
      await box.commands.sendStdin(first.pid, "word\n");
      for (const handle of [first, second]) {
        await assert.rejects(handle.wait(), (e) => e.exitCode === 4 && e.stdout === "got word\n");
      }
    }],
    ["Commands", "disconnect leaves it running", "pass", async (c) => {
      const box = await shared(c);
      const handle = await box.commands.run("sleep 1; echo alive > /tmp/alive", { background: true });
      await handle.disconnect();
      await until(() => box.files.exists("/tmp/alive"), "it went on");
    }],
    ["Commands", "closeStdin", has.closeStdin && "pass", async (c) => {
      const box = await shared(c);
      const handle = await box.commands.run("cat", { background: true, stdin: true });
      await box.commands.sendStdin(handle.pid, "abc");
      await box.commands.closeStdin(handle.pid);
      assert.equal((await handle.wait()).stdout, "abc");
    }],
    ["Commands", "30 at once", "pass", async (c) => {
      const box = await shared(c);
      const done = await Promise.all(Array.from({ length: 30 }, (_, i) => box.commands.run(`echo ${i}`)));
      assert.deepEqual(done.map((d) => d.stdout), Array.from({ length: 30 }, (_, i) => `${i}\n`));
    }],
    ["Commands", "a sandbox killed meanwhile", "pass", async (c) => {
      const box = await create(c);
      const running = box.commands.run("sleep 300");
      const failed = assert.rejects(running, (e) => e.name !== "CommandExitError");
      await until(async () => (await box.commands.list()).length === 1, "it runs");
      await box.kill();
      await failed;
    }],
    ["PTY", "create, sendInput, resize, kill", "pass", async (c) => {
      const box = await shared(c);
      let screen = "";
      const terminal = await box.pty.create({ cols: 90, rows: 30, timeoutMs: 0, onData: (d) => (screen += new TextDecoder().decode(d)) });
      await box.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size; echo $((40+2))-$TERM\n"));
      await until(() => /30 90/.test(screen) && /42-xterm-256color/.test(screen), "the terminal answers");
      await box.pty.resize(terminal.pid, { cols: 101, rows: 41 });
      await box.pty.sendInput(terminal.pid, new TextEncoder().encode("stty size\n"));
      await until(() => /41 101/.test(screen), "it has its new size");
      assert.equal(await box.pty.kill(terminal.pid), true);
      await terminal.wait().catch(() => {});
    }],
    ["Files", "write and read", "pass", async (c) => {
      const box = await shared(c);
      const path = "/tmp/new dir/ü \"quoted\".txt";
      const written = await box.files.write(path, "text ä\n");
      assert.deepEqual([written.name, written.path, written.type], ["ü \"quoted\".txt", path, "file"]);
      assert.equal(await box.files.read(path), "text ä\n");
      const data = bytesOf(3_000_000);
      await box.files.write("/tmp/bytes", data.buffer);
      assert.deepEqual(await box.files.read("/tmp/bytes", { format: "bytes" }), data);
      assert.equal((await box.files.read("/tmp/bytes", { format: "blob" })).size, data.length);
      await box.files.write("/tmp/empty", "");
      assert.equal(await box.files.read("/tmp/empty"), "");
      assert.equal((await box.commands.run("stat -c %U:%a /tmp/bytes")).stdout, "user:644\n");
    }],
    ["Files", "relative paths, users", "pass", async (c) => {
      const box = await shared(c);
      assert.equal((await box.files.write("notes.txt", "n")).path, "/home/user/notes.txt");
      assert.equal((await box.files.write("~/notes.txt", "m")).path, "/home/user/notes.txt");
      assert.equal((await box.files.write("r.txt", "r", { user: "root" })).path, "/root/r.txt");
      await assert.rejects(box.files.read("/root/r.txt"), (e) => !/not found/i.test(e.name));
    }],
    ["Files", "several at once", "pass", async (c) => {
      const box = await shared(c);
      const files = Array.from({ length: 20 }, (_, i) => ({ path: `/tmp/many/${i}.txt`, data: `content ${i}` }));
      const done = has.novita ? await box.files.write(files) : await (box.files.writeFiles ?? box.files.write).call(box.files, files);
      assert.deepEqual(done.map((d) => d.path), files.map((f) => f.path));
      assert.equal(await box.files.read("/tmp/many/19.txt"), "content 19");
    }],
    ["Files", "streams", "pass", async (c) => {
      const box = await shared(c);
      const data = bytesOf(1_000_000);
      await box.files.write("/tmp/stream", new Blob([data]).stream());
      const pieces = [];
      for await (const piece of await box.files.read("/tmp/stream", { format: "stream" })) pieces.push(piece);
      assert.ok(Buffer.concat(pieces).equals(Buffer.from(data)));
    }],
    ["Files", "octet-stream and gzip uploads", has.newest && "pass", async (c) => {
      const box = await shared(c);
      await box.files.write("/tmp/octets", bytesOf(70_000).buffer, { useOctetStream: true });
      await box.files.write("/tmp/zipped", "z".repeat(500_000), { gzip: true });
      assert.deepEqual(await box.files.read("/tmp/octets", { format: "bytes" }), bytesOf(70_000));
      assert.equal((await box.files.read("/tmp/zipped")).length, 500_000);
    }],
    ["Files", "what is not there, what is a directory", "pass", async (c) => {
      const box = await shared(c);
      await assert.rejects(box.files.read("/no/such"), (e) => /NotFoundError/.test(e.name));
      await assert.rejects(box.files.list("/no/such"), (e) => /NotFoundError/.test(e.name));
      await assert.rejects(box.files.write("/tmp", "x"), (e) => e.name === "InvalidArgumentError");
      await assert.rejects(box.files.read("/tmp"), (e) => e.name === "InvalidArgumentError");
      await assert.rejects(box.files.list("/etc/passwd"), (e) => e.name === "InvalidArgumentError");
    }],
    ["Files", "list, makeDir, exists, getInfo", "pass", async (c) => {
      const box = await shared(c);
      assert.equal(await box.files.makeDir("/tmp/d/e"), true);
      assert.equal(await box.files.makeDir("/tmp/d/e"), false);
      await box.files.write("/tmp/d/e/f", "12345");
      await box.commands.run("ln -s e /tmp/d/link; ln -s /no/such /tmp/d/dead");
      const flat = await box.files.list("/tmp/d");
      assert.deepEqual(flat.map((e) => [e.name, e.type]), [["e", "dir"], ["link", "dir"]]);
      const deep = await box.files.list("/tmp/d", { depth: 2 });
      assert.deepEqual(deep.map((e) => e.path), ["/tmp/d/e", "/tmp/d/e/f", "/tmp/d/link"]);
      assert.deepEqual([await box.files.exists("/tmp/d/e/f"), await box.files.exists("/tmp/d/x")], [true, false]);
      const info = await box.files.getInfo("/tmp/d/e/f");
      assert.deepEqual([info.size, info.type, info.permissions, info.owner, info.mode], [5, "file", "-rw-r--r--", "user", 0o644]);
    }],
    ["Files", "rename, remove", "pass", async (c) => {
      const box = await shared(c);
      await box.files.write("/tmp/from", "x");
      assert.equal((await box.files.rename("/tmp/from", "/tmp/to/there")).path, "/tmp/to/there");
      assert.equal(await box.files.exists("/tmp/from"), false);
      await box.files.remove("/tmp/to");
      assert.equal(await box.files.exists("/tmp/to/there"), false);
      await box.files.remove("/tmp/to");
      await assert.rejects(box.files.rename("/no/such", "/tmp/y"), (e) => /NotFoundError/.test(e.name));
    }],
    ["Files", "signed URLs", "pass", async (c) => {
      const box = await shared(c);
      const upload = await box.uploadUrl("/tmp/signed", { useSignatureExpiration: 60 });
      const form = new FormData();
      form.append("file", new Blob(["by url"]), "signed");
      assert.equal((await fetch(upload, { method: "POST", body: form })).status, 200);
      const download = await box.downloadUrl("/tmp/signed");
      assert.equal(await (await fetch(download)).text(), "by url");
      assert.equal((await fetch(download.replace("signed", "other"))).status, 401);
      const late = await box.downloadUrl("/tmp/signed", { useSignatureExpiration: -5 });
      assert.equal((await fetch(late)).status, 401);
    }],
    ["Files", "watchDir", "pass", async (c) => {
      const box = await shared(c);
      await box.files.makeDir("/tmp/watched/sub");
      const seen = [];
      let told;
      const last = new Promise((resolve) => { told = resolve; });
      const watch = await box.files.watchDir("/tmp/watched", (event) => {
        seen.push(event.type + " " + event.name);
        if (event.type === "remove") told();
      }, { recursive: true });
      await box.files.write("/tmp/watched/sub/f", "1");
      await box.files.write("/tmp/watched/sub/f", "2");
      await box.files.remove("/tmp/watched/sub/f");
      await last;
      assert.deepEqual(seen, ["create sub/f", "write sub/f", "write sub/f", "remove sub/f"]);
      await watch.stop();
      await assert.rejects(box.files.watchDir("/no/such", () => {}), (e) => /NotFoundError/.test(e.name));
    }],
    ["Git", "init, add, commit, status", has.newest && "pass", async (c) => {
      const box = await shared(c);
      await box.git.init("/tmp/repo");
      await box.git.configureUser("A B", "a@example.com", { scope: "local", path: "/tmp/repo" });
      await box.files.write("/tmp/repo/a", "1");
      await box.git.add("/tmp/repo");
      await box.git.commit("/tmp/repo", "first");
      assert.equal((await box.git.status("/tmp/repo")).isClean, true);
    }],
    ...lifecycleRows(sdk, has, { create, get: request }),
    ["Templates", "Template.build", has.newest && "pass", async (c) => {
      const template = sdk.Template({ fileContextPath: import.meta.dirname }).fromBaseImage()
        .setUser("root").runCmd("useradd -m builder").setEnvs({ PLACE: "here", BOTH: "$PLACE$HOME" }).setWorkdir("/app/sub")
        .copy("table.mjs", "kept/", { mode: 0o604 }).setUser("builder").runCmd("id -un; echo $PLACE");
      const lines = [];
      const built = await sdk.Template.build(template, "built", { onBuildLogs: (entry) => lines.push(entry.message) });
      assert.ok(lines.includes("builder") && lines.includes("here"), lines.join("\n"));
      assert.equal(await sdk.Template.exists("built"), true);
      assert.equal(await sdk.Template.exists("not-built"), false);
      for (const name of ["built", built.templateId]) {
        const box = await create(c, {}, name);
        const seen = await box.commands.run("id -un; pwd; echo $PLACE; stat -c '%a %U' kept/table.mjs; cksum <kept/table.mjs | cut -d' ' -f2");
        assert.equal(seen.stdout, `builder\n/app/sub\nhere\n604 root\n${statSync(new URL(import.meta.url)).size}\n`);
        await box.kill();
      }
    }],
    ["Templates", "Template.build: a command that fails", has.newest && "pass", async () => {
      const template = sdk.Template().fromBaseImage().runCmd("echo why >&2; exit 3");
      await assert.rejects(sdk.Template.build(template, "broken"), (e) => e.name === "BuildError" && /exit status 3/.test(e.message));
      assert.equal(await sdk.Template.exists("broken"), false);
    }],
    ["Templates", "Template.build: a start command", has.newest && ((tier) => (tier === "gvisor" ? "pass" : "not supported")), async (c) => {
      const template = sdk.Template().fromBaseImage().setStartCmd("python3 -m http.server 8127", sdk.waitForPort(8127));
      await sdk.Template.build(template, "serving");
      const box = await create(c, {}, "serving");
      await box.commands.run("curl -sf http://127.0.0.1:8127/ >/dev/null");
      await box.kill();
    }],
    ["Templates", "Template.build from an image of a registry", missing, () =>
      sdk.Template.build(sdk.Template().fromImage("debian:12").runCmd("true"), "fetched", { cpuCount: 1, memoryMB: 512 })],
    ["Volumes", "Volume.create", missing, () => sdk.Volume.create("data")],
    ["Secrets", "Secret.create", missing, () => sdk.Secret.create("name", "value")],
    ["MCP", "create with mcp", missing, (c) => create(c, { mcp: { browserbase: {} } })],
  ];
  return all.filter((row) => row[2]);
}
