// SPDX-License-Identifier: Apache-2.0
// A sandbox whose agent has been taken over costs itself and nothing else: calls end with an error in time, the daemon's memory stays
// bounded, the sandbox beside it keeps answering, and nothing is left on the host.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <thread>

#include "base/log.h"
#include "channel/testing/peer.h"
#include "runtime/testing/harness.h"
#include "sandbox/testing/world.h"

namespace glovebox::sandbox {
namespace {
using namespace std::chrono_literals;
using channel::testing::TestLoop;
using runtime::Tier;

constexpr auto kCallBound = 30s;     // patience below, and a loaded machine: half of what a call may take unless told otherwise
constexpr auto kNeighbourBound = 2s;  // and three times what the machine itself stood still
constexpr size_t kMaxGrowthBytes = 64 << 20;

size_t resident_bytes() {
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// How long a thread that nobody disturbs waits for a processor: what the machine takes from everybody.
class StandstillMeter {
 public:
  Clock::duration take_worst() { return worst_.exchange(Clock::duration{}); }

 private:
  void measure(const std::stop_token& stop) {
    for (auto last = Clock::now(); !stop.stop_requested();) {
      std::this_thread::sleep_for(5ms);
      const auto now = Clock::now();
      worst_ = std::max(worst_.load(), now - last - 5ms);
      last = now;
    }
  }
  std::atomic<Clock::duration> worst_{Clock::duration{}};
  std::jthread thread_{[this](const std::stop_token& stop) { measure(stop); }};
};

std::vector<std::string> behaviours() {
  std::vector<std::string> out;
  FILE* pipe = ::popen(GLOVEBOX_HOSTILE_AGENT " --list", "r");
  char line[100];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) out.emplace_back(line, std::string_view(line).find('\n'));
  if (pipe != nullptr) ::pclose(pipe);
  return out;
}

Config impatient(const std::string& data_dir) {
  Config config;
  config.data_dir = data_dir;
  config.start_timeout = 4s;
  config.freeze_after = 0ms;
  config.default_limits.memory_bytes = 256 << 20;
  config.default_limits.disk_bytes = 64 << 20;
  config.output_file_bytes = 4 << 20;
  config.patience = {.exec_start = 800ms, .exec_end_slack = 300ms, .exec_kill = 1500ms, .answer = 600ms, .long_answer = 600ms,
                     .idle = 600ms, .adopt = 1500ms, .lost_note = 200ms};
  return config;
}

class HostileAgent : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    const std::string problem = runtime::testing::why_not(GetParam());
    if (!problem.empty()) GTEST_SKIP() << std::string(tier_name(GetParam())) << ": " << problem;
    log::set_level(log::Level::kError);
    host_ = std::make_unique<runtime::testing::Host>(GetParam(), GLOVEBOX_HOSTILE_AGENT);
    const std::string& data = host_->config().data_dir;
    for (const char* name : {"/sandboxes", "/spool"}) std::filesystem::create_directories(data + name);
    testing::add_template(data, host_->rootfs().image_path);
    config_ = impatient(data);
    store_ = store::open_sqlite(data + "/glovebox.db").value();
    templates_ = std::make_unique<image::Templates>(data);
    ManagerParts parts{.executor = loop_.executor(), .pool = &pool_, .store = store_.get(), .templates = templates_.get()};
    parts.runtimes.push_back(GetParam() == Tier::kContainer ? runtime::make_container_runtime(host_->config())
                                                            : runtime::make_gvisor_runtime(host_->config()));
    runtime_ = parts.runtimes[0].get();
    parts.capabilities.push_back({GetParam(), {true, "", "", "", {}}});
    manager_ = Manager::create(config_, std::move(parts));
    ASSERT_TRUE(manager_->load().has_value());
  }

  void TearDown() override {
    if (runtime_ != nullptr) runtime_->forget({.digest = std::string(64, 'b'), .image_path = ""});
  }

  SandboxService& service() { return *manager_; }

  Awaitable<Result<SandboxInfo>> create(std::string behaviour) {
    CreateSpec spec;
    spec.env["HOSTILE"] = behaviour;
    spec.lifetime = 10min;
    auto created = co_await service().create(caller_, std::move(spec));
    if (!created) co_return fail(created.error());
    co_return created->info;
  }

  // Keeps asking the sandbox beside the hostile one; `worst` is the longest answer.
  Awaitable<void> be_neighbour(std::string id) {
    while (!stop_) {
      const auto began = Clock::now();
      auto execution = co_await service().execute(caller_, id, {.command = "true"});
      while (!execution && execution.error().code == Code::kTimeout && Clock::now() - began < kCallBound) {  // its patience is short, too
        execution = co_await service().execute(caller_, id, {.command = "true"});
      }
      EXPECT_TRUE(execution.has_value()) << (execution ? "" : execution.error().message);
      if (execution) EXPECT_TRUE(co_await (*execution)->wait(after(kCallBound)));
      worst_ = std::max(worst_, Clock::now() - began);
      ++answers_;
      co_await sleep_for(5ms);
    }
    is_stopped_ = true;
  }

