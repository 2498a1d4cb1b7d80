// SPDX-License-Identifier: Apache-2.0
// A user's script. RUNTIME names the tier that it insists on. Prints { total: 25 }.
import { Lizard } from "@lizard-build/sdk";

const wanted = process.env.RUNTIME ?? "gvisor";
const client = new Lizard({ project: process.env.LIZARD_PROJECT_ID });
const box = await client.create("base", { size: "small", timeoutMs: 120_000 });
try {
  const { runtime } = await box.getInfo();
  if (runtime !== wanted) throw new Error(`this task insists on ${wanted}, the sandbox says ${runtime}`);
  await box.fs.write("/tmp/task.py", `import json\nprint(json.dumps({"total": sum([12, 8, 5])}))\n`);
  const done = await box.process.exec(["python3", "/tmp/task.py"], { user: "user", timeoutMs: 30_000 });
  if (done.exitCode !== 0 || done.truncated) throw new Error(`the task failed: ${done.stderr}`);
  console.log(JSON.parse(done.stdout));
} finally {
  await box.kill();
}
