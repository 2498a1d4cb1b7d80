// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/text.h"
#include "http/stream.h"
#include "runtime/runtime.h"
#include "sandbox/config.h"

// The only door to sandboxes: every dialect and the CLI go through SandboxService with an authenticated Caller. Loop thread only.
namespace glovebox::policy {
struct NetworkPolicy;
}

namespace glovebox::sandbox {

using NetworkPolicyPtr = std::shared_ptr<const policy::NetworkPolicy>;
using Millis = std::chrono::milliseconds;
using StringMap = std::map<std::string, std::string>;

enum class Role { kUser, kAdmin };

struct Caller {
  std::string tenant;
  std::string key_id;
  Role role = Role::kUser;
  std::optional<runtime::Tier> default_runtime;  // what `auto` means for this key; empty: the strongest usable tier
  std::string request_id;
};

enum class State { kCreating, kReady, kPaused, kEnding, kEnded };
std::string_view state_name(State state);
std::optional<State> state_from_name(std::string_view name);

struct Ended {
  WallTime at;
  std::string reason;  // killed, lifetime, idle, oom, crashed, host_lost, start_failed
  std::string message;
};

// What happens at the end of the lifetime, or after the idle timeout.
enum class OnTimeout { kKill, kPause, kHibernate };
std::string_view on_timeout_name(OnTimeout action);  // kill, pause, hibernate
std::optional<OnTimeout> on_timeout_from_name(std::string_view name);

struct Paused {
  WallTime at;
  std::string cause;  // call, lifetime, idle
  bool hibernated = false;  // its memory is freed
  runtime::Kept kept = runtime::Kept::kMemoryAndFiles;
};

// A volume in a sandbox.
struct VolumeMount {
  std::string volume;  // id or name; in SandboxInfo the id
  std::string path;    // absolute, inside
  bool read_only = false;
  auto operator<=>(const VolumeMount&) const = default;
};

struct CreateSpec {
  std::string template_name = "base";
  std::optional<runtime::Tier> tier;  // empty: the strongest usable one
  std::optional<double> cpus;         // what is absent takes the operator's default
  std::optional<uint64_t> memory_bytes, disk_bytes, processes, open_files;
  StringMap env;
  StringMap secrets;    // environment as well; no name may be in both
  StringMap metadata;
  std::string user;     // empty: the template's default
  std::string workdir;  // empty: the user's home
  std::optional<Millis> lifetime;      // 0: none; absent: the operator's default
  Millis idle_timeout{0};              // 0: none
  OnTimeout on_timeout = OnTimeout::kKill;
  // What it may reach; null: what the operator gives everybody, and without that no network at all. With a policy, even one that
  // allows nothing, it has a link.
  NetworkPolicyPtr network;
  bool fresh = false;                  // never one from the pool
  std::string snapshot;                // start from this one (an id), and `template_name` is not asked for
  std::vector<VolumeMount> volumes;
  StringMap attributes;                // a dialect's own facts (region, size, project); kept, never interpreted
  // A caller's name for this call: repeating it gives the sandbox the first call made, as long as that is remembered. Another
  // request under the same name is kConflict. `request` is the request as the dialect got it, to tell the two apart.
  std::string idempotency_key, request;
};

struct SandboxInfo {
  std::string id, tenant;
  State state = State::kCreating;
  runtime::Tier tier = runtime::Tier::kContainer;
  std::string engine, accel;  // of a machine: "qemu" or "firecracker", and "kvm" or "emulated"; empty on other tiers, and until it runs
  std::string template_name, template_version;
  std::string started_from = "cold";   // cold, pool, snapshot, fork
  std::string snapshot_id;             // that it was started from or reset to last
  std::vector<VolumeMount> volumes;
  double ready_ms = 0;                 // create call to agent answer
  WallTime created_at;
  Millis lifetime{0};                  // 0: none; begins again when a sandbox is resumed after its end
  std::optional<WallTime> expires_at;
  Millis idle_timeout{0};
  OnTimeout on_timeout = OnTimeout::kKill;
  std::optional<Paused> paused;        // while it is
  runtime::Limits limits;
  NetworkPolicyPtr network;            // null: loopback only
  std::optional<uint32_t> link;        // while it has one
  uint64_t network_in = 0, network_out = 0;  // bytes that passed, as of the last few seconds
  StringMap env, metadata, attributes;
  StringMap secrets;                   // environment of executions whose values are never shown; not in snapshots, and gone at its end
  std::string user, workdir;
  bool frozen = false;
  int running_executions = 0;
  std::optional<Ended> ended;
  std::string idempotency_key, request_hash;  // of the create call; never shown
};

struct PoolState {
  PoolTarget target;
  std::string template_version;  // empty: nothing can be started for it now
  runtime::Limits limits;        // what a create call must ask for to be served
  size_t ready = 0, starting = 0;
  size_t warm = 0;                   // of the ready ones: what the target wants in them is up
  uint64_t claimed = 0, misses = 0;  // since the daemon's start
  double refill_ms = 0;              // the last start
};

struct ListFilter {
  std::vector<State> states;  // empty: all but ended
  StringMap metadata;         // all must match
  StringMap attributes;       // likewise
  size_t limit = 100;
  std::string cursor;
};
template <class T>
struct Page {
  std::vector<T> items;       // newest first
  std::string next_cursor;    // empty at the end
};

struct Update {
  std::optional<Millis> lifetime;  // from now; 0: none
  std::optional<Millis> idle_timeout;
  std::optional<StringMap> metadata;
  StringMap attributes;  // merged into what is there; an empty value removes its name
};

struct Pty {
  int cols = 80, rows = 24;
  std::string term;  // empty: xterm-256color
};

struct ExecSpec {
  std::vector<std::string> argv;  // either this
  std::string command;            // or this: run by /bin/sh -c
  StringMap env;
  std::string cwd, user, name;
  bool keep_stdin = false;        // otherwise /dev/null, or just `stdin_data`
  std::optional<std::string> stdin_data;
  std::optional<Pty> pty;
  Millis timeout{0};              // 0: none
  Millis kill_grace{0};
  // The platform's own, which serves others: from its first output on it is no reason to keep the sandbox awake, or from being idle.
  bool background = false;
  bool detached = false;          // the caller gets an id and comes back: recorded before execute() returns
  // As in CreateSpec, for execute_once(): of this sandbox, as long as the execution is remembered.
  std::string idempotency_key, request;
};

enum class Stream : uint8_t { kStdout = 1, kStderr = 2 };

struct Outcome {
  std::string type;  // exited, signalled, timed_out, oom_killed, killed_by_caller, sandbox_ended, interrupted
  std::optional<int> exit_code;  // of `exited` only, as wait4 gave it
  std::optional<int> signal;     // of the main process, as wait4 gave it
  std::string message;
};

struct ExecInfo {
  std::string id, sandbox_id, name;
  int64_t pid = 0;  // in the sandbox
  std::vector<std::string> argv;
  std::string command, cwd, user;
  bool pty = false;
  bool background = false;
  WallTime started_at;
  std::optional<WallTime> ended_at;
  std::optional<Outcome> outcome;  // empty while running
  bool children_left = false;      // at its end; false again once they are gone
  uint64_t stdout_bytes = 0, stderr_bytes = 0;  // what the process wrote
  uint64_t kept_bytes = 0;                      // what can be read by cursor
  uint64_t dropped_stdout = 0, dropped_stderr = 0;
  uint64_t next_cursor = 0;
  uint64_t user_us = 0, system_us = 0, max_rss_bytes = 0;
  std::string idempotency_key, request_hash;  // of the call that started it; never shown
  bool truncated() const { return dropped_stdout + dropped_stderr > 0; }
};

struct Chunk {
  Stream stream = Stream::kStdout;
  uint64_t cursor = 0;  // of its first byte
  std::string data;
};

// One execution. Handles stay valid after its end and after the sandbox's; all methods on the loop thread.
class Execution {
 public:
  virtual ~Execution() = default;
  virtual const ExecInfo& info() const = 0;
  bool ended() const { return info().outcome.has_value(); }

