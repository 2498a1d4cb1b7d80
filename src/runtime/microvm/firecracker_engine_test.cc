// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <thread>

#include "base/random.h"
#include "base/text.h"
#include "runtime/microvm/firecracker.h"
#include "runtime/microvm/kvm_probe.h"
#include "runtime/testing/harness.h"
#include "sys/cgroup.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/mounts.h"
#include "sys/pipe.h"

// The engine with a stand-in for Firecracker and its jailer (testing/fake_jailer.cc): its
// processes, jails, relay and channel are real, the machine is not.
namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

constexpr uint32_t kUid = 0x1ffe0001;
constexpr const char* kId = "sb-fire";

class FirecrackerEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = testing::why_not(Tier::kContainer);
    if (!problem.empty()) GTEST_SKIP() << problem;
    if (!sys::exists(GLOVEBOX_REAL_AGENT)) GTEST_SKIP() << "needs the agent, which is not built";
    char name[] = "/tmp/firecracker-engine-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    for (const char* part : {"/bin", "/stage", "/box"})
      ASSERT_TRUE(sys::make_directory(directory_ + part, 0700));
    for (const char* program : {"/bin/firecracker", "/bin/jailer"})
      ASSERT_EQ(::symlink(GLOVEBOX_FAKE_JAILER, (directory_ + program).c_str()), 0);
    ASSERT_TRUE(sys::copy_sparse(GLOVEBOX_REAL_AGENT, directory_ + "/agent"));
    ASSERT_EQ(::chmod((directory_ + "/agent").c_str(), 0755), 0);
    for (const char* file : {"/vmlinux", "/rootfs", "/disk", "/volume"})
      ASSERT_TRUE(sys::put_file(directory_ + file, file, 0600));
    tree_ = sys::CgroupTree::detect("glovebox-test-" + hex(random_bytes(4))).value();
    ASSERT_TRUE(tree_->create(kId, sys::CgroupLimits{1, 256 << 20, 64, true}));
    entries_ = tree_->entries(kId).value();
    to_ = sys::make_lasting_pipe(sys::Direction::kToSandbox, 1 << 16).value();
    from_ = sys::make_lasting_pipe(sys::Direction::kFromSandbox, 1 << 16).value();
    engine_ = make();
  }
  void TearDown() override {
    if (!tree_) return;
    if (machine_) end();
    for (const auto patience = after(60s); !sys::children().empty() && Clock::now() < patience;)
      std::this_thread::sleep_for(1ms);
    EXPECT_THAT(tree_->processes(kId), IsEmpty());
    EXPECT_THAT(sys::children(), IsEmpty());
    EXPECT_TRUE(tree_->remove(kId, 60s));
    tree_->remove_parents();
    for (const auto& mount : sys::mount_table())
      EXPECT_THAT(mount.target, Not(StartsWith(directory_)));
    EXPECT_TRUE(sys::remove_tree(directory_));
  }

  std::unique_ptr<Engine> make() const {
    return make_firecracker({directory_ + "/bin/firecracker", directory_ + "/bin/jailer",
                             directory_ + "/agent", directory_ + "/stage"});
  }
  void mode(const std::string& program, const std::string& text) const {
    ASSERT_TRUE(sys::put_file(directory_ + "/bin/" + program + ".mode", text, 0600));
  }
  MachineSpec spec() const {
    MachineSpec out;
    out.id = kId;
    out.directory = directory_ + "/box";
    out.kernel = directory_ + "/vmlinux";
    out.initramfs = directory_ + "/agent";  // the stand-in's guest runs it
    out.command_line = "gb.channel=vsock";
    out.memory_bytes = 128 << 20;
    out.uid = kUid;
    out.drives = {{directory_ + "/rootfs", true},
                  {directory_ + "/disk", false},
                  {directory_ + "/volume", true}};
    for (const auto& entry : entries_) out.cgroup_fds.push_back(entry.get());
    out.to_agent = to_.inner.get();
    out.from_agent = from_.inner.get();
    return out;
  }
  Result<void> start(const std::string& words = "", std::chrono::milliseconds patience = 60s) {
    auto wanted = spec();
    wanted.command_line += " " + words;
    GB_TRY(machine_, engine_->start(wanted, after(patience)));
    to_.inner.reset();
    from_.inner.reset();
    record_ = Record{kId, Tier::kMicrovm, directory_ + "/box", machine_->fields};
    monitor_ = engine_->monitor(record_).value();
    return {};
  }
  // As destroy() does it.
  void end() {
    std::vector<sys::ProcessId> members = {machine_->process};
    for (const auto patience = after(60s); Clock::now() < patience;
         std::this_thread::sleep_for(1ms)) {
      const bool is_empty = tree_->kill_once(kId);
      sys::reap_ended(&members);
      if (is_empty && members.empty()) break;
    }
    EXPECT_THAT(members, IsEmpty());
    EXPECT_TRUE(engine_->remove_state(record_));
    EXPECT_FALSE(sys::is_present(monitor_));
    machine_.reset();
  }
  ChannelFds channel() { return {std::move(to_.outer), std::move(from_.outer)}; }
  bool relay_ended(std::chrono::milliseconds patience = 60s) const {
    const auto end = sys::open_pidfd(machine_->process);
    return end && sys::wait_readable(end->get(), patience);
  }
  // Its status, once it is what it was started for.
  std::string relay_status() const {
    std::string status;
    for (const auto end = after(60s); status.find("Seccomp:\t2") == std::string::npos && Clock::now() < end;
         std::this_thread::sleep_for(1ms))
      status = sys::read_file(of(machine_->process, "status")).value_or("");
    return status;
  }
  static std::string of(const sys::ProcessId& process, const std::string& name) {
    return "/proc/" + std::to_string(process.pid) + "/" + name;
  }
  std::string log_with(const std::string& text) const {
    std::string log;
    for (const auto end = after(60s); Clock::now() < end; std::this_thread::sleep_for(2ms)) {
      log = engine_->log(record_);
      if (log.find(text) != std::string::npos) break;
    }
    return log;
  }

  std::string directory_;
  std::optional<sys::CgroupTree> tree_;
  std::vector<UniqueFd> entries_;
  sys::LastingPipe to_, from_;
  std::unique_ptr<Engine> engine_;
  std::optional<Machine> machine_;
  Record record_;
  sys::ProcessId monitor_;
};

