// SPDX-License-Identifier: Apache-2.0
import { type AttachOptions, Attachment } from "./attachment.js";
import { ApiError, ConnectionError, GloveboxError } from "./errors.js";
import { fromWire } from "./names.js";
import { routes } from "./routes.js";
import { events } from "./sse.js";
import { type Source, type Transport, backOff, pieces } from "./transport.js";
import type { ExecutionInfo, Outcome, Pty, Signal, StreamName } from "./types.js";

/** A command line for `/bin/sh -c`, or a program and its arguments. */
export type Command = string | readonly string[];

export interface StartOptions {
  /** Over the sandbox's. */
  env?: Record<string, string>;
  /** Environment as well, whose values no answer shows. */
  secrets?: Record<string, string>;
  cwd?: string;
  user?: string;
  /** Keep standard input open, for `writeStdin` and `attach`. */
  stdin?: boolean;
  /** Run it on a terminal; its output is all stdout. */
  pty?: Pty;
  /** The command's own limit. 0, the default: none beyond the sandbox's life. */
  timeoutMs?: number;
  /** At the timeout: TERM first, KILL so much later. */
  killGraceMs?: number;
  /** A label. */
  name?: string;
  /** Two calls with the same one start one command, as long as the server remembers it. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface FollowOptions {
  /** Called with text as it arrives; characters are never split. */
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
  signal?: AbortSignal;
}

export interface ExecOptions extends Omit<StartOptions, "stdin">, FollowOptions {
  /** Standard input, to its end. Without it, it is empty. */
  stdin?: Source;
  /** Throw a CommandFailedError unless it exits with 0. */
  check?: boolean;
}

/** A piece of output. */
export interface OutputChunk {
  stream: StreamName;
  data: Uint8Array;
  /** The same as text. A character that is split between two chunks is in the second one. */
  text: string;
  /** Where to go on after this chunk. */
  cursor: number;
  /** So much was written that the server did not keep; `data` is empty then. */
  droppedBytes: number;
}

/** A command was not successful, and success was asked for. */
export class CommandFailedError extends GloveboxError {
  readonly result: ExecResult;
  constructor(result: ExecResult) {
    const tail = result.stderr.trimEnd().slice(-2000);
    super(`the command ${describe(result.outcome)}${tail ? ":\n" + tail : ""}`);
    this.result = result;
  }
}

function describe(outcome: Outcome): string {
  if (outcome.type === "exited") return `exited with ${outcome.exitCode}`;
  const cause = outcome.signalName ? ` (${outcome.signalName})` : "";
  return `ended: ${outcome.type}${cause}${outcome.message ? ", " + outcome.message : ""}`;
}

/** What became of a command. */
export class ExecResult {
  readonly info: ExecutionInfo;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
  #texts: { stdout?: string; stderr?: string } = {};

