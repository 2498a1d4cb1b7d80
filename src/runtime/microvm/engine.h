// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "runtime/runtime.h"
#include "sys/process.h"

// A virtual machine monitor that the microvm tier drives. The runtime owns what all engines share
// (cgroup, lasting pipes, private disk, kernel, policy of what a guest gets); an engine turns that
// into one confined host process whose end is the sandbox's end. Everything blocks and may be
// called from several threads for different machines at once.
namespace glovebox::runtime::microvm {

enum class Accel { kKvm, kEmulated };
inline std::string_view accel_name(Accel accel) {
  return accel == Accel::kKvm ? "kvm" : "emulated";
}

// Appears in the guest as /dev/vda, vdb, … in the order of MachineSpec::drives.
struct Drive {
  std::string path;  // a raw image on the host
  bool read_only = false;
};

struct NetworkCard {
  int netns_fd = -1;  // where the tap is; the monitor itself need not be there
  std::string tap;    // its name there; made by the runtime, with IFF_VNET_HDR and one queue, owned
                      // by MachineSpec::uid
  std::string mac;    // of the guest's side, "aa:bb:cc:dd:ee:ff"
};

struct MachineSpec {
  std::string id;  // sandbox id
  std::string
      directory;  // <data>/sandboxes/<id>: the engine's own files go here and are removed with it
  std::string kernel;  // uncompressed ELF with the PVH note
  std::string initramfs;
  std::string
      command_line;  // what the guest's init wants (gb.…); the engine adds what its machine needs
  unsigned vcpus = 1;
  uint64_t memory_bytes = 0;
  uint64_t open_files = 1024;  // of the monitor
  uint32_t uid = 0;            // the monitor's own user and group on the host, no other sandbox's
  std::vector<Drive> drives;
  std::optional<NetworkCard> network;
  std::vector<int>
      cgroup_fds;  // a new process with one thread writes "0" to each to enter the sandbox's group
  // The sandbox's ends of the agent's pipes (sys/pipe.h): whatever carries the channel holds both,
  // open for reading and writing, as long as the machine lives, so that a daemon can open its own
  // ends again (LinuxRuntime::adopt looks in `process`).
  int to_agent = -1;
  int from_agent = -1;
  // The directory of a snapshot that this engine wrote, to go on from; empty: it boots. Then `vcpus`, `memory_bytes` and the number of
  // drives are those of the source, the drives are copies of its own, and kernel, initramfs and command line mean nothing.
  std::string snapshot;
};

struct Machine {
  sys::ProcessId process;  // holds the agent's pipes and ends with the machine; adoption and death look at it
  std::map<std::string, std::string>
      fields;  // added to the sandbox's record; keys begin with the engine's name
};

struct SnapshotJob {
  std::string directory;  // exists; the engine's files there are called memory…, devices…
  bool goes_on = true;    // else the machine stands still for good
  // Called while the machine stands still and all that it wrote is in its drives: copies them.
  std::function<Result<void>()> copy_drives;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string_view name() const = 0;  // "qemu", "firecracker"
  virtual Accel accel() const = 0;
  // "qemu 7.2.22"; kRuntimeUnavailable, with the remedy in the message, when its program is not
  // here.
  virtual Result<std::string> version() const = 0;
  // How the guest's agent reaches the monitor: the value of gb.channel.
  virtual std::string_view channel() const = 0;  // "virtio", "vsock"
  // What the monitor needs beside the guest's memory, at most: charged to the sandbox's cgroup on
  // top of it.
  virtual uint64_t overhead_bytes() const = 0;
  virtual uint64_t overhead_threads(unsigned vcpus) const = 0;

  // Boots, and returns when the monitor runs: the agent runs or is
  // about to. On error nothing of it is left but files in spec.directory.
  virtual Result<Machine> start(const MachineSpec& spec, Deadline deadline) = 0;

  // Whether snapshot() and MachineSpec::snapshot are there.
  virtual bool keeps_memory() const { return false; }
  // What must be the same wherever a snapshot of a machine that is started now is taken up: a change that its monitor would not notice
  // makes a machine that is subtly broken.
  virtual Result<std::map<std::string, std::string>> needs() const { return std::map<std::string, std::string>{}; }
  // The machine's memory and devices, at one moment with its drives. On an error the machine goes on, if it still can.
  virtual Result<void> snapshot(const Record& record, const SnapshotJob& job, Deadline deadline) {
    (void)record, (void)job, (void)deadline;
    return fail(Code::kUnsupported, std::string(name()) + " machines keep files only");
  }

  // A daemon that died while it took a snapshot has left the machine stopped. Not while its cgroup is frozen.
  virtual Result<void> go_on(const Record& record, Deadline deadline) {
    (void)record, (void)deadline;
    return {};
  }

  // The process whose wait status tells how the machine ended, where it is not Machine::process.
  virtual std::optional<sys::ProcessId> monitor(const Record& record) const {
    (void)record;
    return std::nullopt;
  }
  // Whether the monitor still answers; kTimeout when it hangs. Not while its cgroup is frozen.
  virtual Result<void> ping(const Record& record, Deadline deadline) = 0;
  // The end of what monitor and guest console said, for people; bounded.
  virtual std::string log(const Record& record) const = 0;
  // What the engine keeps outside the sandbox's directory, for destroy(), sweep() and
  // host_objects(). The process is gone by then.
  virtual Result<void> remove_state(const Record& record) {
    (void)record;
    return {};
  }
  virtual std::vector<HostObject> objects() const { return {}; }
};

}  // namespace glovebox::runtime::microvm
