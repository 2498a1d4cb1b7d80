// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

namespace glovebox {
namespace {

TEST(Codes, TableIsIndexedByCodeAndNamesAreUnique) {
  std::set<std::string_view> names;
  for (const CodeInfo* entry = begin_codes(); entry != end_codes(); ++entry) {
    EXPECT_EQ(&info(entry->code), entry) << entry->name;
    EXPECT_TRUE(names.insert(entry->name).second) << entry->name;
    EXPECT_EQ(code_from_name(entry->name), entry->code);
    EXPECT_FALSE(entry->advice.empty()) << entry->name;
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Code::kInternal) + 1);
}

TEST(Codes, UnknownNameIsInternal) { EXPECT_EQ(code_from_name("no_such_code"), Code::kInternal); }

Result<int> half(int n) {
  if (n % 2 != 0) return fail(Code::kInvalidArgument, "odd");
  return n / 2;
}
Result<int> quarter(int n) {
  GB_TRY(const int h, half(n));
  return half(h);
}

TEST(Try, PassesTheErrorUpUnchanged) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().code, Code::kInvalidArgument);
}

TEST(Errno, KeepsNumberAndMeaning) {
  EXPECT_EQ(fail_errno("open", ENOSPC).value().code, Code::kDiskFull);
  EXPECT_EQ(fail_errno("/x", ENOENT).value().message, "/x: No such file or directory (ENOENT)");
}

}  // namespace
}  // namespace glovebox
