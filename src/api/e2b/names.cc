// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/names.h"

#include <algorithm>

namespace glovebox::api::e2b {
namespace {

constexpr std::string_view kNativePrefix = "sb-";
constexpr std::string_view kWirePrefix = "sb";

}  // namespace

std::string wire_id(std::string_view id) {
  std::string out(id);
  std::erase(out, '-');
  return out;
}

std::string native_id(std::string_view wire) {
  if (wire.starts_with(kNativePrefix)) return std::string(wire);
  const std::string_view id = wire.substr(0, wire.find('-'));
  if (!id.starts_with(kWirePrefix)) return std::string(id);
  return std::string(kNativePrefix) + std::string(id.substr(kWirePrefix.size()));
}

std::string template_name(std::string_view reference) {
  if (const size_t slash = reference.rfind('/'); slash != reference.npos) reference.remove_prefix(slash + 1);
  for (const std::string_view tag : {":latest", ":default"}) {
    if (reference.ends_with(tag)) reference.remove_suffix(tag.size());
  }
  return std::string(reference == "code-interpreter-v1" ? "interpreter" : reference);
}

std::string home_of(std::string_view user) { return user == "root" || user == "0" ? "/root" : "/home/" + std::string(user); }

std::optional<std::string> absolute_path(std::string_view path, std::string_view user, std::string_view otherwise) {
  if (path.empty()) return std::string(otherwise);
  if (path.starts_with('/')) return std::string(path);
  if (path == "~") return home_of(user);
  if (path.starts_with("~/")) return home_of(user) + std::string(path.substr(1));
  if (path.starts_with('~')) return std::nullopt;
  return home_of(user) + "/" + std::string(path);
}

}  // namespace glovebox::api::e2b
