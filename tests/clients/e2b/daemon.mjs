// SPDX-License-Identifier: Apache-2.0
// What the tables share: a key for each tier, the record of what every method did.
//
//   GLOVEBOX_LONG=1     older and related clients on every tier, too, not only on the lightest
//   E2B_RESULTS         a directory for <client>-<tier>.json, from which ./write-table makes docs/compatibility.md

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { after, describe, test } from "node:test";
import { native, tiers, until, url } from "../native.mjs";

export { native, until, url };
const isLong = process.env.GLOVEBOX_LONG === "1";

// The form of a key that every release of the clients takes.
export const e2bForm = (key) => "e2b_" + Buffer.from(key).toString("hex");

// What a method that the server does not have must do: fail in a way that says so.
export async function refuses(work) {
  try {
    await work();
  } catch (error) {
    assert.match(`${error.name} ${error.message}`, /501|unimplemented|does not have/i);
    return;
  }
  assert.fail("it did not fail");
}

// Runs a table of [area, method, "pass" | "not supported", work(context)] for each tier; for the lightest one if `oneTier`. What is
// expected may depend on the tier: (tier) => ….  `patience`: the most that a row may take, in milliseconds.
export function runTable({ client, version, variables, table, oneTier = false, patience = 300_000 }) {
  const usable = tiers.filter(([, skip]) => !skip);
  for (const [tier, skip] of oneTier && !isLong ? usable.slice(-1) : tiers) {
    if (skip) {
      test(`${client} on ${tier}`, { skip }, () => {});
      continue;
    }
    describe(`${client} ${version} on ${tier}`, { concurrency: false }, () => {
      const context = new Context(tier, variables);
      const results = [];
      for (const [area, method, wish, work] of table) {
        const expected = typeof wish === "function" ? wish(tier) : wish;
        test(`${area}: ${method}`, { timeout: patience }, async () => {
          const entry = { area, method, result: "fail" };
          results.push(entry);
          await context.begin();
          await (expected === "pass" ? work(context) : refuses(() => work(context)));
          entry.result = expected;
        });
      }
      after(async () => {
        await context.close();
        if (!process.env.E2B_RESULTS) return;
        const file = `${process.env.E2B_RESULTS}/${client.replace(/\W+/g, "-")}-${version}-${tier}.json`;
        writeFileSync(file, JSON.stringify({ client, version, tier, results }, null, 1) + "\n");
      });
    });
  }
}

class Context {
  #made;
  #boxes = [];
  constructor(tier, variables) {
    this.tier = tier;
    this.variables = variables;
  }

  // The clients are configured by nothing but their variables.
  async begin() {
    this.#made ??= (await native("POST", "/v1/keys", {
      name: `e2b-${this.tier}`, tenant: `e2b-${this.tier}-${process.pid}`, role: "user", default_runtime: this.tier,
    })).json;
    const { apiUrl, sandboxUrl, apiKey } = this.variables;
    process.env[apiUrl] = url;
    process.env[sandboxUrl] = url;
    process.env[apiKey] = e2bForm(this.#made.key);
  }
  get key() {
    return this.#made.key;
  }

  async create(Sandbox, template = "base", options = {}) {
    const box = await Sandbox.create(template, { timeoutMs: 120_000, ...options });
    this.#boxes.push(box);
    return box;
  }
  // One sandbox for all rows that leave it usable. It outlives the slowest of machines.
  shared(Sandbox, template = "base") {
    this.sharedBox ??= this.create(Sandbox, template, { timeoutMs: 3_000_000 });
    return this.sharedBox;
  }

  async close() {
    const left = (await native("GET", "/v1/sandboxes", undefined, this.key)).json.sandboxes;
    for (const { id } of left) await native("DELETE", `/v1/sandboxes/${id}`, undefined, this.key);
    await native("DELETE", `/v1/keys/${this.#made.id}`);
  }
}
