// SPDX-License-Identifier: Apache-2.0
import * as http from "node:http";
import * as https from "node:https";
import { setTimeout as sleep } from "node:timers/promises";

import { ApiError, ConnectionError, ConnectionTimeoutError, ProtocolError, errorFromAnswer } from "./errors.js";
import { fromWire } from "./names.js";
import type { Route } from "./routes.js";
import { type ClientOptions, findServer } from "./settings.js";

/** Bytes for a request: text goes as UTF-8, anything iterable is streamed. */
export type Source = string | Uint8Array | AsyncIterable<Uint8Array | string> | Iterable<Uint8Array | string>;

type QueryValue = string | number | boolean | Uint8Array | readonly string[] | Record<string, string> | undefined;

export interface CallOptions<R extends Route = Route> {
  params?: Record<string, string | number>;
  query?: { [name in R["query"][number]]?: QueryValue };
  /** A JSON body, in the API's names. */
  body?: { [name in R["body"][number]]?: unknown };
  bytes?: Source | undefined;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Milliseconds of silence; 0: any. */
  idleTimeoutMs?: number;
}

const unsafe = (byte: number): string => "%" + byte.toString(16).toUpperCase().padStart(2, "0");
/** Percent-encodes text or bytes. */
export function quote(value: string | Uint8Array): string {
  if (typeof value === "string") return encodeURIComponent(value);
  return Array.from(value, (byte) => (/[A-Za-z0-9_.~/-]/.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : unsafe(byte))).join("");
}

function queryText(query: Record<string, QueryValue>): string {
  const parts: string[] = [];
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    if (Array.isArray(value)) parts.push(...value.map((item: string) => `${name}=${quote(item)}`));
    else if (value instanceof Uint8Array) parts.push(`${name}=${quote(value)}`);
    // The API spells a filter by its properties: metadata.KEY=VALUE.
    else if (typeof value === "object") for (const [key, text] of Object.entries(value)) parts.push(`${quote(key)}=${quote(text as string)}`);
    else parts.push(`${name}=${quote(String(value))}`);
  }
  return parts.length > 0 ? "?" + parts.join("&") : "";
}

const isBytes = (source: Source): source is string | Uint8Array => typeof source === "string" || source instanceof Uint8Array;

/** @internal The reason of an aborted signal as it should be thrown. */
export const abortReason = (signal: AbortSignal): unknown => signal.reason ?? new DOMException("This operation was aborted", "AbortError");

/** @internal Waits, with jitter, and at least as long as the server asked for. */
export async function backOff(attempt: number, retryAfterSeconds = 0, signal?: AbortSignal): Promise<void> {
  const own = Math.min(2000, 100 * 2 ** attempt) * (0.5 + Math.random() / 2);
  try {
    await sleep(Math.max(own, retryAfterSeconds * 1000), undefined, signal ? { signal } : {});
  } catch (error) {
    throw signal?.aborted ? abortReason(signal) : error;
  }
}

// A server that is starting or stopping has refused the call before it did anything.
const isRefusedForNow = (error: unknown): error is ApiError =>
  error instanceof ApiError && error.status === 503 && error.retryAfter !== undefined;

const isRepeatable = (route: Route, call: CallOptions): boolean => route.repeatable || call.headers?.["Idempotency-Key"] !== undefined;

/** @internal */
export class Transport {
  readonly url: URL;
  readonly options: Required<Pick<ClientOptions, "retries" | "connectTimeoutMs" | "idleTimeoutMs" | "reattachMs">>;
  readonly #agent: http.Agent;
  readonly #request: typeof http.request;
  readonly #headers: Record<string, string>;
  readonly #prefix: string;

  constructor(options: ClientOptions) {
    const { url, apiKey } = findServer(options);
    this.url = url;
    this.options = {
      retries: options.retries ?? 3,
      connectTimeoutMs: options.connectTimeoutMs ?? 10_000,
      idleTimeoutMs: options.idleTimeoutMs ?? 120_000,
      reattachMs: options.reattachMs ?? 60_000,
    };
    // The server closes connections that were idle for 75 s. One that is given up earlier is never met by a close on its way.
    const agent = { keepAlive: true, timeout: 30_000, scheduling: "lifo" as const };
    this.#agent = url.protocol === "https:" ? new https.Agent(agent) : new http.Agent(agent);
    this.#request = url.protocol === "https:" ? https.request : http.request;
    this.#headers = { Authorization: `Bearer ${apiKey}`, ...options.headers };
    this.#prefix = url.pathname.replace(/\/+$/, "");
  }

