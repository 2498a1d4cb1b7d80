// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sandbox/service.h"

namespace glovebox::api::lizard {

// Each key's tenant is one project. Its id is always this, so that clients need no set-up; its name is the tenant's.
inline constexpr std::string_view kProjectId = "default";
// True when `reference` names the caller's project: its id or name, in any case.
bool is_project(const sandbox::Caller& caller, std::string_view reference);
// 404 PROJECT_NOT_FOUND for any other.
Result<void> check_project(const sandbox::Caller& caller, const std::string& reference);

inline constexpr int64_t kMaxTimeoutMs = 2147483647;

struct Size {
  std::string_view name;
  double cpus;
  uint64_t memory_bytes;
};
std::span<const Size> sizes();  // smallest first
const Size* find_size(std::string_view name);
std::string_view size_name(double cpus, uint64_t memory_bytes);  // empty: none of them

// Keys of SandboxInfo::attributes that hold what a create call said.
inline constexpr const char* kRegionAttribute = "lizard.region";
inline constexpr const char* kSizeAttribute = "lizard.size";
inline constexpr const char* kInternetAttribute = "lizard.internet";  // "off" when internetAccess:false or allowedHosts was asked for: no previews

std::string_view status_word(sandbox::State state);
boost::json::object info_object(const sandbox::SandboxInfo& info);
boost::json::object file_object(const sandbox::FileEntry& entry);

}  // namespace glovebox::api::lizard
