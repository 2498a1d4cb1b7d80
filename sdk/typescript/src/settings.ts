// SPDX-License-Identifier: Apache-2.0
// Where the server is and with which key: the same rules as the command line's.
import { readFileSync } from "node:fs";
import { join } from "node:path";

import { SettingsError } from "./errors.js";

export interface ClientOptions {
  /** Default: GLOVEBOX_API_URL, or GLOVEBOX_URL, or the server that runs on this host's data directory. */
  url?: string;
  /** Default: GLOVEBOX_API_KEY, or the admin key of the data directory, for a server on this host only. */
  apiKey?: string;
  /** Default: GLOVEBOX_DATA_DIR, or /var/lib/glovebox. */
  dataDir?: string;
  /** How often a call that is safe to repeat is tried again. Default 3. */
  retries?: number;
  /** Default 10 s. */
  connectTimeoutMs?: number;
  /** How long the server may be silent. It is never silent for long while a command runs, so this does not limit commands. Default 120 s. */
  idleTimeoutMs?: number;
  /** How long to try to come back to a running command after the connection broke. Default 60 s. */
  reattachMs?: number;
  headers?: Record<string, string>;
}

const defaultUrl = "http://127.0.0.1:7070";

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trimEnd() || undefined;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

function runningServer(dataDir: string): string | undefined {
  try {
    const { url, pid } = JSON.parse(readText(join(dataDir, "daemon.json")) ?? "null") as { url?: unknown; pid?: unknown };
    return typeof url === "string" && typeof pid === "number" && pid > 0 && isAlive(pid) ? url : undefined;
  } catch {
    return undefined;
  }
}

function parsed(url: string): URL {
  let out: URL;
  try {
    out = new URL(url);
  } catch {
    throw new SettingsError(`not a URL: ${url}`);
  }
  if (out.protocol !== "http:" && out.protocol !== "https:") throw new SettingsError(`not an http or https URL: ${url}`);
  return out;
}

const isLocal = (url: URL): boolean => /^(localhost|\[::1\]|127\.\d+\.\d+\.\d+)$/.test(url.hostname);

/** @internal The admin key goes to no other server than that of its own directory, or one on this host that was named. */
export function findServer(options: ClientOptions): { url: URL; apiKey: string } {
  const env = process.env;
  const dataDir = options.dataDir ?? (env.GLOVEBOX_DATA_DIR || "/var/lib/glovebox");
  const named = options.url ?? (env.GLOVEBOX_API_URL || env.GLOVEBOX_URL);
  const apiKey = options.apiKey ?? env.GLOVEBOX_API_KEY;
  const running = named ? undefined : runningServer(dataDir);
  const url = parsed(named || running || defaultUrl);
  if (apiKey) return { url, apiKey };
  if (!named && !running) throw new SettingsError(`no server runs on ${dataDir}: set GLOVEBOX_API_URL and GLOVEBOX_API_KEY`);
  const adminKey = isLocal(url) ? readText(join(dataDir, "admin.key")) : undefined;
  if (!adminKey) throw new SettingsError(`no key for ${url.origin}: set GLOVEBOX_API_KEY`);
  return { url, apiKey: adminKey };
}