  // One call of each kind, all at once; the one at `first` is what the agent answers in its way. Each has to end.
  Awaitable<void> call_everything(std::string id, size_t first) {
    auto counted = [](HostileAgent& t, Awaitable<void> call) -> Awaitable<void> {
      co_await std::move(call);
      ++t.calls_ended_;
    };
    calls_ended_ = 0;
    const std::vector<Awaitable<void> (HostileAgent::*)(std::string)> calls{
        &HostileAgent::call_exec, &HostileAgent::call_stat, &HostileAgent::call_read, &HostileAgent::call_write, &HostileAgent::call_list};
    for (size_t i = 0; i < calls.size(); ++i) {
      spawn(loop_.executor(), "call", counted(*this, (this->*calls[(first + i) % calls.size()])(id)));
    }
    const bool all_ended = co_await channel::testing::eventually([&] { return calls_ended_ == calls.size(); }, kCallBound);
    EXPECT_TRUE(all_ended) << "a call hangs";
  }
  Awaitable<void> call_exec(std::string id) {
    ExecSpec spec;
    spec.command = "true";
    spec.timeout = 300ms;
    spec.stdin_data = std::string(500'000, 'i');
    auto execution = co_await service().execute(caller_, id, std::move(spec));
    if (execution) EXPECT_TRUE(co_await (*execution)->wait(after(kCallBound)));
  }
  Awaitable<void> call_stat(std::string id) {
    auto entry = co_await service().stat(caller_, id, "", "/", true);
    EXPECT_FALSE(entry.has_value());  // no behaviour gives a whole one
    if (!entry) EXPECT_NE(entry.error().code, Code::kUnauthenticated);
  }
  Awaitable<void> call_read(std::string id) {
    auto source = co_await service().read_file(caller_, id, "", "/x", 0, {});
    for (uint64_t total = 0; source && total < (64u << 20);) {
      auto piece = co_await (*source)->read();
      if (!piece || piece->empty()) break;
      total += piece->size();
    }
  }
  Awaitable<void> call_write(std::string id) {
    auto sink = co_await service().write_file(caller_, id, "", "/x", {});
    for (int i = 0; sink && i < 4; ++i) {
      if (!co_await (*sink)->write(std::string(300'000, 'w'))) co_return;
    }
    if (sink) (void)co_await (*sink)->finish();
  }
  Awaitable<void> call_list(std::string id) { (void)co_await service().list_files(caller_, id, "", "/", "", 100); }

  Awaitable<void> attack(std::string behaviour, size_t first) {
    const size_t before = resident_bytes();
    const auto began = Clock::now();
    auto box = co_await create(behaviour);
    EXPECT_LT(Clock::now() - began, kCallBound) << behaviour;
    if (behaviour.starts_with("hello_")) EXPECT_FALSE(box.has_value()) << behaviour;
    if (box) {
      co_await call_everything(box->id, first);
      const auto state = service().get(caller_, box->id)->state;
      EXPECT_TRUE(state == State::kReady || state == State::kEnding || state == State::kEnded) << behaviour;
      auto killed = co_await service().kill(caller_, box->id);
      EXPECT_EQ(killed->info.state, State::kEnded) << behaviour;
      if (state != State::kReady) EXPECT_EQ(killed->info.ended->reason, "crashed") << behaviour;
    }
    const size_t now = resident_bytes();
    EXPECT_LT(now > before ? now - before : 0, kMaxGrowthBytes) << behaviour;
  }

  Awaitable<void> run_all() {
    auto neighbour = co_await create("honest");
    EXPECT_TRUE(neighbour.has_value()) << (neighbour ? "" : neighbour.error().message);
    if (!neighbour) co_return;
    spawn(loop_.executor(), "neighbour", be_neighbour(neighbour->id));
    for (const std::string& behaviour : behaviours()) {
      worst_ = {};
      answers_ = 0;
      (void)standstill_.take_worst();
      const size_t kinds = behaviour.starts_with("hello_") ? 1 : 5;
      for (size_t first = 0; first < kinds; ++first) co_await attack(behaviour, first);
      EXPECT_TRUE(co_await channel::testing::eventually([&] { return answers_ > 0; })) << behaviour;
      EXPECT_LT(worst_, kNeighbourBound + 3 * standstill_.take_worst()) << behaviour << ": the sandbox beside it waited";
    }
    stop_ = true;
    EXPECT_TRUE(co_await channel::testing::eventually([&] { return is_stopped_; }));
    EXPECT_EQ(service().get(caller_, neighbour->id)->state, State::kReady);
    co_await manager_->end_all("killed");
  }

  std::unique_ptr<runtime::testing::Host> host_;
  runtime::Runtime* runtime_ = nullptr;  // the manager's
  Config config_;
  std::unique_ptr<image::Templates> templates_;
  TestLoop loop_;
  std::unique_ptr<Manager> manager_;
  std::unique_ptr<store::Store> store_;  // its thread answers to the loop
  BlockingPool pool_{16};
  Caller caller_{"tenant", "key", Role::kUser, {}, "req"};
  bool stop_ = false, is_stopped_ = false;
  Clock::duration worst_{};
  StandstillMeter standstill_;
  int answers_ = 0;
  size_t calls_ended_ = 0;
};

TEST_P(HostileAgent, CostsItselfOnly) {
  ASSERT_GT(behaviours().size(), 40u);
  loop_.run(run_all(), 25min);
  auto before = runtime::testing::count_objects(host_->config());
  before.cgroups = before.loops = before.processes = 0;
  EXPECT_EQ(runtime::testing::left_over(host_->config(), before), runtime::testing::HostObjects{});
  EXPECT_TRUE(std::filesystem::is_empty(host_->config().data_dir + "/sandboxes"));
}

INSTANTIATE_TEST_SUITE_P(Tiers, HostileAgent, ::testing::Values(Tier::kContainer, Tier::kGvisor),
                         [](const auto& param) { return std::string(tier_name(param.param)); });

}  // namespace
}  // namespace glovebox::sandbox
