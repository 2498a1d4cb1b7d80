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
#include <thread>

#include "base/text.h"
#include "runtime/microvm/jail.h"
#include "runtime/microvm/qmp.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/netns.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;

constexpr const char* kProgram = "/usr/bin/qemu-system-x86_64";
constexpr const char* kMonitor = "qmp.sock";
constexpr size_t kShown = 4000;  // of the log
constexpr auto kMonitorPatience = 10s;
constexpr uint64_t kMegabyte = 1 << 20;
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
  Result<void> ping(const Record& record, Deadline deadline) override;
  std::string log(const Record& record) const override;
  Result<void> remove_state(const Record& record) override;

 private:
  std::string program() const {
    return sys::find_program(config_.program.empty() ? "qemu-system-x86_64" : config_.program);
  }
  std::vector<std::string> arguments(const MachineSpec& spec) const;
  std::string command_line(const MachineSpec& spec) const;
  void keep_log(const std::string& id, UniqueFd fd) const;

  QemuConfig config_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<UniqueFd>>
      logs_;  // by sandbox: the file outlives its jail only through us
  mutable std::pair<std::string, std::string> version_;  // of the program with this identity
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
  if (config_.accel == Accel::kEmulated) out += " tsc_early_khz=" + std::to_string(tsc_khz());
  // Not `nolapic_timer`, although it saves 0.2 s: Debian's kernel has no timer interrupt at all then in this machine.
  return out + " " + spec.command_line;
}

std::vector<std::string> Qemu::arguments(const MachineSpec& spec) const {
  const std::string megabytes = std::to_string(spec.memory_bytes / kMegabyte);
  const bool emulated = config_.accel == Accel::kEmulated;
  std::vector<std::string> words = {
      kProgram,
      "-L",
      "/usr/share/qemu",
      "-name",
      spec.id,
      "-M",
      "microvm,pit=on,pic=on,rtc=on,isa-serial=on,acpi=on,usb=off,graphics=off,dump-guest-core=off,"
      "memory-backend=ram",
      "-accel",
      emulated ? "tcg,thread=multi,tb-size=" + std::to_string(kTranslationMegabytes) : "kvm",
      "-cpu",
      emulated ? "max" : "host",
      "-m",
      megabytes + "M",
      "-smp",
      std::to_string(spec.vcpus),
      "-object",
      "memory-backend-file,id=ram,size=" + megabytes + "M,mem-path=" + kJailMemory +
          "/ram,share=on",
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
  words.insert(words.end(),
               {"-kernel", spec.kernel, "-initrd", spec.initramfs, "-append", command_line(spec)});
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
    if (::ioctl(tap.get(), TUNSETIFF, &request) < 0) return fail_errno("open tap " + card.tap);
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
  jail.shown.insert(jail.shown.end(), {spec.kernel, spec.initramfs});
  jail.memory_bytes = spec.memory_bytes;
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
  GB_TRY(const auto process, start_jailed(jail));
  auto log = open_log(process);
  const int log_fd = log ? log->get() : -1;
  auto greeted =
      Qmp::connect(spec.directory, kMonitor, std::min(deadline, after(kMonitorPatience)));
  if (!greeted) {
    std::this_thread::sleep_for(5ms);  // its end is seen a moment after its socket's
    Error error = explain(process, log_fd, std::move(greeted).error());
    sys::kill_process(process);
    (void)::waitpid(process.pid, nullptr, 0);
    return fail(std::move(error));
  }
  if (log) keep_log(spec.id, std::move(*log));
  return Machine{process, {}};
}

// ---- What it says ----

void Qemu::keep_log(const std::string& id, UniqueFd fd) const {
  const std::lock_guard lock(mutex_);
  logs_[id] = std::make_shared<UniqueFd>(std::move(fd));
}

std::string Qemu::log(const Record& record) const {
  std::shared_ptr<UniqueFd> fd;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = logs_.find(record.id); it != logs_.end()) fd = it->second;
  }
  return fd ? read_log(fd->get(), kShown) : "";
}

Result<void> Qemu::remove_state(const Record& record) {
  const std::lock_guard lock(mutex_);
  logs_.erase(record.id);
  return {};
}

Result<void> Qemu::ping(const Record& record, Deadline deadline) {
  GB_TRY(auto qmp, Qmp::connect(record.directory, kMonitor, deadline));
  return qmp.execute("query-status", {}, deadline).transform([](const auto&) {});
}

Result<std::string> Qemu::version() const {
  struct stat st{};
  const std::string path = program();
  if (path.empty() || ::stat(path.c_str(), &st) < 0)
    return fail(Code::kRuntimeUnavailable, "qemu-system-x86_64 is not installed");
  const std::string identity = path + "-" + std::to_string(st.st_ino) + "-" +
                               std::to_string(st.st_size) + "-" + std::to_string(st.st_mtim.tv_sec);
  const std::lock_guard lock(mutex_);
  if (version_.first != identity) {
    GB_TRY(const auto text, sys::run_command({path, "--version"},
                                             20s));  // "QEMU emulator version 7.2.22 (Debian …)"
    const auto words = split(text.substr(0, text.find('\n')), ' ');
    version_ = {identity, "qemu " + (words.size() > 3 ? words[3] : "of an unknown version")};
  }
  return version_.second;
}

}  // namespace

std::unique_ptr<Engine> make_qemu(const QemuConfig& config) {
  return std::make_unique<Qemu>(config);
}

}  // namespace glovebox::runtime::microvm