// ---- Life ----

TEST_F(FirecrackerEngine, BootsAMachineWhoseAgentAnswers) {
  const auto started = start();
  ASSERT_TRUE(started) << started.error().message;
  const auto agent = channel();
  EXPECT_TRUE(testing::shake_hands(agent));
  EXPECT_TRUE(engine_->ping(record_, after(60s)));
  EXPECT_THAT(log_with("guest:"), HasSubstr("gb.channel=vsock"));
}

TEST_F(FirecrackerEngine, AnotherDaemonTakesTheMachineOver) {
  const auto started = start();
  ASSERT_TRUE(started) << started.error().message;
  {
    const auto first = channel();
    ASSERT_TRUE(testing::shake_hands(first));
  }
  const auto to = sys::reopen_pipe(machine_->process.pid, to_.inode, sys::Direction::kToSandbox);
  const auto from =
      sys::reopen_pipe(machine_->process.pid, from_.inode, sys::Direction::kFromSandbox);
  ASSERT_TRUE(to && from);
  const ChannelFds second{UniqueFd(::dup(to->get())), UniqueFd(::dup(from->get()))};
  EXPECT_TRUE(testing::shake_hands(second));
  const auto other = make();
  EXPECT_TRUE(other->ping(record_, after(60s)));
}

TEST_F(FirecrackerEngine, BothProcessesAreInTheSandboxesGroup) {
  ASSERT_TRUE(start());
  EXPECT_THAT(tree_->processes(kId),
              ::testing::IsSupersetOf({machine_->process.pid, monitor_.pid}));
  ASSERT_TRUE(tree_->freeze(kId));
  EXPECT_EQ(engine_->ping(record_, after(200ms)).error().code, Code::kTimeout);
  ASSERT_TRUE(tree_->thaw(kId));
  EXPECT_TRUE(engine_->ping(record_, after(60s)));
}

