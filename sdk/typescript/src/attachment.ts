// SPDX-License-Identifier: Apache-2.0
import { ConnectionError, ProtocolError } from "./errors.js";
import { ExecResult, type Execution, type OutputChunk, isLost } from "./execution.js";
import { fromWire } from "./names.js";
import { routes } from "./routes.js";
import { type Transport, backOff } from "./transport.js";
import type { ExecutionInfo, Signal } from "./types.js";
import { WebSocketConnection } from "./websocket.js";

export interface AttachOptions {
  /** Output from here on comes first. Default 0: all of it. */
  cursor?: number;
  signal?: AbortSignal;
}

/** What the server tells by text frames. */
interface ServerMessage {
  type: "started" | "exit" | "cursor" | "error";
  execution?: ExecutionInfo;
  cursor?: number;
  error?: { code: string; message: string };
}

/**
 * An attached execution: iterate for its output, write to its standard input. Leaving it does not touch the execution. When the
 * connection breaks, the output goes on from where it was; a write that was on its way then fails, and nobody can tell how much of it
 * arrived.
 */
export class Attachment implements AsyncIterable<OutputChunk> {
  readonly execution: Execution;
  readonly #transport: Transport;
  readonly #signal: AbortSignal | undefined;
  #connection: WebSocketConnection;
  #cursor: number;
  #isClosed = false;
  #isRead = false;
  #onError: ((error: { code: string; message: string }) => void) | undefined;

  private constructor(transport: Transport, execution: Execution, connection: WebSocketConnection, options: AttachOptions) {
    this.#transport = transport;
    this.execution = execution;
    this.#connection = connection;
    this.#cursor = options.cursor ?? 0;
    this.#signal = options.signal;
    options.signal?.addEventListener("abort", () => this.close(), { once: true });
  }

  /** @internal */
  static async open(transport: Transport, execution: Execution, options: AttachOptions): Promise<Attachment> {
    return new Attachment(transport, execution, await connect(transport, execution, options.cursor ?? 0, options.signal), options);
  }

  /** Called when the server refuses an input, such as one after the command's end. */
  onError(handler: (error: { code: string; message: string }) => void): this {
    this.#onError = handler;
    return this;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, undefined> {
    if (this.#isRead) throw new TypeError("an attachment can be iterated once");
    this.#isRead = true;
    const decoders = [new TextDecoder("utf-8", { ignoreBOM: true }), new TextDecoder("utf-8", { ignoreBOM: true })] as const;
    for (let lostAt = 0, attempt = 0; ; ) {
      try {
        for await (const message of this.#connection) {
          lostAt = attempt = 0;
          if (typeof message === "string") {
            if (this.#told(message)) return;
          } else if (message.length > 1) {
            const isStdout = message[0] === 1;
            const data = message.subarray(1);
            this.#cursor += data.length;
            const text = decoders[isStdout ? 0 : 1].decode(data, { stream: true });
            yield { stream: isStdout ? "stdout" : "stderr", data, text, cursor: this.#cursor, droppedBytes: 0 };
          }
        }
        if (this.#isClosed) return;
        throw new ConnectionError("the server closed the attachment before the execution's end", true);
      } catch (error) {
        if (this.#isClosed) return;
        lostAt ||= Date.now();
        if (!(error instanceof ConnectionError) || Date.now() - lostAt > this.#transport.options.reattachMs) throw error;
        await backOff(attempt++, 0, this.#signal);
        try {
          this.#connection = await connect(this.#transport, this.execution, this.#cursor, this.#signal);
        } catch (again) {
          if (!isLost(again)) throw again;
        }
      }
    }
  }

  /** Reads to the end. */
  async result(): Promise<ExecResult> {
    const parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
    for await (const chunk of this) parts[chunk.stream].push(chunk.data);
    return new ExecResult(this.execution.info, Buffer.concat(parts.stdout), Buffer.concat(parts.stderr));
  }

  async write(data: string | Uint8Array): Promise<void> {
    const bytes = typeof data === "string" ? Buffer.from(data, "utf8") : data;
    for (let begin = 0; begin < bytes.length; begin += 64 << 10) {
      await this.#connection.send(Buffer.concat([Buffer.of(0), bytes.subarray(begin, begin + (64 << 10))]));
    }
  }
  /** Ends standard input. */
  closeStdin(): Promise<void> {
    return this.#connection.send(Buffer.of(0));
  }
  resize(cols: number, rows: number): Promise<void> {
    return this.#connection.send(JSON.stringify({ type: "resize", cols, rows }));
  }
  /** To the command and every process it started. */
  signal(signal: Signal): Promise<void> {
    return this.#connection.send(JSON.stringify({ type: "signal", signal }));
  }
  close(): void {
    this.#isClosed = true;
    this.#connection.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }

  // True at the end.
  #told(text: string): boolean {
    let message: ServerMessage;
    try {
      message = fromWire<ServerMessage>(JSON.parse(text));
    } catch {
      throw new ProtocolError("the server sent a message that is not JSON");
    }
    if (message.execution) this.execution.info = message.execution;
    if (message.type === "cursor" && message.cursor !== undefined) this.#cursor = message.cursor;
    if (message.type === "error" && message.error) this.#onError?.(message.error);
    return message.type === "exit";
  }
}

function connect(transport: Transport, execution: Execution, cursor: number, signal?: AbortSignal): Promise<WebSocketConnection> {
  const { id, sandboxId } = execution.info;
  return WebSocketConnection.open(transport, routes.attachExecution, { params: { id: sandboxId, eid: id }, query: { cursor }, signal });
}
