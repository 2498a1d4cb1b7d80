// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "base/unique_fd.h"

// What isolates a sandbox. Everything here blocks and is called on the blocking pool, except where
// a comment says otherwise; all methods may be called from several threads for different sandboxes
// at once.
namespace glovebox::runtime {

enum class Tier { kContainer = 1, kGvisor = 2, kMicrovm = 3 };  // a larger value is a stronger wall
std::string_view tier_name(Tier tier);                          // "container", "gvisor", "microvm"
std::optional<Tier> tier_from_name(std::string_view name);

struct Limits {
  double cpus = 2;                     // hard cap, 0.05 … host's number
  uint64_t memory_bytes = 1ull << 30;  // of the guest; the engine's own overhead comes on top
  uint64_t disk_bytes = 4ull << 30;    // private writable layer
  uint64_t inodes = 0;                 // 0: what mkfs gives for the size
  uint64_t processes = 512;            // processes and threads
  uint64_t open_files = 8192;          // per process
};

// A root file system that is ready to be used: an erofs image shared read-only by all sandboxes of
// the template.
struct Rootfs {
  std::string digest;      // sha256 hex of the image, names it in mounts and records
  std::string image_path;  // …/rootfs.erofs
};

// What a snapshot holds of its sandbox.
enum class Kept { kFiles, kMemoryAndFiles };
std::string_view kept_name(Kept kept);  // "files", "memory+files"
std::optional<Kept> kept_from_name(std::string_view name);

struct SnapshotPart {
  std::string name;  // of a file in the snapshot's directory
  uint64_t bytes = 0;
  std::string sha256;  // hex; filled in by whoever keeps it
};

struct SnapshotImage {
  Kept kept = Kept::kFiles;
  std::vector<SnapshotPart> parts;
  // Facts of the host and the engine that must be the same wherever it is restored.
  std::map<std::string, std::string> needs;
  uint64_t min_memory_bytes = 0, min_disk_bytes = 0;
  std::chrono::microseconds stall{0};  // how long the source stood still
};

// A volume that a sandbox gets at its start: an ext4 image.
struct VolumeDisk {
  std::string image_path;
  std::string path;  // inside, absolute
  bool read_only = false;
};

struct StartSpec {
  std::string id;  // sandbox id, [a-z0-9-]; all engine names derive from it and have a fixed length
  std::string directory;  // <data>/sandboxes/<id>, exists, 0700, for the runtime's own files
  Rootfs rootfs;
  Limits limits;
  std::string hostname;
  int netns_fd = -1;  // the network namespace to be in, configured and up; negative: a new one with loopback only
  std::string snapshot;  // the directory of a snapshot to start from; empty: the template alone
  Kept snapshot_kept = Kept::kFiles;
  std::vector<VolumeDisk> volumes;
};

// What the store keeps so that another daemon process can find the sandbox again. Plain data, JSON
// on disk.
struct Record {
  std::string id;
  Tier tier = Tier::kContainer;
  std::string directory;
  std::map<std::string, std::string>
      fields;  // the runtime's own: pids with start times, cgroup, pipe inodes, loop device
};

// The daemon's ends of the agent's pipes (spec/channel.md), non-blocking, close-on-exec. The
// sandbox's side holds both pipes open for reading and writing, so they outlive a daemon.
struct ChannelFds {
  UniqueFd to_agent;
  UniqueFd from_agent;
};

struct Started {
  Record record;
  ChannelFds channel;
  std::vector<std::pair<std::string, std::chrono::microseconds>>
      steps;  // where the time went, in order
};

// Something on the host, and the id of the sandbox that it belongs to.
struct HostObject {
  std::string owner;
  std::string what;  // for people: "cgroup sb-1"
};

enum class EndReason { kExited, kOom, kKilled, kCrashed };

// What the kernel said when the sandbox's init or engine process was gone.
struct Death {
  EndReason reason = EndReason::kExited;
  std::optional<int> wait_status;  // absent when the process was not our child (adopted)
  std::string message;             // for people, e.g. the last lines of the engine's log
};

struct Usage {
  uint64_t cpu_us = 0;
  uint64_t throttled_us = 0;
  uint64_t memory_bytes = 0;  // now, page cache included
  uint64_t memory_peak_bytes = 0;
  uint64_t disk_bytes = 0;  // used in the private layer
  uint64_t inodes = 0;
  uint64_t processes = 0;  // as the host counts; 0 where it cannot see them (gvisor)
  uint64_t oom_kills = 0;
};

struct Capability {
  bool usable = false;
  std::string engine;                        // "runsc 20240729.0", "linux 6.18"
  std::string problem;                       // why not usable, one sentence
  std::string remedy;                        // what to install or set
  std::map<std::string, std::string> facts;  // cgroup version, freezer, …, for `doctor`
  bool only_by_name = false;  // works, but is no wall (an emulated machine): nobody gets it who did not ask for this tier
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Tier tier() const = 0;

  // Finds out by doing: starts a sandbox from `probe` and talks to its agent. Seconds at worst.
  virtual Capability probe(const Rootfs& probe) = 0;

