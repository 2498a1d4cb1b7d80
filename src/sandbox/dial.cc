// SPDX-License-Identifier: Apache-2.0
#include "sandbox/dial.h"

#include <algorithm>
#include <cstring>

namespace glovebox::sandbox {
namespace {

// A connection may rest for long (a WebSocket on which nothing happens), but not for ever: its peer may have forgotten it.
constexpr Millis kSilence{3'600'000};
constexpr Millis kStalledWrite{600'000};
constexpr Millis kProbePatience{2'000};

std::string dial_request(uint16_t port) { return R"({"op":"dial","port":)" + std::to_string(port) + "}"; }

// What the agent says about a connection that could not be made; its "unavailable" and "timeout" arrive as sandbox_io.
Error unreachable(const Error& error, uint16_t port) {
  if (error.code != Code::kSandboxIo && error.code != Code::kPermissionDenied) return error;
  return Error{Code::kPreviewUnreachable, "nothing listens on port " + std::to_string(port) + " in the sandbox: " + error.message,
               {{"port", std::to_string(port)}}};
}

class DialStream final : public http::Stream {
 public:
  DialStream(std::shared_ptr<Sandbox> box, Sandbox::Lease lease, uint16_t port)
      : box_(std::move(box)), held_(box_->hold_connection()), lease_(std::move(lease)),
        transfer_(lease_->link(), channel::Transfer::Kind::kTwoWay), port_(port) {}

  Async<void> begin() { return transfer_.begin(dial_request(port_), answer_deadline()); }
  Async<void> confirm() {
    if (is_confirmed_) co_return Result<void>();
    auto answer = co_await transfer_.accepted(answer_deadline());
    lease_.reset();
    if (!answer) co_return fail(unreachable(answer.error(), port_));
    is_confirmed_ = true;
    co_return Result<void>();
  }
  Async<size_t> read_some(char* data, size_t size) override {
    GB_CO_TRYV(co_await confirm());
    if (at_ == rest_.size()) {
      GB_CO_TRY(rest_, co_await transfer_.read(kSilence));
      at_ = 0;
      box_->touch();
    }
    const size_t n = std::min(size, rest_.size() - at_);
    std::memcpy(data, rest_.data() + at_, n);
    at_ += n;
    co_return n;
  }
  Async<void> write(std::string_view data) override {
    // A held connection keeps a sandbox from being frozen for idleness, not from being frozen on demand.
    if (!box_->awake_link()) GB_CO_TRYV(co_await box_->use());
    box_->touch();
    co_return co_await transfer_.write(data, kStalledWrite);
  }
  void shutdown_write() override {
    if (!has_ended_) transfer_.end();
    has_ended_ = true;
  }
  void close() override { transfer_.abort(); }

 private:
  Deadline answer_deadline() const { return after(box_->config().patience.answer); }

  std::shared_ptr<Sandbox> box_;
  std::shared_ptr<void> held_;
  std::optional<Sandbox::Lease> lease_;  // until it is there: a pause would leave the agent's answer out
  channel::Transfer transfer_;
  uint16_t port_;
  bool is_confirmed_ = false;
  std::string rest_;
  size_t at_ = 0;
  bool has_ended_ = false;
};

}  // namespace

Async<std::unique_ptr<http::Stream>> dial(std::shared_ptr<Sandbox> box, uint16_t port, bool waits) {
  GB_CO_TRY(auto lease, co_await box->use());
  auto stream = std::make_unique<DialStream>(box, std::move(lease), port);
  GB_CO_TRYV(co_await stream->begin());
  if (waits) GB_CO_TRYV(co_await stream->confirm());
  co_return std::unique_ptr<http::Stream>(std::move(stream));
}

Async<std::optional<bool>> is_listening(std::shared_ptr<Sandbox> box, uint16_t port) {
  const auto link = box->awake_link();
  if (!link) co_return std::nullopt;
  channel::Transfer probe(link, channel::Transfer::Kind::kTwoWay);
  auto answer = co_await probe.start(dial_request(port), after(kProbePatience));
  if (answer) co_return true;
  if (unreachable(answer.error(), port).code == Code::kPreviewUnreachable) co_return false;
  co_return std::nullopt;  // it was frozen, or ended, meanwhile
}

}  // namespace glovebox::sandbox
