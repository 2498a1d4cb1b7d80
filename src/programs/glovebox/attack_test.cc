// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/attack.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/text.h"

// Each of the host's checks must be able to object: here is what it has to object to.
namespace glovebox::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class AttackWatch : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(::testing::TempDir()) / ("attack-watch-" + std::to_string(::getpid()));
    fs::create_directories(directory_);
    write("program", "ELF");
    write("setting", "core");
    write("mounts", "36 35 98:0 / / rw - ext4 /dev/root rw\n");
    WatchPlan plan;
    plan.programs = {path("program")};
    plan.settings = {path("setting")};
    plan.mount_table = path("mounts");
    plan.canary_parent = directory_;
    auto watch = HostWatch::start(plan);
    ASSERT_TRUE(watch.has_value()) << watch.error().message;
    watch_ = std::move(*watch);
  }
  void TearDown() override {
    watch_.reset();
    fs::remove_all(directory_);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ / name) << text;
  }
  // The names of the checks that object.
  std::vector<std::string> harmed() {
    std::vector<std::string> names;
    for (const auto& finding : watch_->look()) {
      if (!finding.is_unharmed) names.push_back(finding.what);
    }
    return names;
  }
  // The same, as soon as one does: the kernel may hand a connection to its listener a moment after it has told the other end.
  std::vector<std::string> soon_harmed() {
    auto names = harmed();
    for (const auto end = std::chrono::steady_clock::now() + 20s; names.empty() && std::chrono::steady_clock::now() < end;
         std::this_thread::sleep_for(1ms))
      names = harmed();
    return names;
  }
  std::string fact(const std::string& name, const std::string& beginning = "") const {
    for (const auto& line : split(watch_->facts(), '\n')) {
      if (line.starts_with(name + "=" + beginning)) return line.substr(name.size() + 1);
    }
    return {};
  }

  fs::path directory_;
  std::unique_ptr<HostWatch> watch_;
};

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(AttackWatch, AnUntouchedHostIsUnharmed) {
  EXPECT_THAT(harmed(), IsEmpty());
}

TEST_F(AttackWatch, SeesAChangedCanary) {
  std::ofstream(watch_->canary_path()) << "overwritten";
  EXPECT_THAT(harmed(), ElementsAre("host_canary"));
}

TEST_F(AttackWatch, SeesAFileBesideTheCanary) {
  std::ofstream(watch_->canary_directory() + "/planted") << "x";
  EXPECT_THAT(harmed(), ElementsAre("host_canary"));
}

TEST_F(AttackWatch, SeesASignalToItsProcess) {
  ::kill(watch_->canary_process(), SIGUSR1);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(watch_->canary_process()), &ended, WEXITED | WNOWAIT);
  EXPECT_THAT(harmed(), ElementsAre("host_process"));
}

TEST_F(AttackWatch, SeesAConnectionToLoopback) {
  const std::string where = fact("tcp", "127.0.0.1:");
  ASSERT_FALSE(where.empty());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(std::stoi(where.substr(where.find(':') + 1))));
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(soon_harmed(), ElementsAre("host_listeners"));
  EXPECT_THAT(harmed(), ElementsAre("host_listeners")) << "it is not forgotten";
}

TEST_F(AttackWatch, SeesAConnectionToItsAbstractSocket) {
  const std::string name = fact("unix", "@glovebox-canary-");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), name.size());
  address.sun_path[0] = '\0';
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  const auto size = static_cast<socklen_t>(offsetof(struct sockaddr_un, sun_path) + name.size());
  ASSERT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_THAT(soon_harmed(), ElementsAre("host_listeners"));
}

TEST_F(AttackWatch, SeesAChangedProgram) {
  write("program", "elf");
  EXPECT_THAT(harmed(), ElementsAre("host_programs"));
}

TEST_F(AttackWatch, SeesAChangedSetting) {
  write("setting", "|/evil");
  EXPECT_THAT(harmed(), ElementsAre("host_settings"));
}

