// SPDX-License-Identifier: Apache-2.0
// Just enough of tar (POSIX pax) to copy directories. Names are bytes, held as latin1 text so that they survive.
import { createReadStream } from "node:fs";
import { type FileHandle, chmod, link, lstat, mkdir, open, opendir, readlink, rm, symlink } from "node:fs/promises";
import type { Readable } from "node:stream";

import { ProtocolError } from "./errors.js";

const block = 512;
const maxHeaderBytes = 1 << 20;

/** Something of an archive that was not written, and why. */
export interface LeftOut {
  name: string;
  reason: string;
}

const bytesOf = (name: string): Buffer => Buffer.from(name, "latin1");
const nameOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString("latin1");
const padding = (size: number): Buffer => Buffer.alloc((block - (size % block)) % block);

interface Header {
  name: string;
  type: string;
  mode: number;
  size: number;
  mtime: number;
  target: string;
}

function rawHeader(h: Header): Buffer {
  const out = Buffer.alloc(block);
  bytesOf(h.name).copy(out, 0, 0, 100);
  out.write((h.mode & 0o7777).toString(8).padStart(7, "0"), 100);
  out.write("0000000\0" + "0000000\0", 108);
  out.write((h.size < 0o77777777777 ? h.size : 0).toString(8).padStart(11, "0"), 124);
  out.write(Math.max(0, Math.floor(h.mtime)).toString(8).padStart(11, "0"), 136);
  out.write("        ", 148);
  out.write(h.type, 156);
  bytesOf(h.target).copy(out, 157, 0, 100);
  out.write("ustar\0" + "00", 257);
  const sum = out.reduce((total, byte) => total + byte, 0);
  out.write(sum.toString(8).padStart(6, "0") + "\0 ", 148);
  return out;
}

function paxRecord(key: string, value: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(` ${key}=`), value, Buffer.from("\n")]);
  let length = body.length + 1;
  while (String(length).length + body.length !== length) length = String(length).length + body.length;
  return Buffer.concat([Buffer.from(String(length)), body]);
}

function header(h: Header): Buffer {
  const records: Buffer[] = [];
  if (h.name.length > 100) records.push(paxRecord("path", bytesOf(h.name)));
  if (h.target.length > 100) records.push(paxRecord("linkpath", bytesOf(h.target)));
  if (h.size >= 0o77777777777) records.push(paxRecord("size", Buffer.from(String(h.size))));
  if (records.length === 0) return rawHeader(h);
  const pax = Buffer.concat(records);
  return Buffer.concat([rawHeader({ ...h, name: "pax", type: "x", size: pax.length, target: "" }), pax, padding(pax.length), rawHeader(h)]);
}

/** @internal A tar of what is in a local directory. Sockets, pipes and devices are left out. */
export async function* pack(directory: string): AsyncGenerator<Buffer, void, undefined> {
  yield* packBelow(Buffer.from(directory), "");
  yield Buffer.alloc(2 * block);
}

async function* packBelow(root: Buffer, prefix: string): AsyncGenerator<Buffer, void, undefined> {
  const at = Buffer.concat([root, Buffer.from("/"), bytesOf(prefix)]);
  const names: string[] = [];
  // The option makes every name a buffer, which the types of opendir do not know.
  for await (const entry of await opendir(at, { encoding: "buffer" as BufferEncoding })) names.push(nameOf(entry.name as unknown as Buffer));
  for (const name of names.sort()) {
    const path = Buffer.concat([at, bytesOf(name)]);
    const found = await lstat(path);
    const base = { name: prefix + name, mode: found.mode & 0o777, size: 0, mtime: found.mtimeMs / 1000, target: "" };
    if (found.isDirectory()) {
      yield header({ ...base, name: base.name + "/", type: "5" });
      yield* packBelow(root, prefix + name + "/");
    } else if (found.isSymbolicLink()) {
      yield header({ ...base, mode: 0o777, type: "2", target: nameOf(await readlink(path, { encoding: "buffer" })) });
    } else if (found.isFile()) {
      yield header({ ...base, type: "0", size: found.size });
      yield* content(path, found.size);
    }
  }
}

// Exactly `size` bytes, as the header has said; a file that shrinks meanwhile is an error.
async function* content(path: Buffer, size: number): AsyncGenerator<Buffer, void, undefined> {
  let left = size;
  if (size > 0) {
    for await (const piece of createReadStream(path, { end: size - 1 }) as AsyncIterable<Buffer>) {
      left -= piece.length;
      yield piece;
    }
  }
  if (left !== 0) throw new Error(`${path.toString()} became shorter while it was read`);
  yield padding(size);
}

