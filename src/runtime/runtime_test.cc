// SPDX-License-Identifier: Apache-2.0
#include "runtime/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <set>
#include <thread>

#include "base/text.h"
#include "runtime/testing/harness.h"
#include "sys/cgroup.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/process.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;
using testing::ask;
using testing::count_objects;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::Not;
using testing::shake_hands;

// The same promises for every tier.
class RuntimeTest : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    std::string problem = testing::why_not(GetParam());
    if (!problem.empty()) GTEST_SKIP() << tier_name(GetParam()) << ": " << problem;
    host_ = std::make_unique<Host>(GetParam());
  }

  void TearDown() override {
    host_.reset();
    (void)eventually([] { return children().empty(); });
    EXPECT_EQ(children(), "") << "processes are left, dead or alive";
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {  // so that only one test complains
    }
  }

  static std::string children() {
    std::string out;
    for (pid_t pid : sys::children())
      out += sys::read_file("/proc/" + std::to_string(pid) + "/stat").value_or("gone").substr(0, 60) + "\n";
    return out;
  }

  // What dies, or is unmounted, is to be seen for a moment.
  static bool eventually(const std::function<bool()>& is_so) {
    for (const auto end = after(60s); !is_so(); std::this_thread::sleep_for(5ms)) {
      if (Clock::now() >= end) return false;
    }
    return true;
  }
  size_t loops() const { return sys::loops_below(host_->config().data_dir).size(); }

  Runtime& runtime() { return host_->runtime(); }
  bool is_container() const { return GetParam() == Tier::kContainer; }

  Started start(const std::string& id = "box", const Limits* limits = nullptr) {
    auto spec = host_->spec(id);
    if (limits != nullptr) spec.limits = *limits;
    auto started = runtime().start(spec, runtime().plan(spec), after(120s));
    EXPECT_TRUE(started.has_value()) << started.error().message;
    if (!started) std::abort();
    return std::move(*started);
  }

  std::string answer(const Started& box, const std::string& command) {
    auto text = ask(box.channel, command);
    return text ? *text : "no answer";
  }

  // The first start keeps something for the next ones: a descriptor of the agent, the empty file
  // system's image.
  void warm_up() {
    auto box = start("warm");
    ASSERT_TRUE(runtime().destroy(box.record));
    ::rmdir((host_->config().data_dir + "/sandboxes/warm").c_str());
    EXPECT_TRUE(eventually([&] { return children().empty() && sys::loops_below(host_->config().data_dir + "/sandboxes").empty(); }));
  }

  Death wait_for_death(const Record& record) {
    auto fd = runtime().death_fd(record);
    EXPECT_TRUE(fd.has_value() && sys::wait_readable(fd->get(), 60s));
    return runtime().death(record);
  }

  std::unique_ptr<Host> host_;
};