  // True once it has ended, false at the deadline.
  virtual Awaitable<bool> wait(Deadline deadline) = 0;
  // At most max_bytes of output from `cursor` on; adjacent bytes of one stream are one chunk. Empty at the current end.
  virtual Async<std::vector<Chunk>> read(uint64_t cursor, size_t max_bytes) = 0;
  // True when there is output past `cursor` or the execution has ended, false at the deadline.
  virtual Awaitable<bool> wait_output(uint64_t cursor, Deadline deadline) = 0;

  // Returns when the bytes are on their way; waits while the process does not read. kConflict when stdin is not open.
  virtual Async<void> write_stdin(std::string data) = 0;
  virtual Async<void> close_stdin() = 0;
  virtual Async<void> signal(int number, bool tree) = 0;
  virtual Async<void> kill() = 0;  // the whole tree; returns when it has ended
  virtual Async<void> resize(int cols, int rows) = 0;
};
using ExecutionPtr = std::shared_ptr<Execution>;

struct FileEntry {
  std::string name, path;  // bytes
  std::string type;        // file, directory, symlink, fifo, socket, char, block
  uint64_t size = 0;
  uint32_t mode = 0;       // permission bits
  uint32_t uid = 0, gid = 0;
  std::string user, group;
  int64_t mtime_ms = 0;
  int64_t ctime_ns = 0;    // of its last change, metadata included; no program can set it. Never shown
  std::optional<std::string> target;
};

struct FileEvent {
  // create, write, remove, rename (from this name; the new one is a create), chmod, or overflow: events are missing.
  std::string type;
  std::string path;  // bytes, below the watched directory; empty: the directory itself, which ends the watch, or overflow
};

struct ProcessInfo {
  int64_t pid = 0, ppid = 0;
  std::string execution, user, cwd, state;
  std::vector<std::string> argv;
  int64_t started_ms = 0;
  uint64_t rss_bytes = 0;
};

// What changes in a directory. It is no activity: the sandbox may stand still meanwhile, and then nothing changes in it.
class FileWatch {
 public:
  virtual ~FileWatch() = default;
  // What has happened since the last call, at most 256 KiB of it; waits for the first event, and gives none at the deadline. What nobody
  // asks for waits in the sandbox, and overflows there. kFileNotFound once the directory itself is gone. An error is final.
  virtual Async<std::vector<FileEvent>> next(Deadline deadline) = 0;
};

// Bytes coming out of a sandbox (file, archive, connection).
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // The next bytes; empty at the end. An error is final.
  virtual Async<std::string> read() = 0;
  std::optional<uint64_t> length;  // what will come in all, when known
  std::optional<FileEntry> entry;
};

