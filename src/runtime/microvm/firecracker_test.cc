// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>

#include "runtime/microvm/firecracker_api.h"
#include "runtime/microvm/jailer.h"
#include "runtime/testing/fake_firecracker.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;
using testing::FakeFirecracker;
using Misbehaviour = FakeFirecracker::Misbehaviour;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

class Firecracker : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/firecracker-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
  }
  void TearDown() override { EXPECT_TRUE(sys::remove_tree(directory_)); }

  std::string socket() const { return directory_ + "/api.sock"; }
  Result<FirecrackerApi> connect(Deadline deadline = after(60s)) const {
    const auto directory = sys::open_fd(directory_, O_PATH | O_DIRECTORY).value();
    return FirecrackerApi::connect(directory.get(), "api.sock", deadline);
  }
  FirecrackerApi connected() const { return connect().value(); }

  std::string directory_;
};

FirecrackerBoot small_machine() {
  return {.vcpus = 2,
          .memory_megabytes = 256,
          .kernel = "/vmlinux",
          .initramfs = "/initramfs",
          .command_line = "gb.channel=vsock",
          .drives = {{"rootfs", "/rootfs", true}, {"private", "/private", false}},
          .network = FirecrackerCard{"eth0", "tap0", "02:00:00:00:00:01"},
          .vsock = "/run/v.sock"};
}

// The first word after the method of each request.
std::vector<std::string> order(const std::vector<std::string>& requests) {
  std::vector<std::string> out;
  for (const auto& r : requests) out.push_back(r.substr(0, r.find(' ', r.find(' ') + 1)));
  return out;
}

// ---- What the API is told ----

TEST_F(Firecracker, BootsInTheOrderThatTheApiDemands) {
  FakeFirecracker fake(socket());
  auto api = connected();
  EXPECT_EQ(api.state(after(60s)).value(), FirecrackerState::kNotStarted);
  const auto booted = api.boot(small_machine(), after(60s));
  ASSERT_TRUE(booted) << booted.error().message;
  EXPECT_EQ(api.state(after(60s)).value(), FirecrackerState::kRunning);
  EXPECT_THAT(
      order(fake.requests()),
      ElementsAre("GET /", "GET /version", "PUT /machine-config", "PUT /boot-source",
                  "PUT /drives/rootfs", "PUT /drives/private", "PUT /network-interfaces/eth0",
                  "PUT /vsock", "PUT /entropy", "PUT /actions", "GET /"));
  EXPECT_THAT(fake.requests(), Contains(AllOf(StartsWith("PUT /drives/rootfs"),
                                              HasSubstr("\"is_read_only\":true"))));
  EXPECT_THAT(fake.requests(),
              Contains(AllOf(StartsWith("PUT /boot-source"), HasSubstr("gb.channel=vsock"))));
}

TEST_F(Firecracker, PausesWritesASnapshotAndGoesOn) {
  FakeFirecracker fake(socket());
  auto api = connected();
  ASSERT_TRUE(api.boot(small_machine(), after(60s)));
  ASSERT_TRUE(api.pause(after(60s)));
  EXPECT_EQ(api.state(after(60s)).value(), FirecrackerState::kPaused);
  ASSERT_TRUE(api.snapshot({"/state", "/memory"}, after(60s)));
  ASSERT_TRUE(api.resume(after(60s)));
  EXPECT_EQ(api.state(after(60s)).value(), FirecrackerState::kRunning);
}

TEST_F(Firecracker, RestoresOnAFreshProcessOnly) {
  FakeFirecracker fake(socket());
  auto api = connected();
  const FirecrackerRestore clone{
      {"/state", "/memory"}, std::pair<std::string, std::string>{"eth0", "tap7"}, "/run/v7.sock"};
  const auto restored = api.restore(clone, after(60s));
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ(api.state(after(60s)).value(), FirecrackerState::kRunning);
  EXPECT_THAT(fake.requests(), Contains(AllOf(HasSubstr("\"backend_type\":\"File\""),
                                              HasSubstr("tap7"), HasSubstr("/run/v7.sock"))));
  const auto again = api.restore(clone, after(60s));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kStartFailed);
}

TEST_F(Firecracker, WaitsForTheSocket) {
  std::unique_ptr<FakeFirecracker> fake;
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    fake = std::make_unique<FakeFirecracker>(socket());
  });
  const auto api = connect(after(60s));
  later.join();
  EXPECT_TRUE(api) << api.error().message;
}