  close(): void {
    this.#agent.destroy();
  }

  /** The answer, its body not yet read. A failing status is thrown. */
  async open<R extends Route>(route: R, call: CallOptions<R> = {}): Promise<http.IncomingMessage> {
    const path = this.#path(route, call);
    const canRepeat = call.bytes === undefined || isBytes(call.bytes);
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.#once(route.method, path, call);
      } catch (error) {
        if (attempt >= this.options.retries || !canRepeat || call.signal?.aborted) throw error;
        const isSafe = error instanceof ConnectionError && (!error.sent || isRepeatable(route, call));
        if (!isSafe && !isRefusedForNow(error)) throw error;
        await backOff(attempt, isRefusedForNow(error) ? error.retryAfter : 0, call.signal);
      }
    }
  }

  /** The whole body of the answer. A read that breaks off is begun again. */
  async bytes<R extends Route>(route: R, call: CallOptions<R> = {}): Promise<Buffer> {
    for (let attempt = 0; ; attempt++) {
      const answer = await this.open(route, call);
      try {
        return await readAll(answer, call.signal);
      } catch (error) {
        const canRepeat = isRepeatable(route, call) && (call.bytes === undefined || isBytes(call.bytes));
        if (!canRepeat || !(error instanceof ConnectionError) || attempt >= this.options.retries) throw error;
        await backOff(attempt, 0, call.signal);
      }
    }
  }

  async json<T>(route: Route, call: CallOptions = {}): Promise<T> {
    const text = (await this.bytes(route, call)).toString("utf8");
    try {
      return fromWire<T>(JSON.parse(text));
    } catch {
      throw new ProtocolError(`${route.method} ${route.path}: the answer is not JSON: ${text.slice(0, 200)}`);
    }
  }

  /** Switches to WebSocket and gives the socket with what has arrived on it. */
  upgrade<R extends Route>(route: R, call: CallOptions<R>): Promise<{ answer: http.IncomingMessage; socket: import("node:net").Socket; head: Buffer }> {
    const request = this.#request(this.#target(this.#path(route, call)), {
      headers: { ...this.#headers, Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", ...call.headers },
      timeout: this.options.connectTimeoutMs,
    });
    return new Promise((resolve, reject) => {
      const abort = (): void => void request.destroy(abortReason(call.signal!) as Error);
      call.signal?.addEventListener("abort", abort, { once: true });
      request.on("close", () => call.signal?.removeEventListener("abort", abort));
      request.on("upgrade", (answer, socket, head) => {
        socket.setTimeout(0);
        resolve({ answer, socket, head });
      });
      request.on("response", (answer) => {
        readAll(answer, call.signal).then((body) => reject(errorFromAnswer(answer.statusCode ?? 0, answer.headers, body.toString("utf8"))), reject);
      });
      request.on("timeout", () => request.destroy(new ConnectionTimeoutError(`${this.url.origin} does not answer`, true)));
      request.on("error", (error) => reject(call.signal?.aborted ? abortReason(call.signal) : asConnectionError(error, true, this.url)));
      request.end();
    });
  }

  #target(path: string): string {
    return this.url.origin + this.#prefix + path;
  }

  #path(route: Route, call: CallOptions): string {
    const path = route.path.replace(/\{(\w+)\}/g, (_, name: string) => quote(String(call.params?.[name])));
    return path + queryText((call.query ?? {}) as Record<string, QueryValue>);
  }

  async #once(method: string, path: string, call: CallOptions): Promise<http.IncomingMessage> {
    call.signal?.throwIfAborted();
    const headers: http.OutgoingHttpHeaders = { ...this.#headers, ...call.headers };
    let body: Source | undefined = call.bytes;
    if (call.body !== undefined) {
      body = JSON.stringify(call.body);
      headers["Content-Type"] = "application/json";
    }
    if (body !== undefined && isBytes(body)) headers["Content-Length"] = Buffer.byteLength(body);
    else if (body === undefined && method !== "GET") headers["Content-Length"] = 0;

    const request = this.#request(this.#target(path), { method, headers, agent: this.#agent });
    const answer = await this.#exchange(request, body, call);
    if ((answer.statusCode ?? 0) < 300) return answer;
    const text = (await readAll(answer, call.signal)).toString("utf8");
    if (!request.writableFinished) request.destroy(); // what was refused need not be sent to its end
    throw errorFromAnswer(answer.statusCode ?? 0, answer.headers, text);
  }

  #exchange(request: http.ClientRequest, body: Source | undefined, call: CallOptions): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      let isConnected = false;
      let answer: http.IncomingMessage | undefined;
      const connecting = setTimeout(() => {
        if (!isConnected) request.destroy(new ConnectionTimeoutError(`${this.url.origin} does not accept connections`, false));
      }, this.options.connectTimeoutMs);
      const connected = (): void => {
        isConnected = true;
        clearTimeout(connecting);
        request.setTimeout(call.idleTimeoutMs ?? this.options.idleTimeoutMs);
      };
      const abort = (): void => void request.destroy(abortReason(call.signal!) as Error);
      call.signal?.addEventListener("abort", abort, { once: true });
      request.on("socket", (socket) => {
        if (!socket.connecting) connected();
        else socket.once(this.url.protocol === "https:" ? "secureConnect" : "connect", connected);
      });
      request.on("timeout", () => {
        // Silence of a reader who has not taken what is there is not the server's.
        if (isConnected && !(answer && answer.readableLength > 0)) request.destroy(new ConnectionTimeoutError(`${this.url.origin} is silent`, true));
      });
      request.on("response", (message) => resolve((answer = message)));
      request.on("error", (error) => {
        const reason = call.signal?.aborted ? abortReason(call.signal) : asConnectionError(error, isConnected, this.url);
        answer?.destroy(reason as Error);
        reject(reason);
      });
      request.on("close", () => {
        clearTimeout(connecting);
        call.signal?.removeEventListener("abort", abort);
      });
      const isRefused = (): boolean => (answer?.statusCode ?? 0) >= 300;
      send(request, body, isRefused).catch((error: unknown) => {
        // An answer that came before the end of the body counts, not that the rest could not be sent.
        if (!answer) request.destroy(error as Error);
      });
    });
  }
}

