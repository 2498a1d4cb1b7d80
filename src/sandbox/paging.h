// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "sandbox/service.h"

namespace glovebox::sandbox {

inline bool all_match(const StringMap& have, const StringMap& want) {
  return std::all_of(want.begin(), want.end(), [&](const auto& w) {
    const auto it = have.find(w.first);
    return it != have.end() && it->second == w.second;
  });
}

// A page of things with `created_at` and `id`, newest first. The cursor is the place of the last item, not a count: items that come or
// go do not shift the pages.
template <class T>
Result<Page<T>> newest_first(std::vector<T> all, size_t limit, const std::string& cursor) {
  const auto key = [](const T& i) { return std::pair(unix_millis(i.created_at), i.id); };
  std::sort(all.begin(), all.end(), [&](const T& a, const T& b) { return key(a) > key(b); });
  if (!cursor.empty()) {
    const size_t dot = cursor.find('.');
    const auto ms = parse_int(std::string_view(cursor).substr(0, dot));
    if (!ms || dot == std::string::npos) return fail(Code::kInvalidArgument, "cursor: is not one of ours", {{"field", "cursor"}});
    const std::pair<int64_t, std::string> last(*ms, cursor.substr(dot + 1));
    std::erase_if(all, [&](const T& i) { return key(i) >= last; });
  }
  Page<T> page;
  if (all.size() > limit) {
    all.resize(limit);
    page.next_cursor = std::to_string(key(all.back()).first) + "." + all.back().id;
  }
  page.items = std::move(all);
  return page;
}

}  // namespace glovebox::sandbox
