// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/firecracker.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/text.h"
#include "runtime/microvm/firecracker_api.h"
#include "runtime/microvm/jail.h"
#include "runtime/microvm/jailer.h"
#include "sys/command.h"
#include "sys/files.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;

constexpr size_t kShown = 4000;  // of the log
constexpr auto kMonitorPatience = 10s;
constexpr auto kReapPatience = 5s;
constexpr uint64_t kMegabyte = 1 << 20;
constexpr unsigned kMostCpus = 32;
constexpr int kAgentPort = 52;
constexpr const char* kPid = "firecracker_pid";
constexpr const char* kPidStart = "firecracker_start";
constexpr const char* kBoot = "firecracker_boot";
constexpr const char* kMissing =
    " is not installed: Firecracker's releases hold static programs `firecracker` and `jailer` for "
    "x86_64; "
    "put both into /usr/local/bin, or set microvm.firecracker and microvm.jailer";

class Firecracker final : public Engine {
 public:
  explicit Firecracker(FirecrackerConfig config) : config_(std::move(config)) {}
  std::string_view name() const override { return "firecracker"; }
  Accel accel() const override { return Accel::kKvm; }
  std::string_view channel() const override { return "vsock"; }
  Result<std::string> version() const override;
  uint64_t overhead_bytes() const override {
    return 64 * kMegabyte;
  }  // its root directory (32 MiB at most) included
  uint64_t overhead_threads(unsigned vcpus) const override { return 16 + vcpus; }
  Result<Machine> start(const MachineSpec& spec, Deadline deadline) override;
  std::optional<sys::ProcessId> monitor(const Record& record) const override;
  Result<void> ping(const Record& record, Deadline deadline) override;
  std::string log(const Record& record) const override;
  Result<void> remove_state(const Record& record) override;

 private:
  struct Programs {
    std::string firecracker, jailer;
  };
  Result<Programs> programs() const;
  Result<sys::ProcessId> start_relay(const MachineSpec& spec, const Jailed& jailed,
                                     int console_fd) const;

  FirecrackerConfig config_;
  mutable std::mutex mutex_;
  KeptLogs logs_;
  mutable std::pair<std::string, std::string> version_;  // of the programs with this identity
};

// ---- Programs ----

Result<Firecracker::Programs> Firecracker::programs() const {
  Programs found{sys::find_program(config_.program.empty() ? "firecracker" : config_.program),
                 sys::find_program(config_.jailer.empty() ? "jailer" : config_.jailer)};
  if (found.firecracker.empty())
    return fail(Code::kRuntimeUnavailable, std::string("firecracker") + kMissing);
  if (found.jailer.empty())
    return fail(Code::kRuntimeUnavailable, std::string("Firecracker's jailer") + kMissing);
  return found;
}

Result<std::string> identity_of(const std::string& path) {
  struct stat st{};
  if (::stat(path.c_str(), &st) < 0) return fail(Code::kRuntimeUnavailable, path + kMissing);
  return path + "-" + std::to_string(st.st_ino) + "-" + std::to_string(st.st_size) + "-" +
         std::to_string(st.st_mtim.tv_sec);
}

// "Firecracker v1.16.1" or "Jailer v1.16.1", and lines of other things.
Result<std::string> version_of(const std::string& program, const std::string& word) {
  auto text = sys::run_command({program, "--version"}, 10s);
  if (!text)
    return fail(Code::kRuntimeUnavailable, program + " does not run here: " + text.error().message);
  const std::string line = text->substr(0, text->find('\n')), head = word + " v";
  if (!line.starts_with(head))
    return fail(Code::kRuntimeUnavailable, program + " does not say a version of " + word);
  return line.substr(head.size());
}