// ---- Confinement ----

TEST_F(FirecrackerEngine, MonitorAndRelayHaveNoPrivileges) {
  ASSERT_TRUE(start());
  const std::string relay = relay_status();
  for (const auto& process : {monitor_, machine_->process}) {
    const std::string status = sys::read_file(of(process, "status")).value_or("");
    const std::string user = "\t" + std::to_string(kUid);
    for (const std::string& line :
         {"Uid:" + user + user + user + user + "\n", "Gid:" + user + user + user + user + "\n",
          std::string("CapPrm:\t0000000000000000"), std::string("CapEff:\t0000000000000000"),
          std::string("NoNewPrivs:\t1"), std::string("Groups:\t \n")})
      EXPECT_THAT(status, HasSubstr(line));
    for (const char* name : {"ns/mnt", "ns/pid", "ns/net", "ns/ipc", "ns/uts", "ns/cgroup"})
      EXPECT_NE(sys::read_link(of(process, name)),
                sys::read_link(std::string("/proc/self/") + name))
          << name;
  }
  EXPECT_THAT(relay, HasSubstr("CapBnd:\t0000000000000000"));
  EXPECT_THAT(relay, HasSubstr("Seccomp:\t2"));
}

TEST_F(FirecrackerEngine, TheMonitorSeesItsOwnFilesOnly) {
  ASSERT_TRUE(start());
  EXPECT_THAT(sys::list_directory(of(monitor_, "root")),
              UnorderedElementsAre("dev", "run", "vmlinux", "initramfs", "drive0", "drive1",
                                   "drive2", "fake_jailer", "fake_jailer.pid"));
  EXPECT_EQ(sys::read_file(of(monitor_, "root/drive2")).value_or(""), "/volume");
  EXPECT_FALSE(sys::write_file(of(monitor_, "root/drive0"), "x"));
  EXPECT_TRUE(sys::write_file(of(monitor_, "root/drive1"), "written"));
  EXPECT_EQ(sys::read_file(directory_ + "/disk").value_or(""), "written");
  struct stat disk{}, rootfs{};
  ASSERT_EQ(::stat((directory_ + "/disk").c_str(), &disk), 0);
  ASSERT_EQ(::stat((directory_ + "/rootfs").c_str(), &rootfs), 0);
  EXPECT_EQ(disk.st_uid, kUid);
  EXPECT_EQ(disk.st_mode & 0777, 0600u);
  EXPECT_EQ(rootfs.st_uid, 0u);
  // On the host its root directory is an empty place.
  EXPECT_THAT(sys::list_directory(directory_ + "/box/jail/fake_jailer/" + kId + "/root"),
              IsEmpty());
}

TEST_F(FirecrackerEngine, NoDescriptorOfTheDaemonIsInEither) {
  const UniqueFd secret(
      ::open((directory_ + "/bin/jailer").c_str(), O_RDONLY));  // not close-on-exec
  ASSERT_TRUE(secret);
  ASSERT_TRUE(start());
  EXPECT_NE(relay_status(), "");
  for (const auto& process : {monitor_, machine_->process}) {
    const auto names = sys::list_directory(of(process, "fd"));
    EXPECT_THAT(names, Not(IsEmpty()));
    for (const auto& name : names) {
      const std::string target = sys::read_link(of(process, "fd/") + name);
      if (target.empty()) continue;  // closed meanwhile
      EXPECT_THAT(target,
                  AnyOf(StartsWith("pipe:"), StartsWith("socket:"), StartsWith("anon_inode:"),
                        EndsWith("/log/log"), EndsWith("/dev/null"), EndsWith("/vmlinux"),
                        EndsWith("/agent"), EndsWith("/rootfs"), EndsWith("/disk"),
                        EndsWith("/volume"), EndsWith("/initramfs"), HasSubstr("/drive")));
    }
  }
}

