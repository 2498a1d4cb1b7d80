// SPDX-License-Identifier: Apache-2.0
import { Readable } from "node:stream";

import { toWire } from "./names.js";
import { type Pages, pages } from "./pages.js";
import { routes } from "./routes.js";
import { type Source, type Transport, pieces } from "./transport.js";
import type { CreateVolume, Volume } from "./types.js";

/** Disks that outlive sandboxes, by id or name. `Sandbox.create({ volumes })` mounts them. */
export class Volumes {
  readonly #transport: Transport;
  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }
  create(options: CreateVolume): Promise<Volume> {
    return this.#transport.json(routes.createVolume, { body: toWire(options) });
  }
  list(): Pages<Volume> {
    return pages(this.#transport, routes.listVolumes, "volumes", {});
  }
  get(ref: string): Promise<Volume> {
    return this.#transport.json(routes.getVolume, { params: { volume: ref } });
  }
  /** It never becomes smaller. */
  grow(ref: string, sizeMb: number): Promise<Volume> {
    return this.#transport.json(routes.growVolume, { params: { volume: ref }, body: { size_mb: sizeMb } });
  }
  async remove(ref: string): Promise<void> {
    await this.#transport.json(routes.deleteVolume, { params: { volume: ref } });
  }
  /** A tar of all of it. */
  async readArchive(ref: string, options: { signal?: AbortSignal } = {}): Promise<Readable> {
    const answer = await this.#transport.open(routes.exportVolume, { params: { volume: ref }, signal: options.signal });
    return Readable.from(pieces(answer, options.signal), { objectMode: false });
  }
  /** Extracts a tar over what is there; when any of it is refused, the volume is what it was. */
  async writeArchive(ref: string, data: Source, options: { signal?: AbortSignal } = {}): Promise<void> {
    await this.#transport.json(routes.importVolume, { params: { volume: ref }, bytes: data, signal: options.signal, idleTimeoutMs: 600_000 });
  }
}
