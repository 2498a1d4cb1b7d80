// SPDX-License-Identifier: Apache-2.0
// What the suites share: the daemon's address, a key for each tier, clients on either transport.
//
//   GLOVEBOX_URL        the daemon, for example http://127.0.0.1:7070
//   GLOVEBOX_ADMIN_KEY  a key of role admin
//   GLOVEBOX_BIN        the program, for the transport over standard input and output
//   MCP_TIERS           tiers to test, for example "gvisor,container" (default: all that work)

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

export const url = process.env.GLOVEBOX_URL;
const adminKey = process.env.GLOVEBOX_ADMIN_KEY;
const program = process.env.GLOVEBOX_BIN;
if (!url || !adminKey || !program) throw new Error("GLOVEBOX_URL, GLOVEBOX_ADMIN_KEY or GLOVEBOX_BIN is not set: see README.md");

export async function native(method, path, body, key = adminKey) {
  const answer = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, text, json: text ? JSON.parse(text) : undefined };
}

const known = (await native("GET", "/v1/runtimes")).json.runtimes;
// [tier, why it is skipped or false]
export const tiers = (process.env.MCP_TIERS?.split(",") ?? known.filter((r) => r.runtime !== "microvm").map((r) => r.runtime)).map((tier) => {
  const found = known.find((r) => r.runtime === tier);
  return [tier, found?.usable ? false : (found?.problem ?? "not known to this server")];
});

let tenants = 0;
// A key of a tenant of its own.
export async function newKey(tier) {
  const made = await native("POST", "/v1/keys", {
    name: `mcp-${tier}`, tenant: `mcp-${tier}-${process.pid}-${++tenants}`, role: "user", default_runtime: tier,
  });
  assert.equal(made.status, 201, made.text);
  return made.json;
}
export async function dropKey(made) {
  const left = (await native("GET", "/v1/sandboxes", undefined, made.key)).json.sandboxes;
  for (const { id } of left) await native("DELETE", `/v1/sandboxes/${id}`, undefined, made.key);
  await native("DELETE", `/v1/keys/${made.id}`);
}

const open = new Set();
// What failed tests left open would keep this program alive.
export const closeLeft = () => Promise.allSettled([...open].map((mcp) => mcp.close()));

// A connected client. Its close() ends the session as the transport has it.
export async function connect(transportName, key) {
  const isHttp = transportName === "http";
  const transport = isHttp
    ? new StreamableHTTPClientTransport(new URL(url + "/mcp"), { requestInit: { headers: { Authorization: `Bearer ${key}` } } })
    : new StdioClientTransport({ command: program, args: ["mcp"], env: { PATH: process.env.PATH, GLOVEBOX_API_URL: url, GLOVEBOX_API_KEY: key } });
  const client = new Client({ name: "glovebox-tests", version: "1.0.0" });
  const troubles = [];
  client.onerror = (error) => troubles.push(error);
  await client.connect(transport);
  await client.listTools(); // from here on the client checks results against their schemas
  const mcp = {
    client, transport, troubles,
    call: (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, undefined, { timeout: 120_000, ...options }),
    async close() {
      open.delete(mcp);
      if (isHttp) await transport.terminateSession();
      await client.close();
    },
  };
  open.add(mcp);
  return mcp;
}

export const textOf = (result) => result.content.filter((c) => c.type === "text").map((c) => c.text).join("\n");
// A call that must work.
export async function works(mcp, name, args, options) {
  const result = await mcp.call(name, args, options);
  assert.notEqual(result.isError, true, textOf(result));
  return result;
}
// A call that must fail as one with this code.
export async function fails(mcp, code, name, args) {
  const result = await mcp.call(name, args);
  assert.equal(result.isError, true, textOf(result));
  assert.equal(result._meta["glovebox/error"].code, code);
  assert.match(textOf(result), new RegExp(code));
  return result;
}

export async function until(check, what, seconds = 10) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`${what} did not come true in ${seconds} s`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