TEST_F(AttackWatch, SeesAMountOfTheAttackers) {
  write("mounts", "99 35 0:1 / /tmp rw - tmpfs glovebox-attack-mount rw\n");
  EXPECT_THAT(harmed(), ElementsAre("host_mounts"));
}

TEST_F(AttackWatch, LeavesNothingBehind) {
  const std::string canary = watch_->canary_directory();
  const pid_t process = watch_->canary_process();
  watch_.reset();
  EXPECT_FALSE(fs::exists(canary));
  EXPECT_NE(::kill(process, 0), 0);
}

TEST(AttackReport, ReadsTheAttackersLines) {
  const auto attempts = parse_attempts(
      R"({"id":"B04","attempt":"bpf","result":"refused","evidence":"bpf: EPERM"})"
      "\n"
      R"({"id":"B05","attempt":"open_nodes","result":"GOT_THROUGH","evidence":"/dev/mem opens"})"
      "\n");
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_FALSE(attempts[0].is_failure());
  EXPECT_TRUE(attempts[1].is_failure());
  EXPECT_EQ(attempts[1].evidence, "/dev/mem opens");
}

// A sandbox that lies about its results, or mangles them, must not look clean.
TEST(AttackReport, AnythingElseIsAFailure) {
  for (const char* line :
       {"hello", "{}", R"({"id":"B04","attempt":"bpf","result":"fine","evidence":""})",
        R"({"id":"B04","attempt":"bpf","result":"undecided","evidence":"x"})"}) {
    const auto attempts = parse_attempts(line);
    ASSERT_EQ(attempts.size(), 1u) << line;
    EXPECT_TRUE(attempts[0].is_failure()) << line;
  }
}

struct Disturbance {
  const char* name;
  Neighbourhood around;
  std::optional<std::chrono::milliseconds> ended;
  std::string result;
  bool was_only_slow = false;
};

TEST(AttackDisturbance, ABombGetsThroughWhenOthersFeelIt) {
  const Attempt bomb{"container", "user", "B11", "fork_bomb", "refused", "EAGAIN"};
  const Disturbance cases[] = {
      {"nothing felt", {5, 0, 10ms, 1ms, ""}, 20ms, "refused"},
      {"neighbour failed", {5, 1, 10ms, 1ms, "the neighbour: gone"}, 20ms, "GOT_THROUGH"},
      {"neighbour slow", {5, 0, kMostPatience + 1ms, 1ms, ""}, 20ms, "GOT_THROUGH", true},
      {"daemon slow", {5, 0, 10ms, kMostPatience + 1ms, ""}, 20ms, "GOT_THROUGH", true},
      {"slow and failed", {5, 1, kMostPatience + 1ms, 1ms, "gone"}, 20ms, "GOT_THROUGH"},
      {"slow and not ended", {5, 0, kMostPatience + 1ms, 1ms, ""}, std::nullopt, "GOT_THROUGH"},
      {"cannot be ended", {5, 0, 10ms, 1ms, ""}, std::nullopt, "GOT_THROUGH"},
      {"nobody looked", {0, 0, 0ms, 0ms, ""}, 20ms, "undecided"}};
  for (const auto& one : cases) {
    const Judgement judged = judge_disturbance(bomb, one.around, one.ended);
    EXPECT_EQ(judged.attempt.result, one.result) << one.name;
    EXPECT_EQ(judged.was_only_slow, one.was_only_slow) << one.name;
  }
  const Attempt through{"container", "user", "B11", "fork_bomb", "GOT_THROUGH", ""};
  EXPECT_EQ(judge_disturbance(through, {5, 0, 1ms, 1ms, ""}, 2ms).attempt.result, "GOT_THROUGH");
  EXPECT_FALSE(judge_disturbance(through, {5, 0, kMostPatience + 1ms, 1ms, ""}, 2ms).was_only_slow);
}

}  // namespace
}  // namespace glovebox::cli
