// SPDX-License-Identifier: Apache-2.0
// What the API's objects look like, in camelCase. tests/sdk compares each interface with its schema in spec/openapi.yaml.

/** The wall around a sandbox, strongest first: a virtual machine, a kernel in user space, namespaces. */
export type Tier = "microvm" | "gvisor" | "container";
export type SandboxState = "creating" | "ready" | "paused" | "ending" | "ended";
export type ExecutionState = "running" | "ended";
export type StreamName = "stdout" | "stderr";
export type Kept = "memory+files" | "files";
export type Role = "admin" | "user";
export type OnTimeout = "kill" | "pause" | "hibernate";
/** A name with or without SIG, or a number. */
export type Signal = string | number;
export type Egress = "none" | "allowlist" | "open";

export interface LimitsRequest {
  /** Hard cap, in CPUs. */
  cpus?: number;
  memoryMb?: number;
  diskMb?: number;
  processes?: number;
  openFiles?: number;
}
export type Limits = Required<LimitsRequest>;

export interface NetworkRule {
  host?: string;
  cidr?: string;
  ports?: (number | string)[];
  protocols?: ("tls" | "http" | "tcp" | "udp" | "icmp")[];
  methods?: string[];
  paths?: string[];
}

/** What a sandbox may reach; docs/network-policy.md has the exact meaning. */
export interface NetworkPolicy {
  egress?: Egress;
  presets?: string[];
  allow?: NetworkRule[];
  deny?: NetworkRule[];
  limits?: { bandwidth?: number; connections?: number; bytes?: number };
  packages?: {
    registries?: ("pypi" | "npm" | "debian")[];
    allow?: string[];
    deny?: string[];
    minimumAgeHours?: number;
    installScripts?: boolean;
    requireHashes?: boolean;
    offline?: boolean;
    maxBytes?: number;
  };
}

export interface VolumeMount {
  /** Id or name. */
  volume: string;
  /** Absolute, inside the sandbox. */
  path: string;
  readOnly?: boolean;
}

export interface CreateSandbox {
  /** A name, or `name@version-prefix`. Default: "base". */
  template?: string;
  /** A snapshot's id, to start from instead of a template. */
  snapshot?: string;
  /** "auto", the default, is the strongest that works on the server. A named one is never replaced by another. */
  runtime?: Tier | "auto";
  limits?: LimitsRequest;
  /** For every execution. Values are never given back. */
  env?: Record<string, string>;
  /** Environment as well, which snapshots and copies do not take along. */
  secrets?: Record<string, string>;
  metadata?: Record<string, string>;
  user?: string;
  workdir?: string;
  /** 0: none. Default: five minutes, or what the operator has set. */
  lifetimeMs?: number;
  /** 0, the default: none. */
  idleTimeoutMs?: number;
  /** Start it now, also where the server's pool has one ready. */
  fresh?: boolean;
  onTimeout?: OnTimeout;
  network?: NetworkPolicy;
  volumes?: VolumeMount[];
}

export interface SandboxInfo {
  id: string;
  state: SandboxState;
  runtime: Tier;
  template: { name: string; version: string };
  startedFrom: "cold" | "pool" | "snapshot" | "fork";
  readyMs: number;
  createdAt: string;
  expiresAt: string | null;
  idleTimeoutMs: number;
  onTimeout: OnTimeout;
  limits: Limits;
  user: string;
  workdir: string;
  envKeys: string[];
  secretKeys: string[];
  metadata: Record<string, string>;
  network: { egress: Egress; link: boolean; address: string | null };
  frozen: boolean;
  paused: { at: string; cause: "call" | "lifetime" | "idle"; hibernated: boolean; kept: Kept } | null;
  runningExecutions: number;
  ended: { at: string; reason: string; message: string } | null;
  /** The snapshot it was started from or reset to last. */
  snapshotId: string | null;
  volumes: VolumeMount[];
  /** Of a microvm, once it runs. */
  engine?: string;
  /** Of a microvm, once it runs. */
  accel?: "kvm" | "emulated";
}

export interface UpdateSandbox {
  /** Counts from now; 0: none. */
  lifetimeMs?: number;
  idleTimeoutMs?: number;
  /** Replaces the whole of it. */
  metadata?: Record<string, string>;
}

