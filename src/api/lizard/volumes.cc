// SPDX-License-Identifier: Apache-2.0
#include "sandbox/volumes.h"

#include <cmath>

#include "api/lizard/call.h"
#include "api/lizard/errors.h"
#include "api/lizard/info.h"
#include "base/text.h"

// Volumes. A create call mounts one at /workspace.
namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
using sandbox::VolumeInfo;

constexpr double kDefaultGb = 5;
constexpr double kMiBPerGb = 1024;

bj::object volume_object(const VolumeInfo& info) {
  const std::string holder = !info.writer.empty()   ? info.writer
                             : info.readers.empty() ? ""
                                                    : info.readers.front();
  const double megabytes = static_cast<double>(info.bytes >> 20);
  bj::object out{{"id", info.id},
                 {"projectId", kProjectId},
                 {"name", info.name},
                 {"sizeMb", info.bytes >> 20},
                 {"status", holder.empty() ? "available" : "attached"},
                 {"attachedTo", holder.empty() ? bj::value(nullptr) : bj::value(holder)},
                 {"createdAt", iso_time(info.created_at)},
                 {"sizeEnforced", true}};
  out["sizeGb"] = std::floor(megabytes / kMiBPerGb) * kMiBPerGb == megabytes
                      ? bj::value(info.bytes >> 30)
                      : bj::value(megabytes / kMiBPerGb);
  const auto region = info.attributes.find(kRegionAttribute);
  out["region"] = region == info.attributes.end() ? bj::value(nullptr) : bj::value(region->second);
  return out;
}

Result<uint64_t> parse_size(json::Reader& r) {
  GB_TRY(const double gb, r.number("sizeGb").or_default(kDefaultGb));
  const double megabytes = std::round(gb * kMiBPerGb);
  if (megabytes >= 1 && megabytes < 1e12) return static_cast<uint64_t>(megabytes) << 20;
  return fail(
      refusal(Code::kInvalidArgument, "invalid_volume_size", "sizeGb: is no size of a volume"));
}

// The names that clients know.
Error in_protocols_words(Error error, uint64_t asked, std::optional<uint64_t> present) {
  const auto detail = [&](const char* name) {
    const auto found = error.details.find(name);
    return found == error.details.end() ? std::string() : found->second;
  };
  std::string code;
  if (error.code == Code::kCapacity) code = "VOLUME_LIMIT_REACHED";
  if (error.code == Code::kVolumeInUse && detail("state") == "being resized")
    code = "volume_resize_in_progress";
  if (error.code == Code::kInvalidArgument && detail("field") == "size_mb") {
    const bool is_small = asked < (1ull << 30);
    code = present && asked < *present ? "volume_shrink_unsupported"
           : is_small                  ? "invalid_volume_size"
                                       : "volume_too_large";
  }
  if (!code.empty()) error.details["lizard_code"] = code;
  return error;
}

Async<void> create(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  sandbox::VolumeSpec spec;
  GB_CO_TRY(spec.name, r.string("name", 1, 64).required());
  GB_CO_TRY(spec.bytes, parse_size(r));
  GB_CO_TRY(const auto region, r.string("region", 0, 64).optional());
  if (region) spec.attributes[kRegionAttribute] = *region;
  GB_CO_TRY(const bool get_or_create, r.boolean("getOrCreate").or_default(false));
  GB_CO_TRYV(r.done());
  const uint64_t bytes = spec.bytes;
  auto made = co_await call.volumes.create_volume(call.caller, std::move(spec), get_or_create);
  if (!made) co_return fail(in_protocols_words(std::move(made).error(), bytes, {}));
  co_return co_await call.reply(volume_object(made->info), made->existed ? 200 : 201);
}

// The protocol has no pages, so this walks all of ours.
Async<void> list(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  bj::array found;
  std::string cursor;
  do {
    GB_CO_TRY(const auto page, call.volumes.list_volumes(call.caller, 1000, cursor));
    for (const VolumeInfo& info : page.items) found.push_back(volume_object(info));
    cursor = page.next_cursor;
  } while (!cursor.empty());
  co_return co_await call.reply(std::move(found));
}

Async<void> get(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  GB_CO_TRY(const auto info, call.volumes.get_volume(call.caller, call.param("volume")));
  co_return co_await call.reply(volume_object(info));
}

Async<void> resize(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  GB_CO_TRY(const auto before, call.volumes.get_volume(call.caller, call.param("volume")));
  GB_CO_TRY(const auto body, co_await call.json_body());
  json::Reader r(body);
  if (!r.has("sizeGb"))
    co_return fail(refusal(Code::kInvalidArgument, "invalid_volume_size", "sizeGb: is required"));
  GB_CO_TRY(const uint64_t bytes, parse_size(r));
  GB_CO_TRYV(r.done());
  auto grown = co_await call.volumes.grow_volume(call.caller, before.id, bytes);
  if (!grown) co_return fail(in_protocols_words(std::move(grown).error(), bytes, before.bytes));
  co_return co_await call.reply(volume_object(*grown));
}

Async<void> remove(Call& call) {
  GB_CO_TRYV(check_project(call.caller, call.param("project")));
  GB_CO_TRYV(co_await call.volumes.delete_volume(call.caller, call.param("volume")));
  co_return co_await call.reply_empty();
}

}  // namespace

void add_volume_routes(Routes& routes) {
  const std::string all = "/api/projects/{project}/volumes", one = all + "/{volume}";
  routes.add("POST", all, create);
  routes.add("GET", all, list);
  routes.add("GET", one, get);
  routes.add("PATCH", one, resize);
  routes.add("DELETE", one, remove);
}

}  // namespace glovebox::api::lizard
