// SPDX-License-Identifier: Apache-2.0
// A WebSocket client (RFC 6455) that sends the API key as a header, which the one built into Node cannot.
import { createHash, randomBytes } from "node:crypto";
import type { Socket } from "node:net";

import { ConnectionError, ConnectionTimeoutError, ProtocolError } from "./errors.js";
import type { Route } from "./routes.js";
import type { CallOptions, Transport } from "./transport.js";

const maxMessageBytes = 16 << 20;
const maxWaitingBytes = 1 << 20; // then the socket is not read until the reader has caught up
const silenceMs = 60_000;
const magic = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const opContinuation = 0, opText = 1, opBinary = 2, opClose = 8, opPing = 9, opPong = 10;

/** @internal */
export type Message = string | Buffer;

/** @internal Messages in order; the iteration ends at a proper close and throws a ConnectionError when the connection broke. */
export class WebSocketConnection {
  readonly #socket: Socket;
  #buffer: Buffer;
  #fragments: Buffer[] = [];
  #fragmentOp = 0;
  #waiting: Message[] = [];
  #waitingBytes = 0;
  #wake: (() => void) | undefined;
  #end: { error?: Error } | undefined;
  #pinging: NodeJS.Timeout;
  #heardAt = Date.now();

  private constructor(socket: Socket, head: Buffer) {
    this.#socket = socket;
    this.#buffer = head;
    socket.setNoDelay(true);
    socket.on("data", (piece: Buffer) => this.#take(piece));
    socket.on("error", (error) => this.#finish(new ConnectionError("the connection broke", true, { cause: error })));
    socket.on("close", () => this.#finish(new ConnectionError("the connection broke", true)));
    this.#pinging = setInterval(() => this.#ping(), silenceMs / 3);
    this.#pinging.unref();
    this.#take(Buffer.alloc(0));
  }

  static async open<R extends Route>(transport: Transport, route: R, call: CallOptions<R>): Promise<WebSocketConnection> {
    const key = randomBytes(16).toString("base64");
    const { answer, socket, head } = await transport.upgrade(route, { ...call, headers: { ...call.headers, "Sec-WebSocket-Key": key } });
    const expected = createHash("sha1").update(key + magic).digest("base64");
    if (answer.headers["sec-websocket-accept"] !== expected) {
      socket.destroy();
      throw new ProtocolError("the server did not accept the WebSocket");
    }
    return new WebSocketConnection(socket, head);
  }

  /** Resolves when the bytes are on their way, later when the server does not keep up. */
  send(message: string | Uint8Array): Promise<void> {
    if (this.#end) return Promise.reject(this.#end.error ?? new ConnectionError("the connection is closed", false));
    const payload = typeof message === "string" ? Buffer.from(message, "utf8") : message;
    return new Promise((resolve, reject) => {
      this.#write(typeof message === "string" ? opText : opBinary, payload, (error) =>
        error ? reject(new ConnectionError("the connection broke", true, { cause: error })) : resolve());
    });
  }

  close(): void {
    if (this.#end) return;
    this.#write(opClose, Buffer.from([0x03, 0xe8]));
    this.#finish();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined> {
    for (;;) {
      const message = this.#waiting.shift();
      if (message !== undefined) {
        this.#waitingBytes -= message.length;
        if (this.#waitingBytes < maxWaitingBytes) this.#socket.resume();
        yield message;
      } else if (this.#end) {
        if (this.#end.error) throw this.#end.error;
        return;
      } else {
        await new Promise<void>((wake) => (this.#wake = wake));
      }
    }
  }

  #ping(): void {
    if (this.#waitingBytes < maxWaitingBytes && Date.now() - this.#heardAt > silenceMs) {
      this.#finish(new ConnectionTimeoutError("the server is silent", true));
    } else {
      this.#write(opPing, Buffer.alloc(0));
    }
  }

  #finish(error?: Error): void {
    if (this.#end) return;
    this.#end = error ? { error } : {};
    clearInterval(this.#pinging);
    this.#socket.end();
    setTimeout(() => this.#socket.destroy(), 1000).unref();
    this.#wake?.();
  }

  #write(op: number, payload: Uint8Array, done?: (error?: Error | null) => void): void {
    const mask = randomBytes(4);
    const length = payload.length;
    const extra = length < 126 ? 0 : length < 65536 ? 2 : 8;
    const frame = Buffer.allocUnsafe(6 + extra + length);
    frame[0] = 0x80 | op;
    frame[1] = 0x80 | (extra === 0 ? length : extra === 2 ? 126 : 127);
    if (extra === 2) frame.writeUInt16BE(length, 2);
    if (extra === 8) frame.writeBigUInt64BE(BigInt(length), 2);
    mask.copy(frame, 2 + extra);
    for (let i = 0; i < length; i++) frame[6 + extra + i] = payload[i]! ^ mask[i & 3]!;
    this.#socket.write(frame, done);
  }

  #take(piece: Buffer): void {
    this.#heardAt = Date.now();
    this.#buffer = this.#buffer.length > 0 ? Buffer.concat([this.#buffer, piece]) : piece;
    try {
      while (!this.#end && this.#takeFrame()) continue;
    } catch (error) {
      this.#finish(error as Error);
    }
  }

  #takeFrame(): boolean {
    const buffer = this.#buffer;
    if (buffer.length < 2) return false;
    const short = buffer[1]! & 0x7f;
    const begin = short === 126 ? 4 : short === 127 ? 10 : 2;
    if (buffer.length < begin) return false;
    const length = short === 126 ? buffer.readUInt16BE(2) : short === 127 ? Number(buffer.readBigUInt64BE(2)) : short;
    if (buffer[1]! & 0x80 || buffer[0]! & 0x70) throw new ProtocolError("a frame that no WebSocket server sends");
    if (length > maxMessageBytes) throw new ProtocolError("a WebSocket message is too large");
    if (buffer.length < begin + length) return false;
    this.#buffer = buffer.subarray(begin + length);
    this.#frame(buffer[0]! & 0x0f, (buffer[0]! & 0x80) !== 0, buffer.subarray(begin, begin + length));
    return true;
  }

  #frame(op: number, isLast: boolean, payload: Buffer): void {
    if (op === opPing) return this.#write(opPong, payload);
    if (op === opPong) return;
    if (op === opClose) {
      const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
      this.#write(opClose, payload.subarray(0, 2));
      return this.#finish(code === 1000 ? undefined : new ConnectionError(`the server closed the WebSocket with ${code} ${payload.toString("utf8", 2)}`, true));
    }
    if (op !== opContinuation) this.#fragmentOp = op;
    this.#fragments.push(payload);
    if (this.#fragments.reduce((sum, part) => sum + part.length, 0) > maxMessageBytes) throw new ProtocolError("a WebSocket message is too large");
    if (!isLast) return;
    const whole = Buffer.concat(this.#fragments);
    this.#fragments = [];
    this.#waiting.push(this.#fragmentOp === opText ? whole.toString("utf8") : whole);
    this.#waitingBytes += whole.length;
    if (this.#waitingBytes >= maxWaitingBytes) this.#socket.pause();
    this.#wake?.();
  }
}
