// SPDX-License-Identifier: Apache-2.0
#include "image/packages.h"

#include <string>
#include <utility>

#include "base/text.h"

namespace glovebox::image {
namespace {

// The value of a line that starts with `key`, made fit for JSON.
bool take(const std::string& line, std::string_view key, std::string& to) {
  if (line.rfind(key, 0) != 0) return false;
  to = utf8_lossy(std::string_view(line).substr(key.size()));
  return true;
}

}  // namespace

std::vector<Package> parse_dpkg_status(std::string_view text) {
  std::vector<Package> out;
  Package p;
  std::string status;
  const auto finish = [&] {
    const bool is_installed = status == "install ok installed" || status == "hold ok installed";
    if (is_installed && !p.name.empty()) out.push_back(std::move(p));
    p = {};
    status.clear();
  };
  for (const auto& line : split(text, '\n')) {
    if (line.empty()) finish();
    take(line, "Package: ", p.name) || take(line, "Version: ", p.version) ||
        take(line, "Architecture: ", p.architecture) || take(line, "Status: ", status);
  }
  finish();
  return out;
}

std::vector<Package> parse_apk_installed(std::string_view text) {
  std::vector<Package> out;
  Package p;
  const auto finish = [&] {
    if (!p.name.empty()) out.push_back(std::move(p));
    p = {};
  };
  for (const auto& line : split(text, '\n')) {
    if (line.empty()) finish();
    take(line, "P:", p.name) || take(line, "V:", p.version) || take(line, "A:", p.architecture);
  }
  finish();
  return out;
}

}  // namespace glovebox::image
