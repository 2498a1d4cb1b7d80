// SPDX-License-Identifier: Apache-2.0
#include "sandbox/event_log.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/test_loop.h"

namespace glovebox::sandbox {
namespace {

class EventLogTest : public ::testing::Test {
 protected:
  EventLogTest() {
    char name[] = "/tmp/glovebox-events-XXXXXX";
    directory_ = ::mkdtemp(name);
  }
  ~EventLogTest() override { std::filesystem::remove_all(directory_); }

  // Appends and reads in one run of a loop, on a log that is opened anew.
  EventLog::Page use(std::vector<std::string> lines, uint64_t cursor, size_t limit, uint64_t segment_bytes = EventLog::kSegmentBytes) {
    TestLoop loop;
    const auto task = [](EventLogTest* t, std::vector<std::string> l, uint64_t c, size_t n, uint64_t s) -> Async<EventLog::Page> {
      auto log = std::make_shared<EventLog>(t->directory_, "x", co_await this_executor(), &t->pool_, s);
      for (const auto& line : l) {
        log->append(line);
        (void)co_await log->read(0, 1);  // it is written by now, each line by itself
      }
      co_return co_await log->read(c, n);
    };
    auto page = loop.run(task(this, std::move(lines), cursor, limit, segment_bytes));
    EXPECT_TRUE(page) << page.error().message;
    return page ? *page : EventLog::Page{};
  }
  static std::string text(const EventLog::Page& page) {
    std::string out;
    for (const auto& entry : page.entries) out += entry.line + ";";
    return out;
  }

  std::string directory_;
  BlockingPool pool_{2};
};

TEST_F(EventLogTest, IsReadByCursorAcrossRestarts) {
  const auto first = use({"a", "bb"}, 0, 1);
  EXPECT_EQ(text(first), "a;");
  const auto second = use({"ccc"}, first.next, 10);
  EXPECT_EQ(text(second), "bb;ccc;");
  const auto end = use({}, second.next, 10);
  EXPECT_EQ(text(end), "");
  EXPECT_EQ(end.next, second.next);
  EXPECT_EQ(text(use({}, 3, 10)), "ccc;") << "in the middle of bb";
  EXPECT_EQ(text(use({}, second.entries[0].cursor, 10)), "ccc;");
}

TEST_F(EventLogTest, ForgetsTheOldestAndSaysSo) {
  std::vector<std::string> lines;
  for (int i = 0; i < 100; ++i) lines.push_back("line " + std::to_string(i));
  const auto page = use(lines, 0, 1000, 100);
  EXPECT_TRUE(page.lost);
  EXPECT_EQ(page.entries.back().line, "line 99");
  EXPECT_LT(page.entries.size(), 40u);
  EXPECT_LE(std::distance(std::filesystem::directory_iterator(directory_), {}), 2);
  EXPECT_FALSE(use({}, page.next, 10, 100).lost);
}

TEST_F(EventLogTest, HalfALineOfAKilledDaemonIsNotRunIntoTheNext) {
  use({"a"}, 0, 1);
  std::ofstream(directory_ + "/x.0.jsonl", std::ios::app) << "{\"half";
  EXPECT_EQ(text(use({"b"}, 0, 10)), "a;{\"half;b;");
}

TEST_F(EventLogTest, ACursorBeyondTheEndGivesNothing) { EXPECT_EQ(text(use({"a"}, 1000, 10)), ""); }

}  // namespace
}  // namespace glovebox::sandbox
