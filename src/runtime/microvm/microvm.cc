// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <mutex>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "runtime/internal/linux_runtime.h"
#include "runtime/internal/snapshot_files.h"
#include "runtime/internal/volumes.h"
#include "runtime/microvm/engine.h"
#include "runtime/microvm/firecracker.h"
#include "runtime/microvm/kernel.h"
#include "runtime/microvm/kvm_probe.h"
#include "runtime/microvm/qemu.h"
#include "sys/ext4.h"
#include "sys/files.h"
#include "sys/netns.h"
#include "sys/tap.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;
namespace mv = microvm;

constexpr std::chrono::seconds kGoOnPatience{5};
constexpr uint32_t kFirstId =
    0x10000000;  // as the container tier's: one range of user ids for each sandbox
constexpr uint32_t kIdsPerSandbox = 65536;
constexpr uint64_t kMegabyte = 1 << 20;
constexpr const char* kWire = "eth0";              // the link's interface, and the guest's
constexpr const char* kTap = "tap0";
constexpr const char* kNoWireMac = "02:00:00:00:00:01";  // of a card that is connected to nothing
constexpr const char* kMachineFile = "machine.json";     // in a snapshot: what its machine was
// Fields of a record.
constexpr const char* kVcpus = "vcpus";
constexpr const char* kMemoryBytes = "memory_bytes";
constexpr const char* kGuestNetwork = "guest_network";  // what a copy's agent is told (spec/channel.md, `network`)

