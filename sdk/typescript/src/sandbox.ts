// SPDX-License-Identifier: Apache-2.0
import { randomUUID } from "node:crypto";

import type { Attachment } from "./attachment.js";
import { Glovebox } from "./client.js";
import { ApiError, ConflictError, NotFoundError, ProtocolError } from "./errors.js";
import { type Command, type ExecOptions, type ExecResult, Execution, type StartOptions } from "./execution.js";
import { CodeContexts, type CodeResult, type RunCodeOptions, runCode } from "./code.js";
import { Files } from "./files.js";
import { toWire } from "./names.js";
import { Network } from "./network.js";
import { type Pages, pages } from "./pages.js";
import { routes } from "./routes.js";
import type { ClientOptions } from "./settings.js";
import { type Source, type Transport, abortReason } from "./transport.js";
import type {
  Change, CreateSandbox, CreateSnapshot, ExecutionInfo, ExecutionState, ForkSandbox, Kept, Port, ProcessInfo, Pty, SandboxInfo, SandboxState,
  Signal, Snapshot, Stats, UpdateSandbox,
} from "./types.js";

export interface WithClient {
  /** Which server, with which key. Default: what the environment says. */
  client?: Glovebox | ClientOptions;
}
export interface CreateOptions extends CreateSandbox, WithClient {
  /** Two calls with the same key give one sandbox. Default: a new one for each call, so that a call can be repeated safely. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}
export interface ListOptions {
  state?: SandboxState | SandboxState[];
  /** All must match. */
  metadata?: Record<string, string>;
}
export interface TerminalOptions extends Omit<StartOptions, "pty" | "stdin">, Pty {
  /** Default: a login shell. */
  command?: Command;
}

const maxInlineStdin = 64 << 10;
const shared = new Map<string, Glovebox>();

// One client for all that say nothing, as long as the environment says the same.
function clientOf(given: Glovebox | ClientOptions | undefined): Glovebox {
  if (given instanceof Glovebox) return given;
  if (given) return new Glovebox(given);
  const { GLOVEBOX_API_URL, GLOVEBOX_URL, GLOVEBOX_API_KEY, GLOVEBOX_DATA_DIR } = process.env;
  const settings = JSON.stringify([GLOVEBOX_API_URL, GLOVEBOX_URL, GLOVEBOX_API_KEY, GLOVEBOX_DATA_DIR]);
  // Without an address, the server is looked up each time: it may have been started anew on another port.
  if (!GLOVEBOX_API_URL && !GLOVEBOX_URL) return new Glovebox();
  let client = shared.get(settings);
  if (!client) shared.set(settings, (client = new Glovebox()));
  return client;
}

/** A machine of its own for one task. `await using` ends it with the block; otherwise `kill()` or its lifetime does. */
export class Sandbox {
  /** As of the last call that told. */
  info: SandboxInfo;
  readonly client: Glovebox;
  readonly files: Files;
  readonly network: Network;
  readonly codeContexts: CodeContexts;
  readonly #transport: Transport;

