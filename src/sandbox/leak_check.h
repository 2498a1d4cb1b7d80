// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/runtime.h"

namespace glovebox::sandbox {

// Host objects that belong to no sandbox. One counts when two looks in a row find it: what a start, an end or a probe has in
// hand for a moment is none.
class LeakCheck {
 public:
  // Returns what has become a leak with this look.
  std::vector<std::string> look(const std::vector<runtime::HostObject>& objects, const std::function<bool(const std::string&)>& is_known);
  size_t leaked() const { return leaked_.size(); }

 private:
  std::set<std::string> suspects_, leaked_;
};

}  // namespace glovebox::sandbox
