// SPDX-License-Identifier: Apache-2.0
import { ConnectionError } from "./errors.js";
import { fromWire, toWire } from "./names.js";
import { routes } from "./routes.js";
import { type Transport, pieces } from "./transport.js";
import type { CodeContext, CodeError, CodeOutput } from "./types.js";

export interface RunCodeOptions {
  /** "python", the default, "javascript" or "bash"; its default context is used. */
  language?: string;
  /** A context's id, instead of a language. */
  context?: string;
  /** For this cell only. */
  env?: Record<string, string>;
  /** Directory to change to first. */
  cwd?: string;
  /** Then the cell is interrupted, and the state is kept. 0, the default: none. */
  timeoutMs?: number;
  onStdout?: (text: string) => void;
  onStderr?: (text: string) => void;
  onOutput?: (output: CodeOutput) => void;
  /** Interrupts the cell; the context keeps its state. */
  signal?: AbortSignal;
}

/** What a cell did. An exception in it is a result: see `error`. */
export interface CodeResult {
  context: string;
  language: string;
  executionCount: number;
  stdout: string;
  stderr: string;
  results: CodeOutput[];
  error: CodeError | null;
  /** The value of the last expression as text, if it has one. */
  text: string | undefined;
}

type CodeEvent = Partial<CodeOutput & CodeError> & {
  type: "start" | "stdout" | "stderr" | "result" | "error" | "keepalive" | "end";
  text?: string;
  context?: string;
  language?: string;
  executionCount?: number;
};

async function* lines(source: AsyncIterable<Buffer>): AsyncGenerator<string, void, undefined> {
  let parts: Buffer[] = [];
  for await (const piece of source) {
    let begin = 0;
    for (let end = piece.indexOf(10); end >= 0; end = piece.indexOf(10, begin)) {
      parts.push(piece.subarray(begin, end));
      yield Buffer.concat(parts).toString("utf8");
      parts = [];
      begin = end + 1;
    }
    parts.push(piece.subarray(begin));
  }
}

/** @internal */
export async function runCode(transport: Transport, id: string, code: string, options: RunCodeOptions): Promise<CodeResult> {
  const { onStdout, onStderr, onOutput, signal, env, ...spec } = options;
  const answer = await transport.open(routes.runCode, {
    params: { id }, body: { code, ...toWire(spec), ...(env && { env }) }, headers: { Accept: "application/x-ndjson" }, signal, idleTimeoutMs: 60_000,
  });
  const out: CodeResult = { context: "", language: "", executionCount: 0, stdout: "", stderr: "", results: [], error: null, text: undefined };
  for await (const line of lines(pieces(answer, signal))) {
    const { type, ...event } = fromWire<CodeEvent>(JSON.parse(line));
    if (type === "start") Object.assign(out, event);
    if (type === "stdout") {
      out.stdout += event.text;
      onStdout?.(event.text ?? "");
    } else if (type === "stderr") {
      out.stderr += event.text;
      onStderr?.(event.text ?? "");
    } else if (type === "result") {
      const output = event as CodeOutput;
      out.results.push(output);
      if (output.main && typeof output.data["text/plain"] === "string") out.text = output.data["text/plain"];
      onOutput?.(output);
    } else if (type === "error") {
      out.error = event as CodeError;
    } else if (type === "end") {
      out.executionCount = event.executionCount ?? out.executionCount;
      return out;
    }
  }
  throw new ConnectionError("the connection broke while the cell ran", true);
}

/** Contexts that keep the state of code between its cells. */
export class CodeContexts {
  readonly #transport: Transport;
  readonly #id: string;
  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.#id = id;
  }
  async list(): Promise<CodeContext[]> {
    return (await this.#transport.json<{ contexts: CodeContext[] }>(routes.listCodeContexts, { params: { id: this.#id } })).contexts;
  }
  create(options: { language?: string; cwd?: string } = {}): Promise<CodeContext> {
    return this.#transport.json(routes.createCodeContext, { params: { id: this.#id }, body: { ...options } });
  }
  async remove(context: string): Promise<void> {
    await this.#transport.bytes(routes.deleteCodeContext, { params: { id: this.#id, context } });
  }
  /** A new kernel without the state of the old one. */
  restart(context: string): Promise<CodeContext> {
    return this.#transport.json(routes.restartCodeContext, { params: { id: this.#id, context } });
  }
  /** Whether a cell ran; the state is kept. */
  async interrupt(context: string): Promise<boolean> {
    return (await this.#transport.json<{ interrupted: boolean }>(routes.interruptCode, { params: { id: this.#id, context } })).interrupted;
  }
}
