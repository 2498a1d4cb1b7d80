// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/template_builds.h"

#include <algorithm>
#include <set>

#include "api/e2b/template_run.h"
#include "base/log.h"
#include "base/text.h"
#include "image/digest.h"

namespace glovebox::api::e2b {
namespace {

constexpr size_t kMaxRunning = 4, kMaxKnown = 16;  // of a tenant
constexpr size_t kMaxEntries = 2000, kMaxMessage = 1024;
constexpr std::chrono::seconds kStopTimeout{8};

}  // namespace

void Build::log(std::string level, std::string_view message) {
  if (logs.size() > kMaxEntries) return;
  if (logs.size() == kMaxEntries) {
    level = "warn";
    message = "[later lines are left out: a build keeps 2000]";
  }
  const size_t size = utf8_complete_prefix(message.substr(0, kMaxMessage));
  logs.push_back({std::chrono::system_clock::now(), std::move(level), utf8_lossy(message.substr(0, size)), step});
}

std::string template_id_of(const std::string& tenant, const std::string& name) {
  return "tpl" + image::sha256_hex(tenant + '\0' + name).substr(0, 17);
}

void TemplateBuilds::forget_oldest(const std::string& tenant) {
  while (true) {
    size_t known = 0;
    auto oldest = builds_.end();
    for (auto it = builds_.begin(); it != builds_.end(); ++it) {
      if (it->second->caller.tenant != tenant) continue;
      ++known;
      if (it->second->state == Build::State::kBuilding) continue;
      if (oldest == builds_.end() || it->second->created_at < oldest->second->created_at) oldest = it;
    }
    if (known < kMaxKnown || oldest == builds_.end()) return;
    builds_.erase(oldest);
  }
}

Result<BuildPtr> TemplateBuilds::add(Build build) {
  forget_oldest(build.caller.tenant);
  auto made = std::make_shared<Build>(std::move(build));
  builds_[made->id] = made;
  return made;
}

Result<BuildPtr> TemplateBuilds::find(const std::string& tenant, const std::string& template_id, const std::string& id) const {
  const auto found = builds_.find(id);
  if (found == builds_.end() || found->second->caller.tenant != tenant || found->second->template_id != template_id)
    return fail(Code::kNotFound, "no such build; builds are forgotten when the server is started again");
  return found->second;
}

std::optional<std::string> TemplateBuilds::tenant_of(const std::string& template_id) const {
  const auto found = std::ranges::find_if(builds_, [&](const auto& item) { return item.second->template_id == template_id; });
  return found == builds_.end() ? std::nullopt : std::optional(found->second->caller.tenant);
}

Result<void> TemplateBuilds::start(const BuildPtr& build, BuildPlan plan, const Executor& executor) {
  if (is_stopping_) return fail(Code::kUnavailable, "the server is stopping");
  if (build->state != Build::State::kWaiting) return fail(Code::kConflict, "this build was started before");
  const auto running = std::ranges::count_if(builds_, [&](const auto& item) {
    return item.second->caller.tenant == build->caller.tenant && item.second->state == Build::State::kBuilding;
  });
  if (static_cast<size_t>(running) >= kMaxRunning) return fail(Code::kRateLimited, "four builds run at once; wait until one has ended");
  build->state = Build::State::kBuilding;
  spawn(executor, "e2b.template_build", run(build, std::move(plan)));
  return {};
}

Awaitable<void> TemplateBuilds::run(BuildPtr build, BuildPlan plan) {
  TemplateRun work(parts_, files_, *build, std::move(plan), is_stopping_);
  auto done = co_await work.run();
  if (done) {
    build->log("info", "the template " + build->name.name + " is ready");
    build->state = Build::State::kReady;
  } else {
    build->problem = utf8_lossy(done.error().message);
    build->log("error", build->problem);
    build->state = Build::State::kError;
  }
  log::info("template.build_ended", {{"tenant", build->caller.tenant}, {"name", build->name.name}, {"problem", build->problem}});
}

Awaitable<void> TemplateBuilds::clean_up() {
  std::set<std::string> tenants;
  for (const auto& key : parts_.keys.list()) tenants.insert(key.tenant);
  std::vector<std::pair<sandbox::Caller, std::string>> left;  // all looked up before the first wait, so none of a new build is among them
  for (const std::string& tenant : tenants) {
    const sandbox::Caller caller{tenant, "e2b", sandbox::Role::kUser, {}, http::new_request_id()};
    const auto found = parts_.service.list(caller, {.attributes = {{kBuildAttribute, "on"}}, .limit = 1000});
    if (!found) continue;
    for (const auto& info : found->items)
      if (info.started_from != "fork") left.emplace_back(caller, info.id);  // a fork is somebody's own, made of one
  }
  for (const auto& [caller, id] : left) {
    log::info("template.build_cleaned_up", {{"sandbox", id}, {"tenant", caller.tenant}});
    (void)co_await parts_.service.kill(caller, id);
  }
}

Awaitable<void> TemplateBuilds::stop() {
  is_stopping_ = true;
  const auto one_runs = [this] {
    return std::ranges::any_of(builds_, [](const auto& item) { return item.second->state == Build::State::kBuilding; });
  };
  for (const Deadline deadline = after(kStopTimeout); one_runs() && Clock::now() < deadline;) co_await sleep_for(std::chrono::milliseconds(50));
}

}  // namespace glovebox::api::e2b
