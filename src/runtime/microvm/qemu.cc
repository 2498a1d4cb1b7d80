// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/qemu.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "base/text.h"
#include "runtime/internal/snapshot_files.h"
#include "runtime/microvm/jail.h"
#include "runtime/microvm/kernel.h"
#include "runtime/microvm/qemu_state.h"
#include "runtime/microvm/qmp.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/netns.h"

namespace glovebox {
std::string_view embedded_qemu_preload();  // cmake/embed.cmake
}  // namespace glovebox

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;

constexpr const char* kProgram = "/usr/bin/qemu-system-x86_64";
constexpr const char* kMonitor = "qmp.sock";
constexpr size_t kShown = 4000;  // of the log
constexpr auto kMonitorPatience = 10s;
constexpr int kTapTries = 3000;  // a millisecond apart
constexpr uint64_t kMegabyte = 1 << 20;
constexpr const char* kPreload = "/snapshot/preload.so";
constexpr const char* kPrivateMemory = "qemu_private_memory";  // fields of a record
constexpr const char* kMemoryBytes = "qemu_memory_bytes";
constexpr const char* kNeed = "qemu_need_";
constexpr int kTranslationMegabytes = 64;  // translated code, when emulated
constexpr int kMonitorFd = kJailFirstFd, kTapFd = kMonitorFd + 1, kFirstDriveFd = kTapFd + 1;

// Of the processor's time stamp counter. An emulated guest sees the host's counter and has no other
// clock to measure it with: told nothing, it may fail to, and hang (no HPET and no PM timer in this
// machine).
uint64_t tsc_khz() {
  static const uint64_t khz = [] {
    const auto began = Clock::now();
    const uint64_t first = __rdtsc();
    std::this_thread::sleep_for(30ms);
    const uint64_t ticks = __rdtsc() - first;
    const auto took =
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
    return ticks * 1'000'000 / static_cast<uint64_t>(std::max<int64_t>(took, 1));
  }();
  return khz;
}

class Qemu final : public Engine {
 public:
  explicit Qemu(QemuConfig config) : config_(std::move(config)) {}
  std::string_view name() const override { return "qemu"; }
  Accel accel() const override { return config_.accel; }
  std::string_view channel() const override { return "virtio"; }
  Result<std::string> version() const override;
  uint64_t overhead_bytes() const override {
    return (config_.accel == Accel::kKvm ? 96 : 128 + kTranslationMegabytes) * kMegabyte;
  }
  uint64_t overhead_threads(unsigned vcpus) const override {
    return 80 + vcpus;
  }  // 64 of them do disk requests
  Result<Machine> start(const MachineSpec& spec, Deadline deadline) override;
  bool keeps_memory() const override { return true; }
  Result<std::map<std::string, std::string>> needs() const override;
  Result<void> snapshot(const Record& record, const SnapshotJob& job, Deadline deadline) override;
  Result<void> ping(const Record& record, Deadline deadline) override;
  Result<void> go_on(const Record& record, Deadline deadline) override;
  std::string log(const Record& record) const override;
  Result<void> remove_state(const Record& record) override;

 private:
  std::string program() const {
    return sys::find_program(config_.program.empty() ? "qemu-system-x86_64" : config_.program);
  }
  std::vector<std::string> machine(const MachineSpec& spec) const;
  std::vector<std::string> arguments(const MachineSpec& spec) const;
  std::string command_line(const MachineSpec& spec) const;
  Result<void> show_snapshot(const MachineSpec& spec, JailSpec* jail) const;

  QemuConfig config_;
  mutable std::mutex mutex_;
  KeptLogs logs_;
  struct Program {
    std::string identity, version, sum;  // the last one when it was needed
  };
  Result<Program> program_facts(bool with_sum) const;
  mutable Program program_;  // that was looked at last
};

// ---- What the machine is ----

std::string drive_argument(size_t index, const Drive& drive) {
  const std::string n = std::to_string(index);
  return "driver=file,node-name=d" + n + ",filename=/dev/fdset/" + n +
         ",locking=off,cache.direct=off,cache.no-flush=on,discard=unmap,auto-read-only=off,read-"
         "only=" +
         (drive.read_only ? "on" : "off");
}

std::string Qemu::command_line(const MachineSpec& spec) const {
  std::string out =
      "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t no_timer_check random.trust_cpu=on "
      "8250.nr_uarts=1";
  // All emulated processors have one counter, which the kernel does not take for granted when there are several; without it time is
  // counted in interrupts, and lost when the host is busy.
  if (config_.accel == Accel::kEmulated) out += " tsc=reliable tsc_early_khz=" + std::to_string(tsc_khz());
  // Not `nolapic_timer`, although it saves 0.2 s: Debian's kernel has no timer interrupt at all then in this machine.
  return out + " " + spec.command_line;
}