Result<std::string> Firecracker::version() const {
  GB_TRY(const auto found, programs());
  GB_TRY(const auto monitor, identity_of(found.firecracker));
  GB_TRY(const auto jailer, identity_of(found.jailer));
  const std::lock_guard lock(mutex_);
  if (version_.first == monitor + jailer) return version_.second;
  GB_TRY(const auto version, version_of(found.firecracker, "Firecracker"));
  GB_TRYV(firecracker_version(version));
  GB_TRY(const auto same, version_of(found.jailer, "Jailer"));
  if (same != version) {
    return fail(Code::kRuntimeUnavailable, "firecracker is " + utf8_lossy(version) +
                                               " and its jailer " + utf8_lossy(same) +
                                               ": both have to be of one release");
  }
  version_ = {monitor + jailer, "firecracker " + version};
  return version_.second;
}

// ---- Start ----

std::string drive_name(size_t index) {
  return "drive" + std::to_string(index);
}

std::vector<JailFile> files_of(const MachineSpec& spec) {
  std::vector<JailFile> files = {{spec.kernel, "vmlinux", true},
                                 {spec.initramfs, "initramfs", true}};
  for (size_t i = 0; i < spec.drives.size(); ++i)
    files.push_back({spec.drives[i].path, drive_name(i), spec.drives[i].read_only});
  return files;
}

FirecrackerBoot boot_of(const MachineSpec& spec) {
  FirecrackerBoot boot;
  boot.vcpus = spec.vcpus;
  boot.memory_megabytes = spec.memory_bytes / kMegabyte;
  boot.kernel = "/vmlinux";
  boot.initramfs = "/initramfs";
  boot.command_line = spec.command_line;
  for (size_t i = 0; i < spec.drives.size(); ++i)
    boot.drives.push_back({drive_name(i), "/" + drive_name(i), spec.drives[i].read_only});
  if (spec.network) boot.network = FirecrackerCard{"eth0", spec.network->tap, spec.network->mac};
  boot.vsock = std::string("/") + kFirecrackerVsock;
  return boot;
}

// Where the guest's connection to the agent's port arrives. There is no guest yet, so nothing in
// the jail can be a trap.
Result<UniqueFd> listen_for_agent(const Jailed& jailed, uint32_t uid) {
  const std::string name = std::string(kFirecrackerVsock) + "_" + std::to_string(kAgentPort);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(jailed.root.get()) + "/" + name;
  if (path.size() >= sizeof address.sun_path)
    return fail(Code::kInternal, name + ": too long for a socket");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0)
    return fail_errno("bind " + name);
  if (::fchownat(jailed.root.get(), name.c_str(), uid, uid, AT_SYMLINK_NOFOLLOW) < 0)
    return fail_errno("chown " + name);
  if (::listen(socket.get(), 1) < 0) return fail_errno("listen " + name);
  return socket;
}

Result<sys::ProcessId> Firecracker::start_relay(const MachineSpec& spec, const Jailed& jailed,
                                                int console_fd) const {
  GB_TRY(const auto listener, listen_for_agent(jailed, spec.uid));
  GB_TRY(const auto monitor, sys::open_pidfd(jailed.process));
  JailSpec jail;
  jail.stage = config_.stage;
  jail.cgroup_fds = spec.cgroup_fds;
  jail.uid = spec.uid;
  jail.shown = {config_.relay};
  jail.open_files = 16;
  jail.descriptors = {{spec.to_agent, 0},
                      {spec.from_agent, 1},
                      {listener.get(), 3},
                      {monitor.get(), 4},
                      {console_fd, 5}};
  jail.argv = {config_.relay, "--relay"};
  return start_jailed(jail);
}

void end_process(const sys::ProcessId& process) {
  std::vector<sys::ProcessId> members = {process};
  for (const auto end = after(kReapPatience); !members.empty() && Clock::now() < end;) {
    sys::kill_process(process);
    sys::reap_ended(&members);
    if (!members.empty()) std::this_thread::sleep_for(1ms);
  }
}

Result<std::pair<UniqueFd, UniqueFd>> console_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return fail_errno("pipe2");
  return std::pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