// Bytes going in. Dropping it without finish() aborts: an upload then leaves nothing behind.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual Async<void> write(std::string data) = 0;
  virtual Async<std::optional<FileEntry>> finish() = 0;
};

struct WriteOptions {
  std::optional<uint32_t> mode;  // absent: 0644 for a new file, an existing one keeps its own
  bool parents = true, exclusive = false, append = false;
};

// The address of a sandbox with this link, as the network's other side sees it.
std::string link_address(uint32_t link);

class SandboxService {
 public:
  virtual ~SandboxService() = default;

  struct Created {
    SandboxInfo info;
    bool replayed = false;  // an earlier call with the same idempotency key made it
  };
  virtual Async<Created> create(const Caller& caller, CreateSpec spec) = 0;
  virtual Result<SandboxInfo> get(const Caller& caller, const std::string& id) = 0;
  virtual Result<Page<SandboxInfo>> list(const Caller& caller, const ListFilter& filter) = 0;
  virtual Async<SandboxInfo> update(const Caller& caller, const std::string& id, Update update) = 0;
  struct Killed {
    SandboxInfo info;
    bool already_ended = false;
  };
  virtual Async<Killed> kill(const Caller& caller, const std::string& id) = 0;
  // Its processes stand still from now on, memory and files are kept, no CPU is used. A call that needs it resumes it, one that looks
  // does not. Repeating either is fine. kConflict: calls are under way in it.
  virtual Async<SandboxInfo> pause(const Caller& caller, const std::string& id) = 0;
  virtual Async<SandboxInfo> resume(const Caller& caller, const std::string& id) = 0;
  virtual Async<runtime::Usage> usage(const Caller& caller, const std::string& id) = 0;

  // What sandboxes of the caller's tenant may reach when their callers say nothing; null: the operator's default. Setting is for
  // admins (kForbidden), null takes it back.
  virtual NetworkPolicyPtr tenant_network(const Caller& caller) const = 0;
  virtual Async<void> set_tenant_network(const Caller& caller, NetworkPolicyPtr policy) = 0;

  struct NetworkState {
    NetworkPolicyPtr policy;         // null: none was asked for
    std::string effective;           // JSON: every rule in force, with the presets' and the operator's
    std::optional<std::string> address;
    uint64_t bytes_in = 0, bytes_out = 0, open_connections = 0;
  };
  // What a create call that says nothing about the network gets; null: loopback only.
  virtual NetworkPolicyPtr default_network() const = 0;
  virtual Result<NetworkState> network(const Caller& caller, const std::string& id) = 0;
  // Live: when it returns, connections that the new policy does not allow are cut. kConflict for a sandbox without a link.
  virtual Async<NetworkState> set_network(const Caller& caller, const std::string& id, NetworkPolicyPtr policy) = 0;
  // What the sandbox tried to reach, or to install: JSON objects, oldest first.
  enum class NetworkLog { kConnections, kPackages };
  struct LogPage {
    std::vector<std::pair<std::string, std::string>> entries;  // the entry and the cursor behind it
    std::string next_cursor;                                   // always: later entries come after it
    bool lost = false;                                         // the oldest had to go
  };
  virtual Async<LogPage> network_log(const Caller& caller, const std::string& id, NetworkLog log, const std::string& cursor,
                                     size_t limit) = 0;

