// SPDX-License-Identifier: Apache-2.0
#include "sandbox/leak_check.h"

namespace glovebox::sandbox {

std::vector<std::string> LeakCheck::look(const std::vector<runtime::HostObject>& objects,
                                         const std::function<bool(const std::string&)>& is_known) {
  std::set<std::string> strange, leaked;
  std::vector<std::string> fresh;
  for (const auto& object : objects) {
    if (is_known(object.owner) || !strange.insert(object.what).second) continue;
    if (!suspects_.contains(object.what)) continue;
    leaked.insert(object.what);
    if (!leaked_.contains(object.what)) fresh.push_back(object.what);
  }
  suspects_ = std::move(strange);
  leaked_ = std::move(leaked);
  return fresh;
}

}  // namespace glovebox::sandbox
