// SPDX-License-Identifier: Apache-2.0
// Builds dist/esm and dist/cjs from src, each with its types.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
const compile = (out, ...options) =>
  execFileSync(process.execPath, [tsc, "-p", here, "--outDir", join(here, "dist", out), ...options], { stdio: "inherit" });

rmSync(join(here, "dist"), { recursive: true, force: true });
compile("esm");
compile("cjs", "--module", "CommonJS", "--moduleResolution", "Node10");
for (const [out, type] of [["esm", "module"], ["cjs", "commonjs"]]) {
  mkdirSync(join(here, "dist", out), { recursive: true });
  writeFileSync(join(here, "dist", out, "package.json"), JSON.stringify({ type }) + "\n");
}
copyFileSync(join(here, "..", "..", "LICENSE"), join(here, "LICENSE"));
