// SPDX-License-Identifier: Apache-2.0
import type { IncomingMessage } from "node:http";

import { ConnectionError, errorFromAnswer } from "./errors.js";
import { fromWire } from "./names.js";
import { type ServerEvent, events } from "./sse.js";
import { pieces } from "./transport.js";
import type { FileEvent } from "./types.js";

/**
 * Changes in a directory, in the order in which they happen, until the directory is gone. Iterate over it; leaving the loop ends it.
 * An end before its time is thrown: SandboxEndedError, SandboxNotReadyError when the sandbox was hibernated or reset, UnavailableError
 * when the server stops, ConnectionError when it is not known. Changes meanwhile are not told later.
 */
export class Watch implements AsyncIterable<FileEvent> {
  readonly #answer: IncomingMessage;
  readonly #events: AsyncGenerator<ServerEvent, void, undefined>;

  private constructor(answer: IncomingMessage, signal: AbortSignal | undefined) {
    this.#answer = answer;
    this.#events = events(pieces(answer, signal));
  }

  /** @internal Resolves when it watches. */
  static async begin(answer: IncomingMessage, signal: AbortSignal | undefined): Promise<Watch> {
    const watch = new Watch(answer, signal);
    try {
      while ((await watch.#next()).event !== "watching");
    } catch (error) {
      watch.close();
      throw error;
    }
    return watch;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FileEvent, void, undefined> {
    try {
      for (;;) {
        const { event, data } = await this.#next();
        if (event === "end") return;
        yield fromWire(JSON.parse(data));
      }
    } finally {
      this.close();
    }
  }

  close(): void {
    this.#answer.destroy();
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  async #next(): Promise<ServerEvent> {
    const { value, done } = await this.#events.next();
    if (done) throw new ConnectionError("the watch ended without a word", true);
    if (value.event === "error") throw errorFromAnswer(this.#answer.statusCode ?? 0, this.#answer.headers, value.data);
    return value;
  }
}
