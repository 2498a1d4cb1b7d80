// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>

#include "channel/json_shape.h"
#include "channel/link.h"

namespace glovebox::channel {
namespace {

// Whether a RESPONSE says ok. Its full reading is the caller's; this decides between a value and an error only.
bool says_ok(std::string_view text) {
  if (!check_json_shape(text)) return false;
  boost::json::parse_options options;
  options.max_depth = 16;
  boost::system::error_code ec;
  const auto value = boost::json::parse(boost::json::string_view(text.data(), text.size()), ec, {}, options);
  const auto* object = ec ? nullptr : value.if_object();
  const auto* ok = object != nullptr ? object->if_contains("ok") : nullptr;
  return ok != nullptr && ok->is_bool() && ok->get_bool();
}

}  // namespace

Transfer::~Transfer() { abort(); }

void Transfer::abort() {
  if (channel_ == 0) return;
  const bool is_over = kind_ == Kind::kOneWay && remote_ended_ && responses_.empty();
  link_->close(channel_, is_over ? 0 : kMaxMessageFromAgent + kWindowBytes);
  if (!is_over) link_->send(channel_, Type::kCancel, {});
  channel_ = 0;
  fail_with(Error{Code::kCancelled, "the transfer was given up", {}});
}

Async<std::string> Transfer::start(std::string json, Deadline deadline) {
  GB_CO_TRYV(co_await begin(std::move(json), deadline));
  co_return co_await next_response(deadline);
}

Async<void> Transfer::begin(std::string json, Deadline deadline) {
  if (json.size() > kMaxMessageToAgent) {
    co_return fail(Code::kPayloadTooLarge, "the request is " + std::to_string(json.size()) + " bytes, at most 1 MiB fits");
  }
  GB_CO_TRYV(co_await link_->wait_room(deadline));
  channel_ = link_->open(this);
  link_->send(channel_, Type::kRequest, json);
  co_return Result<void>();
}

Async<std::string> Transfer::ask(std::string json, Deadline deadline) {
  GB_CO_TRY(std::string response, co_await start(std::move(json), deadline));
  remote_ended_ = true;
  co_return response;
}

Async<std::string> Transfer::next_response(Deadline deadline) {
  while (responses_.empty() && !failure_) {
    const bool woken = co_await changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline) co_return fail(Code::kTimeout, "the sandbox did not answer in time");
  }
  if (responses_.empty()) co_return fail(*failure_);
  std::string response = std::move(responses_.front());
  responses_.pop_front();
  if (says_ok(response)) co_return response;
  remote_ended_ = true;
  co_return fail(error_from_agent(response));
}

Async<std::string> Transfer::read(std::chrono::milliseconds idle) {
  while (inbox_.empty() && !remote_ended_ && !failure_) {
    const bool woken = co_await changed_.wait_until(after(idle));
    if (!woken && inbox_.empty()) co_return fail(Code::kTimeout, "the sandbox sent nothing for too long");
  }
  if (inbox_.empty() && failure_ && !ended_well_) co_return fail(*failure_);
  std::string data = std::move(inbox_);
  inbox_.clear();
  consumed_ += data.size();
  // Tell the agent in steps of a quarter window, not for every frame.
  if (!remote_ended_ && channel_ != 0 && consumed_ + kWindowBytes >= granted_ + kWindowBytes / 4) {
    granted_ = consumed_ + kWindowBytes;
    std::string payload;
    append_u64(payload, granted_);
    link_->send(channel_, Type::kWindowToAgent, payload);
  }
  co_return data;
}

Async<void> Transfer::write(std::string_view data, std::chrono::milliseconds idle) {
  while (!data.empty()) {
    const bool is_one_way = kind_ == Kind::kOneWay;
    while (sent_ >= allowed_ && !failure_ && (responses_.empty() || !is_one_way)) {
      const bool woken = co_await changed_.wait_until(after(idle));
      if (!woken && sent_ >= allowed_) co_return fail(Code::kTimeout, "the sandbox took nothing for too long");
    }
    if (is_one_way && !responses_.empty()) {  // it refused half way
      auto refused = co_await next_response(Clock::now());
      if (!refused) co_return fail(refused.error());
      broke_protocol("the agent answered before the data had ended");
    }
    if (failure_) co_return fail(*failure_);
    GB_CO_TRYV(co_await link_->wait_room(after(idle)));
    const std::string_view part =
        data.substr(0, std::min<uint64_t>({data.size(), kMaxPayloadToAgent, allowed_ - sent_}));
    link_->send(channel_, Type::kDataToAgent, part);
    sent_ += part.size();
    data.remove_prefix(part.size());
  }
  co_return Result<void>();
}

void Transfer::end() {
  if (channel_ != 0) link_->send(channel_, Type::kEndToAgent, {});
}

Async<std::string> Transfer::finish(Deadline deadline) {
  auto response = co_await next_response(deadline);
  remote_ended_ = true;
  co_return response;
}

void Transfer::fail_with(Error error) {
  if (!failure_) failure_ = std::move(error);
  changed_.notify();
}

// What no honest agent does ends the link: a receiver that goes on listening could be kept busy for ever.
void Transfer::broke_protocol(std::string message) {
  Error error{Code::kAgentProtocol, std::move(message), {}};
  fail_with(error);
  link_->drop(error);
}

void Transfer::take_data(std::string& data) {
  received_ += data.size();
  if (received_ > granted_) return broke_protocol("the agent sent more than its window");
  if (data.empty()) return broke_protocol("empty DATA");
  if (inbox_.empty()) {
    inbox_ = std::move(data);
  } else {
    inbox_ += data;
  }
}

void Transfer::take_window(const std::string& payload) {
  const uint64_t total = payload.size() == 8 ? get_u64(payload.data()) : 0;
  // The agent counts what it has got, so a grant grows and is at most a window beyond what we sent.
  if (total <= allowed_ || total > sent_ + kWindowBytes) return broke_protocol("impossible WINDOW");
  allowed_ = total;
}

void Transfer::on_frame(Frame& frame) {
  const bool breaks_off = frame.type == Type::kEnd && !frame.payload.empty();
  const bool may_follow = kind_ == Kind::kTwoWay && !failure_ && (frame.type == Type::kWindow || breaks_off);
  if (remote_ended_ && !may_follow) return broke_protocol("a frame after the end of a transfer");
  switch (frame.type) {
    case Type::kResponse:
      if (++responses_seen_ > 2) return broke_protocol("too many responses");
      responses_.push_back(std::move(frame.payload));
      break;
    case Type::kData:
      take_data(frame.payload);
      break;
    case Type::kEnd:
      remote_ended_ = true;
      ended_well_ = ended_well_ || frame.payload.empty();
      if (!frame.payload.empty()) return fail_with(error_from_agent(frame.payload));
      break;
    case Type::kWindow:
      take_window(frame.payload);
      break;
    default:
      return broke_protocol("unexpected frame in a transfer");
  }
  changed_.notify();
}

void Transfer::on_lost(const Error& error) {
  channel_ = 0;
  fail_with(error);
}

}  // namespace glovebox::channel
