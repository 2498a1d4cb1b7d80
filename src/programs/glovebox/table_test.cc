// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "programs/glovebox/report.h"

namespace glovebox::cli {
namespace {

TEST(Table, AlignsColumnsByCharactersAndLeavesNoTrailingBlanks) {
  Table table({"ID", "NAME", "AGE"});
  table.add({"1", "größe", "5s"});
  table.add({"1000", "x", ""});
  EXPECT_EQ(table.render(false),
            "ID    NAME   AGE\n"
            "1     größe  5s\n"
            "1000  x\n");
}

TEST(Table, WritesNoTerminalCodesUnlessAsked) {
  Table table({"ID"});
  table.add({"1"});
  EXPECT_EQ(table.render(false).find('\033'), std::string::npos);
  EXPECT_EQ(table.render(true), "\033[1mID\033[0m\n1\n");
}

TEST(Table, ShowsControlCharactersInsteadOfSendingThem) {
  EXPECT_EQ(printable("a\033[31mb\n\r\x7f"), "a\\x1b[31mb\\x0a\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b"
            "31m");  // CSI as one C1 character
  EXPECT_EQ(printable("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(printable("größe ✓"), "größe ✓");
}

TEST(Table, RendersFieldsAligned) {
  EXPECT_EQ(render_fields({{"id", "x"}, {"longer", "a\nb"}}, false),
            "id      x\nlonger  a\\x0ab\n");
}

TEST(Table, ColoursNeedATerminal) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(colours_on(ends[1]));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Report, ErrorNamesCodeHintAndRequest) {
  const Error error{Code::kSandboxNotFound, "no sandbox sbx\033[2J", {{"request_id", "req-1"}}};
  EXPECT_EQ(render_error(error, false),
            "glovebox: error: no sandbox sbx\\x1b[2J (sandbox_not_found)\n"
            "  hint: Check the id; ended sandboxes are forgotten after a while.\n"
            "  request: req-1\n");
}

}  // namespace
}  // namespace glovebox::cli