  /** @internal */
  constructor(info: ExecutionInfo, stdout: Uint8Array, stderr: Uint8Array) {
    this.info = info;
    this.stdoutBytes = stdout;
    this.stderrBytes = stderr;
  }
  get outcome(): Outcome {
    if (!this.info.outcome) throw new GloveboxError(`execution ${this.info.id} has not ended`);
    return this.info.outcome;
  }
  /** Null unless the command exited by itself. */
  get exitCode(): number | null {
    return this.outcome.exitCode ?? null;
  }
  /** It exited with 0. */
  get ok(): boolean {
    return this.outcome.type === "exited" && this.outcome.exitCode === 0;
  }
  /** Bytes that are not UTF-8 are U+FFFD here; `stdoutBytes` has them. */
  get stdout(): string {
    return (this.#texts.stdout ??= new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.stdoutBytes));
  }
  get stderr(): string {
    return (this.#texts.stderr ??= new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.stderrBytes));
  }
  /** It wrote more than the server kept. */
  get truncated(): boolean {
    return this.info.output.truncated;
  }
  get durationMs(): number {
    return this.info.durationMs;
  }
  /** Throws a CommandFailedError unless it exited with 0. */
  check(): this {
    if (!this.ok) throw new CommandFailedError(this);
    return this;
  }
}

/** @internal The connection to it is lost, or the server is just starting: what was begun may go on. */
export const isLost = (error: unknown): boolean => error instanceof ConnectionError || (error instanceof ApiError && error.status === 503);

/** A command that was started. It goes on whether anybody listens or not. */
export class Execution {
  /** As of the last call that told. */
  info: ExecutionInfo;
  readonly #transport: Transport;
  readonly #params: { id: string; eid: string };

  /** @internal */
  constructor(transport: Transport, info: ExecutionInfo) {
    this.#transport = transport;
    this.info = info;
    this.#params = { id: info.sandboxId, eid: info.id };
  }
  get id(): string {
    return this.info.id;
  }

  async refresh(): Promise<ExecutionInfo> {
    return (this.info = await this.#transport.json(routes.getExecution, { params: this.#params }));
  }

  /**
   * Its output from `cursor` on, to its end. When the connection breaks, the iteration goes on from the last cursor: nothing is lost
   * and nothing comes twice.
   */
  async *output(options: { cursor?: number; stream?: StreamName; signal?: AbortSignal } = {}): AsyncGenerator<OutputChunk, void, undefined> {
    const { stream, signal } = options;
    const decoders = { stdout: new TextDecoder("utf-8", { ignoreBOM: true }), stderr: new TextDecoder("utf-8", { ignoreBOM: true }) };
    const dropped = { stdout: 0, stderr: 0 };
    let cursor = options.cursor ?? 0;
    for (let lostAt = 0, attempt = 0; ; ) {
      try {
        const answer = await this.#transport.open(routes.readOutput, {
          params: this.#params, query: { cursor, format: "sse", ...(stream && { stream }) }, signal, idleTimeoutMs: 60_000,
        });
        for await (const { event, id, data } of events(pieces(answer, signal))) {
          lostAt = attempt = 0;
          if (event === "exit") {
            this.info = fromWire(JSON.parse(data));
            return;
          }
          if (event !== "output") continue;
          const wire = JSON.parse(data) as { stream: StreamName; data?: string; data_b64?: string; dropped_bytes?: number };
          cursor = Number(id);
          const lost = wire.dropped_bytes ?? 0;
          if (lost > 0 && dropped[wire.stream] === lost) continue; // told before the connection broke
          dropped[wire.stream] = lost;
          const bytes = wire.data_b64 !== undefined ? Buffer.from(wire.data_b64, "base64") : Buffer.from(wire.data ?? "", "utf8");
          yield { stream: wire.stream, data: bytes, text: decoders[wire.stream].decode(bytes, { stream: true }), cursor, droppedBytes: lost };
        }
        throw new ConnectionError("the output ended before the execution did", true);
      } catch (error) {
        lostAt ||= Date.now();
        if (!isLost(error) || signal?.aborted || Date.now() - lostAt > this.#transport.options.reattachMs) throw error;
        await backOff(attempt++, 0, signal);
      }
    }
  }

  /** Waits for its end and gives all its output. */
  async result(options: FollowOptions = {}): Promise<ExecResult> {
    const parts: { stdout: Uint8Array[]; stderr: Uint8Array[] } = { stdout: [], stderr: [] };
    for await (const chunk of this.output(options.signal ? { signal: options.signal } : {})) {
      parts[chunk.stream].push(chunk.data);
      const tell = chunk.stream === "stdout" ? options.onStdout : options.onStderr;
      if (chunk.text) tell?.(chunk.text);
    }
    return new ExecResult(this.info, Buffer.concat(parts.stdout), Buffer.concat(parts.stderr));
  }

  /** Waits for its end, without its output; at most `timeoutMs` if that is given: `info.state` tells which. */
  async wait(options: { timeoutMs?: number; signal?: AbortSignal } = {}): Promise<ExecutionInfo> {
    const deadline = Date.now() + (options.timeoutMs ?? Infinity);
    for (let lostAt = 0, attempt = 0; ; ) {
      const left = Math.max(0, Math.min(60_000, deadline - Date.now()));
      try {
        this.info = await this.#transport.json(routes.waitExecution, {
          params: this.#params, query: { timeout_ms: Math.ceil(left) }, signal: options.signal, idleTimeoutMs: 60_000,
        });
        lostAt = attempt = 0;
      } catch (error) {
        lostAt ||= Date.now();
        if (!isLost(error) || options.signal?.aborted || Date.now() - lostAt > this.#transport.options.reattachMs) throw error;
        await backOff(attempt++, 0, options.signal);
      }
      if (this.info.state === "ended" || Date.now() >= deadline) return this.info;
    }
  }

  /** Resolves when the process's side has taken the bytes; it may be slow to, so there is no time limit. */
  async writeStdin(data: Source, options: { close?: boolean; signal?: AbortSignal } = {}): Promise<void> {
    await this.#transport.json(routes.writeStdin, {
      params: this.#params, query: { close: options.close }, bytes: data, signal: options.signal, idleTimeoutMs: 0,
    });
  }
  async closeStdin(): Promise<void> {
    await this.writeStdin("", { close: true });
  }

  /** `tree`: to every process it started as well. */
  async signal(signal: Signal, options: { tree?: boolean } = {}): Promise<ExecutionInfo> {
    return (this.info = await this.#transport.json(routes.signalExecution, { params: this.#params, body: { signal, tree: options.tree } }));
  }
  /** Ends it and every process it started; resolves when they are gone. */
  async kill(): Promise<ExecutionInfo> {
    return (this.info = await this.#transport.json(routes.killExecution, { params: this.#params }));
  }
  async resize(cols: number, rows: number): Promise<ExecutionInfo> {
    return (this.info = await this.#transport.json(routes.resizeExecution, { params: this.#params, body: { cols, rows } }));
  }

  /** A two-way connection: its output as it comes, and its standard input. */
  attach(options: AttachOptions = {}): Promise<Attachment> {
    return Attachment.open(this.#transport, this, options);
  }
}
