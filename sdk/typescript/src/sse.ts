// SPDX-License-Identifier: Apache-2.0

/** @internal One event of a text/event-stream. */
export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

function parsed(block: string): ServerEvent | undefined {
  const out: ServerEvent = { id: "", event: "message", data: "" };
  const data: string[] = [];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === 0) continue; // a comment keeps the connection awake
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") data.push(value);
    else if (name === "id" || name === "event") out[name] = value;
  }
  if (data.length === 0) return undefined;
  out.data = data.join("\n");
  return out;
}

/** @internal Complete events only: what a broken connection left of the last one is dropped, and read again from its cursor. */
export async function* events(source: AsyncIterable<Buffer>): AsyncGenerator<ServerEvent, void, undefined> {
  let parts: Buffer[] = [];
  for await (const piece of source) {
    parts.push(piece);
    // Events end in an empty line; most pieces of a large one hold none.
    if (piece.indexOf("\n") < 0) continue;
    const text = parts.length === 1 ? piece : Buffer.concat(parts);
    let begin = 0;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", begin)) {
      const event = parsed(text.toString("utf8", begin, end).replace(/\r/g, ""));
      begin = end + 2;
      if (event) yield event;
    }
    parts = begin < text.length ? [text.subarray(begin)] : [];
  }
}
