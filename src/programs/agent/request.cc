// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/request.h"

#include <sys/eventfd.h>

#include <algorithm>

namespace glovebox::agent {
namespace {

constexpr size_t kPieceBytes = 64 * 1024;

tl::unexpected<Error> cancelled() {
  return glovebox::fail(Code::kCancelled, "the daemon gave the request up");
}

}  // namespace

Result<void> Request::send(channel::Type type, std::string_view message) {
  if (is_cancelled() || !outbox_.wait_for_room(connection_)) return cancelled();
  if (!outbox_.send_for(connection_, channel_, type, message)) return cancelled();
  return {};
}

Result<void> Request::respond(json::object object) {
  object["ok"] = true;
  return send(channel::Type::kResponse, to_text(object));
}

void Request::fail(const Error& error) {
  if (error.code == Code::kCancelled) return;
  const auto type = data_begun_ ? channel::Type::kEnd : channel::Type::kResponse;
  [[maybe_unused]] const auto sent = send(type, error_response(error));
}

Result<uint64_t> Request::wait_for_window() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_cancelled() || sent_ < allowed_; });
  if (is_cancelled()) return cancelled();
  return allowed_ - sent_;
}

Result<void> Request::send_data(std::string_view bytes) {
  while (!bytes.empty()) {
    GB_TRY(const uint64_t window, wait_for_window());
    const size_t n = std::min<uint64_t>({bytes.size(), window, channel::kMaxPayloadFromAgent});
    GB_TRYV(send(channel::Type::kData, bytes.substr(0, n)));
    sent_ += n;
    bytes.remove_prefix(n);
  }
  return {};
}

Result<void> Request::end_data() {
  return send(channel::Type::kEnd, {});
}

Result<std::optional<std::string>> Request::receive() {
  std::string bytes;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_cancelled() || input_ended_ || !input_.empty(); });
    if (is_cancelled()) return cancelled();
    if (input_.empty()) return std::optional<std::string>();
    bytes = std::move(input_.front());
    input_.pop_front();
  }
  received_ += bytes.size();
  if (received_ + channel::kWindowBytes / 2 >= granted_) {
    granted_ = received_ + channel::kWindowBytes;
    std::string payload;
    channel::append_u64(payload, granted_);
    if (!outbox_.send_for(connection_, channel_, channel::Type::kWindow, payload))
      return cancelled();
  }
  return std::optional<std::string>(std::move(bytes));
}

// Frames to us are at most a page. What has come meanwhile is joined, so that the thread wakes up
// and writes once for many of them; with something in the queue it does not sleep.
void Request::on_data(std::string bytes) {
  if (bytes.empty()) return;
  {
    std::lock_guard lock(mutex_);
    if (!input_.empty()) {
      if (input_.back().size() + bytes.size() <= kPieceBytes) {
        input_.back() += bytes;
      } else {
        input_.push_back(std::move(bytes));
      }
      return;
    }
    input_.push_back(std::move(bytes));
  }
  changed_.notify_one();
}

void Request::on_end() {
  std::lock_guard lock(mutex_);
  input_ended_ = true;
  changed_.notify_one();
}

void Request::on_window(uint64_t total) {
  std::lock_guard lock(mutex_);
  allowed_ = std::max(allowed_, total);
  changed_.notify_one();
}

void Request::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  changed_.notify_one();
  if (bell_ >= 0) ::eventfd_write(bell_, 1);
}

void Request::ring_when_cancelled(int fd) {
  std::lock_guard lock(mutex_);
  bell_ = fd;
  if (bell_ >= 0 && is_cancelled()) ::eventfd_write(bell_, 1);
}

}  // namespace glovebox::agent
