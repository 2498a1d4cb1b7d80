// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/info.h"

#include <strings.h>

#include "api/lizard/errors.h"
#include "api/lizard/network.h"
#include "base/text.h"

namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
constexpr uint64_t kGiB = 1ull << 30;
constexpr Size kSizes[] = {{"nano", 0.5, 1 * kGiB}, {"mini", 1, 2 * kGiB},   {"small", 2, 4 * kGiB},
                           {"medium", 4, 8 * kGiB}, {"large", 8, 16 * kGiB}, {"big", 16, 32 * kGiB}};

bj::value attribute(const sandbox::SandboxInfo& info, const char* name) {
  const auto found = info.attributes.find(name);
  if (found == info.attributes.end()) return nullptr;
  return bj::string(found->second);
}

bj::value time_or_null(const std::optional<WallTime>& time) {
  if (!time) return nullptr;
  return bj::string(iso_time(*time));
}

bool same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view type_word(const std::string& type) {
  if (type == "directory") return "dir";
  return type;
}

// As ls(1) prints it.
std::string permissions(const sandbox::FileEntry& entry) {
  char kind = '-';
  if (entry.type == "directory") kind = 'd';
  if (entry.type == "symlink") kind = 'l';
  if (entry.type == "fifo") kind = 'p';
  if (entry.type == "socket") kind = 's';
  if (entry.type == "char") kind = 'c';
  if (entry.type == "block") kind = 'b';
  std::string out(1, kind);
  for (int bit = 8; bit >= 0; --bit) out += (entry.mode >> bit & 1) != 0 ? "xwr"[bit % 3] : '-';
  if ((entry.mode & 04000) != 0) out[3] = out[3] == 'x' ? 's' : 'S';
  if ((entry.mode & 02000) != 0) out[6] = out[6] == 'x' ? 's' : 'S';
  if ((entry.mode & 01000) != 0) out[9] = out[9] == 'x' ? 't' : 'T';
  return out;
}

// This protocol knows one virtual machine by its engine's name; under another engine that name would be a lie.
std::string_view runtime_word(const sandbox::SandboxInfo& info) {
  constexpr std::string_view kFirecracker = "firecracker";
  return info.tier == runtime::Tier::kMicrovm && info.engine == kFirecracker ? kFirecracker : runtime::tier_name(info.tier);
}

}  // namespace

bool is_project(const sandbox::Caller& caller, std::string_view reference) {
  return same_text(reference, kProjectId) || same_text(reference, caller.tenant);
}

Result<void> check_project(const sandbox::Caller& caller, const std::string& reference) {
  if (is_project(caller, reference)) return {};
  return fail(refusal(Code::kNotFound, "PROJECT_NOT_FOUND", "no project '" + reference + "'"));
}

std::span<const Size> sizes() { return kSizes; }

const Size* find_size(std::string_view name) {
  for (const Size& size : kSizes) {
    if (size.name == name) return &size;
  }
  return nullptr;
}

std::string_view size_name(double cpus, uint64_t memory_bytes) {
  for (const Size& size : kSizes) {
    if (size.cpus == cpus && size.memory_bytes == memory_bytes) return size.name;
  }
  return {};
}

std::string_view status_word(sandbox::State state) {
  switch (state) {
    case sandbox::State::kCreating: return "starting";
    case sandbox::State::kReady: return "running";
    case sandbox::State::kPaused: return "paused";
    case sandbox::State::kEnding: return "stopping";
    case sandbox::State::kEnded: return "deleted";
  }
  return "deleted";
}

bj::object info_object(const sandbox::SandboxInfo& info) {
  bj::object metadata;
  for (const auto& [key, value] : info.metadata) metadata[key] = value;
  return {{"sandboxId", info.id},
          {"id", info.id},
          {"template", info.template_name},
          {"status", status_word(info.state)},
          {"runtime", runtime_word(info)},
          {"region", attribute(info, kRegionAttribute)},
          {"size", attribute(info, kSizeAttribute)},
          {"cpus", info.limits.cpus},
          {"memoryMb", info.limits.memory_bytes >> 20},
          {"pricePerHour", nullptr},
          {"startedAt", iso_time(info.created_at)},
          {"endAt", time_or_null(info.expires_at)},
          {"metadata", std::move(metadata)},
          {"internetAccess", has_internet(info.network)},
          {"allowedHosts", allowed_hosts(info.network)},
          {"projectId", kProjectId},
          {"pauseError", nullptr}};
}

bj::object file_object(const sandbox::FileEntry& entry) {
  bj::object out{{"name", utf8_lossy(entry.name)},
                 {"path", utf8_lossy(entry.path)},
                 {"type", type_word(entry.type)},
                 {"size", entry.size},
                 {"mode", entry.mode},
                 {"permissions", permissions(entry)},
                 {"owner", utf8_lossy(entry.user)},
                 {"group", utf8_lossy(entry.group)},
                 {"modTime", entry.mtime_ms},
                 {"modifiedAt", entry.mtime_ms}};
  if (entry.target) out["symlinkTarget"] = utf8_lossy(*entry.target);
  return out;
}

}  // namespace glovebox::api::lizard