// Whether the memory of its snapshot is a file, which it maps for itself.
bool maps_snapshot(const MachineSpec& spec) {
  return !spec.snapshot.empty() && sys::exists(spec.snapshot + "/" + kMemoryPart);
}

std::string memory_argument(const MachineSpec& spec) {
  const std::string file = maps_snapshot(spec) ? std::string(kJailSnapshotMemory) + ",share=off" : std::string(kJailMemory) + "/ram,share=on";
  return "memory-backend-file,id=ram,size=" + std::to_string(spec.memory_bytes / kMegabyte) + "M,mem-path=" + file;
}

// What a machine and its copies must have in common.
std::vector<std::string> Qemu::machine(const MachineSpec& spec) const {
  const bool emulated = config_.accel == Accel::kEmulated;
  std::vector<std::string> words = {
      "-M",
      "microvm,pit=on,pic=on,rtc=on,isa-serial=on,acpi=on,usb=off,graphics=off,dump-guest-core=off,"
      "memory-backend=ram",
      "-accel",
      emulated ? "tcg,thread=multi,tb-size=" + std::to_string(kTranslationMegabytes) : "kvm",
      "-cpu",
      emulated ? "max" : "host",
      "-nodefaults",
      "-no-user-config",
      "-display",
      "none",
      "-no-reboot",
      "-sandbox",
      "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
      "-chardev",
      "socket,id=qmp,server=on,wait=off,fd=" + std::to_string(kMonitorFd),
      "-mon",
      "chardev=qmp,mode=control",
      "-chardev",
      std::string("file,id=console,append=on,path=") + kJailLog,
      "-serial",
      "chardev:console",
      "-chardev",
      "stdio,id=agent,signal=off",
      "-device",
      "virtio-serial-device,max_ports=2",
      "-device",
      "virtserialport,chardev=agent,nr=1,name=glovebox.agent"};
  for (size_t i = 0; i < spec.drives.size(); ++i) {
    const std::string n = std::to_string(i);
    words.insert(
        words.end(),
        {"-add-fd", "set=" + n + ",fd=" + std::to_string(kFirstDriveFd + static_cast<int>(i)),
         "-blockdev", drive_argument(i, spec.drives[i]), "-device",
         "virtio-blk-device,drive=d" + n});
  }
  if (spec.network) {
    words.insert(words.end(), {"-netdev", "tap,id=net,fd=" + std::to_string(kTapFd), "-device",
                               "virtio-net-device,netdev=net,mac=" + spec.network->mac});
  }
  return words;
}

std::vector<std::string> Qemu::arguments(const MachineSpec& spec) const {
  std::vector<std::string> words = {kProgram, "-L", "/usr/share/qemu", "-name", spec.id, "-m", std::to_string(spec.memory_bytes / kMegabyte) + "M",
                                    "-smp", std::to_string(spec.vcpus), "-object", memory_argument(spec)};
  const auto machine = this->machine(spec);
  words.insert(words.end(), machine.begin(), machine.end());
  if (spec.snapshot.empty()) {
    words.insert(words.end(), {"-kernel", spec.kernel, "-initrd", spec.initramfs, "-append", command_line(spec)});
  } else {
    words.insert(words.end(), {"-incoming", "defer"});
  }
  return words;
}

// One queue of the tap, for the caller to hand on.
Result<UniqueFd> open_tap(const NetworkCard& card) {
  UniqueFd tap;
  GB_TRYV(sys::in_netns(card.netns_fd, [&]() -> Result<void> {
    GB_TRY(tap, sys::open_fd("/dev/net/tun", O_RDWR | O_NONBLOCK));
    ifreq request{};
    std::strncpy(request.ifr_name, card.tap.c_str(), IFNAMSIZ - 1);
    request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
    // Who made it has closed it; a process that was started meanwhile has it until it runs its program.
    for (int tries = 0; ::ioctl(tap.get(), TUNSETIFF, &request) < 0; ++tries) {
      if (errno != EBUSY || tries == kTapTries) return fail_errno("open tap " + card.tap);
      std::this_thread::sleep_for(1ms);
    }
    return {};
  }));
  return tap;
}

// ---- Start ----

