// SPDX-License-Identifier: Apache-2.0
// The API's names are snake_case, TypeScript's camelCase. Keys of maps that belong to callers are left as they are.

const callersOwn = new Set(["env", "secrets", "metadata", "labels", "details", "facts", "effective", "data"]);

export const toCamel = (name: string): string => name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
export const toSnake = (name: string): string => name.replace(/[A-Z]/g, (letter) => "_" + letter.toLowerCase());

function renamed(value: unknown, rename: (name: string) => string): unknown {
  if (Array.isArray(value)) return value.map((item) => renamed(item, rename));
  if (value === null || typeof value !== "object") return value;
  const out: Record<string, unknown> = {};
  for (const [name, content] of Object.entries(value)) {
    if (content !== undefined) out[rename(name)] = callersOwn.has(name) ? content : renamed(content, rename);
  }
  return out;
}

/** What the server sent, in TypeScript's names. The caller names the type that the API promises. */
export const fromWire = <T>(value: unknown): T => renamed(value, toCamel) as T;
/** A request in the API's names; fields that are undefined are left out. */
export const toWire = (value: object): Record<string, unknown> => renamed(value, toSnake) as Record<string, unknown>;