// Processes whose parent died before them; here they come to us, elsewhere to the host's init.
void reap_orphans() {
  for (auto end = Clock::now() + 60s; !sys::children().empty() && Clock::now() < end;) {
    if (::waitpid(-1, nullptr, WNOHANG) <= 0) std::this_thread::sleep_for(1ms);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiers, RuntimeTest, ::testing::Values(Tier::kContainer, Tier::kGvisor),
                         [](const auto& tier) { return std::string(tier_name(tier.param)); });

TEST_P(RuntimeTest, StartsAnswersAndLeavesNothingBehind) {
  warm_up();
  auto before = count_objects(host_->config());
  {
    auto box = start();
    EXPECT_TRUE(shake_hands(box.channel));
    EXPECT_NE(count_objects(host_->config()), before);
    EXPECT_TRUE(runtime().destroy(box.record));
  }
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/sandboxes/box").empty());
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/slots").empty());
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/runsc").empty());
}

TEST_P(RuntimeTest, DestroyIsIdempotent) {
  auto box = start();
  EXPECT_TRUE(runtime().destroy(box.record));
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, ProbeStartsASandboxForReal) {
  auto capability = runtime().probe(host_->rootfs());
  EXPECT_TRUE(capability.usable) << capability.problem;
  EXPECT_FALSE(capability.engine.empty());
  EXPECT_EQ(capability.facts["freezer"], "works");
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/sandboxes").empty());
}

TEST_P(RuntimeTest, ProbeNamesTheProblemWhenTheAgentDoesNotRun) {
  ASSERT_TRUE(sys::put_file(host_->config().agent_path, "not a program", 0755));
  auto capability = runtime().probe(host_->rootfs());
  EXPECT_FALSE(capability.usable);
  EXPECT_FALSE(capability.problem.empty());
  EXPECT_FALSE(capability.remedy.empty());
}

TEST_P(RuntimeTest, TheRealAgentAnswers) {
  if (!sys::exists(GLOVEBOX_REAL_AGENT)) GTEST_SKIP() << "not built: " << GLOVEBOX_REAL_AGENT;
  Host host(GetParam(), GLOVEBOX_REAL_AGENT);
  auto capability = host.runtime().probe(host.rootfs());
  EXPECT_TRUE(capability.usable) << capability.problem;
}

TEST_P(RuntimeTest, FrozenSandboxUsesNoCpuAndContinuesWhereItWas) {
  auto box = start();
  ASSERT_TRUE(shake_hands(box.channel));
  ASSERT_TRUE(runtime().freeze(box.record));
  ASSERT_TRUE(runtime().freeze(box.record));
  uint64_t cpu = runtime().usage(box.record)->cpu_us;
  EXPECT_FALSE(ask(box.channel, "cpus", 200ms).has_value());
  EXPECT_EQ(runtime().usage(box.record)->cpu_us, cpu);
  ASSERT_TRUE(runtime().thaw(box.record));
  ASSERT_TRUE(runtime().thaw(box.record));
  EXPECT_TRUE(shake_hands(box.channel));
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, DestroysAFrozenSandbox) {
  auto box = start();
  ASSERT_TRUE(runtime().freeze(box.record));
  EXPECT_TRUE(runtime().destroy(box.record));
  EXPECT_EQ(runtime().freeze(box.record).error().code, Code::kNotFound);
}

TEST_P(RuntimeTest, ExitOfTheAgentIsAnExit) {
  auto box = start();
  (void)ask(box.channel, "exit 7");
  auto death = wait_for_death(box.record);
  EXPECT_EQ(death.reason, EndReason::kExited);
  ASSERT_TRUE(death.wait_status.has_value());
  EXPECT_EQ(WEXITSTATUS(*death.wait_status), 7);
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, KillFromOutsideIsAKill) {
  auto box = start();
  ASSERT_TRUE(shake_hands(box.channel));
  ASSERT_EQ(::kill(std::stoi(box.record.fields["pid"]), SIGKILL), 0);
  EXPECT_EQ(wait_for_death(box.record).reason, EndReason::kKilled);
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, TooMuchMemoryInTheAgentIsOutOfMemory) {
  auto box = start();
  EXPECT_FALSE(ask(box.channel, "hog 400").has_value());
  EXPECT_EQ(wait_for_death(box.record).reason, EndReason::kOom);
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, MemoryLimitHoldsButLeavesRoomBelowIt) {
  auto box = start();
  EXPECT_EQ(answer(box, "hog-child 90"), "ok");
  std::string big = answer(box, "hog-child 400");
  EXPECT_NE(big, "ok");
  if (is_container()) {  // one process dies, the sandbox lives on
    EXPECT_EQ(big, "signal 9");
    EXPECT_TRUE(shake_hands(box.channel));
    EXPECT_EQ(runtime().usage(box.record)->oom_kills, 1u);
  }
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, CpuLimitIsAHardCap) {
  Limits limits = host_->spec("box").limits;
  limits.cpus = 0.25;
  auto box = start("box", &limits);
  double most = 0;
  // Where others leave it less than its cap, the cap is not felt.
  for (int i = 0; i < 10 && (i == 0 || runtime().usage(box.record)->throttled_us == 0); ++i) {
    uint64_t before = runtime().usage(box.record)->cpu_us;
    auto begin = Clock::now();
    answer(box, "spin 2000");
    double used = static_cast<double>(runtime().usage(box.record)->cpu_us - before) / 1e6;
    most = std::max(most, used / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  EXPECT_LT(most, 0.30);
  EXPECT_TRUE(runtime().usage(box.record)->throttled_us > 0 || most < 0.20) << most;
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, DiskLimitIsNoSpaceAndComesBack) {
  auto box = start();
  for (const char* path : {"/big", "/tmp/big"}) {
    std::string text = answer(box, std::string("fill ") + path + " 200");
    EXPECT_THAT(text, HasSubstr("ENOSPC")) << path;
    EXPECT_GT(std::stoi(text), 40) << path;
    EXPECT_LE(std::stoi(text), 64) << path;
    EXPECT_GT(runtime().usage(box.record)->disk_bytes, 40u << 20) << path;
    EXPECT_EQ(answer(box, std::string("unlink ") + path), "ok");
    std::string again;  // gvisor gives the space back in the background
    for (auto end = Clock::now() + 60s; again != "10 ok" && Clock::now() < end;)
      again = answer(box, "fill /again 10");
    EXPECT_EQ(again, "10 ok");
    EXPECT_EQ(answer(box, "unlink /again"), "ok");
  }
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, InodeLimitHolds) {
  if (!is_container()) GTEST_SKIP() << "gvisor keeps inodes in its own memory, which is limited";
  Limits limits = host_->spec("box").limits;
  limits.inodes = 500;
  auto box = start("box", &limits);
  EXPECT_THAT(answer(box, "files /many 2000"), HasSubstr("ENOSPC"));
  EXPECT_GT(runtime().usage(box.record)->inodes, 400u);
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, ProcessLimitHolds) {
  if (!is_container()) GTEST_SKIP() << "gvisor: RLIMIT_NPROC, which the agent sets per execution";
  auto box = start();
  EXPECT_EQ(answer(box, "fork 500"), "60 EAGAIN");
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, SharedMemoryHasALimit) {
  auto box = start();
  std::string text = answer(box, "fill /dev/shm/big 200");
  EXPECT_THAT(text, HasSubstr("ENOSPC"));
  EXPECT_LE(std::stoi(text), 64);
  EXPECT_TRUE(shake_hands(box.channel));
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, GuestSeesItsOwnSize) {
  auto box = start();
  if (is_container()) {
    EXPECT_EQ(answer(box, "df /"), "59");
    EXPECT_EQ(answer(box, "read /sys/fs/cgroup/memory.max"), "134217728\n");
    EXPECT_EQ(answer(box, "read /sys/devices/system/cpu/online"), "0\n");
  } else {
    EXPECT_EQ(answer(box, "memory"), "128");
  }
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, NothingInsideNamesTheHost) {
  auto box = start();
  for (const char* path :
       {"/proc/self/mountinfo", "/proc/mounts", "/proc/1/environ", "/proc/self/cgroup",
        "/proc/cmdline", "/proc/partitions", "/proc/1/cmdline"}) {
    std::string text = answer(box, std::string("read ") + path);
    EXPECT_THAT(text, Not(HasSubstr(host_->config().data_dir))) << path;
    EXPECT_THAT(text, Not(HasSubstr("glovebox-runtime"))) << path;
    EXPECT_THAT(text, Not(HasSubstr(host_->config().instance))) << path;
    EXPECT_THAT(text, Not(HasSubstr("/dev/loop"))) << path;
  }
  // runsc adds HOME to what it starts.
  EXPECT_EQ(answer(box, "read /proc/1/environ"),
            is_container() ? "" : std::string("HOME=/root\0", 11));
  EXPECT_EQ(answer(box, "read /proc/sys/kernel/hostname"), "box-box\n");
  EXPECT_THAT(answer(box, "links /proc/1"), Not(HasSubstr(host_->config().data_dir)));
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, OnlyTheThreeStandardDescriptorsAreOpen) {
  auto box = start();
  std::string text = answer(box, "links /proc/1/fd");
  for (const auto& line : split(text, '\n')) {
    if (line.empty()) continue;
    int number = std::stoi(line);
    EXPECT_TRUE(number <= 2 || line.find("/proc/1/fd") != std::string::npos ||
                line.find("/proc/self") != std::string::npos ||
                line.find(std::to_string(number)) == 0)
        << line;
    if (number > 2) EXPECT_THAT(line, HasSubstr("fd"));  // the directory that is being listed
  }
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, RootInsideHasFewCapabilitiesAndGainsNone) {
  auto box = start();
  std::string status = answer(box, "read /proc/1/status");
  // In gVisor's own kernel the agent, in whose place this is, may name a copy of the sandbox; what it runs for users may not.
  const std::string allowed = is_container() ? "00000000800005fb" : "00000000802005fb";
  for (const char* set : {"CapPrm", "CapEff", "CapBnd"}) {
    EXPECT_THAT(status, HasSubstr(std::string(set) + ":\t" + allowed)) << set;
  }
  if (is_container()) {  // gvisor shows no such lines
    EXPECT_THAT(status, HasSubstr("CapAmb:\t0000000000000000"));
    EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1"));
    EXPECT_THAT(status, HasSubstr("Seccomp:\t2"));
  }
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, AgentBinaryCannotBeWritten) {
  auto box = start();
  auto before = sys::read_file(host_->config().agent_path, 64 << 20).value();
  for (const char* path : {"/proc/1/exe", "/proc/self/exe", "/.glovebox/agent"}) {
    for (const char* flags : {"1", "2", "513"}) {  // write, read-write, write and truncate
      std::string text = answer(box, std::string("open ") + path + " " + flags);
      if (is_container() && std::string(path) == "/.glovebox/agent")
        continue;  // there, a file of the sandbox's own
      EXPECT_NE(text, "ok") << path << " " << flags;
      EXPECT_NE(text, "no answer") << path << " " << flags;
    }
  }
  EXPECT_TRUE(sys::read_file(host_->config().agent_path, 64 << 20).value() == before);
  auto other = start("other");  // uses the same copy
  EXPECT_TRUE(shake_hands(other.channel));
  EXPECT_TRUE(runtime().destroy(other.record));
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, OwnersInsideAreTheGuestsOwn) {
  auto box = start();
  EXPECT_EQ(answer(box, "stat /"), "0:0 493");
  EXPECT_EQ(answer(box, "stat /etc/passwd"), "0:0 420");
  EXPECT_EQ(answer(box, "stat /tmp"), "0:0 1023");
  EXPECT_EQ(answer(box, "mkdir /made"), "ok");
  EXPECT_EQ(answer(box, "chown /made 1000"), "ok");
  EXPECT_EQ(answer(box, "stat /made"), "1000:1000 493");
  EXPECT_EQ(answer(box, "chown /etc/passwd 1000"), "ok");  // copies the template's file up
  EXPECT_EQ(answer(box, "stat /etc/passwd"), "1000:1000 420");
  EXPECT_EQ(answer(box, "pty"), "ok");
  EXPECT_TRUE(runtime().destroy(box.record));
}

TEST_P(RuntimeTest, SandboxesDoNotShareFiles) {
  auto one = start("one"), two = start("two");
  EXPECT_EQ(answer(one, "fill /mine 1"), "1 ok");
  EXPECT_EQ(answer(two, "stat /mine"), "ENOENT");
  EXPECT_TRUE(runtime().destroy(one.record));
  EXPECT_TRUE(shake_hands(two.channel));
  EXPECT_TRUE(runtime().destroy(two.record));
}

TEST_P(RuntimeTest, FailedStartIsUndone) {
  auto before = count_objects(host_->config());
  auto spec = host_->spec("box");
  spec.rootfs.digest = "00000000000000000000000000000000";
  spec.rootfs.image_path = host_->config().agent_path;  // no file system
  auto started = runtime().start(spec, runtime().plan(spec), after(120s));
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, Code::kStartFailed) << started.error().message;
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
  EXPECT_TRUE(sys::list_directory(spec.directory).empty());
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/slots").empty());
}

TEST_P(RuntimeTest, ABadIdIsRefused) {
  for (const char* id :
       {"", "UPPER", "a/b", "..", "a_b", "a23456789012345678901234567890123456789012"}) {
    StartSpec spec = host_->spec("box");
    spec.id = id;
    auto started = runtime().start(spec, Record{id, GetParam(), spec.directory, {}}, after(120s));
    ASSERT_FALSE(started.has_value()) << id;
    EXPECT_EQ(started.error().code, Code::kInvalidArgument) << id;
  }
}

// Whatever a daemon had made when it died, the plan alone is enough to remove it.
TEST_P(RuntimeTest, DestroysHalfMadeSandboxesFromThePlan) {
  warm_up();
  auto before = count_objects(host_->config());
  auto tree =
      sys::CgroupTree::detect(host_->config().cgroup_parent + "/" + host_->config().instance);
  ASSERT_TRUE(tree.has_value());
  for (int made = 0; made < 4; ++made) {
    auto spec = host_->spec("half-" + std::to_string(made));
    Record planned = runtime().plan(spec);
    if (made >= 1) ASSERT_TRUE(tree->create(spec.id, {1, 64 << 20, 10, false}));
    if (made >= 2) ASSERT_TRUE(sys::put_file(spec.directory + "/disk.img", "partial", 0600));
    std::optional<Started> started;
    if (made >= 3)
      started = runtime().start(spec, planned, after(120s)).value();  // its record was never stored
    EXPECT_TRUE(runtime().destroy(planned)) << made;
    EXPECT_TRUE(sys::list_directory(spec.directory).empty()) << made;
  }
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/slots").empty());
}

// As the child of a start does whose daemon was killed just after its birth: it enters one hierarchy
// after the other, and by chance after everything in there was killed.
TEST_P(RuntimeTest, WhatEntersTheCgroupLateIsKilledToo) {
  warm_up();
  auto before = count_objects(host_->config());
  auto tree =
      sys::CgroupTree::detect(host_->config().cgroup_parent + "/" + host_->config().instance);
  ASSERT_TRUE(tree.has_value());
  for (int round = 0; round < 10; ++round) {
    auto box = start();
    auto entries = tree->entries(box.record.id).value();
    const pid_t source = ::fork();
    if (source == 0) {
      ::signal(SIGCHLD, SIG_IGN);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (int i = 0; i < 200 && tree->exists(box.record.id); ++i) {
        if (::fork() == 0) {
          ::alarm(10);
          for (const auto& entry : entries)
            if (::write(entry.get(), "0", 1) != 1) ::_exit(0);
          for (;;) ::pause();
        }
        ::usleep(2000);
      }
      ::_exit(0);
    }
    auto destroyed = runtime().destroy(box.record);
    EXPECT_TRUE(destroyed.has_value()) << round << ": " << destroyed.error().message;
    int status = -1;
    EXPECT_EQ(::waitpid(source, &status, 0), source);
    EXPECT_EQ(status, 0) << round;
  }
  reap_orphans();
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
}

TEST_P(RuntimeTest, SweepRemovesStrangersAndSparesTheKnown) {
  auto keep = start("keep"), stray = start("stray");
  const size_t before = loops();
  auto swept = runtime().sweep({"keep"});
  EXPECT_FALSE(swept.empty());
  for (const auto& what : swept) EXPECT_THAT(what, Not(HasSubstr("keep")));
  auto death = runtime().death_fd(stray.record);
  EXPECT_TRUE(!death || sys::wait_readable(death->get(), 0ms));
  EXPECT_TRUE(shake_hands(keep.channel));
  EXPECT_TRUE(runtime().destroy(keep.record));
  EXPECT_TRUE(runtime().destroy(stray.record));
  EXPECT_TRUE(eventually([&] { return loops() < before; }));
  EXPECT_THAT(runtime().sweep({}), ElementsAre(HasSubstr("directory"))) << "which the maker of keep would remove";
  EXPECT_TRUE(runtime().sweep({}).empty());
}

TEST_P(RuntimeTest, NamesTheHostObjectsOfASandboxWhileThereAreAny) {
  auto owned = [&](const std::string& id) {
    std::set<std::string> kinds;
    for (const auto& object : runtime().host_objects()) {
      if (object.owner == id) kinds.insert(object.what.substr(0, object.what.find(' ')));
    }
    return kinds;
  };
  auto box = start("owner-1");
  std::set<std::string> expected{"cgroup", "loop", "directory"};
  expected.insert(runtime().tier() == Tier::kGvisor ? "engine" : "id");
  EXPECT_EQ(owned("owner-1"), expected);
  EXPECT_TRUE(owned("owner").empty());
  ASSERT_TRUE(runtime().destroy(box.record));
  EXPECT_TRUE(eventually([&] { return owned("owner-1") == std::set<std::string>{"directory"}; })) << "that one is its maker's";
}

TEST_P(RuntimeTest, EndedGuestProcessesDoNotPileUpOnTheHost) {
  auto box = start();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(answer(box, "fork 30"), "30 ok");
  auto zombies = [] {
    size_t count = 0;
    for (pid_t pid : sys::children()) {
      auto id = sys::identify(pid);
      count += id && !sys::is_alive(*id) ? 1 : 0;
    }
    return count;
  };
  EXPECT_TRUE(eventually([&] { return zombies() == 0; }));
  EXPECT_TRUE(shake_hands(box.channel));
  EXPECT_TRUE(runtime().destroy(box.record));
}

// A daemon that starts a sandbox, keeps both pipes busy and is then killed. It is a process of its
// own with its own mounts.
[[noreturn]] void run_daemon(Host& parent, Tier tier, const StartSpec& spec,
                             const std::string& record_path) {
  if (!enter_private_namespace()) ::_exit(2);
  Host host(tier, parent);
  auto started = host.runtime().start(spec, host.runtime().plan(spec), after(60s));
  if (!started) std::fprintf(stderr, "start: %s\n", started.error().message.c_str());
  if (!started || !shake_hands(started->channel, 60s)) ::_exit(3);
  if (!sys::put_file(record_path + ".draft", testing::to_text(started->record), 0600)) ::_exit(4);
  ::rename((record_path + ".draft").c_str(), record_path.c_str());
  for (;;) testing::make_traffic(started->channel);
}

TEST_P(RuntimeTest, IsAdoptedAfterTheDaemonWasKilledUnderLoad) {
  for (int round = 0; round < 6; ++round) {
    auto spec = host_->spec("box-" + std::to_string(round));
    std::string record_path = host_->config().data_dir + "/record-" + std::to_string(round);
    pid_t daemon = ::fork();
    if (daemon == 0) run_daemon(*host_, GetParam(), spec, record_path);
    for (auto end = Clock::now() + 60s;
         !sys::exists(record_path) && Clock::now() < end && sys::children().size() > 0;)
      std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(sys::exists(record_path)) << "the daemon could not start a sandbox";
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * round));  // somewhere in the traffic
    ASSERT_EQ(::kill(daemon, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(daemon, &status, 0), daemon);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the daemon exited with " << WEXITSTATUS(status);

    Host again(GetParam(), *host_);
    Record record = testing::record_from_text(sys::read_file(record_path).value());
    auto channel = again.runtime().adopt(record);
    ASSERT_TRUE(channel.has_value()) << channel.error().message;
    ASSERT_TRUE(shake_hands(*channel)) << round;
    EXPECT_EQ(ask(*channel, "stat /").value_or("no answer"), "0:0 493");
    EXPECT_TRUE(again.runtime().freeze(record));
    EXPECT_TRUE(again.runtime().thaw(record));
    EXPECT_GT(again.runtime().usage(record)->memory_bytes, 0u);
    EXPECT_TRUE(again.runtime().destroy(record));
    EXPECT_EQ(again.runtime().adopt(record).error().code, Code::kSandboxEnded);
  }
  EXPECT_TRUE(eventually([&] { return loops() == 0; }));
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/slots").empty());
}

// Killed anywhere within start(): the plan that was stored before is enough for the next daemon.
TEST_P(RuntimeTest, ADaemonKilledWhileStartingLeavesNothingThatThePlanDoesNotReach) {
  warm_up();
  auto before = count_objects(host_->config());
  auto longest = is_container() ? 6000 : 150000;
  for (int round = 0; round < 24; ++round) {
    auto spec = host_->spec("box-" + std::to_string(round));
    Record planned = runtime().plan(spec);
    pid_t daemon = ::fork();
    if (daemon == 0) {
      Host host(GetParam(), *host_);
      if (!enter_private_namespace()) ::_exit(2);
      auto started = host.runtime().start(spec, planned, after(120s));
      ::_exit(started ? 0 : 3);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(longest * round / 24));
    ::kill(daemon, SIGKILL);
    ::waitpid(daemon, nullptr, 0);
    auto destroyed = runtime().destroy(planned);
    EXPECT_TRUE(destroyed.has_value()) << round << ": " << destroyed.error().message;
    EXPECT_TRUE(sys::list_directory(spec.directory).empty()) << round;
  }
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/slots").empty());
  EXPECT_TRUE(sys::list_directory(host_->config().data_dir + "/run/runsc").empty());
  reap_orphans();
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
}

TEST_P(RuntimeTest, FiftyStartsInParallelAllLive) {
  warm_up();
  auto before = count_objects(host_->config());
  constexpr int kCount = 50, kThreads = 8;
  std::atomic<int> next = 0, good = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i; (i = next++) < kCount;) {
        auto spec = host_->spec("many-" + std::to_string(i));
        auto started = runtime().start(spec, runtime().plan(spec), after(120s));
        if (!started) {
          ADD_FAILURE() << i << ": " << started.error().message;
          continue;
        }
        bool fine = shake_hands(started->channel, 60s).has_value();
        if (!is_container()) fine = runtime().freeze(started->record).has_value() && fine;
        auto destroyed = runtime().destroy(started->record);
        if (!destroyed) ADD_FAILURE() << i << ": " << destroyed.error().message;
        if (fine && destroyed) ++good;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, kCount);
  EXPECT_EQ(testing::left_over(host_->config(), before), testing::HostObjects{});
}

}  // namespace
}  // namespace glovebox::runtime