TEST_F(Firecracker, ReachesASocketWhosePathIsLongerThanAnAddress) {
  const std::string deep = directory_ + "/" + std::string(120, 'd');
  ASSERT_TRUE(sys::make_directory(deep, 0700));
  FakeFirecracker fake(socket());
  ASSERT_EQ(::rename(socket().c_str(), (deep + "/api.sock").c_str()), 0);
  const auto directory = sys::open_fd(deep, O_PATH | O_DIRECTORY).value();
  EXPECT_TRUE(FirecrackerApi::connect(directory.get(), "api.sock", after(60s)));
}

// A monitor owns its root directory, and could let us talk to any socket of the host.
TEST_F(Firecracker, FollowsNoLinkToItsSocket) {
  FakeFirecracker fake(socket());
  const std::string jail = directory_ + "/jail";
  ASSERT_TRUE(sys::make_directory(jail, 0700));
  ASSERT_EQ(::symlink(socket().c_str(), (jail + "/api.sock").c_str()), 0);
  ASSERT_EQ(::symlink(directory_.c_str(), (jail + "/run").c_str()), 0);
  const auto directory = sys::open_fd(jail, O_PATH | O_DIRECTORY).value();
  for (const char* name : {"api.sock", "run/api.sock", "../api.sock"})
    EXPECT_EQ(FirecrackerApi::connect(directory.get(), name, after(50ms)).error().code,
              Code::kTimeout)
        << name;
  EXPECT_THAT(fake.requests(), SizeIs(0));
}

// ---- What it answers ----

TEST_F(Firecracker, TellsTheReasonOfARefusal) {
  FakeFirecracker fake(socket());
  auto api = connected();
  auto machine = small_machine();
  machine.vcpus = 33;
  const auto booted = api.boot(machine, after(60s));
  ASSERT_FALSE(booted);
  EXPECT_EQ(booted.error().code, Code::kStartFailed);
  EXPECT_THAT(booted.error().message, HasSubstr("vcpu_count"));
  EXPECT_EQ(booted.error().details.at("status"), "400");
  EXPECT_EQ(fake.state(), "Not started");
  // A refusal leaves request and answer in step.
  EXPECT_EQ(api.state(after(60s)).value(), FirecrackerState::kNotStarted);
  const auto early = api.snapshot({"/state", "/memory"}, after(60s));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Code::kInternal);
}

TEST_F(Firecracker, DoesNotDriveVersionsThatItDoesNotKnow) {
  for (const auto* good : {"1.16.1", "1.17.0-dev", "1.100.0"})
    EXPECT_TRUE(firecracker_version(good)) << good;
  for (const auto* bad : {"1.16.0", "1.15.9", "0.99.0", "2.0.0", "", "1", "1.16", "1.16.", "1..1",
                          "a.b.c", "99999999999999999999.0.0"}) {
    const auto version = firecracker_version(bad);
    ASSERT_FALSE(version) << bad;
    EXPECT_EQ(version.error().code, Code::kRuntimeUnavailable);
  }
  FakeFirecracker fake(socket(), "1.15.0");
  auto api = connected();
  EXPECT_EQ(api.boot(small_machine(), after(60s)).error().code, Code::kRuntimeUnavailable);
  EXPECT_THAT(fake.requests(), SizeIs(1));  // nothing was configured
}

struct Broken {
  const char* name;
  Misbehaviour what;
  Code code;
};
class BrokenFirecracker : public Firecracker, public ::testing::WithParamInterface<Broken> {};

TEST_P(BrokenFirecracker, IsATypedErrorWithinTheDeadline) {
  FakeFirecracker fake(socket(), "1.16.1", GetParam().what, "PUT /vsock");
  auto api = connected();
  const auto began = Clock::now();
  const auto patience = GetParam().code == Code::kTimeout ? 700ms : 60s;
  const auto booted = api.boot(small_machine(), after(patience));
  ASSERT_FALSE(booted);
  EXPECT_EQ(booted.error().code, GetParam().code) << booted.error().message;
  EXPECT_LT(Clock::now() - began, GetParam().code == Code::kTimeout ? 20s : 60s);
  if (GetParam().what == Misbehaviour::kRefusal) return;
  // Whatever comes on that connection later is no answer to what is asked later.
  EXPECT_EQ(api.state(after(60s)).error().code, Code::kSandboxEnded);
}

