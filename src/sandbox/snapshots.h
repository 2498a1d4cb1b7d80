// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sandbox/service.h"

// Snapshots of sandboxes and what is made from them. The other half of the only door (sandbox/service.h): callers are authenticated,
// another tenant's things are no different from none. Loop thread only.
namespace glovebox::sandbox {

struct SnapshotInfo {
  std::string id, tenant, name;
  StringMap labels;
  std::string state = "building";        // building, ready, failed
  std::string message;                   // why it failed
  runtime::Tier tier = runtime::Tier::kContainer;
  runtime::Kept kept = runtime::Kept::kFiles;
  std::string source_sandbox;
  std::string parent;                    // the snapshot that its sandbox was started from, or reset to; empty: none
  std::string template_name, template_version;
  runtime::Limits limits;                // of the source; a restored sandbox may have others, none smaller than it needs
  uint64_t min_memory_bytes = 0, min_disk_bytes = 0;
  StringMap env;                         // of the source, without what was named secret
  std::string user, workdir;
  uint64_t bytes = 0;                    // on disk
  std::vector<runtime::SnapshotPart> parts;
  StringMap needs;                       // facts of the host that must be the same at a restore: engine, cpu, …
  std::chrono::microseconds stall{0};    // how long the source stood still
  WallTime created_at;
  int in_use = 0;                        // sandboxes that are being started from it
};

struct SnapshotSpec {
  std::string name;                      // empty: its id; need not be unique
  StringMap labels;
  std::optional<runtime::Kept> require;  // kUnsupported when the tier cannot keep it
};

struct SnapshotFilter {
  std::string source_sandbox, name;      // empty: any
  StringMap labels;                      // all must match
  size_t limit = 100;
  std::string cursor;
};

struct ForkSpec {
  size_t count = 1;                      // 1 … 100
  std::optional<Millis> lifetime;        // absent: what is left of the parent's
  std::optional<StringMap> env, metadata;  // absent: the parent's
  StringMap secrets;                     // over the parent's, if those are inherited
  bool inherit_secrets = false;
  NetworkPolicyPtr network;              // null: the parent's
  std::optional<runtime::Kept> require;
};

// One difference between a sandbox's files and what it is compared with.
struct FileChange {
  std::string path;  // bytes
  enum class Kind { kAdded, kChanged, kDeleted } kind = Kind::kAdded;
  std::string type;  // as in FileEntry; of what is gone for a deleted one
  uint64_t size = 0;
  uint32_t mode = 0, uid = 0, gid = 0;
  int64_t ctime_ns = 0;  // not for callers
};

class Snapshots {
 public:
  virtual ~Snapshots() = default;

  // The source goes on running. Returns when the snapshot is ready and on disk for good.
  virtual Async<SnapshotInfo> snapshot(const Caller& caller, const std::string& sandbox, SnapshotSpec spec) = 0;
  virtual Result<SnapshotInfo> get_snapshot(const Caller& caller, const std::string& id) const = 0;  // kSnapshotNotFound
  virtual Result<Page<SnapshotInfo>> list_snapshots(const Caller& caller, const SnapshotFilter& filter) const = 0;
  virtual Async<SnapshotInfo> update_snapshot(const Caller& caller, const std::string& id, std::optional<std::string> name,
                                              std::optional<StringMap> labels) = 0;
  virtual Async<void> delete_snapshot(const Caller& caller, const std::string& id) = 0;  // kSnapshotInUse
  // Reads all of it: kCorrupt when a byte differs.
  virtual Async<void> verify_snapshot(const Caller& caller, const std::string& id) = 0;

  // Children of a running sandbox, all or none, each with an identity of its own.
  virtual Async<std::vector<SandboxInfo>> fork(const Caller& caller, const std::string& sandbox, ForkSpec spec) = 0;
  // Back to a snapshot, in place: it keeps its id, its deadlines and its preview addresses; its executions end (sandbox_ended, reason
  // reset). Empty id: the snapshot it was started from, or reset to last. kSnapshotMismatch, and nothing happened: the snapshot is of
  // another runtime or version of the template, or needs more memory or disk than the sandbox has.
  virtual Async<SandboxInfo> reset(const Caller& caller, const std::string& sandbox, const std::string& snapshot) = 0;
  // Like a pause, and its memory is freed as well. What is kept is in paused->kept; executions end when it is files only. Resumed as
  // from any other pause.
  virtual Async<SandboxInfo> hibernate(const Caller& caller, const std::string& sandbox, std::optional<runtime::Kept> require) = 0;

  // What is different in a running sandbox from its template, or from a snapshot (`against`, an id) that was taken of it or that it was
  // started from; kUnsupported when too much had changed by then to be recorded. A file counts as changed when it was
  // written to or its metadata was touched since; a directory when its owner or mode is another. Resumes a paused sandbox. A page may
  // hold fewer items than `limit`, also none, and not be the last.
  virtual Async<Page<FileChange>> diff(const Caller& caller, const std::string& sandbox, const std::string& against, size_t limit,
                                       const std::string& cursor) = 0;
};

}  // namespace glovebox::sandbox