  virtual Async<ExecutionPtr> execute(const Caller& caller, const std::string& id, ExecSpec spec) = 0;
  struct Started {
    ExecutionPtr execution;
    bool replayed = false;  // an earlier call with the same idempotency key started it
  };
  // As execute(), at most once for each idempotency key: what it runs is recorded before it starts, so that one whose start a daemon did
  // not live to see is `interrupted`, and not started again. A start that is refused leaves the key free.
  virtual Async<Started> execute_once(const Caller& caller, const std::string& id, ExecSpec spec) = 0;
  virtual Async<ExecutionPtr> execution(const Caller& caller, const std::string& id, const std::string& execution) = 0;
  virtual Result<Page<ExecInfo>> executions(const Caller& caller, const std::string& id, std::optional<bool> running,
                                            size_t limit, const std::string& cursor) = 0;
  virtual Async<std::vector<ProcessInfo>> processes(const Caller& caller, const std::string& id) = 0;
  virtual Async<void> signal_process(const Caller& caller, const std::string& id, int64_t pid, int signal, bool tree) = 0;

  // Files. `user` empty: the sandbox's default user. Paths are bytes.
  virtual Async<FileEntry> stat(const Caller& caller, const std::string& id, const std::string& user,
                                const std::string& path, bool follow) = 0;
  virtual Async<Page<FileEntry>> list_files(const Caller& caller, const std::string& id, const std::string& user,
                                            const std::string& path, const std::string& after, size_t limit) = 0;
  virtual Async<bool> make_directory(const Caller& caller, const std::string& id, const std::string& user,
                                     const std::string& path, bool parents, uint32_t mode) = 0;
  virtual Async<void> remove(const Caller& caller, const std::string& id, const std::string& user,
                             const std::string& path, bool recursive) = 0;
  virtual Async<void> move(const Caller& caller, const std::string& id, const std::string& user, const std::string& from,
                           const std::string& to, bool parents, bool overwrite) = 0;
  virtual Async<std::unique_ptr<ByteSource>> read_file(const Caller& caller, const std::string& id, const std::string& user,
                                                       const std::string& path, uint64_t offset,
                                                       std::optional<uint64_t> length) = 0;
  virtual Async<std::unique_ptr<ByteSink>> write_file(const Caller& caller, const std::string& id, const std::string& user,
                                                      const std::string& path, WriteOptions options) = 0;
  virtual Async<std::unique_ptr<ByteSource>> read_archive(const Caller& caller, const std::string& id,
                                                          const std::string& user, const std::string& path, bool gzip) = 0;
  virtual Async<std::unique_ptr<ByteSink>> write_archive(const Caller& caller, const std::string& id,
                                                         const std::string& user, const std::string& path) = 0;

  // kNotADirectory, kCapacity (64 in a sandbox, of 8192 directories each).
  virtual Async<std::unique_ptr<FileWatch>> watch_files(const Caller& caller, const std::string& id, const std::string& user,
                                                        const std::string& path, bool recursive) = 0;

  // A TCP connection to a port on the sandbox's own loopback. Bytes on it count as activity; it wakes a frozen sandbox.
  // kPreviewUnreachable when nothing answers there. At once: without waiting to know; then the first read tells. What is written before
  // it, at most 64 KiB, is on its way already, which saves a way there and back.
  enum class Dialling { kConfirmed, kAtOnce };
  virtual Async<std::unique_ptr<http::Stream>> dial(const Caller& caller, const std::string& id, uint16_t port, Dialling how) = 0;
  // Whether something listens there; nullopt when that cannot be known without waking the sandbox. Is no activity.
  virtual Async<std::optional<bool>> is_listening(const Caller& caller, const std::string& id, uint16_t port) = 0;
  // The sandbox of any tenant, for those who are let in by a secret of the sandbox's own instead of a key (previews). The caller
  // checks that secret before anything of this is shown or used.
  virtual Result<SandboxInfo> get_unchecked(const std::string& id) const = 0;

  virtual std::vector<PoolState> pool() const = 0;

  struct RuntimeInfo {
    runtime::Tier tier;
    runtime::Capability capability;
  };
  virtual const std::vector<RuntimeInfo>& runtimes() const = 0;   // strongest first
  // What `auto` means for this caller; empty when no tier works.
  virtual std::optional<runtime::Tier> auto_tier(const Caller& caller) const = 0;
  virtual bool template_in_use(const std::string& version) const = 0;
};

}  // namespace glovebox::sandbox