class Reader {
  readonly #source: AsyncIterator<Buffer>;
  #buffer: Buffer = Buffer.alloc(0);
  constructor(source: AsyncIterable<Buffer>) {
    this.#source = source[Symbol.asyncIterator]();
  }
  /** At most `size` bytes, at least one; empty at the end. */
  async some(size: number): Promise<Buffer> {
    while (this.#buffer.length === 0) {
      const next = await this.#source.next();
      if (next.done) return Buffer.alloc(0);
      this.#buffer = next.value;
    }
    const out = this.#buffer.subarray(0, size);
    this.#buffer = this.#buffer.subarray(out.length);
    return out;
  }
  async exactly(size: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    for (let left = size; left > 0; ) {
      const piece = await this.some(left);
      if (piece.length === 0) throw new ProtocolError("the archive breaks off");
      parts.push(piece);
      left -= piece.length;
    }
    return Buffer.concat(parts);
  }
  async skip(size: number): Promise<void> {
    for (let left = size; left > 0; ) {
      const piece = await this.some(left);
      if (piece.length === 0) throw new ProtocolError("the archive breaks off");
      left -= piece.length;
    }
  }
  async drain(): Promise<void> {
    while ((await this.some(1 << 20)).length > 0) continue;
  }
}

const padded = (size: number): number => Math.ceil(size / block) * block;

function number(bytes: Buffer): number {
  if (bytes[0]! & 0x80) return bytes.subarray(1).reduce((value, byte) => value * 256 + byte, bytes[0]! & 0x7f);
  const text = bytes.toString("latin1").replace(/[\0 ].*$/s, "").trim();
  const value = text === "" ? 0 : parseInt(text, 8);
  if (!Number.isSafeInteger(value) || value < 0) throw new ProtocolError("the archive has a number that is none");
  return value;
}

const textOf = (bytes: Buffer): string => nameOf(bytes).replace(/\0.*$/s, "");

function paxRecords(data: Buffer): Map<string, string> {
  const out = new Map<string, string>();
  for (let at = 0; at < data.length; ) {
    const space = data.indexOf(0x20, at);
    const length = space < 0 ? NaN : Number(data.toString("latin1", at, space));
    const equals = data.indexOf(0x3d, space);
    if (!(length > 0) || at + length > data.length || equals < 0 || equals >= at + length) throw new ProtocolError("the archive has a broken pax header");
    out.set(data.toString("latin1", space + 1, equals), data.toString("latin1", equals + 1, at + length - 1));
    at += length;
  }
  return out;
}

async function* headers(reader: Reader): AsyncGenerator<Header, void, undefined> {
  let pax = new Map<string, string>();
  let longName: string | undefined, longTarget: string | undefined;
  for (;;) {
    const raw = await reader.exactly(block);
    if (raw.every((byte) => byte === 0)) return;
    const type = String.fromCharCode(raw[156]!).replace("\0", "0");
    const size = number(raw.subarray(124, 136));
    if ("xgLK".includes(type)) {
      if (size > maxHeaderBytes) throw new ProtocolError("the archive has a header that is too large");
      const data = (await reader.exactly(padded(size))).subarray(0, size);
      if (type === "x") pax = paxRecords(data);
      if (type === "L") longName = textOf(data);
      if (type === "K") longTarget = textOf(data);
      continue;
    }
    const prefix = raw.toString("latin1", 257, 262) === "ustar" ? textOf(raw.subarray(345, 500)) : "";
    const short = (prefix ? prefix + "/" : "") + textOf(raw.subarray(0, 100));
    const paxSize = pax.get("size");
    yield {
      name: pax.get("path") ?? longName ?? short,
      target: pax.get("linkpath") ?? longTarget ?? textOf(raw.subarray(157, 257)),
      size: paxSize === undefined ? size : Number(paxSize),
      type, mode: number(raw.subarray(100, 108)) & 0o777, mtime: number(raw.subarray(136, 148)),
    };
    pax = new Map();
    longName = longTarget = undefined;
  }
}

// The parts of a name below the target; undefined when it would leave it.
function partsOf(name: string): string[] | undefined {
  if (name.startsWith("/") || name.includes("\0")) return undefined;
  const parts = name.split("/").filter((part) => part !== "" && part !== ".");
  return parts.includes("..") ? undefined : parts;
}