// ---- Ends ----

TEST_F(FirecrackerEngine, AGuestThatPanicsEndsTheMachineAndTheConsoleSaysSo) {
  ASSERT_TRUE(start("fake.panic"));
  ASSERT_TRUE(relay_ended());
  EXPECT_THAT(engine_->log(record_), HasSubstr("Kernel panic"));
  const auto status = sys::peek_status(monitor_.pid);
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
}

TEST_F(FirecrackerEngine, AMonitorThatCrashesEndsTheMachine) {
  ASSERT_TRUE(start("fake.crash"));
  ASSERT_TRUE(relay_ended());
  const auto status = sys::peek_status(monitor_.pid);
  ASSERT_TRUE(status);
  EXPECT_EQ(WEXITSTATUS(*status), 148);
}

TEST_F(FirecrackerEngine, AMonitorThatIsKilledEndsTheMachineAndItsChannel) {
  ASSERT_TRUE(start());
  const auto agent = channel();
  ASSERT_TRUE(testing::shake_hands(agent));
  ::kill(monitor_.pid, SIGKILL);
  ASSERT_TRUE(relay_ended());
  const auto status = sys::peek_status(monitor_.pid);
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFSIGNALED(*status) && WTERMSIG(*status) == SIGKILL);
  EXPECT_EQ(engine_->ping(record_, after(1s)).error().code, Code::kSandboxEnded);
}

