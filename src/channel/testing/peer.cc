// SPDX-License-Identifier: Apache-2.0
#include "channel/testing/peer.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/random.h"
#include "base/text.h"

namespace glovebox::channel::testing {

struct TestLoop::Impl {
  boost::asio::io_context context;
};

TestLoop::TestLoop() : impl_(std::make_unique<Impl>()) { ::signal(SIGPIPE, SIG_IGN); }
TestLoop::~TestLoop() = default;
Executor TestLoop::executor() { return impl_->context.get_executor(); }

void TestLoop::run(Awaitable<void> task, std::chrono::milliseconds patience) {
  auto is_done = std::make_shared<bool>(false);
  auto& context = impl_->context;
  auto whole = [](Awaitable<void> inner, std::shared_ptr<bool> done, boost::asio::io_context& loop) -> Awaitable<void> {
    co_await std::move(inner);
    *done = true;
    loop.stop();
  };
  context.restart();
  spawn(executor(), "test", whole(std::move(task), is_done, context));
  context.run_for(patience);
  if (*is_done) return;
  std::fprintf(stderr, "a test did not end within %lld ms, or threw\n", static_cast<long long>(patience.count()));
  std::abort();
}

Awaitable<bool> eventually(std::function<bool()> is_true, std::chrono::milliseconds patience) {
  const Deadline deadline = after(patience);
  while (!is_true()) {
    if (Clock::now() >= deadline) co_return false;
    co_await sleep_for(std::chrono::milliseconds(1));
  }
  co_return true;
}

Peer::Peer() {
  int in[2], out[2];
  GB_ASSERT(::pipe2(in, O_CLOEXEC | O_NONBLOCK) == 0 && ::pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0);
  input_.reset(in[0]);
  to_agent_.reset(in[1]);
  from_agent_.reset(out[0]);
  output_.reset(out[1]);
}

std::pair<UniqueFd, UniqueFd> Peer::copy_daemon_ends() const {
  return {UniqueFd(::fcntl(to_agent_.get(), F_DUPFD_CLOEXEC, 3)), UniqueFd(::fcntl(from_agent_.get(), F_DUPFD_CLOEXEC, 3))};
}

Awaitable<std::optional<Frame>> Peer::next(std::chrono::milliseconds patience) {
  const Deadline deadline = after(patience);
  Frame got;
  while (true) {
    const auto whole = decoder_.next(&got);
    GB_ASSERT(whole.has_value());  // the daemon keeps the protocol
    if (*whole) co_return got;
    char buffer[64 * 1024];
    const ssize_t n = ::read(input_.get(), buffer, sizeof buffer);
    if (n > 0) {
      decoder_.feed(std::string_view(buffer, static_cast<size_t>(n)));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      co_return std::nullopt;
    } else if (!co_await wait_readable(input_.get(), deadline)) {
      co_return std::nullopt;
    }
  }
}

Awaitable<std::optional<Frame>> Peer::next_of(Type type, std::chrono::milliseconds patience) {
  while (true) {
    auto got = co_await next(patience);
    if (!got || got->type == type) co_return got;
  }
}

Awaitable<bool> Peer::write(std::string bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t n = ::write(output_.get(), bytes.data() + at, bytes.size() - at);
    if (n > 0) {
      at += static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      co_return false;
    } else {
      co_await sleep_for(std::chrono::milliseconds(1));  // the reader runs on this loop, too
    }
  }
  co_return true;
}

Awaitable<bool> Peer::send(uint32_t channel, Type type, std::string payload) {
  std::string out;
  append_message(out, channel, type, payload, kMaxPayloadFromAgent);
  co_return co_await write(std::move(out));
}

Awaitable<bool> Peer::shake_hands(std::string executions) {
  const auto hello = co_await next();
  if (!hello || hello->type != Type::kHello) co_return false;
  co_return co_await write(hello_answer(hello->payload, executions));
}

std::string u64(uint64_t value) {
  std::string out;
  append_u64(out, value);
  return out;
}

std::string frame(uint32_t channel, Type type, std::string_view payload, uint8_t flags) {
  std::string out;
  append_frame(out, channel, type, payload, flags);
  return out;
}

namespace {

std::string field_of(std::string_view text, std::string_view name) {
  const std::string key = "\"" + std::string(name) + "\":\"";
  const size_t at = text.find(key);
  return at == std::string_view::npos ? "" : std::string(text.substr(at + key.size(), text.find('"', at + key.size()) - at - key.size()));
}

// What the agent of a copy confirms.
std::string confirmation(std::string_view hello) {
  if (hello.find("\"resumed\":") == std::string_view::npos) return "";
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return R"(,"resumed":{"entropy":"mixed","hooks":0,"hostname":")" + field_of(hello, "hostname") + R"(","machine_id":")" +
         field_of(hello, "machine_id") + R"(","boot_id":")" + field_of(hello, "boot_id") + R"(","sample":")" + hex(random_bytes(16)) +
         R"(","unix_time_ns":)" + std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) + "}";
}

}  // namespace

std::string hello_answer(std::string_view hello, std::string_view executions) {
  const std::string_view key = "\"nonce\":\"";
  const size_t at = hello.find(key);
  GB_ASSERT(at != std::string_view::npos);
  std::string nonce;
  for (size_t i = 0; i < 32; i += 2) {
    const std::string digits(hello.substr(at + key.size() + i, 2));
    nonce.push_back(static_cast<char>(std::strtol(digits.c_str(), nullptr, 16)));
  }
  std::string out = sync_mark(nonce);
  append_message(out, 0, Type::kHelloOk,
                 "{\"version\":1,\"agent\":\"peer\",\"pid_namespace\":\"\",\"boot_ms\":1,\"executions\":" + std::string(executions) + confirmation(hello) + "}",
                 kMaxPayloadFromAgent);
  return out;
}

}  // namespace glovebox::channel::testing
