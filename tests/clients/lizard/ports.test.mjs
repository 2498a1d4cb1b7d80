// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import http from "node:http";
import { test } from "node:test";
import { forEachTier, raw, url } from "./daemon.mjs";

// A request to the daemon whose Host header names the preview, as a browser that resolves *.localhost sends it.
function visit(host, path, headers = {}) {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    http.get({ hostname, port, path, headers: { Host: host, ...headers } }, (answer) => {
      let text = "";
      answer.on("data", (piece) => { text += piece; });
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, text }));
    }).on("error", reject);
  });
}

async function serve(box) {
  await box.fs.write("/srv/index.html", "served from inside");
  await box.process.exec("nohup python3 -m http.server 3000 --directory /srv >/dev/null 2>&1 & " +
    "for i in $(seq 100); do python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 3000))' 2>/dev/null && exit 0; sleep 0.1; done; exit 1");
}

forEachTier("ports", (context) => {
  test("exposePort, its token, its link, unexpose", async () => {
    const box = await context.create();
    await serve(box);
    const exposed = await box.exposePort(3000);
    const { port } = new URL(url);
    assert.equal(exposed.hostname, `${box.sandboxId}-3000.localhost:${port}`);
    assert.equal(exposed.port, 3000);
    assert.equal(box.accessToken, exposed.accessToken);
    assert.equal(exposed.url, `http://${exposed.hostname}/?lizard_token=${exposed.accessToken}`);
    assert.equal(await box.getHost(3000), exposed.hostname);
    assert.deepEqual(await box.exposePort(3000), exposed);
    assert.equal((await box.exposePort(3001)).accessToken, exposed.accessToken);

    const token = { "X-Lizard-Access-Token": exposed.accessToken };
    assert.equal((await visit(exposed.hostname, "/", token)).text, "served from inside");
    assert.equal((await visit(exposed.hostname, "/")).status, 401);
    assert.equal((await visit(exposed.hostname, "/", { "X-Lizard-Access-Token": "wrong" })).status, 401);
    const link = new URL(exposed.url);
    const moved = await visit(exposed.hostname, link.pathname + link.search);
    assert.deepEqual([moved.status, moved.headers.location], [302, "/"]);
    const cookie = moved.headers["set-cookie"][0];
    assert.match(cookie, /; HttpOnly/);
    assert.equal((await visit(exposed.hostname, moved.headers.location, { Cookie: cookie.split(";")[0] })).text, "served from inside");

    assert.equal((await visit(`${box.sandboxId}-3001.localhost`, "/", token)).status, 502);
    assert.equal((await visit(`${box.sandboxId}-3002.localhost`, "/", token)).status, 404);
    await box.unexpose(3000);
    await box.unexpose(3000);
    assert.equal((await visit(exposed.hostname, "/", token)).status, 404);
    await box.exposePort(3000);
    assert.equal((await visit(exposed.hostname, "/", token)).status, 200);
    await box.kill();
    assert.equal((await visit(exposed.hostname, "/", token)).status, 410);
  });

  test("refused without internet access, and for what is no port", async () => {
    const box = await context.create("base", { internetAccess: false });
    await assert.rejects(box.exposePort(3000), (e) => e.status === 409 && e.code === "INTERNET_ACCESS_OFF");
    await assert.rejects(box.getHost(3000), (e) => e.status === 409);
    for (const port of ["0", "65536", "http"]) {
      assert.equal((await raw("POST", `/api/sandboxes/${box.sandboxId}/expose/${port}`, "", {}, await context.key())).status, 400, port);
    }
    assert.equal((await raw("POST", "/api/sandboxes/sb-none/expose/80", "", {}, await context.key())).status, 404);
    await box.kill();
  });
});
