// SPDX-License-Identifier: Apache-2.0
#include "sandbox/watch.h"

#include <algorithm>

#include "sandbox/files.h"

namespace glovebox::sandbox {
namespace {

constexpr size_t kMaxLine = 64 << 10;  // a path of 4095 bytes, each of them escaped, and more

// Laid down it can be watched again, which wakes it.
Error end_of_watch(Error error) {
  const auto reason = error.details.find("reason");
  if (error.code != Code::kSandboxEnded || reason == error.details.end() ||
      reason->second != "hibernated")
    return error;
  return Error{Code::kSandboxNotReady,
               "the sandbox was hibernated or reset, which ended the watch",
               {{"state", "paused"}, {"reason", "hibernated"}}};
}

class AgentWatch final : public FileWatch {
 public:
  AgentWatch(std::shared_ptr<Sandbox> box, std::shared_ptr<channel::Link> link)
      : box_(std::move(box)), transfer_(std::move(link)) {}

  Result<void> take_place() {
    GB_TRY(place_, box_->hold_watch([this](const Error& error) { (void)end(error); }));
    return {};
  }
  Async<void> start(std::string request, Deadline deadline) {
    GB_CO_TRYV(co_await transfer_.start(std::move(request), deadline));
    co_return Result<void>();
  }

  // The transfer's window bounds what comes at once; an unfinished line is kept.
  Async<std::vector<FileEvent>> next(Deadline deadline) override {
    if (ended_) co_return fail(*ended_);
    const auto left = std::chrono::duration_cast<Millis>(deadline - Clock::now());
    auto piece = co_await transfer_.read(std::clamp(left, Millis(0), kLongest));
    if (!piece && piece.error().code == Code::kTimeout) {
      more_may_come_.reset();
      co_return std::vector<FileEvent>();
    }
    if (!piece) co_return end(end_of_watch(std::move(piece).error()));
    if (piece->empty())
      co_return end(Error{Code::kFileNotFound, "the watched directory is gone", {}});
    co_await keep_awake(piece->size());
    rest_ += *piece;
    auto events = take_lines();
    if (!events) co_return end(std::move(events).error());
    co_return events;
  }

 private:
  // While its reader is slow, events wait in the sandbox, where no one gets at them if it is
  // frozen.
  Awaitable<void> keep_awake(size_t taken) {
    if (!more_may_come_) more_may_come_ = box_->hold_awake();
    const bool is_frozen = box_->info().state == State::kReady && !box_->awake_link();
    if (is_frozen && taken >= channel::kWindowBytes / 2) (void)co_await box_->use();
  }

  static constexpr Millis kLongest{3'600'000};

  tl::unexpected<Error> end(Error error) {
    if (!ended_) ended_ = std::move(error);
    more_may_come_.reset();
    transfer_.abort();  // which wakes who waits in next()
    return fail(*ended_);
  }

  Result<std::vector<FileEvent>> take_lines() {
    std::vector<FileEvent> events;
    size_t at = 0;
    for (size_t end; (end = rest_.find('\n', at)) != std::string::npos; at = end + 1) {
      GB_TRY(FileEvent event,
             codec::decode_file_event(std::string_view(rest_).substr(at, end - at)));
      events.push_back(std::move(event));
    }
    rest_.erase(0, at);
    if (rest_.size() > kMaxLine) return fail(Code::kAgentProtocol, "a file event without an end");
    return events;
  }

  std::shared_ptr<Sandbox> box_;
  channel::Transfer transfer_;
  std::shared_ptr<void> place_, more_may_come_;
  std::string rest_;
  std::optional<Error> ended_;
};

}  // namespace

Async<std::unique_ptr<FileWatch>> watch(std::shared_ptr<Sandbox> box, std::string user,
                                        std::string path, bool recursive) {
  GB_CO_TRYV(files::check_path(path));
  GB_CO_TRY(auto lease, co_await box->use());
  auto watch = std::make_unique<AgentWatch>(box, lease.link());
  GB_CO_TRYV(watch->take_place());
  GB_CO_TRYV(co_await watch->start(files::watch_request(*box, user, path, recursive),
                                   after(box->config().patience.answer)));
  co_return std::unique_ptr<FileWatch>(std::move(watch));
}

}  // namespace glovebox::sandbox
