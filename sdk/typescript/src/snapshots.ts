// SPDX-License-Identifier: Apache-2.0
import { type Pages, pages } from "./pages.js";
import { routes } from "./routes.js";
import type { Transport } from "./transport.js";
import type { Snapshot } from "./types.js";

/** Kept states of sandboxes. `sandbox.snapshot()` makes one, `Sandbox.create({ snapshot })` starts from one. */
export class Snapshots {
  readonly #transport: Transport;
  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }
  list(options: { sandbox?: string; name?: string; labels?: Record<string, string> } = {}): Pages<Snapshot> {
    const { labels, ...query } = options;
    const filter = Object.fromEntries(Object.entries(labels ?? {}).map(([key, value]) => ["label." + key, value]));
    return pages(this.#transport, routes.listSnapshots, "snapshots", { query: { ...query, label_filter: filter } });
  }
  get(id: string): Promise<Snapshot> {
    return this.#transport.json(routes.getSnapshot, { params: { id } });
  }
  update(id: string, changes: { name?: string; labels?: Record<string, string> }): Promise<Snapshot> {
    return this.#transport.json(routes.updateSnapshot, { params: { id }, body: changes });
  }
  async remove(id: string): Promise<void> {
    await this.#transport.json(routes.deleteSnapshot, { params: { id } });
  }
  /** Reads all of it and compares: fails with the code `corrupt` when a byte differs. */
  async verify(id: string): Promise<void> {
    await this.#transport.json(routes.verifySnapshot, { params: { id }, idleTimeoutMs: 0 });
  }
}