export interface Stats {
  cpuMs: number;
  memoryBytes: number;
  memoryPeakBytes: number;
  diskBytes: number;
  /** 0 where the host cannot see them (gvisor). */
  processes: number;
  oomKills: number;
}

export interface Pty {
  cols?: number;
  rows?: number;
  term?: string;
}

/** How an execution ended. Only `exited` has an exit code. */
export interface Outcome {
  type: "exited" | "signalled" | "timed_out" | "oom_killed" | "killed_by_caller" | "sandbox_ended" | "interrupted";
  exitCode?: number;
  signal?: number;
  signalName?: string;
  message?: string;
}

export interface ExecutionInfo {
  id: string;
  sandboxId: string;
  state: ExecutionState;
  pid: number;
  argv?: string[];
  command?: string;
  cwd: string;
  /** Its exact bytes, when they are not UTF-8. */
  cwdB64?: string;
  user: string;
  pty: boolean;
  name: string;
  startedAt: string;
  endedAt: string | null;
  durationMs: number;
  outcome: Outcome | null;
  exitCode?: number;
  /** Processes of its tree are still alive after its end. */
  childrenLeft: boolean;
  output: { stdoutBytes: number; stderrBytes: number; keptBytes: number; truncated: boolean; nextCursor: number };
  usage: { userMs: number; systemMs: number; maxRssBytes: number };
}

export interface ProcessInfo {
  pid: number;
  ppid: number;
  /** The execution it descends from. */
  execution: string | null;
  user: string;
  argv: string[];
  cwd: string;
  /** Its exact bytes, when they are not UTF-8. */
  cwdB64?: string;
  state: string;
  startedAt: string;
  rssBytes: number;
}

export interface Entry {
  name: string;
  /** The exact bytes, when the name is not UTF-8. */
  nameB64?: string;
  path: string;
  pathB64?: string;
  type: "file" | "directory" | "symlink" | "fifo" | "socket" | "char" | "block";
  sizeBytes: number;
  /** Permission bits in octal. */
  mode: string;
  uid: number;
  gid: number;
  user: string;
  group: string;
  modifiedAt: string;
  target?: string;
  targetB64?: string;
}

/**
 * A change in a watched directory. `rename` is told of the old name, the new one is a `create`. `overflow`: events are missing; look
 * at the directory itself.
 */
export interface FileEvent {
  type: "create" | "write" | "remove" | "rename" | "chmod" | "overflow";
  /** Below the watched directory; empty: the directory itself. */
  path: string;
  /** The exact bytes, when it is not UTF-8. */
  pathB64?: string;
}

export interface NetworkState {
  policy: NetworkPolicy | null;
  /** Every rule in force with its name, in the API's own form. */
  effective: Record<string, unknown>;
  link: boolean;
  address: string | null;
  usage: { bytesIn: number; bytesOut: number; openConnections: number };
}

export interface ConnectionEntry {
  timeMs: number;
  sandbox: string;
  kind: "connection" | "request" | "dns" | "packet";
  flow?: string;
  protocol: "tls" | "http" | "tcp" | "udp" | "icmp" | "other";
  host: string;
  address: string;
  port: number;
  verdict: "allowed" | "denied" | "failed";
  rule: string;
  reason: string;
  howToAllow?: string;
  bytesOut: number;
  bytesIn: number;
  phase: "" | "open" | "close";
  method?: string;
  path?: string;
  queryType?: string;
  folded?: number;
  cursor: string;
}

export interface PackageEntry {
  timeMs: number;
  sandbox: string;
  registry: "pypi" | "npm" | "debian";
  package: string;
  requested?: string;
  version: string;
  file?: string;
  sha256?: string;
  source?: "" | "cache" | "upstream";
  bytes?: number;
  outcome: "served" | "denied" | "failed";
  rule: string;
  reason: string;
  client?: string;
  cursor: string;
}

export interface Preset {
  name: string;
  description: string;
  policy: NetworkPolicy;
}

export interface NetworkCheck {
  enabled: boolean;
  works: boolean;
  problem: string;
  remedy: string;
  links: number;
  readyLinks: number;
}

export interface Port {
  sandboxId: string;
  port: number;
  /** Null when that cannot be known without waking the sandbox. */
  listening: boolean | null;
  public: boolean;
  revoked: boolean;
  token: string | null;
  urls: { path: string; localhost: string | null; domain: string | null };
  /** The best URL for a browser, with the token. */
  link: string | null;
  expiresAt: string | null;
}