INSTANTIATE_TEST_SUITE_P(
    Answers, BrokenFirecracker,
    ::testing::Values(Broken{"Silence", Misbehaviour::kSilence, Code::kTimeout},
                      Broken{"HangUp", Misbehaviour::kHangUp, Code::kSandboxEnded},
                      Broken{"Trickle", Misbehaviour::kTrickle, Code::kTimeout},
                      Broken{"Flood", Misbehaviour::kFlood, Code::kCorrupt},
                      Broken{"Nonsense", Misbehaviour::kNonsense, Code::kCorrupt},
                      Broken{"TwoAnswers", Misbehaviour::kTwoAnswers, Code::kCorrupt},
                      Broken{"RefusalWithoutReason", Misbehaviour::kRefusal, Code::kStartFailed}),
    [](const auto& param) { return param.param.name; });

TEST_F(Firecracker, NoSocketIsATimeout) {
  EXPECT_EQ(connect(after(50ms)).error().code, Code::kTimeout);
}

// ---- The jailer ----

JailerSpec jail(const std::string& directory) {
  JailerSpec out;
  out.jailer = "/usr/bin/jailer";
  out.firecracker = "/opt/none/firecracker";
  out.id = "sb-1";
  out.base = directory + "/jails";
  out.uid = 60001;
  return out;
}

TEST(Jailer, CommandEndsTheJailersOptionsBeforeTheMonitors) {
  const auto words = jailer_command(jail("/srv"));
  ASSERT_TRUE(words);
  EXPECT_THAT(*words,
              ElementsAre("/usr/bin/jailer", "--id", "sb-1", "--exec-file", "/opt/none/firecracker",
                          "--uid", "60001", "--gid", "60001", "--chroot-base-dir", "/srv/jails",
                          "--cgroup-version", "1", "--resource-limit", "no-file=1024",
                          "--new-pid-ns", "--", "--api-sock", "/run/api.sock"));
}

TEST(Jailer, RefusesRootAndNamesThatLeaveTheJail) {
  auto root = jail("/srv");
  root.uid = 0;
  EXPECT_EQ(jailer_command(root).error().code, Code::kInvalidArgument);
  for (const std::string& id : {std::string(), std::string("../x"), std::string("a/b"),
                                std::string("a b"), std::string(65, 'a')}) {
    auto bad = jail("/srv");
    bad.id = id;
    EXPECT_EQ(jailer_command(bad).error().code, Code::kInvalidArgument) << id;
    EXPECT_EQ(start_jailer(bad, after(1s)).error().code, Code::kInvalidArgument) << id;
  }
  for (const char* name : {"", ".", "..", "../x", "a/b"}) {
    auto bad = jail("/srv");
    bad.files = {{"/etc/hostname", name, true}};
    EXPECT_EQ(start_jailer(bad, after(1s)).error().code, Code::kInvalidPath) << name;
  }
}

// ---- The real one ----

TEST_F(Firecracker, TheRealOneTakesWhatTheFakeTakes) {
  const std::string program = sys::find_program("firecracker");
  if (program.empty())
    GTEST_SKIP() << "needs the firecracker program: its API was tested against its published "
                    "description only";
  if (::access("/dev/kvm", R_OK | W_OK) != 0) GTEST_SKIP() << "needs /dev/kvm";
  const auto pid =
      sys::start_program(program, {program, "--api-sock", socket(), "--id", "test"}, {});
  ASSERT_TRUE(pid) << pid.error().message;
  const auto process = sys::identify(*pid);
  auto api = connect();
  ASSERT_TRUE(api) << api.error().message;
  EXPECT_EQ(api->state(after(60s)).value(), FirecrackerState::kNotStarted);
  const auto booted = api->boot(
      small_machine(),
      after(60s));  // there is no such kernel: refused with a reason, not with a wrong field
  ASSERT_FALSE(booted);
  EXPECT_EQ(booted.error().code, Code::kStartFailed);
  EXPECT_THAT(booted.error().message,
              AllOf(HasSubstr("/boot-source"), ::testing::Not(HasSubstr("deserializ"))));
  if (process) sys::kill_process(*process);
  std::vector<sys::ProcessId> members;
  if (process) members.push_back(*process);
  while (!members.empty()) sys::reap_ended(&members);
}

}  // namespace
}  // namespace glovebox::runtime::microvm