// A monitor that is gone has said why.
Error explain(const sys::ProcessId& process, int log_fd, Error error) {
  if (sys::is_alive(process)) return error;
  const std::string said = log_fd >= 0 ? read_log(log_fd, kShown) : "";
  error.message = "QEMU ended at once" + (said.empty() ? "" : ": " + said);
  error.code = Code::kStartFailed;
  return error;
}

// Its memory is the snapshot's for as long as a page is not written to.
Result<void> Qemu::show_snapshot(const MachineSpec& spec, JailSpec* jail) const {
  const std::string memory = spec.snapshot + "/" + kMemoryPart, preload = config_.run_directory + "/qemu-preload.so";
  struct stat st{};
  if (::stat(memory.c_str(), &st) < 0) return fail_errno(memory);
  if (static_cast<uint64_t>(st.st_size) != spec.memory_bytes) return fail(Code::kCorrupt, "the snapshot's memory has another size than its machine");
  if ((st.st_mode & S_IROTH) == 0 && ::chmod(memory.c_str(), 0444) < 0) return fail_errno(memory);  // it came from elsewhere
  const auto there = sys::read_file(preload);
  if (!there || *there != embedded_qemu_preload()) {
    const std::string draft = preload + "." + spec.id;
    GB_TRYV(sys::put_file(draft, embedded_qemu_preload(), 0444));
    if (::rename(draft.c_str(), preload.c_str()) < 0) return fail_errno(preload);
  }
  jail->shown_as = {{memory, kJailSnapshotMemory}, {preload, kPreload}};
  jail->preload = kPreload;
  return {};
}

Result<void> take_up(Qmp& qmp, const MachineSpec& spec, Deadline deadline) {
  GB_TRYV(load_devices(qmp, spec.snapshot, !maps_snapshot(spec), deadline));
  return qmp.execute("cont", {}, deadline).transform([](const auto&) {});
}

Result<Machine> Qemu::start(const MachineSpec& spec, Deadline deadline) {
  const std::string path = program();
  if (path.empty()) return fail(Code::kRuntimeUnavailable, "qemu-system-x86_64 is not installed");
  GB_TRY(const auto monitor, Qmp::listen(spec.directory, kMonitor));
  JailSpec jail;
  jail.stage = config_.stage;
  jail.cgroup_fds = spec.cgroup_fds;
  jail.uid = spec.uid;
  jail.shown = library_paths();
  jail.shown.insert(jail.shown.end(),
                    {kProgram, "/usr/share/qemu", "/usr/share/seabios", "/usr/lib/ipxe"});
  if (spec.snapshot.empty()) jail.shown.insert(jail.shown.end(), {spec.kernel, spec.initramfs});
  if (maps_snapshot(spec)) {
    GB_TRYV(show_snapshot(spec, &jail));
  } else {
    jail.memory_bytes = spec.memory_bytes;
  }
  jail.kvm = config_.accel == Accel::kKvm;
  jail.open_files = spec.open_files;
  jail.argv = arguments(spec);
  std::vector<UniqueFd> held;
  for (size_t i = 0; i < spec.drives.size(); ++i) {
    GB_TRY(auto drive,
           sys::open_fd(spec.drives[i].path, (spec.drives[i].read_only ? O_RDONLY : O_RDWR)));
    jail.descriptors.emplace_back(drive.get(), kFirstDriveFd + static_cast<int>(i));
    held.push_back(std::move(drive));
  }
  if (spec.network) {
    GB_TRY(auto tap, open_tap(*spec.network));
    jail.descriptors.emplace_back(tap.get(), kTapFd);
    held.push_back(std::move(tap));
  }
  jail.descriptors.insert(jail.descriptors.end(),
                          {{spec.to_agent, 0}, {spec.from_agent, 1}, {monitor.get(), kMonitorFd}});
  Machine machine;
  GB_TRY(const auto needs, this->needs());
  for (const auto& [name, value] : needs) machine.fields[kNeed + name] = value;
  machine.fields[kMemoryBytes] = std::to_string(spec.memory_bytes);
  if (maps_snapshot(spec)) machine.fields[kPrivateMemory] = "yes";
  GB_TRY(const auto process, start_jailed(jail));
  machine.process = process;
  auto log = open_log(process);
  const int log_fd = log ? log->get() : -1;
  auto greeted =
      Qmp::connect(spec.directory, kMonitor, std::min(deadline, after(kMonitorPatience)));
  auto runs = greeted && !spec.snapshot.empty() ? take_up(*greeted, spec, deadline) : Result<void>();
  if (!greeted || !runs) {
    std::this_thread::sleep_for(5ms);  // its end is seen a moment after its socket's
    Error error = explain(process, log_fd, !greeted ? std::move(greeted).error() : std::move(runs).error());
    sys::kill_process(process);
    (void)::waitpid(process.pid, nullptr, 0);
    return fail(std::move(error));
  }
  if (log) logs_.keep(spec.id, std::move(*log));
  return machine;
}