TEST_F(FirecrackerEngine, AFloodOfTheConsoleIsBounded) {
  ASSERT_TRUE(start("fake.flood"));
  (void)log_with("ffff");
  std::this_thread::sleep_for(500ms);
  struct stat log{};
  ASSERT_EQ(::stat(of(machine_->process, "root/log/log").c_str(), &log), 0);
  EXPECT_LE(log.st_size, 256 << 10);
  EXPECT_LE(engine_->log(record_).size(), 16'000u);
  EXPECT_TRUE(sys::is_alive(machine_->process));
}

// ---- Starts that fail ----

struct Failure {
  const char* name;
  const char* mode;
  Code code;
  const char* says;
};
class FailingFirecracker : public FirecrackerEngine,
                           public ::testing::WithParamInterface<Failure> {};

TEST_P(FailingFirecracker, IsATypedErrorAndLeavesNothing) {
  mode("firecracker", GetParam().mode);
  std::string said;
  // Where the machine stands still for longer than the first time, it does not even get to where it is to hang.
  for (const std::chrono::milliseconds patience : {1500ms, 15'000ms}) {
    const auto began = Clock::now();
    const auto started = start("", GetParam().code == Code::kTimeout ? patience : 60s);
    ASSERT_FALSE(started);
    said = started.error().message;
    EXPECT_EQ(started.error().code, GetParam().code) << said;
    EXPECT_LT(Clock::now() - began, 60s);
    if (said.find(GetParam().says) != std::string::npos) break;
  }
  EXPECT_THAT(said, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Starts, FailingFirecracker,
    ::testing::Values(
        Failure{"JailerFails", "jailer=fails", Code::kStartFailed, "Failed to do what it was told"},
        Failure{"JailerHangs", "jailer=hangs", Code::kTimeout, "jailer"},
        Failure{"BootIsRefused", "misbehave=refusal\nwhen=PUT /boot-source", Code::kStartFailed,
                "boot-source"},
        Failure{"MonitorHangs", "misbehave=silence\nwhen=PUT /actions", Code::kTimeout, "answer"},
        Failure{"MonitorHangsUp", "misbehave=hangup\nwhen=PUT /vsock", Code::kStartFailed,
                "hung up"},
        Failure{"AnotherVersionThanItSaid", "version=1.15.0", Code::kRuntimeUnavailable,
                "not supported"}),
    [](const auto& param) { return param.param.name; });

TEST_F(FirecrackerEngine, AMachineOfTooManyProcessorsIsRefused) {
  auto wanted = spec();
  wanted.vcpus = 33;
  EXPECT_EQ(engine_->start(wanted, after(60s)).error().code, Code::kInvalidArgument);
}

TEST_F(FirecrackerEngine, ADiskThatIsALinkIsRefused) {
  ASSERT_EQ(::symlink("/etc/hostname", (directory_ + "/link").c_str()), 0);
  auto wanted = spec();
  wanted.drives[1].path = directory_ + "/link";
  EXPECT_FALSE(engine_->start(wanted, after(60s)));
}

TEST_F(FirecrackerEngine, AHangingMonitorDoesNotAnswerPings) {
  mode("firecracker", "misbehave=silence\nwhen=GET /");
  ASSERT_TRUE(start());
  EXPECT_EQ(engine_->ping(record_, after(300ms)).error().code, Code::kTimeout);
}

// ---- Versions ----

TEST_F(FirecrackerEngine, TellsItsVersionAndHowToGetIt) {
  EXPECT_EQ(engine_->version().value(), "firecracker 1.16.1");
  mode("jailer", "version=1.16.2");
  EXPECT_THAT(make()->version().error().message, HasSubstr("of one release"));
  mode("firecracker", "version=1.15.3");
  EXPECT_THAT(make()->version().error().message, HasSubstr("not supported"));
  const auto missing = make_firecracker({directory_ + "/none", "", "", ""})->version();
  EXPECT_EQ(missing.error().code, Code::kRuntimeUnavailable);
  EXPECT_THAT(missing.error().message, HasSubstr("not installed"));
}

// ---- The tier ----

TEST(FirecrackerTier, IsNotReplacedByAnotherEngineWhereItIsMissing) {
  const std::string problem = testing::why_not(Tier::kContainer);
  if (!problem.empty()) GTEST_SKIP() << problem;
  if (!sys::find_program("firecracker").empty()) GTEST_SKIP() << "firecracker is installed";
  testing::Host host(Tier::kContainer);
  HostConfig config = host.config();
  config.microvm.engine = MicrovmConfig::Engine::kFirecracker;
  config.microvm.allow_emulation = true;
  const auto capability = make_microvm_runtime(config)->probe(host.rootfs());
  EXPECT_FALSE(capability.usable);
  EXPECT_THAT(capability.problem, HasSubstr("firecracker is not installed"));
  EXPECT_THAT(capability.remedy, HasSubstr("jailer"));
  EXPECT_THAT(capability.facts.at("firecracker"), HasSubstr("not installed"));
}

TEST(FirecrackerTier, TheRealOneRunsASandbox) {
  if (sys::find_program("firecracker").empty() || sys::find_program("jailer").empty())
    GTEST_SKIP() << "needs firecracker and its jailer: no machine of theirs was started here";
  if (const auto kvm = probe_kvm(""); !kvm.works) GTEST_SKIP() << kvm.problem;
  const std::string problem = testing::why_not(Tier::kMicrovm);
  if (!problem.empty()) GTEST_SKIP() << problem;
  testing::Host host(Tier::kMicrovm, GLOVEBOX_REAL_AGENT, MicrovmConfig::Engine::kFirecracker);
  const auto spec = host.spec("box");
  const auto started = host.runtime().start(spec, host.runtime().plan(spec), after(60s));
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_EQ(started->record.fields.at("engine"), "firecracker");
  EXPECT_TRUE(testing::shake_hands(started->channel, 60s));
  EXPECT_TRUE(host.runtime().destroy(started->record));
}

}  // namespace
}  // namespace glovebox::runtime::microvm
