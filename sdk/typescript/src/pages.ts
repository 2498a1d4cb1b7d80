// SPDX-License-Identifier: Apache-2.0
import { fromWire } from "./names.js";
import type { Route } from "./routes.js";
import type { CallOptions, Transport } from "./transport.js";

/** A list that the server gives in pages: iterate it, or take it as an array. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #page: (cursor: string | undefined) => Promise<{ items: T[]; next: string | null }>;
  /** @internal */
  constructor(page: (cursor: string | undefined) => Promise<{ items: T[]; next: string | null }>) {
    this.#page = page;
  }
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (let cursor: string | undefined; ; ) {
      const { items, next } = await this.#page(cursor);
      yield* items;
      if (next === null || next === cursor) return;
      cursor = next;
    }
  }
  async toArray(): Promise<T[]> {
    const out: T[] = [];
    for await (const item of this) out.push(item);
    return out;
  }
}

/** @internal A list whose items stand in `field` of each page. */
export function pages<T, R extends Route & { query: readonly ("limit" | "cursor" | string)[] }>(
  transport: Transport, route: R, field: string, call: CallOptions<R>, made: (item: unknown) => T = (item) => item as T,
): Pages<T> {
  return new Pages<T>(async (cursor) => {
    const query = { limit: 1000, ...call.query, cursor } as CallOptions<R>["query"];
    const page = await transport.json<Record<string, unknown>>(route, { ...call, query } as CallOptions);
    return { items: (page[field] as unknown[]).map(made), next: page.nextCursor as string | null };
  });
}

/** A log that goes on: entries from a cursor, and where to go on later. */
export interface LogPage<T> {
  entries: T[];
  nextCursor: string;
  /** The log is bounded: entries behind the cursor are gone. */
  lost: boolean;
}

/** @internal */
export async function logPage<T, R extends Route>(
  transport: Transport, route: R, field: string, call: CallOptions<R>,
): Promise<LogPage<T>> {
  const page = await transport.json<Record<string, unknown>>(route, call as CallOptions);
  return fromWire({ entries: page[field], nextCursor: page.nextCursor, lost: page.lost });
}
