// SPDX-License-Identifier: Apache-2.0
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir as makeLocalDirectory, rename, rm, stat as statLocal } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";

import { FileNotFoundError } from "./errors.js";
import { type Pages, pages } from "./pages.js";
import { routes } from "./routes.js";
import { type LeftOut, extract, pack } from "./tar.js";
import { type Source, type Transport, pieces } from "./transport.js";
import type { Entry } from "./types.js";
import { Watch } from "./watch.js";

/** A path inside a sandbox: absolute, or relative to its workdir. Bytes, for names that are not UTF-8. */
export type Path = string | Uint8Array;

interface AsUser {
  /** Whose rights apply. Default: the sandbox's user. */
  user?: string;
  signal?: AbortSignal;
}
export interface ReadOptions extends AsUser {
  /** First byte; negative: so many from the end. */
  offset?: number;
  length?: number;
}
export interface WriteOptions extends AsUser {
  /** Of a new file, in octal: "0644". */
  mode?: string;
  /** Make missing directories. Default true. */
  parents?: boolean;
  /** Fail when it is there. */
  exclusive?: boolean;
  /** Add to the end. */
  append?: boolean;
}

function range(options: ReadOptions): Record<string, string> {
  const { offset, length } = options;
  if (offset === undefined && length === undefined) return {};
  const begin = offset ?? 0;
  if (begin < 0) return { Range: `bytes=${begin}` };
  return { Range: `bytes=${begin}-${length === undefined ? "" : begin + length - 1}` };
}

const inBody = (name: string, path: Path): Record<string, string> =>
  typeof path === "string" ? { [name]: path } : { [name + "_b64"]: Buffer.from(path).toString("base64") };

/** Files and directories inside a sandbox. */
export class Files {
  readonly #transport: Transport;
  readonly #id: string;
  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#id = id;
  }
  get #params(): { id: string } {
    return { id: this.#id };
  }

  async read(path: Path, options: ReadOptions = {}): Promise<Uint8Array> {
    if (options.length === 0) return new Uint8Array();
    return this.#transport.bytes(routes.readFile, {
      params: this.#params, query: { path, user: options.user }, headers: range(options), signal: options.signal,
    });
  }
  /** UTF-8; fails on other bytes. */
  async readText(path: Path, options: AsUser = {}): Promise<string> {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await this.read(path, options));
  }
  /** The bytes as they come; memory does not grow with the file. */
  async readStream(path: Path, options: ReadOptions = {}): Promise<Readable> {
    const answer = await this.#transport.open(routes.readFile, {
      params: this.#params, query: { path, user: options.user }, headers: range(options), signal: options.signal,
    });
    return Readable.from(pieces(answer, options.signal), { objectMode: false });
  }

  /** The file appears whole or not at all: a write that breaks off leaves what was there. */
  async write(path: Path, data: Source, options: WriteOptions = {}): Promise<Entry> {
    const { signal, ...query } = options;
    return this.#transport.json(routes.writeFile, { params: this.#params, query: { path, ...query }, bytes: data, signal });
  }

  async stat(path: Path, options: AsUser & { follow?: boolean } = {}): Promise<Entry> {
    const { signal, ...query } = options;
    return this.#transport.json(routes.statFile, { params: this.#params, query: { path, ...query }, signal });
  }
  async exists(path: Path, options: AsUser = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileNotFoundError) return false;
      throw error;
    }
  }
  /** A directory's entries, in byte order of names. */
  list(path: Path = ".", options: AsUser = {}): Pages<Entry> {
    const { signal, ...query } = options;
    return pages<Entry, typeof routes.listFiles>(this.#transport, routes.listFiles, "entries", { params: this.#params, query: { path, ...query }, signal });
  }

  /** False when it was there already. */
  async makeDirectory(path: Path, options: AsUser & { parents?: boolean; mode?: string } = {}): Promise<boolean> {
    const { user, signal, ...rest } = options;
    const answer = await this.#transport.json<{ created: boolean }>(routes.makeDirectory, {
      params: this.#params, query: { user }, body: { ...inBody("path", path), ...rest }, signal,
    });
    return answer.created;
  }
  async move(from: Path, to: Path, options: AsUser & { parents?: boolean; overwrite?: boolean } = {}): Promise<void> {
    const { user, signal, ...rest } = options;
    await this.#transport.json(routes.moveFile, {
      params: this.#params, query: { user }, body: { ...inBody("from", from), ...inBody("to", to), ...rest }, signal,
    });
  }
  async remove(path: Path, options: AsUser & { recursive?: boolean } = {}): Promise<void> {
    const { signal, ...query } = options;
    await this.#transport.json(routes.removeFile, { params: this.#params, query: { path, ...query }, signal });
  }

  /** What changes in a directory from now on; `recursive`: also in those below it. */
  async watch(path: Path, options: AsUser & { recursive?: boolean } = {}): Promise<Watch> {
    const { signal, ...query } = options;
    const answer = await this.#transport.open(routes.watchFiles, {
      params: this.#params, query: { path, ...query }, signal, idleTimeoutMs: 60_000,
    });
    return Watch.begin(answer, signal);
  }

  /** A tar of a directory, names relative to it, or of a file. A stream that breaks off fails. */
  async readArchive(path: Path, options: AsUser & { gzip?: boolean } = {}): Promise<Readable> {
    const { signal, ...query } = options;
    const answer = await this.#transport.open(routes.readArchive, { params: this.#params, query: { path, ...query }, signal });
    return Readable.from(pieces(answer, signal), { objectMode: false });
  }
  /** Extracts a tar, gzipped or not, below a directory, which is made if it is missing. */
  async writeArchive(path: Path, data: Source, options: AsUser = {}): Promise<void> {
    const { signal, ...query } = options;
    await this.#transport.json(routes.writeArchive, { params: this.#params, query: { path, ...query }, bytes: data, signal, idleTimeoutMs: 600_000 });
  }

  /** A local file to `path`, or what is in a local directory to below `path`. Symbolic links are copied as links. */
  async upload(local: string, path: Path, options: AsUser = {}): Promise<void> {
    const found = await statLocal(local);
    if (found.isDirectory()) return this.writeArchive(path, pack(local), options);
    const mode = (found.mode & 0o777).toString(8).padStart(4, "0");
    await this.write(path, createReadStream(local), { ...options, mode });
  }

  /**
   * A file to `local`, or what is in a directory to below `local`. What comes out of a sandbox is not trusted: names and links that
   * leave the target, devices and pipes are left out, and returned.
   */
  async download(path: Path, local: string, options: AsUser = {}): Promise<LeftOut[]> {
    const found = await this.stat(path, { ...options, follow: true });
    if (found.type === "directory") {
      await makeLocalDirectory(local, { recursive: true });
      return extract(await this.readArchive(path, options), local);
    }
    await makeLocalDirectory(dirname(local), { recursive: true });
    // Beside it first: a download that breaks off leaves what was there.
    const partial = join(dirname(local), `.${basename(local)}.${process.pid}.${Date.now()}.part`);
    try {
      await pipeline(await this.readStream(path, options), createWriteStream(partial, { flags: "wx", mode: parseInt(found.mode, 8) & 0o777 }));
      if ((await lstat(local).catch(() => undefined))?.isDirectory()) throw new TypeError(`${local} is a directory`);
      await rename(partial, local);
    } catch (error) {
      await rm(partial, { force: true });
      throw error;
    }
    return [];
  }
}