  /** @internal */
  constructor(client: Glovebox, info: SandboxInfo) {
    this.client = client;
    this.info = info;
    this.#transport = client.transport;
    this.files = new Files(this.#transport, info.id);
    this.network = new Network(this.#transport, info.id);
    this.codeContexts = new CodeContexts(this.#transport, info.id);
  }

  /** Resolves when it is ready. */
  static async create(options: CreateOptions = {}): Promise<Sandbox> {
    const { client: given, idempotencyKey = randomUUID(), signal, ...spec } = options;
    const client = clientOf(given);
    const call = { body: toWire(spec), headers: { "Idempotency-Key": idempotencyKey } };
    try {
      return new Sandbox(client, await client.transport.json(routes.createSandbox, { ...call, signal }));
    } catch (error) {
      // Whoever gave up the wait does not know the sandbox that may have been made; the key finds it again.
      if (signal?.aborted && !(error instanceof ApiError)) {
        client.transport.json<SandboxInfo>(routes.createSandbox, call).then((info) => new Sandbox(client, info).kill()).catch(() => undefined);
      }
      throw error;
    }
  }
  /** A sandbox that is there already. */
  static async connect(id: string, options: WithClient = {}): Promise<Sandbox> {
    return clientOf(options.client).sandboxes.get(id);
  }
  static list(options: ListOptions & WithClient = {}): Pages<Sandbox> {
    return clientOf(options.client).sandboxes.list(options);
  }

  get id(): string {
    return this.info.id;
  }

  // Life -----------------------------------------------------------------------------------------------------------------------
  async refresh(): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.getSandbox, { params: this.#params }));
  }
  async update(changes: UpdateSandbox): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.updateSandbox, { params: this.#params, body: toWire(changes) }));
  }
  /** Ends it; resolves when nothing of it is left. Fine to repeat. */
  async kill(): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.killSandbox, { params: this.#params }));
  }
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.kill();
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error; // it had ended long ago
    }
  }
  /** Stops it as it is, memory included. A call that needs it resumes it. */
  async pause(): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.pauseSandbox, { params: this.#params }));
  }
  async resume(): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.resumeSandbox, { params: this.#params, idleTimeoutMs: 600_000 }));
  }
  /** Like a pause, and its memory on the server is freed as well. */
  async hibernate(options: { require?: Kept } = {}): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.hibernateSandbox, { params: this.#params, body: { ...options }, idleTimeoutMs: 600_000 }));
  }
  /** Keeps its state under an id; it goes on running. */
  snapshot(options: CreateSnapshot = {}): Promise<Snapshot> {
    return this.#transport.json(routes.createSnapshot, { params: this.#params, body: { ...options }, idleTimeoutMs: 600_000 });
  }
  /** Children that go on from here, each with an identity of its own; all or none. */
  async fork(options: ForkSandbox = {}): Promise<Sandbox[]> {
    const answer = await this.#transport.json<{ sandboxes: SandboxInfo[] }>(routes.forkSandbox, {
      params: this.#params, body: toWire(options), idleTimeoutMs: 600_000,
    });
    return answer.sandboxes.map((info) => new Sandbox(this.client, info));
  }
  /** Back to a snapshot of its own lineage, in place. Default: the one it was started from, or reset to last. */
  async reset(options: { snapshot?: string } = {}): Promise<SandboxInfo> {
    return (this.info = await this.#transport.json(routes.resetSandbox, { params: this.#params, body: { ...options }, idleTimeoutMs: 600_000 }));
  }
  /** Files that differ from its template's ("template", the default), or from a snapshot's (its id). */
  diff(options: { against?: string } = {}): Pages<Change> {
    return pages(this.#transport, routes.diffSandbox, "items", { params: this.#params, query: { ...options } });
  }
  /** What it uses now. */
  stats(): Promise<Stats> {
    return this.#transport.json(routes.getSandboxStats, { params: this.#params });
  }

  // Commands -------------------------------------------------------------------------------------------------------------------
  /** Starts a command and does not wait for it. */
  async start(command: Command, options: StartOptions = {}): Promise<Execution> {
    return this.#start(command, options, {});
  }

  /**
   * Runs a command to its end. How it ended is a result, not an error: see `ok`, `exitCode`, `outcome`. Only the command's own
   * `timeoutMs` limits it. When `signal` is aborted, the command and all it started are killed.
   */
  async exec(command: Command, options: ExecOptions = {}): Promise<ExecResult> {
    const { stdin, check, onStdout, onStderr, ...start } = options;
    const inline = inlineStdin(stdin);
    const execution = await this.#start(command, { ...start, stdin: stdin !== undefined && !inline }, inline ?? {});
    try {
      const following = execution.result({
        ...(onStdout && { onStdout }), ...(onStderr && { onStderr }), ...(options.signal && { signal: options.signal }),
      });
      const result = await (stdin !== undefined && !inline ? whileFed(execution, stdin, following) : following);
      return check ? result.check() : result;
    } catch (error) {
      // Given up, or a callback failed: nobody waits for the command any more.
      if (execution.info.state !== "ended") await execution.kill().catch(() => undefined);
      throw error;
    }
  }

  /** Runs a cell of code in a context that keeps its state. Needs a template with an interpreter. An exception is a result. */
  runCode(code: string, options: RunCodeOptions = {}): Promise<CodeResult> {
    return runCode(this.#transport, this.id, code, options);
  }

  /** A terminal, attached. */
  async terminal(options: TerminalOptions = {}): Promise<Attachment> {
    const { command = ["/bin/sh", "-c", 'exec "${SHELL:-/bin/sh}" -l'], cols, rows, term, ...start } = options;
    const execution = await this.#start(command, { ...start, stdin: true, pty: { ...(cols && { cols }), ...(rows && { rows }), ...(term && { term }) } }, {});
    return execution.attach(options.signal ? { signal: options.signal } : {});
  }

  /** An execution that was started earlier, by anybody. */
  async execution(id: string): Promise<Execution> {
    return new Execution(this.#transport, await this.#transport.json(routes.getExecution, { params: { id: this.id, eid: id } }));
  }
  /** Newest first. */
  executions(options: { state?: ExecutionState } = {}): Pages<Execution> {
    return pages(this.#transport, routes.listExecutions, "executions", { params: this.#params, query: { ...options } },
      (item) => new Execution(this.#transport, item as ExecutionInfo));
  }
  /** Every process in it, whoever started it. */
  async processes(): Promise<ProcessInfo[]> {
    return (await this.#transport.json<{ processes: ProcessInfo[] }>(routes.listProcesses, { params: this.#params })).processes;
  }
  async signalProcess(pid: number, signal: Signal, options: { tree?: boolean } = {}): Promise<void> {
    await this.#transport.json(routes.signalProcess, { params: { id: this.id, pid }, body: { signal, tree: options.tree } });
  }

  // Previews -------------------------------------------------------------------------------------------------------------------
  /** How to reach a port of it, and whether something listens there. */
  port(port: number): Promise<Port> {
    return this.#transport.json(routes.getPort, { params: { id: this.id, port } });
  }
  /** Makes a new token: links given out before end. */
  openPort(port: number, options: { public?: boolean } = {}): Promise<Port> {
    return this.#transport.json(routes.openPort, { params: { id: this.id, port }, body: { ...options } });
  }
  /** Lets nobody in until a new token is made. */
  revokePort(port: number): Promise<Port> {
    return this.#transport.json(routes.revokePort, { params: { id: this.id, port } });
  }
  /** An HTTP request to what listens on a port of it. `path` begins with a slash. */
  async fetch(port: number, path = "/", init: RequestInit = {}): Promise<Response> {
    const preview = await this.port(port);
    const headers = new Headers(init.headers);
    if (preview.token) headers.set("X-Glovebox-Preview-Token", preview.token);
    return fetch(preview.urls.path.replace(/\/$/, "") + path, { ...init, headers });
  }

  get #params(): { id: string } {
    return { id: this.info.id };
  }

  async #start(command: Command, options: StartOptions, stdin: { stdin_text?: string; stdin_b64?: string }): Promise<Execution> {
    const { signal, env, secrets, pty, idempotencyKey: key, ...rest } = options;
    const headers: Record<string, string> = key === undefined ? {} : { "Idempotency-Key": key };
    const body = {
      ...(typeof command === "string" ? { command } : { argv: [...command] }), ...toWire(rest), ...stdin,
      ...(env && { env }), ...(secrets && { secrets }), ...(pty && { pty: toWire(pty) }),
    };
    signal?.throwIfAborted();
    const starting = this.#transport.json<ExecutionInfo>(routes.startExecution, { params: this.#params, body, headers }).then((info) => {
      if (typeof info.id !== "string") throw new ProtocolError("the answer to a start is no execution");
      return new Execution(this.#transport, info);
    });
    return signal ? unlessAborted(starting, signal) : starting;
  }
}

// Who gives up the wait for a start does not know the command that may run by then: it is killed when it is known.
async function unlessAborted(starting: Promise<Execution>, signal: AbortSignal): Promise<Execution> {
  let abort!: () => void;
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(abortReason(signal));
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    return await Promise.race([starting, aborted]);
  } catch (error) {
    if (signal.aborted) starting.then((execution) => execution.kill()).catch(() => undefined);
    throw error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function inlineStdin(stdin: Source | undefined): { stdin_text?: string; stdin_b64?: string } | undefined {
  if (typeof stdin === "string" && stdin.length <= maxInlineStdin) return { stdin_text: stdin };
  if (stdin instanceof Uint8Array && stdin.length <= maxInlineStdin) return { stdin_b64: Buffer.from(stdin).toString("base64") };
  return undefined;
}

// The result of a command that gets its input meanwhile. It need not read its input to the end, nor the input have one.
async function whileFed(execution: Execution, stdin: Source, following: Promise<ExecResult>): Promise<ExecResult> {
  const stop = new AbortController();
  const feeding = execution.writeStdin(stdin, { close: true, signal: stop.signal }).catch((error: unknown) => {
    const hasEnded = error instanceof ConflictError || error instanceof NotFoundError;
    if (!hasEnded && !stop.signal.aborted) throw error;
  });
  try {
    return await Promise.race([following, feeding.then(() => following)]);
  } finally {
    stop.abort();
    following.catch(() => undefined); // when the feeding failed first
  }
}
