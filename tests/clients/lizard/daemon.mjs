// SPDX-License-Identifier: Apache-2.0
// What the suites share: a key for each tier, sandboxes that are ended after each test.
//
//   GLOVEBOX_LONG=1  full sizes

import { Lizard } from "@lizard-build/sdk";
import { after, describe, test } from "node:test";
import { adminKey, native, tiers, until, url } from "../native.mjs";

export { adminKey, native, until, url };
export const isLong = process.env.GLOVEBOX_LONG === "1";

// Sends a request as the client would, for what the client itself cannot send.
export async function raw(method, path, body, headers = {}, key = adminKey) {
  return fetch(url + path, { method, headers: { "X-API-Key": key, "Content-Type": "application/json", ...headers }, body });
}

// Runs a suite once for each tier. A tier that does not work on this host is skipped with its reason.
export function forEachTier(name, suite) {
  for (const [tier, skip] of tiers) {
    if (skip) {
      test(`${name} on ${tier}`, { skip }, () => {});
      continue;
    }
    describe(`${name} on ${tier}`, { concurrency: false }, () => {
      const context = new Context(tier);
      after(() => context.close());
      suite(context);
    });
  }
}

class Context {
  #key;
  #boxes = [];
  constructor(tier) {
    this.tier = tier;
  }

  // A key of its own tenant whose sandboxes are of this tier.
  async key() {
    this.#key ??= await native("POST", "/v1/keys", {
      name: `lizard-${this.tier}`, tenant: `lizard-${this.tier}-${process.pid}`, role: "user", default_runtime: this.tier,
    });
    if (this.#key.status !== 201) throw new Error(`no key: ${this.#key.text}`);
    return this.#key.json.key;
  }

  async client() {
    return new Lizard({ apiUrl: url, apiKey: await this.key(), project: "default" });
  }

  async create(template = "base", options = {}) {
    const box = await (await this.client()).create(template, { size: "mini", ...options });
    this.#boxes.push(box);
    return box;
  }

  // One sandbox for all tests of the suite that leave it usable.
  shared() {
    this.sharedBox ??= this.create();
    return this.sharedBox;
  }

  async close() {
    for (const box of this.#boxes) await box.kill();
    if (this.#key) await native("DELETE", `/v1/keys/${this.#key.json.id}`);
  }
}
