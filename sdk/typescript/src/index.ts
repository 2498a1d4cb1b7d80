// SPDX-License-Identifier: Apache-2.0
import "./dispose.js";

export { Attachment, type AttachOptions } from "./attachment.js";
export { CodeContexts, type CodeResult, type RunCodeOptions } from "./code.js";
export { DefaultNetwork, Glovebox, Keys, Sandboxes, Templates } from "./client.js";
export * from "./errors.js";
export {
  type Command, CommandFailedError, type ExecOptions, ExecResult, Execution, type FollowOptions, type OutputChunk, type StartOptions,
} from "./execution.js";
export { Files, type Path, type ReadOptions, type WriteOptions } from "./files.js";
export { Network } from "./network.js";
export { type LogPage, Pages } from "./pages.js";
export { type CreateOptions, type ListOptions, Sandbox, type TerminalOptions, type WithClient } from "./sandbox.js";
export type { ClientOptions } from "./settings.js";
export { Snapshots } from "./snapshots.js";
export type { LeftOut } from "./tar.js";
export type { Source } from "./transport.js";
export type * from "./types.js";
export { Volumes } from "./volumes.js";
export { Watch } from "./watch.js";
