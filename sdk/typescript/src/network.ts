// SPDX-License-Identifier: Apache-2.0
import { setTimeout as sleep } from "node:timers/promises";

import { type LogPage, logPage } from "./pages.js";
import { toWire } from "./names.js";
import { routes } from "./routes.js";
import { type Transport, abortReason } from "./transport.js";
import type { ConnectionEntry, NetworkPolicy, NetworkState, PackageEntry } from "./types.js";

type LogOptions = { cursor?: string; limit?: number };
type FollowLogOptions = { cursor?: string; follow?: boolean; signal?: AbortSignal };

/** What one sandbox may reach, and what it tried to. */
export class Network {
  readonly #transport: Transport;
  readonly #params: { id: string };
  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#params = { id };
  }

  get(): Promise<NetworkState> {
    return this.#transport.json(routes.getNetwork, { params: this.#params });
  }
  /** In force when it resolves; connections that the new policy does not allow are cut by then. */
  set(policy: NetworkPolicy): Promise<NetworkState> {
    return this.#transport.json(routes.setNetwork, { params: this.#params, body: toWire(policy) });
  }

  connectionPage(options: LogOptions = {}): Promise<LogPage<ConnectionEntry>> {
    return logPage(this.#transport, routes.listConnections, "connections", { params: this.#params, query: { ...options } });
  }
  /** Every attempt with its verdict, oldest first. With `follow` it goes on until it is left. */
  connections(options: FollowLogOptions = {}): AsyncGenerator<ConnectionEntry, void, undefined> {
    return all((cursor) => this.connectionPage(cursor), options);
  }
  packagePage(options: LogOptions = {}): Promise<LogPage<PackageEntry>> {
    return logPage(this.#transport, routes.listPackages, "packages", { params: this.#params, query: { ...options } });
  }
  /** What it asked the registry proxy for, likewise. */
  packages(options: FollowLogOptions = {}): AsyncGenerator<PackageEntry, void, undefined> {
    return all((cursor) => this.packagePage(cursor), options);
  }
}

async function* all<T>(page: (options: LogOptions) => Promise<LogPage<T>>, options: FollowLogOptions): AsyncGenerator<T, void, undefined> {
  for (let cursor = options.cursor; ; ) {
    const { entries, nextCursor } = await page({ limit: 1000, ...(cursor !== undefined && { cursor }) });
    yield* entries;
    cursor = nextCursor;
    if (entries.length > 0) continue;
    if (!options.follow) return;
    try {
      await sleep(500, undefined, options.signal ? { signal: options.signal } : {});
    } catch (error) {
      throw options.signal?.aborted ? abortReason(options.signal) : error;
    }
  }
}
