// SPDX-License-Identifier: Apache-2.0
// What the suites share: a key for each tier, clients on either transport.
//
//   GLOVEBOX_BIN  the program, for the transport over standard input and output

import assert from "node:assert/strict";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { native, required, tiers as allTiers, until, url } from "../native.mjs";

export { native, until, url };
export const tiers = allTiers.filter(([tier]) => tier !== "microvm");
const program = required("GLOVEBOX_BIN");

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
