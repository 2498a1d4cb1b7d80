// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/conversation.h"

namespace glovebox::api::mcp {
namespace {

constexpr const char* kMark = "mcp_session";
constexpr const char* kOwn = "mcp_own";  // the attribute of the session's own sandbox
constexpr size_t kMaxSandboxes = 64;     // of one session; the tenant's and the host's limits hold besides

bool is_over(const sandbox::SandboxInfo& info) {
  return info.state == sandbox::State::kEnded || info.state == sandbox::State::kEnding;
}

}  // namespace

Async<sandbox::SandboxInfo> Conversation::create(sandbox::Caller caller, sandbox::CreateSpec spec, bool as_own) {
  if (all_.size() >= kMaxSandboxes) {
    co_return fail(
        Code::kCapacity, "this session has as many sandboxes as one may have; kill some of them",
        {{"limit", "sandboxes_per_session"}, {"size", std::to_string(kMaxSandboxes)}, {"use", std::to_string(all_.size())}});
  }
  spec.attributes[kMark] = mark_;
  if (as_own) spec.attributes[kOwn] = "true";
  if (spec.idle_timeout.count() == 0) spec.idle_timeout = settings_.session_timeout;
  GB_CO_TRY(auto made, co_await service_.create(caller, std::move(spec)));
  if (has_ended_) {
    (void)co_await service_.kill(caller, made.info.id);
    co_return fail(Code::kCancelled, "the session ended while its sandbox started");
  }
  all_.insert(made.info.id);
  if (as_own) own_ = made.info.id;
  co_return std::move(made.info);
}

Async<void> Conversation::adopt(sandbox::Caller caller, std::vector<sandbox::SandboxInfo> children, bool is_unwanted) {
  Result<void> marked;
  for (const auto& child : children) {
    if (is_unwanted || has_ended_ || !marked) break;
    all_.insert(child.id);
    sandbox::Update update;
    update.idle_timeout = settings_.session_timeout;
    update.attributes = {{kMark, mark_}, {kOwn, ""}};
    if (auto done = co_await service_.update(caller, child.id, std::move(update)); !done) marked = fail(done.error());
  }
  if (marked && !is_unwanted && !has_ended_) co_return Result<void>();
  for (const auto& child : children) {
    (void)co_await service_.kill(caller, child.id);
    forget(child.id);
  }
  if (!marked) co_return fail(marked.error());
  co_return fail(Code::kCancelled, "the call was cancelled, or its session has ended");
}

std::string Conversation::reason_of_end(const sandbox::Caller& caller) const {
  const auto info = service_.get(caller, own_);
  if (info && !is_over(*info)) return {};
  return info && info->ended ? info->ended->reason : "it is gone";
}

Async<Conversation::Place> Conversation::place(sandbox::Caller caller, std::string wanted) {
  if (!wanted.empty()) co_return Place{std::move(wanted), {}};
  while (is_making_) co_await made_.wait();
  if (has_ended_) co_return fail(Code::kCancelled, "the session has ended");
  if (!own_.empty() && reason_of_end(caller).empty()) co_return Place{own_, {}};
  co_return co_await make_own(std::move(caller));
}

Async<Conversation::Place> Conversation::make_own(sandbox::Caller caller) {
  const std::string before = own_, reason = before.empty() ? "" : reason_of_end(caller);
  struct Making {
    Conversation& conversation;
    explicit Making(Conversation& c) : conversation(c) { conversation.is_making_ = true; }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
    ~Making() {
      conversation.is_making_ = false;
      conversation.made_.notify();
    }
  } making(*this);
  all_.erase(before);
  sandbox::CreateSpec spec;
  spec.template_name = settings_.template_name.empty() ? "interpreter" : settings_.template_name;
  spec.lifetime = sandbox::Millis(0);
  spec.metadata = {{"created_by", "mcp"}};
  auto made_now = co_await create(caller, spec, true);
  if (!made_now && made_now.error().code == Code::kTemplateNotFound && settings_.template_name.empty()) {
    spec.template_name = "base";
    made_now = co_await create(std::move(caller), std::move(spec), true);
  }
  GB_CO_TRY(const auto info, std::move(made_now));
  std::string note = "A sandbox was started for this session: " + info.id + ".";
  if (!before.empty()) {
    note = "The session's sandbox " + before + " has ended (" + reason + "), so a new, empty one was started: " + info.id +
           ". Files and processes of the old one are gone.";
  }
  co_return Place{info.id, std::move(note)};
}

void Conversation::forget(const std::string& id) {
  all_.erase(id);
  if (own_ == id) own_.clear();
}

Awaitable<void> Conversation::end(sandbox::Caller caller) {
  has_ended_ = true;
  const auto all = std::move(all_);
  all_.clear();
  own_.clear();
  for (const std::string& id : all) (void)co_await service_.kill(caller, id);
}

bool Conversation::recover(const sandbox::Caller& caller) {
  sandbox::ListFilter filter;
  filter.attributes = {{kMark, mark_}};
  filter.limit = kMaxSandboxes;
  const auto found = service_.list(caller, filter);
  if (!found) return false;
  for (const auto& info : found->items) {
    if (is_over(info)) continue;
    all_.insert(info.id);
    if (own_.empty() && info.attributes.contains(kOwn)) own_ = info.id;  // the newest
  }
  return !all_.empty();
}

}  // namespace glovebox::api::mcp
