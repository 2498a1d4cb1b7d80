// SPDX-License-Identifier: Apache-2.0
// What takes patience, beside the tables: `./run` starts one of these for each tier, while the tables go on.

import assert from "node:assert/strict";
import { Sandbox } from "e2b";
import { runTable } from "./daemon.mjs";

const kBytes = 10 << 20;
const sleepFor = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

runTable({
  client: "e2b (JavaScript)", version: "2.51.0, patiently", patience: 600_000,
  variables: { apiUrl: "E2B_API_URL", sandboxUrl: "E2B_SANDBOX_URL", apiKey: "E2B_API_KEY" },
  table: [
    ["Commands", "200 at once", "pass", async (c) => {
      const box = await c.shared(Sandbox);
      const done = await Promise.all(Array.from({ length: 200 }, (_, i) => box.commands.run(`echo ${i}`, { timeoutMs: 0 })));
      assert.deepEqual(done.map((d) => d.stdout), Array.from({ length: 200 }, (_, i) => `${i}\n`));
    }],
    ["Commands", "10 MiB to a slow reader", "pass", async (c) => {
      const box = await c.shared(Sandbox);
      let seen = 0;
      const onStdout = (text) => {
        seen += text.length;
        sleepFor(4);  // nothing is read meanwhile, by this whole process
      };
      const done = await box.commands.run(`head -c ${kBytes} /dev/zero | tr '\\0' x; echo; echo end >&2`, { onStdout, timeoutMs: 0 });
      assert.deepEqual([seen, done.stdout.length, done.stderr], [kBytes + 1, kBytes + 1, "end\n"]);
      assert.ok(/^x+\n$/.test(done.stdout));
    }],
    ["Commands", "a minute of silence", "pass", async (c) => {
      const box = await c.create(Sandbox, "base", { timeoutMs: 900_000 });
      assert.equal((await box.commands.run("sleep 62; echo end", { timeoutMs: 0 })).stdout, "end\n");
    }],
  ],
});
