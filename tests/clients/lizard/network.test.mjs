// SPDX-License-Identifier: Apache-2.0
// internetAccess and allowedHosts. There may be no network beyond this machine, so what is allowed is known by what does not refuse it:
// a name that a rule allows may still not be found, or have no address that a sandbox may reach; the log tells the two apart.
import assert from "node:assert/strict";
import { test } from "node:test";
import { forEachTier, native, raw, until } from "./daemon.mjs";

const allowed = ["pypi.org", "*.pythonhosted.org", "20.82.112.0/20", "20.1.2.3"];

async function inside(box, script) {
  const { stdout } = await box.process.exec(["python3", "-c", script], { timeoutMs: 60_000 });
  return stdout.trim();
}

// What asking for a name gives: "refused" (the resolver's REFUSED), another code's number, or "silent".
const ask = (name) => `
import socket, struct
name = ${JSON.stringify(name)}
query = struct.pack(">HHHHHH", 77, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\\0" + struct.pack(">HH", 1, 1)
server = next((line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver")), "127.0.0.1")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
  s.settimeout(20)
  try:
    s.connect((server, 53))
    s.send(query)
    code = s.recv(512)[3] & 15
    print("refused" if code == 5 else code)
  except OSError as error:
    print("silent")
`;

// The status and code of an HTTP answer from an address, or the error's name.
const get = (address, port, host) => `
import http.client, json
try:
  connection = http.client.HTTPConnection("${address}", ${port}, timeout=20)
  connection.request("GET", "/", headers={"Host": "${host}"})
  answer = connection.getresponse()
  print(answer.status, json.loads(answer.read() or b"{}").get("code"))
except Exception as error:
  print(type(error).__name__)
`;

async function connections(box, key) {
  return (await native("GET", `/v1/sandboxes/${box.sandboxId}/network/connections?limit=500`, undefined, key)).json.connections;
}

forEachTier("network", (context) => {
  test("internetAccess false: echoed, and nothing is there", async () => {
    const box = await context.create("base", { internetAccess: false });
    const info = await box.getInfo();
    assert.deepEqual([info.internetAccess, info.allowedHosts], [false, []]);
    assert.ok(["refused", "silent"].includes(await inside(box, ask("pypi.org"))));
    const answer = await inside(box, get("20.1.2.3", 80, "pypi.org"));
    assert.ok(!answer.startsWith("200"), answer);
    assert.equal((await box.process.exec("echo works")).stdout, "works\n");
    await box.kill();
  });

  test("allowedHosts are echoed everywhere, in order", async () => {
    const box = await context.create("base", { allowedHosts: allowed });
    const info = await box.getInfo();
    assert.deepEqual([info.internetAccess, info.allowedHosts], [false, allowed]);
    const listed = (await (await context.client()).list()).find((i) => i.sandboxId === box.sandboxId);
    assert.deepEqual(listed.allowedHosts, allowed);
    const { policy } = (await native("GET", `/v1/sandboxes/${box.sandboxId}/network`, undefined, await context.key())).json;
    assert.equal(policy.egress, "allowlist");
    assert.equal(policy.allow.length, allowed.length);
    await assert.rejects(box.exposePort(3000), (e) => e.status === 409 && e.code === "INTERNET_ACCESS_OFF");
    for (const [changed, internet, hosts] of [[{ egress: "open" }, true, []], [{ allow: [{ host: "other.example" }] }, false, ["other.example"]]]) {
      assert.equal((await native("PUT", `/v1/sandboxes/${box.sandboxId}/network`, changed, await context.key())).status, 200);
      const now = await box.getInfo();
      assert.deepEqual([now.internetAccess, now.allowedHosts], [internet, hosts], "what is said follows the policy in force");
    }
    await box.kill();
  });

  test("what allowedHosts do not name is denied inside, readably", async () => {
    const box = await context.create("base", { allowedHosts: allowed });
    const key = await context.key();
    assert.equal(await inside(box, ask("example.com")), "refused");
    assert.equal(await inside(box, ask("pythonhosted.org")), "refused", "a wildcard does not name itself");
    await inside(box, ask("pypi.org"));
    await inside(box, ask("files.pythonhosted.org"));
    assert.equal(await inside(box, get("20.9.9.9", 80, "example.com")), "403 egress_denied");
    const denied = await until(async () => (await connections(box, key)).find((c) => c.verdict === "denied" && c.kind !== "dns"), "the denial is logged");
    const rules = new Map((await connections(box, key)).filter((c) => c.kind === "dns").map((c) => [c.host, c.rule]));
    assert.equal(rules.get("example.com"), "default:allowlist");
    assert.equal(rules.get("pythonhosted.org"), "default:allowlist");
    for (const name of ["pypi.org", "files.pythonhosted.org"]) assert.notEqual(rules.get(name), "default:allowlist", name);
    assert.equal(denied.host, "example.com");
    assert.equal(denied.rule, "default:allowlist");
    const notes = () => box.fs.read("/run/glovebox/denials.jsonl").catch(() => "");  // it comes with the first denial
    const note = JSON.parse((await until(notes, "the denials are noted inside")).trim().split("\n").at(-1));
    assert.equal(note.verdict, "denied");
    await box.kill();
  });

  test("addresses open every port and no name", async () => {
    const box = await context.create("base", { allowedHosts: ["20.1.2.3"] });
    const key = await context.key();
    assert.equal(await inside(box, ask("pypi.org")), "refused");
    await inside(box, "import socket; s = socket.socket(); s.settimeout(2); print(s.connect_ex(('20.1.2.3', 2222))); s.close(); s = socket.socket(); s.settimeout(2); print(s.connect_ex(('20.1.2.4', 2222)))");
    const log = await until(async () => {
      const entries = await connections(box, key);
      return entries.some((c) => c.address === "20.1.2.4") && entries;
    }, "both attempts are logged");
    assert.ok(log.filter((c) => c.address === "20.1.2.4").every((c) => c.verdict === "denied"), JSON.stringify(log));
    assert.ok(log.filter((c) => c.address === "20.1.2.3").every((c) => c.verdict !== "denied"), JSON.stringify(log));
    await box.kill();
  });

  test("what cannot be given is refused, not ignored", async () => {
    const before = (await (await context.client()).list()).map((i) => i.sandboxId);
    for (const bad of ["*", "allowed.*", "https://pypi.org", "pypi.org:443", "10.0.0.0/8", "169.254.169.254", "a b", "2a00::1"]) {
      await assert.rejects(context.create("base", { allowedHosts: ["good.example.com", bad] }),
        (e) => e.status === 400 && e.code === "INVALID_ARGUMENT" && e.message.includes("allowedHosts[1]"), bad);
    }
    const post = async (body) => {
      const answer = await raw("POST", "/api/sandboxes", JSON.stringify({ template: "base", size: "nano", ...body }), {}, await context.key());
      return [answer.status, (await answer.json())];
    };
    const [status, reply] = await post({ internetAccess: true });
    assert.deepEqual([status, reply.code], [400, "INTERNET_ACCESS_NOT_OFFERED"]);
    assert.match(reply.error, /network\.default/);
    assert.equal((await post({ internetAccess: true, allowedHosts: ["pypi.org"] }))[0], 400);
    assert.equal((await post({ allowedHosts: Array.from({ length: 51 }, (_, n) => `h${n}.example.com`) }))[0], 400);
    assert.deepEqual((await (await context.client()).list()).map((i) => i.sandboxId), before);
  });
});