function staysInside(at: string[], target: string): boolean {
  if (target.startsWith("/") || target.includes("\0")) return false;
  let depth = at.length - 1;
  for (const part of target.split("/")) {
    if (part === "..") depth--;
    else if (part !== "" && part !== ".") depth++;
    if (depth < 0) return false;
  }
  return true;
}

/** @internal Extracts a tar that nobody vouches for below a local directory. */
export async function extract(source: Readable, directory: string): Promise<LeftOut[]> {
  const reader = new Reader(source as AsyncIterable<Buffer>);
  const target = new Target(Buffer.from(directory));
  const leftOut: LeftOut[] = [];
  for await (const entry of headers(reader)) {
    const left = await target.put(entry, reader);
    if (left.reason !== "") leftOut.push({ name: bytesOf(entry.name).toString("utf8"), reason: left.reason });
    await reader.skip(left.bytes);
  }
  await target.finish();
  await reader.drain(); // to the end, so that an archive that breaks off is noticed
  return leftOut;
}

class Target {
  readonly #root: Buffer;
  readonly #modes: [Buffer, number][] = []; // of directories: set last, so that a read-only one can be filled
  constructor(root: Buffer) {
    this.#root = root;
  }

  /** Why it was not written, if it was not, and how many bytes of the archive still belong to it. */
  async put(entry: Header, reader: Reader): Promise<{ reason: string; bytes: number }> {
    const all = padded(entry.size);
    const parts = partsOf(entry.name);
    if (!parts) return { reason: "its name leaves the target", bytes: all };
    const path = this.#path(parts);
    if (!(await this.#makeParents(parts))) return { reason: "a link or file stands in its way", bytes: all };
    if (entry.type === "5") {
      if (parts.length > 0 && !(await this.#makeDirectory(path))) return { reason: "something else stands there", bytes: all };
      if (parts.length > 0) this.#modes.push([path, entry.mode]);
      return { reason: "", bytes: all };
    }
    if (parts.length === 0) return { reason: "it has no name", bytes: all };
    if (entry.type === "2" && !staysInside(parts, entry.target)) return { reason: "it points outside the target", bytes: all };
    if (!"0172".includes(entry.type)) return { reason: "it is neither a file, a directory nor a link", bytes: all };
    if ((await lstat(path).catch(() => undefined))?.isDirectory()) return { reason: "a directory stands there", bytes: all };
    if (entry.type === "1") return { reason: await this.#hardLink(path, entry.target), bytes: all };
    await rm(path, { force: true });
    if (entry.type === "2") {
      await symlink(bytesOf(entry.target), path);
      return { reason: "", bytes: all };
    }
    await writeFile(path, entry, reader);
    return { reason: "", bytes: all - entry.size };
  }

  async finish(): Promise<void> {
    for (const [path, mode] of this.#modes.reverse()) await chmod(path, mode);
  }

  #path(parts: string[]): Buffer {
    return Buffer.concat([this.#root, Buffer.from("/"), bytesOf(parts.join("/"))]);
  }

  async #makeParents(parts: string[]): Promise<boolean> {
    for (let depth = 1; depth < parts.length; depth++) {
      if (!(await this.#makeDirectory(this.#path(parts.slice(0, depth))))) return false;
    }
    return true;
  }

  async #makeDirectory(path: Buffer): Promise<boolean> {
    const found = await lstat(path).catch(() => undefined);
    if (!found) await mkdir(path, 0o700 | 0o055);
    return !found || found.isDirectory();
  }

  async #hardLink(path: Buffer, name: string): Promise<string> {
    const parts = partsOf(name);
    if (!parts || parts.length === 0) return "it points outside the target";
    for (let depth = 1; depth < parts.length; depth++) {
      if (!(await lstat(this.#path(parts.slice(0, depth))).catch(() => undefined))?.isDirectory()) return "a link stands in the way of its target";
    }
    const other = this.#path(parts);
    if (other.equals(path)) return "it points to itself";
    if (!(await lstat(other).catch(() => undefined))?.isFile()) return "what it points to is not there";
    await rm(path, { force: true });
    await link(other, path);
    return "";
  }
}

async function writeFile(path: Buffer, entry: Header, reader: Reader): Promise<void> {
  const file: FileHandle = await open(path, "wx", entry.mode);
  try {
    for (let left = entry.size; left > 0; ) {
      const piece = await reader.some(Math.min(left, 1 << 20));
      if (piece.length === 0) throw new ProtocolError("the archive breaks off");
      await file.writeFile(piece);
      left -= piece.length;
    }
    await file.utimes(entry.mtime, entry.mtime);
  } finally {
    await file.close();
  }
}
