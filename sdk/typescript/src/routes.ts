// SPDX-License-Identifier: Apache-2.0
// Every call of the API by its operationId: method, path, query parameters and fields of a JSON body. The types make a call with an
// unknown parameter an error; tests/sdk compares the table with spec/openapi.yaml.

export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query: readonly string[];
  readonly body: readonly string[];
  /** Doing it twice is as good as once, so a call whose connection broke may be sent again. */
  readonly repeatable: boolean;
}

type Extra<Q extends string, B extends string> = { query?: readonly Q[]; body?: readonly B[]; repeatable?: boolean };

function route<Q extends string = never, B extends string = never>(
  method: Route["method"], path: string, extra: Extra<Q, B> = {},
): Route & { readonly query: readonly Q[]; readonly body: readonly B[] } {
  return { method, path, query: extra.query ?? [], body: extra.body ?? [], repeatable: extra.repeatable ?? method === "GET" };
}

const sandbox = "/v1/sandboxes/{id}";
const execution = sandbox + "/executions/{eid}";
const page = ["limit", "cursor"] as const;
const policy = ["egress", "presets", "allow", "deny", "limits", "packages"] as const;

export const routes = {
  createSandbox: route("POST", "/v1/sandboxes", {
    body: ["template", "snapshot", "runtime", "limits", "env", "secrets", "metadata", "user", "workdir", "lifetime_ms", "idle_timeout_ms", "fresh",
      "on_timeout", "network", "volumes"],
    repeatable: true, // by its idempotency key
  }),
  listSandboxes: route("GET", "/v1/sandboxes", { query: ["state", "metadata_filter", ...page] }),
  getSandbox: route("GET", sandbox),
  updateSandbox: route("PATCH", sandbox, { body: ["lifetime_ms", "idle_timeout_ms", "metadata"] }),
  killSandbox: route("DELETE", sandbox, { repeatable: true }),
  pauseSandbox: route("POST", sandbox + "/pause", { repeatable: true }),
  resumeSandbox: route("POST", sandbox + "/resume", { repeatable: true }),
  hibernateSandbox: route("POST", sandbox + "/hibernate", { body: ["require"], repeatable: true }),
  forkSandbox: route("POST", sandbox + "/fork", { body: ["count", "lifetime_ms", "env", "secrets", "inherit_secrets", "metadata", "network", "require"] }),
  resetSandbox: route("POST", sandbox + "/reset", { body: ["snapshot"] }),
  diffSandbox: route("GET", sandbox + "/diff", { query: ["against", ...page] }),
  getSandboxStats: route("GET", sandbox + "/stats"),

  startExecution: route("POST", sandbox + "/executions", {
    query: ["wait"],
    body: ["argv", "command", "env", "secrets", "cwd", "user", "stdin", "stdin_text", "stdin_b64", "pty", "timeout_ms", "kill_grace_ms", "name"],
  }),
  listExecutions: route("GET", sandbox + "/executions", { query: ["state", ...page] }),
  getExecution: route("GET", execution),
  waitExecution: route("GET", execution + "/wait", { query: ["timeout_ms"] }),
  readOutput: route("GET", execution + "/output", { query: ["cursor", "stream", "format", "wait_ms", "follow"] }),
  writeStdin: route("POST", execution + "/stdin", { query: ["close"] }),
  signalExecution: route("POST", execution + "/signal", { body: ["signal", "tree"] }),
  killExecution: route("POST", execution + "/kill", { repeatable: true }),
  resizeExecution: route("POST", execution + "/resize", { body: ["cols", "rows"], repeatable: true }),
  attachExecution: route("GET", execution + "/attach", { query: ["cursor"] }),
  listProcesses: route("GET", sandbox + "/processes"),
  signalProcess: route("POST", sandbox + "/processes/{pid}/signal", { body: ["signal", "tree"] }),

  readFile: route("GET", sandbox + "/files", { query: ["path", "user"] }),
  writeFile: route("PUT", sandbox + "/files", { query: ["path", "user", "mode", "parents", "exclusive", "append"] }),
  removeFile: route("DELETE", sandbox + "/files", { query: ["path", "user", "recursive"] }),
  statFile: route("GET", sandbox + "/files/stat", { query: ["path", "user", "follow"] }),
  listFiles: route("GET", sandbox + "/files/list", { query: ["path", "user", ...page] }),
  watchFiles: route("GET", sandbox + "/files/watch", { query: ["path", "user", "recursive"] }),
  makeDirectory: route("POST", sandbox + "/files/mkdir", { query: ["user"], body: ["path", "path_b64", "parents", "mode"] }),
  moveFile: route("POST", sandbox + "/files/move", {
    query: ["user"], body: ["from", "from_b64", "to", "to_b64", "parents", "overwrite"],
  }),
  readArchive: route("GET", sandbox + "/archive", { query: ["path", "user", "gzip"] }),
  writeArchive: route("PUT", sandbox + "/archive", { query: ["path", "user"] }),

  runCode: route("POST", sandbox + "/code", { body: ["code", "language", "context", "env", "timeout_ms", "cwd"] }),
  listCodeContexts: route("GET", sandbox + "/code/contexts"),
  createCodeContext: route("POST", sandbox + "/code/contexts", { body: ["language", "cwd"] }),
  deleteCodeContext: route("DELETE", sandbox + "/code/contexts/{context}", { repeatable: true }),
  restartCodeContext: route("POST", sandbox + "/code/contexts/{context}/restart"),
  interruptCode: route("POST", sandbox + "/code/contexts/{context}/interrupt"),

  getNetwork: route("GET", sandbox + "/network"),
  setNetwork: route("PUT", sandbox + "/network", { body: policy, repeatable: true }),
  listConnections: route("GET", sandbox + "/network/connections", { query: page }),
  listPackages: route("GET", sandbox + "/packages", { query: page }),
  getPort: route("GET", sandbox + "/ports/{port}"),
  openPort: route("POST", sandbox + "/ports/{port}", { body: ["public"] }),
  revokePort: route("DELETE", sandbox + "/ports/{port}", { repeatable: true }),
  checkNetwork: route("GET", "/v1/network"),
  getDefaultNetwork: route("GET", "/v1/network/default"),
  setDefaultNetwork: route("PUT", "/v1/network/default", { body: policy, repeatable: true }),
  unsetDefaultNetwork: route("DELETE", "/v1/network/default", { repeatable: true }),
  listPresets: route("GET", "/v1/network/presets"),

  createSnapshot: route("POST", sandbox + "/snapshots", { body: ["name", "labels", "require"] }),
  listSnapshots: route("GET", "/v1/snapshots", { query: ["sandbox", "name", "label_filter", ...page] }),
  getSnapshot: route("GET", "/v1/snapshots/{id}"),
  updateSnapshot: route("PATCH", "/v1/snapshots/{id}", { body: ["name", "labels"] }),
  deleteSnapshot: route("DELETE", "/v1/snapshots/{id}"),
  verifySnapshot: route("POST", "/v1/snapshots/{id}/verify", { repeatable: true }),

  createVolume: route("POST", "/v1/volumes", { body: ["name", "size_mb", "labels", "get_or_create"] }),
  listVolumes: route("GET", "/v1/volumes", { query: page }),
  getVolume: route("GET", "/v1/volumes/{volume}"),
  growVolume: route("PATCH", "/v1/volumes/{volume}", { body: ["size_mb"], repeatable: true }),
  deleteVolume: route("DELETE", "/v1/volumes/{volume}"),
  exportVolume: route("GET", "/v1/volumes/{volume}/archive"),
  importVolume: route("PUT", "/v1/volumes/{volume}/archive"),

  listTemplates: route("GET", "/v1/templates"),
  getTemplate: route("GET", "/v1/templates/{name}"),
  removeTemplate: route("DELETE", "/v1/templates/{name}"),
  listRuntimes: route("GET", "/v1/runtimes"),
  getPool: route("GET", "/v1/pool"),
  listKeys: route("GET", "/v1/keys"),
  createKey: route("POST", "/v1/keys", { body: ["name", "tenant", "role", "default_runtime"] }),
  removeKey: route("DELETE", "/v1/keys/{id}"),
  getInfo: route("GET", "/v1/info"),
  getHealth: route("GET", "/healthz"),
  getReadiness: route("GET", "/readyz"),
  metrics: route("GET", "/metrics"),
  getOpenApi: route("GET", "/openapi.json"),
  getVersion: route("GET", "/version"),
} as const;