export interface Template {
  name: string;
  version: string;
  kind: "debian" | "oci-import";
  imageSha256: string;
  imageBytes: number;
  createdAt: string;
  user: string;
  workdir: string;
  env: Record<string, string>;
  packageCount: number;
}

export interface RuntimeStatus {
  runtime: Tier;
  usable: boolean;
  engine: string;
  /** Empty when usable. */
  problem: string;
  remedy: string;
  facts?: Record<string, string>;
}

export interface Pool {
  template: { name: string; version: string | null };
  runtime: Tier;
  limits: Limits;
  /** For calls with a network policy. */
  network: boolean;
  /** Languages whose kernels are up in them. */
  warm: ("python" | "javascript" | "bash")[];
  wanted: number;
  /** The most that `wanted` becomes. */
  max: number;
  ready: number;
  /** Of these, the ones with kernels that are up. */
  readyWarm: number;
  starting: number;
  claimed: number;
  misses: number;
  refillMs: number;
}

export interface Key {
  id: string;
  name: string;
  tenant: string;
  role: Role;
  preview?: string;
  defaultRuntime?: Tier | null;
  createdAt: string;
}

export interface CreateKey {
  name: string;
  tenant?: string;
  role?: Role;
  defaultRuntime?: Tier | "auto";
}

export interface Info {
  version: string;
  dataDir?: string;
  limits: Record<string, number>;
  network: { enabled: boolean; defaultEgress: Egress };
  uptimeMs: number;
}

export interface Snapshot {
  id: string;
  name: string;
  labels: Record<string, string>;
  state: "building" | "ready" | "failed";
  /** Why it failed. */
  message?: string;
  runtime: Tier;
  kept: Kept;
  sourceSandbox: string;
  /** The snapshot that its sandbox was started from, or reset to. */
  parent: string | null;
  template: string;
  templateVersion: string;
  limits: Limits;
  minMemoryMb: number;
  minDiskMb: number;
  bytes: number;
  parts: { name: string; bytes: number; sha256: string }[];
  /** How long the source stood still. */
  stallMs: number;
  createdAt: string;
}

export interface CreateSnapshot {
  name?: string;
  labels?: Record<string, string>;
  /** Fail with `unsupported` where less would be kept. */
  require?: Kept;
}

export interface ForkSandbox {
  /** 1, the default, to 100. */
  count?: number;
  lifetimeMs?: number;
  env?: Record<string, string>;
  /** Over the parent's, if those are inherited. */
  secrets?: Record<string, string>;
  /** Otherwise a child begins without its parent's. */
  inheritSecrets?: boolean;
  metadata?: Record<string, string>;
  network?: NetworkPolicy;
  require?: Kept;
}

export interface Change {
  path: string;
  pathB64?: string;
  change: "added" | "changed" | "deleted";
  type: Entry["type"];
  size: number;
  mode: string;
}

export interface Volume {
  id: string;
  name: string;
  sizeMb: number;
  /** Null while a sandbox has it to write. */
  usedBytes: number | null;
  labels: Record<string, string>;
  /** The sandbox that has it to write. */
  writer: string | null;
  /** Sandboxes that have it read-only. */
  readers: string[];
  createdAt: string;
}

export interface CreateVolume {
  name: string;
  /** Default 1024. */
  sizeMb?: number;
  labels?: Record<string, string>;
  /** Give one of this name as it is, if there is one. */
  getOrCreate?: boolean;
}

/** One value in several forms, by MIME type; binary ones as base64. Also `data` (a table's columns) and `chart` (what a figure shows). */
export interface CodeOutput {
  /** The value of the last expression; else it was displayed. */
  main: boolean;
  data: Record<string, unknown>;
  /** Forms that were too large. */
  dropped?: string[];
}

export interface CodeError {
  /** `died`: the kernel ended, and the state with it. `exit`: a shell's status. */
  kind: "exception" | "timeout" | "interrupted" | "died" | "exit" | "sandbox_ended";
  name: string;
  value: string;
  traceback: string;
  /** That killed the kernel. */
  signal?: number;
}

export interface CodeContext {
  id: string;
  language: "python" | "javascript" | "bash";
  /** Where it began. */
  cwd: string;
  running: boolean;
}
