# SPDX-License-Identifier: Apache-2.0
"""What the API's objects look like. tests/sdk compares each class with its schema in spec/openapi.yaml.

What goes to the server are dictionaries, what comes from it are dataclasses. Times are RFC 3339 strings in UTC.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, TypedDict, Union

Tier = Literal["microvm", "gvisor", "container"]
SandboxState = Literal["creating", "ready", "paused", "ending", "ended"]
ExecutionState = Literal["running", "ended"]
StreamName = Literal["stdout", "stderr"]
Kept = Literal["memory+files", "files"]
Role = Literal["admin", "user"]
OnTimeout = Literal["kill", "pause", "hibernate"]
Signal = Union[str, int]
Egress = Literal["none", "allowlist", "open"]


class LimitsRequest(TypedDict, total=False):
    cpus: float  # Hard cap, in CPUs.
    memory_mb: int
    disk_mb: int
    processes: int
    open_files: int


@dataclass(frozen=True)
class Limits:
    cpus: float
    memory_mb: int
    disk_mb: int
    processes: int
    open_files: int


class NetworkRule(TypedDict, total=False):
    host: str
    cidr: str
    ports: List[Union[int, str]]
    protocols: List[Literal["tls", "http", "tcp", "udp", "icmp"]]
    methods: List[str]
    paths: List[str]


class NetworkPolicyLimits(TypedDict, total=False):
    bandwidth: int
    connections: int
    bytes: int


class NetworkPolicyPackages(TypedDict, total=False):
    registries: List[Literal["pypi", "npm", "debian"]]
    allow: List[str]
    deny: List[str]
    minimum_age_hours: int
    install_scripts: bool
    require_hashes: bool
    offline: bool
    max_bytes: int


class NetworkPolicy(TypedDict, total=False):
    """What a sandbox may reach; docs/network-policy.md has the exact meaning."""
    egress: Egress
    presets: List[str]
    allow: List[NetworkRule]
    deny: List[NetworkRule]
    limits: NetworkPolicyLimits
    packages: NetworkPolicyPackages


class VolumeMount(TypedDict, total=False):
    volume: str  # Id or name.
    path: str  # Absolute, inside the sandbox.
    read_only: bool


@dataclass(frozen=True)
class SandboxTemplate:
    name: str
    version: str


@dataclass(frozen=True)
class SandboxNetwork:
    egress: Egress
    link: bool
    address: Optional[str]


@dataclass(frozen=True)
class SandboxPaused:
    at: str
    cause: Literal["call", "lifetime", "idle"]
    hibernated: bool  # its memory is freed
    kept: Kept


@dataclass(frozen=True)
class SandboxEnded:
    at: str
    reason: str
    message: str


@dataclass(frozen=True)
class SandboxInfo:
    id: str
    state: SandboxState
    runtime: Tier
    template: SandboxTemplate
    started_from: Literal["cold", "pool", "snapshot", "fork"]
    ready_ms: float
    created_at: str
    expires_at: Optional[str]
    idle_timeout_ms: int
    on_timeout: OnTimeout
    limits: Limits
    user: str
    workdir: str
    env_keys: List[str]
    secret_keys: List[str]
    metadata: Dict[str, str]
    network: SandboxNetwork
    frozen: bool
    paused: Optional[SandboxPaused]
    running_executions: int
    ended: Optional[SandboxEnded]
    snapshot_id: Optional[str]  # The snapshot it was started from or reset to last.
    volumes: List[VolumeMount]
    engine: Optional[str] = None  # Of a microvm, once it runs.
    accel: Optional[Literal["kvm", "emulated"]] = None  # Of a microvm, once it runs.


@dataclass(frozen=True)
class Stats:
    cpu_ms: int
    memory_bytes: int
    memory_peak_bytes: int
    disk_bytes: int
    processes: int  # 0 where the host cannot see them (gvisor).
    oom_kills: int


class Pty(TypedDict, total=False):
    cols: int
    rows: int
    term: str


@dataclass(frozen=True)
class Outcome:
    """How an execution ended. Only `exited` has an exit code."""
    type: Literal["exited", "signalled", "timed_out", "oom_killed", "killed_by_caller", "sandbox_ended", "interrupted"]
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    signal_name: Optional[str] = None
    message: Optional[str] = None


@dataclass(frozen=True)
class ExecutionOutput:
    stdout_bytes: int
    stderr_bytes: int
    kept_bytes: int
    truncated: bool
    next_cursor: int


@dataclass(frozen=True)
class ExecutionUsage:
    user_ms: int
    system_ms: int
    max_rss_bytes: int


@dataclass(frozen=True)
class ExecutionInfo:
    id: str
    sandbox_id: str
    state: ExecutionState
    pid: int
    cwd: str
    user: str
    pty: bool
    name: str
    started_at: str
    ended_at: Optional[str]
    duration_ms: int
    outcome: Optional[Outcome]
    children_left: bool  # Processes of its tree are still alive after its end.
    output: ExecutionOutput
    usage: ExecutionUsage
    argv: Optional[List[str]] = None
    command: Optional[str] = None
    exit_code: Optional[int] = None
    cwd_b64: Optional[str] = None  # Its exact bytes, when they are not UTF-8.


@dataclass(frozen=True)
class ProcessInfo:
    pid: int
    ppid: int
    execution: Optional[str]  # The execution it descends from.
    user: str
    argv: List[str]
    cwd: str
    state: str
    started_at: str
    rss_bytes: int
    cwd_b64: Optional[str] = None  # Its exact bytes, when they are not UTF-8.


@dataclass(frozen=True)
class Entry:
    name: str
    path: str
    type: Literal["file", "directory", "symlink", "fifo", "socket", "char", "block"]
    size_bytes: int
    mode: str  # Permission bits in octal.
    uid: int
    gid: int
    user: str
    group: str
    modified_at: str
    name_b64: Optional[str] = None  # The exact bytes, when the name is not UTF-8.
    path_b64: Optional[str] = None
    target: Optional[str] = None
    target_b64: Optional[str] = None


@dataclass(frozen=True)
class FileEvent:
    """A change in a watched directory.

    `rename` is told of the old name, the new one is a `create`. `overflow`: events are missing; look at the directory itself.
    """
    type: Literal["create", "write", "remove", "rename", "chmod", "overflow"]
    path: str  # Below the watched directory; empty: the directory itself.
    path_b64: Optional[str] = None  # The exact bytes, when it is not UTF-8.


@dataclass(frozen=True)
class NetworkStateUsage:
    bytes_in: int
    bytes_out: int
    open_connections: int


@dataclass(frozen=True)
class NetworkState:
    policy: Optional[NetworkPolicy]
    effective: Dict[str, Any]  # Every rule in force with its name, in the API's own form.
    link: bool
    address: Optional[str]
    usage: NetworkStateUsage


@dataclass(frozen=True)
class ConnectionEntry:
    time_ms: int
    sandbox: str
    kind: Literal["connection", "request", "dns", "packet"]
    protocol: Literal["tls", "http", "tcp", "udp", "icmp", "other"]
    host: str
    address: str
    port: int
    verdict: Literal["allowed", "denied", "failed"]
    rule: str
    reason: str
    bytes_out: int
    bytes_in: int
    phase: Literal["", "open", "close"]
    cursor: str
    flow: Optional[str] = None
    how_to_allow: Optional[str] = None
    method: Optional[str] = None
    path: Optional[str] = None
    query_type: Optional[str] = None
    folded: Optional[int] = None


@dataclass(frozen=True)
class PackageEntry:
    time_ms: int
    sandbox: str
    registry: Literal["pypi", "npm", "debian"]
    package: str
    version: str
    outcome: Literal["served", "denied", "failed"]
    rule: str
    reason: str
    cursor: str
    requested: Optional[str] = None
    file: Optional[str] = None
    sha256: Optional[str] = None
    source: Optional[Literal["", "cache", "upstream"]] = None
    bytes: Optional[int] = None
    client: Optional[str] = None


@dataclass(frozen=True)
class Preset:
    name: str
    description: str
    policy: NetworkPolicy


@dataclass(frozen=True)
class NetworkCheck:
    enabled: bool
    works: bool
    problem: str
    remedy: str
    links: int
    ready_links: int


@dataclass(frozen=True)
class PortUrls:
    path: str
    localhost: Optional[str]
    domain: Optional[str]


@dataclass(frozen=True)
class Port:
    sandbox_id: str
    port: int
    listening: Optional[bool]  # None when that cannot be known without waking the sandbox.
    public: bool
    revoked: bool
    token: Optional[str]
    urls: PortUrls
    link: Optional[str]  # The best URL for a browser, with the token.
    expires_at: Optional[str]


@dataclass(frozen=True)
class Template:
    name: str
    version: str
    kind: Literal["debian", "oci-import"]
    image_sha256: str
    image_bytes: int
    created_at: str
    user: str
    workdir: str
    env: Dict[str, str]
    package_count: int


@dataclass(frozen=True)
class RuntimeStatus:
    runtime: Tier
    usable: bool
    engine: str
    problem: str  # Empty when usable.
    remedy: str
    facts: Optional[Dict[str, str]] = None


@dataclass(frozen=True)
class PoolTemplate:
    name: str
    version: Optional[str]  # None: nothing can be started for it now


@dataclass(frozen=True)
class Pool:
    template: PoolTemplate
    runtime: Tier
    limits: Limits
    wanted: int
    ready: int
    starting: int
    claimed: int
    misses: int
    refill_ms: float
    network: bool  # For calls with a network policy.
    max: int  # The most that `wanted` becomes.
    warm: List[Literal["python", "javascript", "bash"]]  # Languages whose kernels are up in them.
    ready_warm: int  # Of these, the ones with kernels that are up.


@dataclass(frozen=True)
class Key:
    id: str
    name: str
    tenant: str
    role: Role
    created_at: str
    preview: Optional[str] = None
    default_runtime: Optional[Tier] = None


@dataclass(frozen=True)
class InfoNetwork:
    enabled: bool
    default_egress: Egress


@dataclass(frozen=True)
class Info:
    version: str
    limits: Dict[str, float]
    network: InfoNetwork
    uptime_ms: int
    data_dir: Optional[str] = None


@dataclass(frozen=True)
class SnapshotPart:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Snapshot:
    id: str
    name: str
    labels: Dict[str, str]
    state: Literal["building", "ready", "failed"]
    runtime: Tier
    kept: Kept
    source_sandbox: str
    parent: Optional[str]  # The snapshot that its sandbox was started from, or reset to.
    template: str
    template_version: str
    limits: Limits
    min_memory_mb: int
    min_disk_mb: int
    bytes: int
    parts: List[SnapshotPart]
    stall_ms: float  # How long the source stood still.
    created_at: str
    message: Optional[str] = None  # Why it failed.


@dataclass(frozen=True)
class Change:
    path: str
    change: Literal["added", "changed", "deleted"]
    type: str
    size: int
    mode: str
    path_b64: Optional[str] = None


@dataclass(frozen=True)
class Volume:
    id: str
    name: str
    size_mb: int
    used_bytes: Optional[int]  # None while a sandbox has it to write.
    labels: Dict[str, str]
    writer: Optional[str]  # The sandbox that has it to write.
    readers: List[str]  # Sandboxes that have it read-only.
    created_at: str


@dataclass(frozen=True)
class CodeOutput:
    """One value in several forms."""
    main: bool  # The value of the last expression; else it was displayed.
    data: Dict[str, Any]  # By MIME type, binary ones as base64. Also `data` (a table's columns) and `chart` (what a figure shows).
    dropped: Optional[List[str]] = None  # Forms that were too large.


@dataclass(frozen=True)
class CodeError:
    """`died`: the kernel ended, and the state with it. `exit`: a shell's status."""
    kind: Literal["exception", "timeout", "interrupted", "died", "exit", "sandbox_ended"]
    name: str
    value: str
    traceback: str
    signal: Optional[int] = None  # That killed the kernel.


@dataclass(frozen=True)
class CodeContext:
    id: str
    language: Literal["python", "javascript", "bash"]
    cwd: str  # Where it began.
    running: bool
