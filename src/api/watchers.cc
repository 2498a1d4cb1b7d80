// SPDX-License-Identifier: Apache-2.0
#include "api/watchers.h"

#include "base/random.h"

namespace glovebox::api {
namespace {

using sandbox::Millis;
constexpr std::chrono::hours kForgotten{1};
constexpr size_t kMaxEvents = 20'000;  // of one answer
constexpr Millis kFirst{50},
    kMore{5};  // events of a call that has just been answered are on their way

}  // namespace

// Of sandboxes that have ended, and what nobody asks for any more.
void Watchers::prune(const sandbox::SandboxService& service) {
  std::erase_if(watchers_, [&](const auto& entry) {
    const auto info = service.get_unchecked(entry.second->sandbox);
    return !info || info->state == sandbox::State::kEnded ||
           entry.second->asked_at + kForgotten < Clock::now();
  });
}

Async<std::string> Watchers::create(sandbox::SandboxService& service, const sandbox::Caller& caller,
                                    const std::string& sandbox, const std::string& user,
                                    const std::string& path, bool recursive) {
  prune(service);
  GB_CO_TRY(auto watch, co_await service.watch_files(caller, sandbox, user, path, recursive));
  const std::string id = random_name(20);
  watchers_[id] = std::make_shared<Watcher>(Watcher{sandbox, path, std::move(watch), Clock::now()});
  co_return id;
}

Result<std::shared_ptr<Watchers::Watcher>> Watchers::find(const std::string& sandbox,
                                                          const std::string& id) const {
  const auto found = watchers_.find(id);
  if (found == watchers_.end() || found->second->sandbox != sandbox)
    return fail(Code::kNotFound, not_found_);
  return found->second;
}

Async<Watchers::Events> Watchers::take(const std::string& sandbox, const std::string& id) {
  GB_CO_TRY(const auto watcher, find(sandbox, id));
  watcher->asked_at = Clock::now();
  Events out{watcher->path, {}, false};
  for (Millis patience = kFirst; out.events.size() < kMaxEvents; patience = kMore) {
    auto piece = co_await watcher->watch->next(after(patience));
    if (!piece && out.events.empty() && !out.overflowed) co_return fail(std::move(piece).error());
    if (!piece || piece->empty()) break;
    for (auto& event : *piece) {
      if (event.type == "overflow") {
        out.overflowed = true;
      } else {
        out.events.push_back(std::move(event));
      }
    }
  }
  co_return out;
}

Result<void> Watchers::remove(const std::string& sandbox, const std::string& id) {
  GB_TRYV(find(sandbox, id));
  watchers_.erase(id);
  return {};
}

}  // namespace glovebox::api
