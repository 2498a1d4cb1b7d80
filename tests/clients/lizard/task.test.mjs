// SPDX-License-Identifier: Apache-2.0
// The whole of a small task, as a user's script does it.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { test } from "node:test";
import { forEachTier, native, url } from "./daemon.mjs";

const run = promisify(execFile);
const script = fileURLToPath(new URL("./task.mjs", import.meta.url));

function task(context, key, runtime) {
  return run(process.execPath, [script], {
    env: { PATH: process.env.PATH, LIZARD_API_URL: url, LIZARD_API_KEY: key, LIZARD_PROJECT_ID: "default", RUNTIME: runtime },
  });
}

forEachTier("the reference task", (context) => {
  test("prints its total", async () => {
    const { stdout } = await task(context, await context.key(), context.tier);
    assert.equal(stdout, "{ total: 25 }\n");
  });

  test("refuses another runtime, and ends its sandbox all the same", async () => {
    await assert.rejects(task(context, await context.key(), "firecracker"), /insists on firecracker/);
    const left = await native("GET", "/v1/sandboxes", undefined, await context.key());
    assert.deepEqual(left.json.sandboxes, []);
  });
});
