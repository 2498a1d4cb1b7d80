// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/views.h"

#include <cmath>

#include "api/e2b/access.h"
#include "api/e2b/lifecycle.h"
#include "api/e2b/names.h"
#include "policy/egress.h"

namespace glovebox::api::e2b {
namespace bj = boost::json;
namespace {

constexpr std::string_view kClientId = "glovebox";  // a field of the past that clients insist on
constexpr sandbox::Millis kSampleTime{100};

std::string attribute(const sandbox::SandboxInfo& info, const char* name) {
  const auto found = info.attributes.find(name);
  return found == info.attributes.end() ? "" : found->second;
}

std::string template_of(const sandbox::SandboxInfo& info) {
  const std::string asked = attribute(info, kTemplateAttribute);
  return asked.empty() ? info.template_name : asked;
}

// A paused one has ended for the time being; one without a deadline ends some day all the same for clients that insist on a date.
WallTime end_of(const sandbox::SandboxInfo& info) {
  if (info.paused) return info.paused->at;
  return info.expires_at.value_or(info.created_at + std::chrono::hours(24 * 365));
}

int64_t mebibytes(uint64_t bytes) { return static_cast<int64_t>(bytes >> 20); }

bj::value domain_or_null(const Parts& parts) {
  const std::string domain = parts.previews.parent_domain();
  return domain.empty() ? bj::value(nullptr) : bj::value(domain);
}

}  // namespace

bj::object sandbox_object(const sandbox::SandboxInfo& info, const Parts& parts) {
  const Access access(parts.tokens);
  bj::value traffic = nullptr;
  if (attribute(info, kTrafficAttribute) != "public") traffic = access.traffic_token(info.id);
  return {{"sandboxID", wire_id(info.id)},
          {"templateID", template_of(info)},
          {"alias", info.template_name},
          {"clientID", kClientId},
          {"envdVersion", kDaemonVersion},
          {"envdAccessToken", access.daemon_token(info.id)},
          {"trafficAccessToken", std::move(traffic)},
          {"domain", domain_or_null(parts)}};
}

bj::object listed_object(const sandbox::SandboxInfo& info) {
  bj::object metadata;
  for (const auto& [key, value] : info.metadata) metadata[utf8_lossy(key)] = utf8_lossy(value);
  return {{"sandboxID", wire_id(info.id)},
          {"templateID", template_of(info)},
          {"alias", info.template_name},
          {"clientID", kClientId},
          {"startedAt", iso_time(info.created_at)},
          {"endAt", iso_time(end_of(info))},
          {"envdVersion", kDaemonVersion},
          {"state", info.state == sandbox::State::kPaused ? "paused" : "running"},
          {"cpuCount", static_cast<int64_t>(std::ceil(info.limits.cpus))},
          {"memoryMB", mebibytes(info.limits.memory_bytes)},
          {"diskSizeMB", mebibytes(info.limits.disk_bytes)},
          {"metadata", std::move(metadata)}};
}

bj::object detail_object(const sandbox::SandboxInfo& info, const Parts& parts) {
  bj::object out = listed_object(info);
  out["envdAccessToken"] = Access(parts.tokens).daemon_token(info.id);
  out["domain"] = domain_or_null(parts);
  out["allowInternetAccess"] = info.network && info.network->egress != policy::Egress::kNone;
  const bool kills = info.on_timeout == sandbox::OnTimeout::kKill;
  out["lifecycle"] = bj::object{{"onTimeout", kills ? "kill" : "pause"}, {"autoResume", resumes_by_traffic(info)}};
  return out;
}

Async<UsageSample> sample_usage(sandbox::SandboxService& service, const sandbox::Caller& caller, const std::string& id) {
  GB_CO_TRY(const auto first, co_await service.usage(caller, id));
  const auto began = Clock::now();
  co_await sleep_for(kSampleTime);
  UsageSample out;
  GB_CO_TRY(out.usage, co_await service.usage(caller, id));
  GB_CO_TRY(out.info, service.get(caller, id));
  const double took_us = std::chrono::duration<double, std::micro>(Clock::now() - began).count();
  const uint64_t used_us = out.usage.cpu_us - std::min(first.cpu_us, out.usage.cpu_us);
  out.cpu_percent = std::round(static_cast<double>(used_us) / took_us * 10'000) / 100;
  co_return out;
}

bj::object metric_object(const UsageSample& sample) {
  const WallTime now = std::chrono::system_clock::now();
  return {{"timestamp", iso_time(now)},
          {"timestampUnix", unix_millis(now) / 1000},
          {"cpuCount", static_cast<int64_t>(std::ceil(sample.info.limits.cpus))},
          {"cpuUsedPct", sample.cpu_percent},
          {"memUsed", sample.usage.memory_bytes},
          {"memTotal", sample.info.limits.memory_bytes},
          {"memCache", 0},
          {"diskUsed", sample.usage.disk_bytes},
          {"diskTotal", sample.info.limits.disk_bytes}};
}

}  // namespace glovebox::api::e2b
