// SPDX-License-Identifier: Apache-2.0
// A whole link with an execution and two transfers on it, against an agent that says what the fuzzer says: frames whose channel and
// type are mostly plausible, so that the state machines behind them are reached. Nothing may crash, wait for ever, or grow.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <memory>

#include "base/log.h"
#include "channel/link.h"
#include "channel/testing/peer.h"
#include "sandbox/execution.h"

namespace {

using namespace glovebox;
using namespace std::chrono_literals;
using channel::Type;

class NoStore : public store::Store {
 public:
  Async<void> put_sandbox(store::SandboxRow) override { co_return Result<void>(); }
  Async<void> delete_sandbox(std::string) override { co_return Result<void>(); }
  Async<void> put_execution(store::ExecutionRow) override { co_return Result<void>(); }
  Async<void> delete_execution(std::string, std::string) override { co_return Result<void>(); }
  Async<std::optional<store::ExecutionRow>> get_execution(std::string, std::string) override {
    co_return std::optional<store::ExecutionRow>();
  }
  Async<void> put_key(store::KeyRow) override { co_return Result<void>(); }
  Async<void> delete_key(std::string) override { co_return Result<void>(); }
  Async<void> put_setting(store::SettingRow) override { co_return Result<void>(); }
  Async<void> delete_setting(std::string, std::string) override { co_return Result<void>(); }
  Async<void> put_object(store::ObjectRow) override { co_return Result<void>(); }
  Async<void> delete_object(std::string, std::string) override { co_return Result<void>(); }
  Result<std::vector<store::ObjectRow>> load_objects(const std::string&) override { return std::vector<store::ObjectRow>(); }
  Result<std::vector<store::SandboxRow>> load_sandboxes() override { return std::vector<store::SandboxRow>(); }
  Result<std::vector<store::ExecutionRow>> load_executions(const std::string&) override { return std::vector<store::ExecutionRow>(); }
  Result<std::vector<store::KeyRow>> load_keys() override { return std::vector<store::KeyRow>(); }
  Result<std::vector<store::SettingRow>> load_settings() override { return std::vector<store::SettingRow>(); }
};

constexpr Type kTypes[] = {Type::kStarted, Type::kFailed, Type::kOutput, Type::kStdinAck, Type::kExited, Type::kGone,
                           Type::kResponse, Type::kData,  Type::kEnd,    Type::kWindow,   Type::kPong,   Type::kHelloOk};
constexpr const char* kPayloads[] = {
    R"({"pid":3})", R"({"code":"io","message":"m"})", R"({"ok":true})", R"({"ok":false,"code":"disk_full"})",
    R"({"outcome":"exited","code":0,"stdout_bytes":0,"stderr_bytes":0})",
    R"({"outcome":"signalled","signal":9,"stdout_bytes":3,"stderr_bytes":0})", ""};

std::string payload_of(FuzzedDataProvider& in) {
  switch (in.ConsumeIntegralInRange(0, 3)) {
    case 0: return kPayloads[in.ConsumeIntegralInRange<size_t>(0, std::size(kPayloads) - 1)];
    case 1: return channel::stream_header(in.ConsumeIntegralInRange<uint8_t>(0, 3), in.ConsumeIntegral<uint16_t>()) + in.ConsumeRandomLengthString(40);
    case 2: return channel::testing::u64(in.ConsumeBool() ? in.ConsumeIntegral<uint64_t>() : in.ConsumeIntegral<uint32_t>());
    default: return in.ConsumeRandomLengthString(100);
  }
}

Awaitable<void> execute(std::shared_ptr<sandbox::RunningExecution> execution, std::shared_ptr<channel::Link> link) {
  if (!co_await execution->start(link, "{}", "some input", true, 0ms)) co_return execution->abandon();
  (void)co_await execution->write_stdin(std::string(1000, 'i'));
  (void)co_await execution->read(0, 1000);
}
Awaitable<void> take(std::shared_ptr<channel::Link> link) {
  channel::Transfer transfer(link);
  auto piece = co_await transfer.start("{}", after(20ms));
  while (piece && !piece->empty()) piece = co_await transfer.read(20ms);
}
Awaitable<void> give(std::shared_ptr<channel::Link> link) {
  channel::Transfer transfer(link);
  if (!co_await transfer.start("{}", after(20ms))) co_return;
  if (!co_await transfer.write(std::string(300'000, 'w'), 20ms)) co_return;
  transfer.end();
  (void)co_await transfer.finish(after(20ms));
}
Awaitable<void> greet(std::shared_ptr<channel::Link> link) { (void)co_await link->hello("{}", after(1s)); }

std::string read_some(int fd) {
  char buffer[65536];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  return std::string(buffer, n > 0 ? static_cast<size_t>(n) : 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool is_set_up = [] {
    ::signal(SIGPIPE, SIG_IGN);
    log::set_level(log::Level::kError);
    return true;
  }();
  (void)is_set_up;
  static NoStore store;
  static BlockingPool pool(1);
  static sandbox::Config config;
  config.output_memory_bytes = 1 << 20;  // no files
  config.output_file_bytes = 2000;
  config.patience.exec_start = 20ms;
  FuzzedDataProvider in(data, size);
  int to[2], from[2];
  if (::pipe2(to, O_CLOEXEC | O_NONBLOCK) != 0 || ::pipe2(from, O_CLOEXEC | O_NONBLOCK) != 0) __builtin_trap();
  UniqueFd agent_in(to[0]), agent_out(from[1]);
  {
    boost::asio::io_context loop;
    auto link = channel::Link::create(loop.get_executor(), UniqueFd(to[1]), UniqueFd(from[0]), [](const Error&) {});
    spawn(loop.get_executor(), "greet", greet(link));
    loop.poll();
    const std::string hello = channel::testing::hello_answer(read_some(to[0]), "[]");
    if (::write(from[1], hello.data(), hello.size()) < 0) __builtin_trap();
    loop.poll();
    sandbox::ExecInfo info;
    info.id = "ex-a";
    auto execution = std::make_shared<sandbox::RunningExecution>(
        sandbox::ExecutionContext{loop.get_executor(), &pool, &store, &config}, info, "/nonexistent/x", sandbox::RunningExecution::Counts{});
    spawn(loop.get_executor(), "execute", execute(execution, link));
    spawn(loop.get_executor(), "take", take(link));
    spawn(loop.get_executor(), "give", give(link));
    loop.poll();
    while (in.remaining_bytes() > 0 && !link->is_lost()) {
      const uint32_t channel = in.ConsumeIntegralInRange<uint32_t>(0, 4);
      const Type type = kTypes[in.ConsumeIntegralInRange<size_t>(0, std::size(kTypes) - 1)];
      const uint8_t flags = in.ConsumeIntegralInRange<uint8_t>(0, 7) == 7 ? 1 : 0;
      std::string bytes = channel::testing::frame(channel, type, payload_of(in), flags);
      if (in.ConsumeIntegralInRange(0, 31) == 31) bytes += in.ConsumeRandomLengthString(20);  // out of step from here
      if (::write(from[1], bytes.data(), bytes.size()) < 0) break;
      loop.poll();
      (void)read_some(to[0]);
    }
    link->drop(Error{Code::kSandboxEnded, "over", {}});
    execution->finish_without_agent("sandbox_ended", "over");
    loop.poll();
    if (!execution->is_gone()) __builtin_trap();
    if (execution->info().kept_bytes > config.output_file_bytes) __builtin_trap();
  }
  return 0;
}