// Also when nobody will take the rest.
function drained(request: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      for (const event of ["drain", "close", "response"]) request.off(event, done);
      resolve();
    };
    for (const event of ["drain", "close", "response"]) request.on(event, done);
  });
}

async function send(request: http.ClientRequest, body: Source | undefined, isRefused: () => boolean): Promise<void> {
  if (body !== undefined && !isBytes(body)) {
    for await (const piece of body) {
      if (request.destroyed || isRefused()) return;
      if (!request.write(piece)) await drained(request);
    }
    request.end();
  } else {
    request.end(body);
  }
}

function asConnectionError(error: unknown, sent: boolean, url: URL): Error {
  const code = (error as NodeJS.ErrnoException).code;
  if (error instanceof ConnectionError || (error instanceof Error && !code)) return error;
  const what = code === "ECONNREFUSED" ? "nothing listens there: is the server running (`glovebox up`)?" : (error as Error).message;
  return new ConnectionError(`${url.origin}: ${what}`, sent, { cause: error });
}

/** @internal The pieces of a body; a body that breaks off is a ConnectionError. Ending early closes the connection. */
export async function* pieces(answer: http.IncomingMessage, signal?: AbortSignal): AsyncGenerator<Buffer, void, undefined> {
  try {
    for await (const piece of answer) yield piece as Buffer;
  } catch (error) {
    if (signal?.aborted) throw abortReason(signal);
    throw error instanceof ConnectionError ? error : new ConnectionError("the connection broke in the middle of an answer", true, { cause: error });
  }
}

async function readAll(answer: http.IncomingMessage, signal?: AbortSignal): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const piece of pieces(answer, signal)) parts.push(piece);
  return Buffer.concat(parts);
}