  // Makes the image usable (mounts it once). Idempotent.
  virtual Result<void> prepare(const Rootfs& rootfs) = 0;
  // Undoes prepare() when no sandbox uses the image.
  virtual void forget(const Rootfs& rootfs) = 0;
  // The root directory of a template, for reading on the host, with the owners that a sandbox sees.
  virtual Result<UniqueFd> open_rootfs(const Rootfs& rootfs);

  // Names every host object that start() will make. The caller stores it before calling start(), so
  // that a daemon that dies in between leaves nothing unknown: destroy() on a planned record
  // removes whatever part of it exists.
  virtual Record plan(const StartSpec& spec) = 0;
  // Starts the sandbox: when it returns, the agent runs or is about to. On error everything made is
  // undone.
  virtual Result<Started> start(const StartSpec& spec, const Record& planned,
                                Deadline deadline) = 0;

  // After a daemon restart: checks that the sandbox of `record` still lives and opens its pipes
  // again. kSandboxEnded when it does not.
  virtual Result<ChannelFds> adopt(const Record& record) = 0;

  // Frees the CPU at once, keeps memory; idempotent both. Below a millisecond: cgroup freezer.
  virtual Result<void> freeze(const Record& record) = 0;
  virtual Result<void> thaw(const Record& record) = 0;

  // What a snapshot of this tier holds.
  virtual Kept keeps() const { return Kept::kFiles; }
  // Writes a snapshot into `directory`, which exists and is empty; nothing is synced and no sums are taken. Where memory is kept, the
  // sandbox is thawed and its agent holds still (spec/channel.md); else it may be frozen or not, and is the same afterwards. kIsOver:
  // its processes do not run any more after the moment that is kept, and destroy() follows. On kSandboxEnded the sandbox is lost.
  enum class Afterwards { kGoesOn, kIsOver };
  virtual Result<SnapshotImage> snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline);
  // Whether a snapshot with these needs can be started here: kSnapshotMismatch names what differs.
  virtual Result<void> check_needs(const std::map<std::string, std::string>& needs);

  virtual Result<Usage> usage(const Record& record) = 0;

  // A pollable descriptor that becomes readable when the sandbox's init or engine process ends
  // (pidfd).
  virtual Result<UniqueFd> death_fd(const Record& record) = 0;
  // Why it ended; call after death_fd fired and before destroy().
  virtual Death death(const Record& record) = 0;

  // Kills every process and removes every host object of `record`: processes, cgroups, mounts, loop
  // device, engine state, and the contents of its directory. Idempotent, works on half-made
  // sandboxes; an error names what is left.
  virtual Result<void> destroy(const Record& record) = 0;

  // Host objects of this instance that belong to no id in `known`: left by a crash. Removes them
  // and returns what they were. `known` names the sandboxes of every tier, those planned but not
  // yet started included.
  virtual std::vector<std::string> sweep(const std::vector<std::string>& known) = 0;

  // Every host object of this instance's sandboxes that can outlive a daemon, found by looking at
  // the host. Tiers share most of them, so two runtimes may name the same ones.
  virtual std::vector<HostObject> host_objects() = 0;
};

struct MicrovmConfig {
  enum class Engine { kAuto, kQemu, kFirecracker };
  Engine engine = Engine::kAuto;  // auto: QEMU where it is installed, else Firecracker
  bool allow_emulation = false;  // where guests do not run on the processor: slow, and no wall against hostile code
  std::string qemu_path;         // empty: qemu-system-x86_64 in PATH
  std::string firecracker_path;  // empty: firecracker in PATH
  std::string jailer_path;       // of the same version; empty: jailer in PATH
};

// Everything the tiers share about this daemon instance.
struct HostConfig {
  std::string data_dir;  // absolute
  std::string instance;  // 8 hex digits of the data directory: names cgroups, keeps daemons on one
                         // host apart
  std::string agent_path;  // the static agent, extracted below data_dir, mode 0755
  std::string runsc_path;  // empty: look in PATH
  std::string cgroup_parent = "glovebox";
  MicrovmConfig microvm;
};

// A root file system of a few empty directories and /etc/passwd: enough for probe(). Made once with
// mkfs.erofs below the data directory.
Result<Rootfs> make_probe_rootfs(const HostConfig& config);

// At the end of a daemon: removes this instance's (empty) parent cgroups, which remain while sandboxes live in them.
void leave_host(const HostConfig& config);

std::unique_ptr<Runtime> make_container_runtime(const HostConfig& config);
std::unique_ptr<Runtime> make_gvisor_runtime(const HostConfig& config);
std::unique_ptr<Runtime> make_microvm_runtime(const HostConfig& config);

// The daemon's own set-up, once, before any thread is started: a private mount namespace (the
// host's mount table never shows ours, and they vanish with the last process that uses them) and
// PR_SET_CHILD_SUBREAPER (orphans of engines come to us to be reaped).
Result<void> enter_private_namespace();

}  // namespace glovebox::runtime