// Words of a kernel command line have no blanks; bytes that mean something there are written %XX.
std::string encoded(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '/';
    if (plain) {
      out += c;
    } else {
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

std::string dotted(uint32_t address) {
  return std::to_string(address >> 24) + "." + std::to_string(address >> 16 & 255) + "." +
         std::to_string(address >> 8 & 255) + "." + std::to_string(address & 255);
}

class MicrovmRuntime final : public LinuxRuntime {
 public:
  explicit MicrovmRuntime(const HostConfig& config);
  Tier tier() const override { return Tier::kMicrovm; }
  Capability probe(const Rootfs& probe) override;
  Record plan(const StartSpec& spec) override;
  Result<void> thaw(const Record& record) override;
  Death death(const Record& record) override;
  Kept keeps() const override;
  Result<SnapshotImage> snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) override;
  Result<void> check_needs(const std::map<std::string, std::string>& needs) override;

 protected:
  sys::CgroupLimits cgroup_limits(const Limits& limits) const override;
  Result<void> launch(Launch& launch) override;
  void disk_usage(const Record& record, Usage* usage) const override;
  Result<void> remove_engine_state(const Record& record) const override;
  std::vector<std::string> sweep_engine_state(const std::vector<std::string>& known) const override;
  std::vector<HostObject> engine_objects() const override;
  std::string engine_log(const Record& record) const override;
  Result<std::string> engine_version() const override;
  std::string remedy() const override;

 private:
  Result<mv::Engine*> engine() const;
  Result<mv::Engine*> choose() const;
  mv::Engine& engine_of(const Record& record) const;
  Result<std::string> identity(mv::Engine& engine) const;
  Result<void> size_machine(const StartSpec& spec, mv::MachineSpec* machine) const;
  std::string firecracker_fact() const;
  Result<void> add_drives(Launch& launch, mv::MachineSpec* machine) const;
  Result<void> copy_disk(const StartSpec& spec, const std::string& image) const;
  Result<UniqueFd> add_network(Launch& launch, mv::MachineSpec* machine) const;

  mutable std::mutex mutex_;
  mutable std::set<std::string> going_;  // machines that this daemon has started or seen to; an earlier one may have left others stopped
  mutable mv::Engine* engine_ = nullptr;
  std::unique_ptr<mv::Engine> qemu_, emulator_, firecracker_;  // never null
};

MicrovmRuntime::MicrovmRuntime(const HostConfig& config)
    : LinuxRuntime(config),
      qemu_(mv::make_qemu({config.microvm.qemu_path, mv::Accel::kKvm, storage().stage(), storage().run_directory()})),
      emulator_(mv::make_qemu({config.microvm.qemu_path, mv::Accel::kEmulated, storage().stage(), storage().run_directory()})),
      firecracker_(mv::make_firecracker({config.microvm.firecracker_path, config.microvm.jailer_path,
                                         config.agent_path, storage().stage()})) {}

unsigned vcpus(const Limits& limits) {
  return static_cast<unsigned>(std::max(1.0, std::ceil(limits.cpus)));
}

// ---- Engine ----

// Which one is a finding about this host, which may change while the daemon runs; once one works,
// it stays.
Result<mv::Engine*> MicrovmRuntime::engine() const {
  const std::lock_guard lock(mutex_);
  if (engine_ == nullptr) {
    GB_TRY(engine_, choose());
  }
  return engine_;
}

// What costs nothing to find out comes first. Firecracker has no emulation, and `auto` means QEMU
// where both are.
Result<mv::Engine*> MicrovmRuntime::choose() const {
  using Wanted = MicrovmConfig::Engine;
  const auto& settings = config().microvm;
  const bool is_firecracker = settings.engine == Wanted::kFirecracker ||
                              (settings.engine == Wanted::kAuto && !qemu_->version() && firecracker_->version());
  mv::Engine* const chosen = is_firecracker ? firecracker_.get() : qemu_.get();
  GB_TRYV(chosen->version());
  GB_TRYV(mv::guest_kernel(config().data_dir, config().agent_path));
  GB_TRYV(storage().make_layout());
  const auto kvm = mv::probe_kvm(storage().run_directory());
  if (kvm.works) return chosen;
  if (is_firecracker || !settings.allow_emulation) return fail(Code::kRuntimeUnavailable, kvm.problem);
  return emulator_.get();
}

// A sandbox of an earlier daemon may be of another engine than the one that is used now.
mv::Engine& MicrovmRuntime::engine_of(const Record& record) const {
  const auto field = [&](const char* name) {
    const auto found = record.fields.find(name);
    return found == record.fields.end() ? std::string() : found->second;
  };
  if (field("engine") == firecracker_->name()) return *firecracker_;
  return field("accel") == mv::accel_name(mv::Accel::kEmulated) ? *emulator_ : *qemu_;
}

Result<std::string> MicrovmRuntime::engine_version() const {
  GB_TRY(auto* engine, this->engine());
  return engine->version();
}

std::string MicrovmRuntime::remedy() const {
  return "Needs a processor with virtualisation and /dev/kvm (bare metal, or a host with nested "
         "virtualisation), QEMU (Debian package qemu-system-x86) or Firecracker (setting "
         "microvm.engine; firecracker and jailer of one release, 1.16.1 or a later 1.x) and a guest "
         "kernel below the data directory (docs/microvm.md). For "
         "tests only, where guests cannot run on the processor: "
         "microvm.allow_emulation, which is slow and no wall against hostile code.";
}

// What a probe's success depends on.
Result<std::string> MicrovmRuntime::identity(mv::Engine& engine) const {
  GB_TRY(const auto kernel, mv::guest_kernel(config().data_dir, config().agent_path));
  GB_TRY(const auto version, engine.version());
  return sys::boot_id() + "\n" + version + "\n" + std::string(mv::accel_name(engine.accel())) +
         "\n" + kernel.digest + "\n" + kernel.initramfs + "\n";
}

// Its version, or why it cannot be used, whichever engine is chosen.
std::string MicrovmRuntime::firecracker_fact() const {
  const auto version = firecracker_->version();
  if (!version) return version.error().message;
  const auto kvm = mv::probe_kvm(storage().make_layout() ? storage().run_directory() : "");
  return kvm.works ? *version : *version + ", unusable: " + kvm.problem;
}

// A boot takes seconds when it is emulated, so one that worked is remembered until something of it
// changes.
Capability MicrovmRuntime::probe(const Rootfs& probe) {
  const auto found = engine();
  if (!found) {
    Capability capability;
    capability.problem = found.error().message;
    capability.remedy = remedy();
    capability.facts["firecracker"] = firecracker_fact();
    return capability;
  }
  mv::Engine& engine = **found;
  const std::string path = storage().run_directory() + "/microvm-probe";
  const auto wanted = identity(engine);
  const auto known = sys::read_file(path);
  Capability capability;
  if (wanted && known && known->starts_with(*wanted)) {
    capability.usable = true;
    capability.engine = engine.version().value_or("");
    capability.facts["first_answer_ms"] = known->substr(wanted->size());
    capability.facts["remembered"] = "since this host booted";
  } else {
    capability = LinuxRuntime::probe(probe);
    if (capability.usable && wanted)
      (void)sys::put_file(path, *wanted + capability.facts["first_answer_ms"], 0600);
  }
  capability.facts["firecracker"] = firecracker_fact();
  capability.facts["engine"] = engine.name();
  capability.facts["accel"] = mv::accel_name(engine.accel());
  if (const auto kernel = mv::guest_kernel(config().data_dir, config().agent_path))
    capability.facts["kernel"] = kernel->release;
  capability.only_by_name = engine.accel() == mv::Accel::kEmulated;
  return capability;
}

// ---- Start ----

Record MicrovmRuntime::plan(const StartSpec& spec) {
  Record record = LinuxRuntime::plan(spec);
  if (!storage().make_layout()) return record;  // start() reports it
  if (auto slot = storage().claim_slot(spec.id)) record.fields["slot"] = std::to_string(*slot);
  return record;
}

// The guest enforces its own limit of processes; this one is of the monitor's threads. Its memory
// is the guest's and the monitor's own.
sys::CgroupLimits MicrovmRuntime::cgroup_limits(const Limits& limits) const {
  const auto engine = this->engine();
  const uint64_t memory = engine ? (*engine)->overhead_bytes() : 0,
                 threads = engine ? (*engine)->overhead_threads(vcpus(limits)) : 16;
  return {limits.cpus, limits.memory_bytes + memory, threads, true};
}

Result<void> MicrovmRuntime::add_drives(Launch& launch, mv::MachineSpec* machine) const {
  const StartSpec& spec = launch.spec;
  const std::string image = disk_image(spec.directory);
  if (spec.snapshot.empty()) {
    GB_TRYV(storage().make_disk(image, spec.limits.disk_bytes, spec.limits.inodes));
  } else {
    GB_TRYV(copy_disk(spec, image));
  }
  machine->drives = {{spec.rootfs.image_path, true}, {image, false}};
  launch.timer.done("disk copy");
  if (spec.volumes.size() > kMaxVolumes) return fail(Code::kInvalidArgument, "too many volumes");
  if (!spec.volumes.empty()) {
    GB_TRY(const auto rootfs, storage().rootfs_copy(spec.rootfs));
    GB_TRYV(check_volume_paths(rootfs, spec));
  }
  for (size_t i = 0; i < spec.volumes.size(); ++i) {
    const VolumeDisk& volume = spec.volumes[i];
    if (volume.read_only) GB_TRYV(sys::recover_ext4(volume.image_path));
    machine->drives.push_back({volume.image_path, volume.read_only});
    machine->command_line += std::string(" gb.vol=vd") + static_cast<char>('c' + i) + ":" +
                             encoded(volume.path) + (volume.read_only ? ":ro" : ":rw");
  }
  return {};
}

// The guest has the disk mounted, with a kernel that knows its size.
Result<void> MicrovmRuntime::copy_disk(const StartSpec& spec, const std::string& image) const {
  struct stat st{};
  if (::stat(disk_image(spec.snapshot).c_str(), &st) < 0) return fail(Code::kCorrupt, "the snapshot holds no disk");
  if (static_cast<uint64_t>(st.st_size) < spec.limits.disk_bytes)
    return fail(Code::kInvalidArgument, "a microvm that goes on from memory keeps the size of its disk");
  return sys::copy_sparse(disk_image(spec.snapshot), image);
}

// The guest takes the place of the link's interface: its addresses, hardware and other. Without a link the card's other end is in a
// network of its own, so that every machine is built alike and a copy of it can get one. The descriptor is to be held until the
// monitor has the tap.
Result<UniqueFd> MicrovmRuntime::add_network(Launch& launch, mv::MachineSpec* machine) const {
  const StartSpec& spec = launch.spec;
  UniqueFd alone;
  if (spec.netns_fd < 0) {
    GB_TRY(alone, sys::in_new_netns([&] { return sys::add_tap(kTap, machine->uid); }));
    machine->network = mv::NetworkCard{alone.get(), kTap, kNoWireMac};
    launch.record.fields[kGuestNetwork] = "{}";
    return alone;
  }
  sys::InterfaceAddress wire;
  GB_TRYV(sys::in_netns(spec.netns_fd, [&]() -> Result<void> {
    GB_TRY(wire, sys::interface_address(kWire));
    GB_TRYV(sys::add_tap(kTap, machine->uid));
    return sys::join(kWire, kTap, wire.address);
  }));
  machine->network = mv::NetworkCard{spec.netns_fd, kTap, wire.mac};
  machine->command_line += " gb.net=" + encoded(dotted(wire.address) + "/" + std::to_string(wire.prefix)) + "," + dotted(wire.gateway) + "," +
                           encoded(wire.mac);
  launch.record.fields[kGuestNetwork] = boost::json::serialize(boost::json::object{
      {"address", dotted(wire.address)}, {"prefix", wire.prefix}, {"gateway", dotted(wire.gateway)}, {"mac", wire.mac}});
  return alone;
}

// A copy's machine is as large as the source's, whatever its limits.
Result<void> MicrovmRuntime::size_machine(const StartSpec& spec, mv::MachineSpec* machine) const {
  machine->vcpus = vcpus(spec.limits);
  machine->memory_bytes = spec.limits.memory_bytes / kMegabyte * kMegabyte;
  if (spec.snapshot.empty()) return {};
  if (spec.snapshot_kept != Kept::kMemoryAndFiles) return fail(Code::kUnsupported, "microvm sandboxes start from snapshots with memory only");
  GB_TRY(const auto text, sys::read_file(spec.snapshot + "/" + kMachineFile, 4096));
  boost::system::error_code ec;
  const auto parsed = boost::json::parse(text, ec);
  const auto number = [&](const char* name) -> uint64_t {
    const auto* value = !ec && parsed.is_object() ? parsed.get_object().if_contains(name) : nullptr;
    boost::system::error_code no;
    const auto n = value != nullptr ? value->to_number<uint64_t>(no) : 0;
    return no ? 0 : n;
  };
  const uint64_t count = number(kVcpus), bytes = number(kMemoryBytes);
  if (count == 0 || count > 255 || bytes == 0 || bytes % kMegabyte != 0)
    return fail(Code::kCorrupt, "the snapshot does not say what machine it is of");
  if (bytes > spec.limits.memory_bytes) return fail(Code::kInvalidArgument, "the snapshot's machine has more memory than the limit");
  machine->vcpus = static_cast<unsigned>(count);
  machine->memory_bytes = bytes;
  machine->snapshot = spec.snapshot;
  return {};
}

Result<void> MicrovmRuntime::launch(Launch& launch) {
  const StartSpec& spec = launch.spec;
  GB_TRY(auto* engine, this->engine());
  const auto slot = launch.record.fields.find("slot");
  if (slot == launch.record.fields.end()) return fail(Code::kCapacity, "no id range is free");
  GB_TRY(const auto kernel, mv::guest_kernel(config().data_dir, config().agent_path));
  mv::MachineSpec machine;
  machine.id = spec.id;
  machine.directory = spec.directory;
  machine.kernel = kernel.vmlinux;
  machine.initramfs = kernel.initramfs;
  GB_TRYV(size_machine(spec, &machine));
  machine.uid =
      kFirstId + static_cast<uint32_t>(parse_int(slot->second).value_or(0)) * kIdsPerSandbox;
  machine.cgroup_fds = launch.cgroup_fds;
  machine.to_agent = launch.to_agent.inner.get();
  machine.from_agent = launch.from_agent.inner.get();
  machine.command_line = "gb.channel=" + std::string(engine->channel()) + " gb.hostname=" +
                         encoded(spec.hostname.empty() ? spec.id : spec.hostname) +
                         " gb.pids=" + std::to_string(spec.limits.processes) + " gb.swap=0";
  GB_TRYV(add_drives(launch, &machine));
  GB_TRY(const auto network, add_network(launch, &machine));
  launch.record.fields["engine"] = engine->name();
  launch.record.fields["accel"] = mv::accel_name(engine->accel());
  launch.record.fields["kernel"] = kernel.digest;
  launch.record.fields[kVcpus] = std::to_string(machine.vcpus);
  launch.record.fields[kMemoryBytes] = std::to_string(machine.memory_bytes);
  launch.timer.done("prepare");
  GB_TRY(auto started, engine->start(machine, launch.deadline));
  launch.timer.done("monitor");
  remember_process(&launch.record, started.process);
  for (auto& [key, value] : started.fields) launch.record.fields[key] = std::move(value);
  const std::lock_guard lock(mutex_);
  going_.insert(spec.id);
  return {};
}

// ---- Snapshots ----

Kept MicrovmRuntime::keeps() const {
  const auto engine = this->engine();
  return engine && (*engine)->keeps_memory() ? Kept::kMemoryAndFiles : Kept::kFiles;
}

Result<void> MicrovmRuntime::check_needs(const std::map<std::string, std::string>& needs) {
  GB_TRY(auto* engine, this->engine());
  GB_TRY(const auto here, engine->needs());
  return compare_needs(needs, here);
}

// The machine's needs are those of the monitor that runs, which an upgrade may have replaced on disk since.
Result<SnapshotImage> MicrovmRuntime::snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) {
  mv::Engine& engine = engine_of(record);
  if (!engine.keeps_memory()) return fail(Code::kUnsupported, "machines of " + std::string(engine.name()) + " are not copied");
  SnapshotImage image;
  image.kept = Kept::kMemoryAndFiles;
  const std::string prefix = std::string(engine.name()) + "_need_";
  for (const auto& [key, value] : record.fields) {
    if (key.starts_with(prefix)) image.needs[key.substr(prefix.size())] = value;
  }
  const auto bytes = record.fields.find(kMemoryBytes), count = record.fields.find(kVcpus);
  if (image.needs.empty() || bytes == record.fields.end() || count == record.fields.end())
    return fail(Code::kUnsupported, "the sandbox was started by a version that could not copy it");
  image.min_memory_bytes = static_cast<uint64_t>(parse_int(bytes->second).value_or(0));
  const boost::json::object machine{{kVcpus, parse_int(count->second).value_or(0)}, {kMemoryBytes, image.min_memory_bytes}};
  GB_TRYV(sys::put_file(directory + "/" + kMachineFile, boost::json::serialize(machine) + "\n", 0600));
  const auto copy_drives = [&] { return sys::copy_sparse(disk_image(record.directory), disk_image(directory)); };
  const auto began = Clock::now();
  auto written = engine.snapshot(record, {directory, afterwards == Afterwards::kGoesOn, copy_drives}, deadline);
  if (!written && !sys::is_alive(process_of(record)))
    return fail(Code::kSandboxEnded, "the sandbox ended while its state was written: " + engine_log(record), {{"reason", "crashed"}});
  if (!written) return fail(std::move(written).error());
  image.stall = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  image.parts = list_parts(directory);
  struct stat disk{};
  if (::stat(disk_image(directory).c_str(), &disk) == 0) image.min_disk_bytes = static_cast<uint64_t>(disk.st_size);
  return image;
}

