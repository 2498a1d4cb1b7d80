// SPDX-License-Identifier: Apache-2.0
// What the suites of all clients share: the daemon, its native API, the tiers to test.
//
//   GLOVEBOX_URL        the daemon, for example http://127.0.0.1:7070
//   GLOVEBOX_ADMIN_KEY  a key of role admin
//   GLOVEBOX_TIERS      tiers to test, for example "gvisor,container" (default: all that the daemon knows)

export const url = required("GLOVEBOX_URL").replace(/\/+$/, "");
export const adminKey = required("GLOVEBOX_ADMIN_KEY");

export function required(name) {
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

const known = (await native("GET", "/v1/runtimes")).json.runtimes;
// [tier, why it is skipped or false], the strongest first.
export const tiers = (process.env.GLOVEBOX_TIERS?.split(",") ?? known.map((r) => r.runtime)).map((tier) => {
  const found = known.find((r) => r.runtime === tier);
  return [tier, found?.usable ? false : (found?.problem ?? "not known to this server")];
});

export async function until(check, what, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`${what} did not come true in ${seconds} s`);
    await new Promise((done) => setTimeout(done, 20));
  }
}
