// SPDX-License-Identifier: Apache-2.0
// What the suites share: the daemon's address, a key for each tier, sandboxes that are ended after each test.
//
//   LIZARD_API_URL    the daemon, for example http://127.0.0.1:7070
//   LIZARD_API_KEY    a key of role admin
//   LIZARD_TIERS      tiers to test, for example "gvisor,container" (default: all that work)
//   GLOVEBOX_LONG=1   full sizes

import { Lizard } from "@lizard-build/sdk";
import { after, describe, test } from "node:test";

export const url = required("LIZARD_API_URL").replace(/\/+$/, "");
export const adminKey = required("LIZARD_API_KEY");
export const isLong = process.env.GLOVEBOX_LONG === "1";

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: the suites need a running daemon, see README.md`);
  return value;
}

export async function native(method, path, body, key = adminKey) {
  const answer = await fetch(url + path, {
    method,
    headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, headers: answer.headers, text, json: text ? JSON.parse(text) : undefined };
}

// Sends a request as the client would, for what the client itself cannot send.
export async function raw(method, path, body, headers = {}, key = adminKey) {
  return fetch(url + path, { method, headers: { "X-API-Key": key, "Content-Type": "application/json", ...headers }, body });
}

const known = (await native("GET", "/v1/runtimes")).json.runtimes;
const wanted = process.env.LIZARD_TIERS?.split(",") ?? known.map((r) => r.runtime);

// Runs a suite once for each tier. A tier that does not work on this host is skipped with its reason.
export function forEachTier(name, suite) {
  for (const tier of wanted) {
    const found = known.find((r) => r.runtime === tier);
    if (!found?.usable) {
      test(`${name} on ${tier}`, { skip: found?.problem ?? "not known to this server" }, () => {});
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

export async function until(check, what, seconds = 10) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`${what} did not come true in ${seconds} s`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