// ---- Life and end ----

// What the guest has written, as the host sees it; files that were removed inside count until the
// guest gives their blocks back.
void MicrovmRuntime::disk_usage(const Record& record, Usage* usage) const {
  struct stat image{};
  if (::stat(disk_image(record.directory).c_str(), &image) == 0)
    usage->disk_bytes = static_cast<uint64_t>(image.st_blocks) * 512;
  usage->processes = 0;
}

// The machine ends by itself when its kernel stops: the monitor then exits with 0, and the console
// says why.
Death MicrovmRuntime::death(const Record& record) {
  Record seen = record;
  const auto monitor = engine_of(record).monitor(record);
  if (monitor && sys::is_present(*monitor) && sys::peek_status(monitor->pid)) remember_process(&seen, *monitor);
  Death death = LinuxRuntime::death(seen);
  const bool by_itself = death.wait_status && WIFEXITED(*death.wait_status);
  if (!by_itself && death.wait_status) return death;
  if (death.message.find("Out of memory and no killable processes") != std::string::npos ||
      death.message.find("System is deadlocked on memory") != std::string::npos) {
    death.reason = EndReason::kOom;
  } else if (death.message.find("Kernel panic") != std::string::npos) {
    death.reason = EndReason::kCrashed;
  } else if (by_itself && WEXITSTATUS(*death.wait_status) != 0) {
    death.reason = EndReason::kCrashed;
  }
  return death;
}

