// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/random.h"
#include "base/test_loop.h"
#include "store/sqlite.h"

namespace glovebox::store {
namespace {

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(directory_); }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::unique_ptr<Store> open() { return open_sqlite(path()).value(); }
  std::string path() const { return directory_ + "/db"; }

  template <class T>
  Result<T> run(Async<T> work) {
    return loop_.run(std::move(work));
  }

  std::string directory_ = "/tmp/gb-store-" + random_name(8);
  TestLoop loop_;
};

TEST_F(StoreTest, KeepsRowsAcrossReopening) {
  {
    auto store = open();
    ASSERT_TRUE(run(store->put_sandbox({"sb-a", "t", "creating", 1, "{}"})));
    ASSERT_TRUE(run(store->put_sandbox({"sb-a", "t", "ready", 1, "{\"x\":1}"})));
    ASSERT_TRUE(run(store->put_execution({"ex-1", "sb-a", 5, "{}", std::string("\0\xFF", 2)})));
    ASSERT_TRUE(run(store->put_key({"key-1", "n", "t", "admin", "h", "{}", 1})));
    for (const char* name : {"a", "b"}) ASSERT_TRUE(run(store->put_setting({"t", name, "1"})));
    ASSERT_TRUE(run(store->put_setting({"t", "b", "2"})));
    ASSERT_TRUE(run(store->delete_setting("t", "a")));
    for (const int at : {2, 1}) ASSERT_TRUE(run(store->put_object({"volume", "vol-" + std::to_string(at), "t", at, "{}"})));
    ASSERT_TRUE(run(store->put_object({"snapshot", "vol-1", "t", 3, "another kind"})));
    ASSERT_TRUE(run(store->put_object({"volume", "vol-3", "t", 0, "{}"})));
    ASSERT_TRUE(run(store->delete_object("volume", "vol-3")));
  }
  auto store = open();
  auto sandboxes = store->load_sandboxes().value();
  ASSERT_EQ(sandboxes.size(), 1u);
  EXPECT_EQ(sandboxes[0].state, "ready");
  EXPECT_EQ(sandboxes[0].document, "{\"x\":1}");
  EXPECT_EQ(run(store->get_execution("sb-a", "ex-1")).value()->output, std::string("\0\xFF", 2));
  EXPECT_FALSE(run(store->get_execution("sb-a", "ex-2")).value().has_value());
  EXPECT_EQ(store->load_keys().value().at(0).hash, "h");
  const auto settings = store->load_settings().value();
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(settings[0].name + settings[0].document, "b2");
  const auto volumes = store->load_objects("volume").value();
  ASSERT_EQ(volumes.size(), 2u);
  EXPECT_EQ(volumes[0].id + volumes[1].id, "vol-1vol-2");
  EXPECT_EQ(store->load_objects("snapshot").value().at(0).document, "another kind");
}

TEST_F(StoreTest, DeletingASandboxTakesItsExecutions) {
  auto store = open();
  ASSERT_TRUE(run(store->put_sandbox({"sb-a", "t", "ended", 1, "{}"})));
  ASSERT_TRUE(run(store->put_execution({"ex-1", "sb-a", 5, "{}", ""})));
  ASSERT_TRUE(run(store->delete_sandbox("sb-a")));
  EXPECT_TRUE(store->load_executions("sb-a").value().empty());
  EXPECT_TRUE(store->load_sandboxes().value().empty());
}

TEST_F(StoreTest, RefusesADatabaseOfALaterVersion) {
  {
    auto db = Database::open(path()).value();
    ASSERT_TRUE(db.exec("PRAGMA user_version = 999"));
  }
  EXPECT_EQ(open_sqlite(path()).error().code, Code::kConflict);
}

TEST_F(StoreTest, NamesACorruptFile) {
  FILE* f = ::fopen(path().c_str(), "w");
  ::fputs(std::string(5000, 'x').c_str(), f);
  ::fclose(f);
  EXPECT_EQ(open_sqlite(path()).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace glovebox::store
