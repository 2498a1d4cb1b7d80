// SPDX-License-Identifier: Apache-2.0
#include "registry/control.h"

#include <sys/socket.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "http/json.h"

namespace glovebox::registry {
namespace {
constexpr size_t kMaxLineBytes = 1 << 20;
constexpr size_t kMaxQueuedBytes = 8 << 20;

bool send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}
}  // namespace

// Writes on a thread of its own: the loop never waits for the daemon.
struct Control::Writer {
  explicit Writer(int descriptor) : fd(descriptor), thread([this] { write_lines(); }) {}
  ~Writer() {
    {
      const std::lock_guard lock(mutex);
      is_ending = true;
    }
    changed.notify_one();
    ::shutdown(fd, SHUT_RDWR);  // ends a send() under way
    thread.join();
  }
  void push(std::string line) {
    const std::lock_guard lock(mutex);
    if (queued_bytes + line.size() > kMaxQueuedBytes) {
      if (lost++ % 1000 == 0) log::warn("registry.events_lost", {{"lost", lost}});
      return;
    }
    queued_bytes += line.size();
    lines.push_back(std::move(line));
    changed.notify_one();
  }
  void write_lines() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return is_ending || !lines.empty(); });
      if (is_ending) return;
      const std::string line = std::move(lines.front());
      lines.pop_front();
      queued_bytes -= line.size();
      lock.unlock();
      const bool is_sent = send_all(fd, line);
      lock.lock();
      if (!is_sent) return;
    }
  }

  const int fd;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> lines;
  size_t queued_bytes = 0;
  uint64_t lost = 0;
  bool is_ending = false;
  std::thread thread;
};

Control::Control(int fd, Executor executor)
    : fd_(fd), executor_(std::move(executor)), writer_(std::make_unique<Writer>(fd)) {}
Control::~Control() = default;

void Control::send(boost::json::object message) { writer_->push(json::to_text(std::move(message)) + "\n"); }

namespace {

Result<void> handle_line(std::string_view line, Control& control,
                         const std::function<Result<void>(const boost::json::object&)>& handle) {
  GB_TRY(const auto value, json::parse_object(line));
  const auto& object = value.as_object();
  const auto done = handle(object);
  if (!done) log::warn("registry.operation_failed", {{"message", done.error().message}});
  const auto* seq = object.if_contains("seq");
  if (seq && done) control.send({{"op", "done"}, {"seq", *seq}});
  if (seq && !done) control.send({{"op", "failed"}, {"seq", *seq}, {"message", done.error().message}});
  return {};
}

}  // namespace

Awaitable<void> Control::run(std::function<Result<void>(const boost::json::object&)> handle) {
  std::string have;
  std::string buffer(64 << 10, '\0');
  while (co_await wait_readable(fd_)) {
    const ssize_t n = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) co_return;
    have.append(buffer.data(), static_cast<size_t>(n));
    size_t start = 0;
    for (size_t end; (end = have.find('\n', start)) != have.npos; start = end + 1) {
      const auto handled = handle_line(std::string_view(have).substr(start, end - start), *this, handle);
      if (!handled) {
        log::error("registry.control_broken", {{"message", handled.error().message}});
        co_return;
      }
    }
    have.erase(0, start);
    if (have.size() > kMaxLineBytes) {
      log::error("registry.control_broken", {{"message", "a line is longer than 1 MiB"}});
      co_return;
    }
  }
}

}  // namespace glovebox::registry
