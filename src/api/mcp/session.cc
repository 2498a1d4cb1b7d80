// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/session.h"

#include <sodium.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "http/json.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

constexpr std::string_view kIdPrefix = "mcp-";
constexpr size_t kIdCharacters = 40;  // 5 bits each
constexpr size_t kMaxRunning = 16;
constexpr size_t kMaxEarlyCancellations = 32;
constexpr size_t kMaxKeptBytes = 64 << 20;
constexpr size_t kMaxKept = 1024;
constexpr std::chrono::minutes kKeepStream{5};
constexpr std::chrono::seconds kSweepInterval{10};

std::string key_of(const bj::value& id) {
  return json::to_text(id);
}

// The session's name in what is stored: the id itself is a secret.
std::string mark_of(const sandbox::Caller& caller, const std::string& id) {
  const std::string text = caller.key_id + " " + id;
  std::string digest(crypto_generichash_BYTES, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(digest.data()), digest.size(),
                     reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr, 0);
  return hex(digest);
}

bool is_own_id(const std::string& id) {
  return id.size() == kIdPrefix.size() + kIdCharacters && id.starts_with(kIdPrefix);
}

}  // namespace

void Running::cancel() {
  if (is_cancelled_) return;
  is_cancelled_ = true;
  if (auto stop = std::move(stop_)) stop();
  stop_ = nullptr;
}

void Running::on_cancel(std::function<void()> stop) {
  if (is_cancelled_) {
    stop();
  } else {
    stop_ = std::move(stop);
  }
}

Result<RunningPtr> Session::begin_request(const bj::value& id) {
  const std::string key = key_of(id);
  if (running_.contains(key)) return fail(Code::kConflict, "a request with this id is under way", {{"field", "id"}});
  if (running_.size() >= kMaxRunning) {
    return fail(
        Code::kCapacity, "this session has as many requests under way as one may have",
        {{"limit", "requests_per_session"}, {"size", std::to_string(kMaxRunning)}, {"use", std::to_string(running_.size())}});
  }
  auto running = std::make_shared<Running>();
  if (const auto early = std::ranges::find(cancelled_early_, key); early != cancelled_early_.end()) {
    cancelled_early_.erase(early);
    running->cancel();
  }
  running_[key] = running;
  return running;
}

void Session::end_request(const bj::value& id) {
  running_.erase(key_of(id));
  last_used = Clock::now();
}

void Session::cancel(const bj::value& id) {
  const std::string key = key_of(id);
  if (const auto found = running_.find(key); found != running_.end()) {
    const RunningPtr running = found->second;
    return running->cancel();
  }
  cancelled_early_.push_back(key);
  if (cancelled_early_.size() > kMaxEarlyCancellations) cancelled_early_.pop_front();
}

void Session::cancel_all() {
  const auto running = running_;  // stopping one may end it
  for (const auto& [key, request] : running) request->cancel();
  for (const auto& [id, stream] : streams_) stream->abandon();
}

StreamPtr Session::open_stream(size_t requests) {
  const std::string id = std::to_string(++last_stream_) + random_name(6);
  return streams_[id] = std::make_shared<Stream>(id, requests);
}

StreamPtr Session::find_stream(const std::string& id) const {
  const auto found = streams_.find(id);
  return found == streams_.end() ? nullptr : found->second;
}

SessionPtr Sessions::add(const sandbox::Caller& caller, std::string id, Version version) {
  const std::string mark = mark_of(caller, id);
  auto session = std::make_shared<Session>(id, caller, version, service_, settings_, mark);
  by_id_[std::move(id)] = session;
  if (!is_sweeping_) {
    is_sweeping_ = true;
    spawn(executor_, "mcp.sweep", sweep());
  }
  return session;
}

bool Sessions::make_room(const sandbox::Caller& caller) {
  SessionPtr oldest;
  for (const auto& [id, session] : by_id_) {
    const bool is_free = session->owner().key_id == caller.key_id && !session->is_busy() && session->conversation.is_empty();
    if (is_free && (!oldest || session->last_used < oldest->last_used)) oldest = session;
  }
  return oldest && by_id_.erase(oldest->id()) == 1;
}

Result<SessionPtr> Sessions::begin(const sandbox::Caller& caller, Version version) {
  if (by_id_.size() >= settings_.max_sessions && !make_room(caller)) {
    return fail(Code::kCapacity, "there are as many MCP sessions as the operator allows",
                {{"limit", "mcp.max_sessions"},
                 {"size", std::to_string(settings_.max_sessions)},
                 {"use", std::to_string(by_id_.size())}});
  }
  return add(caller, std::string(kIdPrefix) + random_name(kIdCharacters), version);
}

SessionPtr Sessions::find(const sandbox::Caller& caller, const std::string& id, Version version) {
  if (const auto found = by_id_.find(id); found != by_id_.end()) {
    const auto& owner = found->second->owner();
    if (owner.key_id != caller.key_id || owner.tenant != caller.tenant) return nullptr;
    found->second->last_used = Clock::now();
    return found->second;
  }
  if (!is_own_id(id) || by_id_.size() >= settings_.max_sessions) return nullptr;
  Conversation before(service_, settings_, mark_of(caller, id));
  if (!before.recover(caller)) return nullptr;
  auto session = add(caller, id, version);
  session->conversation.recover(caller);
  return session;
}

Awaitable<void> Sessions::end(SessionPtr session) {
  by_id_.erase(session->id());
  changed_.notify();
  session->cancel_all();
  co_await session->conversation.end(session->owner());
}

void Sessions::keep(const SessionPtr& session, const StreamPtr& stream) {
  if (stream->is_kept) return;
  stream->is_kept = true;
  if (kept_.size() >= kMaxKept) drop_oldest_kept();
  kept_.push_back({session, stream->id(), stream->bytes(), after(kKeepStream)});
  kept_bytes_ += stream->bytes();
  while (kept_bytes_ > kMaxKeptBytes) drop_oldest_kept();
}

void Sessions::drop_oldest_kept() {
  if (const auto session = kept_.front().session.lock()) session->close_stream(kept_.front().stream);
  kept_bytes_ -= kept_.front().bytes;
  kept_.pop_front();
}

// Runs as long as there are sessions.
Awaitable<void> Sessions::sweep() {
  while (!by_id_.empty()) {
    co_await changed_.wait_until(after(std::min<std::chrono::milliseconds>(kSweepInterval, settings_.session_timeout)));
    while (!kept_.empty() && kept_.front().until < Clock::now()) drop_oldest_kept();
    std::vector<SessionPtr> over;
    for (const auto& [id, session] : by_id_) {
      if (!session->is_busy() && session->last_used + settings_.session_timeout < Clock::now()) over.push_back(session);
    }
    for (const auto& session : over) {
      log::info("mcp.session_over", {{"tenant", session->owner().tenant}, {"cause", "unused"}});
      co_await end(session);
    }
  }
  is_sweeping_ = false;
}

}  // namespace glovebox::api::mcp