// ---- Snapshots ----

Result<std::map<std::string, std::string>> Qemu::needs() const {
  GB_TRY(const auto program, program_facts(true));
  MachineSpec any;
  any.drives.resize(2);
  any.network.emplace();
  std::set<std::string> words;
  size_t place = 0;
  for (const auto& word : machine(any)) words.insert(std::to_string(place++) + word);
  return std::map<std::string, std::string>{{"engine", program.version}, {"monitor", program.sum}, {"accel", std::string(accel_name(config_.accel))},
                                            {"machine", word_digest(words)}, {"processor", processor_features()}};
}

// The order matters: what devices have under way ends with `stop`, and saving them may still write to memory.
Result<void> Qemu::snapshot(const Record& record, const SnapshotJob& job, Deadline deadline) {
  const auto bytes = record.fields.find(kMemoryBytes), pid = record.fields.find("pid");
  if (bytes == record.fields.end() || pid == record.fields.end()) return fail(Code::kUnsupported, "the machine was started by an older version");
  const auto memory_bytes = static_cast<uint64_t>(parse_int(bytes->second).value_or(0));
  const auto monitor = sys::identify(static_cast<pid_t>(parse_int(pid->second).value_or(0)));
  if (!monitor) return fail(Code::kSandboxEnded, "the machine has ended");
  const bool private_memory = record.fields.contains(kPrivateMemory);
  GB_TRY(auto qmp, Qmp::connect(record.directory, kMonitor, std::min(deadline, after(kMonitorPatience))));
  GB_TRYV(qmp.execute("stop", {}, deadline));
  auto written = save_devices(qmp, job.directory, private_memory, memory_bytes, deadline);
  if (written && !private_memory) written = copy_memory(*monitor, memory_bytes, job.directory);
  if (written) written = job.copy_drives();
  if (written && !job.goes_on) return written;
  auto goes_on = qmp.execute("cont", {}, after(kMonitorPatience));
  if (written && !goes_on) return fail(std::move(goes_on).error());
  return written;
}

// ---- What it says ----

std::string Qemu::log(const Record& record) const {
  return logs_.read(record.id, kShown);
}

Result<void> Qemu::remove_state(const Record& record) {
  logs_.drop(record.id);
  return {};
}

Result<void> Qemu::ping(const Record& record, Deadline deadline) {
  GB_TRY(auto qmp, Qmp::connect(record.directory, kMonitor, deadline));
  return qmp.execute("query-status", {}, deadline).transform([](const auto&) {});
}

// A stream that nobody reads any more is given up first; until it is, the machine cannot go on.
Result<void> Qemu::go_on(const Record& record, Deadline deadline) {
  GB_TRY(auto qmp, Qmp::connect(record.directory, kMonitor, deadline));
  (void)qmp.execute("migrate_cancel", {}, deadline);
  while (true) {
    auto goes_on = qmp.execute("cont", {}, deadline);
    if (goes_on) return {};
    if (Clock::now() >= deadline) return fail(std::move(goes_on).error());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<Qemu::Program> Qemu::program_facts(bool with_sum) const {
  struct stat st{};
  const std::string path = program();
  if (path.empty() || ::stat(path.c_str(), &st) < 0)
    return fail(Code::kRuntimeUnavailable, "qemu-system-x86_64 is not installed");
  const std::string identity = path + "-" + std::to_string(st.st_ino) + "-" +
                               std::to_string(st.st_size) + "-" + std::to_string(st.st_mtim.tv_sec);
  const std::lock_guard lock(mutex_);
  if (program_.identity != identity) {
    GB_TRY(const auto text, sys::run_command({path, "--version"},
                                             20s));  // "QEMU emulator version 7.2.22 (Debian …)"
    const auto words = split(text.substr(0, text.find('\n')), ' ');
    program_ = {identity, "qemu " + (words.size() > 3 ? words[3] : "of an unknown version"), ""};
  }
  if (with_sum && program_.sum.empty()) {
    GB_TRY(program_.sum, sha256({path}));
  }
  return program_;
}

Result<std::string> Qemu::version() const {
  GB_TRY(const auto facts, program_facts(false));
  return facts.version;
}

}  // namespace

std::unique_ptr<Engine> make_qemu(const QemuConfig& config) {
  return std::make_unique<Qemu>(config);
}

}  // namespace glovebox::runtime::microvm