// What the monitor printed says more than that it hung up.
Error explained(Error error, const Result<UniqueFd>& log) {
  std::this_thread::sleep_for(5ms);  // the relay has to see it first
  const std::string said = log ? read_log(log->get(), kShown) : "";
  if (!said.empty()) error.message += ": " + said;
  if (error.code == Code::kSandboxEnded) error.code = Code::kStartFailed;
  return error;
}

Result<Machine> Firecracker::start(const MachineSpec& spec, Deadline deadline) {
  GB_TRY(const auto found, programs());
  if (!spec.snapshot.empty())
    return fail(Code::kUnsupported, "firecracker machines are not started from snapshots");
  if (spec.vcpus > kMostCpus)
    return fail(Code::kInvalidArgument,
                "Firecracker's machines have at most " + std::to_string(kMostCpus) + " processors");
  GB_TRY(auto console, console_pipe());
  JailerSpec jailer;
  jailer.jailer = found.jailer;
  jailer.firecracker = found.firecracker;
  jailer.id = spec.id;
  jailer.base = spec.directory + "/jail";
  jailer.uid = spec.uid;
  jailer.open_files = spec.open_files;
  jailer.cgroup_fds = spec.cgroup_fds;
  if (spec.network) jailer.netns_fd = spec.network->netns_fd;
  jailer.console_fd = console.second.get();
  jailer.output_fd = console.first.get();
  jailer.files = files_of(spec);
  const Deadline end = std::min(deadline, after(kMonitorPatience));
  GB_TRY(const auto jailed, start_jailer(jailer, end));
  console.second.reset();  // the monitor's end is the console's end
  auto relay = start_relay(spec, jailed, console.first.get());
  if (!relay) {
    end_process(jailed.process);
    return fail(std::move(relay).error());
  }
  auto log = open_log(*relay);
  auto booted = FirecrackerApi::connect(jailed.root.get(), kFirecrackerSocket, end)
                    .and_then([&](FirecrackerApi api) { return api.boot(boot_of(spec), end); });
  if (!booted) {
    Error error = explained(std::move(booted).error(), log);
    end_process(jailed.process);
    end_process(*relay);
    return fail(std::move(error));
  }
  if (log) logs_.keep(spec.id, std::move(*log));
  return Machine{*relay,
                 {{kPid, std::to_string(jailed.process.pid)},
                  {kPidStart, std::to_string(jailed.process.start_time)},
                  {kBoot, sys::boot_id()}}};
}

// ---- Life and end ----

std::optional<sys::ProcessId> Firecracker::monitor(const Record& record) const {
  const auto field = [&](const char* name) {
    const auto found = record.fields.find(name);
    return found == record.fields.end() ? std::string() : found->second;
  };
  const auto pid = parse_int(field(kPid)), start = parse_int(field(kPidStart));
  if (!pid || !start || *pid <= 1 || field(kBoot) != sys::boot_id()) return std::nullopt;
  return sys::ProcessId{static_cast<pid_t>(*pid), static_cast<uint64_t>(*start)};
}

Result<void> Firecracker::ping(const Record& record, Deadline deadline) {
  const auto process = monitor(record);
  if (!process) return fail(Code::kSandboxEnded, "Firecracker is gone");
  GB_TRY(const auto root, open_jail(*process));
  GB_TRY(auto api, FirecrackerApi::connect(root.get(), kFirecrackerSocket, deadline));
  return api.state(deadline).transform([](const auto&) {});
}

std::string Firecracker::log(const Record& record) const {
  return logs_.read(record.id, kShown);
}

// The monitor is an orphan, which waits for us when it ended before destroy() looked for processes.
Result<void> Firecracker::remove_state(const Record& record) {
  if (const auto process = monitor(record)) end_process(*process);
  logs_.drop(record.id);
  return {};
}

}  // namespace

std::unique_ptr<Engine> make_firecracker(const FirecrackerConfig& config) {
  return std::make_unique<Firecracker>(config);
}

}  // namespace glovebox::runtime::microvm