std::string MicrovmRuntime::engine_log(const Record& record) const { return engine_of(record).log(record); }

Result<void> MicrovmRuntime::thaw(const Record& record) {
  GB_TRYV(LinuxRuntime::thaw(record));
  {
    const std::lock_guard lock(mutex_);
    if (going_.contains(record.id)) return {};
  }
  GB_TRYV(engine_of(record).go_on(record, after(kGoOnPatience)));
  const std::lock_guard lock(mutex_);
  going_.insert(record.id);
  return {};
}

Result<void> MicrovmRuntime::remove_engine_state(const Record& record) const {
  {
    const std::lock_guard lock(mutex_);
    going_.erase(record.id);
  }
  return engine_of(record).remove_state(record);
}

std::vector<std::string> MicrovmRuntime::sweep_engine_state(
    const std::vector<std::string>& known) const {
  std::vector<std::string> swept;
  const auto engine = this->engine();
  if (!engine) return swept;
  for (const auto& object : (*engine)->objects()) {
    if (std::find(known.begin(), known.end(), object.owner) != known.end()) continue;
    if ((*engine)->remove_state(
            Record{object.owner, tier(), config().data_dir + "/sandboxes/" + object.owner, {}}))
      swept.push_back(object.what);
  }
  return swept;
}

std::vector<HostObject> MicrovmRuntime::engine_objects() const {
  const auto engine = this->engine();
  return engine ? (*engine)->objects() : std::vector<HostObject>{};
}

}  // namespace

std::unique_ptr<Runtime> make_microvm_runtime(const HostConfig& config) {
  return std::make_unique<MicrovmRuntime>(config);
}

}  // namespace glovebox::runtime
