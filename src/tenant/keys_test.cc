// SPDX-License-Identifier: Apache-2.0
#include "tenant/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "base/test_loop.h"

namespace glovebox::tenant {
namespace {

class KeysTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory_);
    store_ = store::open_sqlite(directory_ + "/db").value();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  template <class T>
  Result<T> run(Async<T> work) {
    return loop_.run(std::move(work));
  }
  std::string file() const { return directory_ + "/admin.key"; }
  std::string secret_in_file() const {
    std::ifstream in(file());
    std::string line;
    std::getline(in, line);
    return line;
  }

  std::string directory_ = "/tmp/gb-keys-" + random_name(8);
  TestLoop loop_;
  std::unique_ptr<store::Store> store_;
};

TEST_F(KeysTest, AdminFileIsPrivateAndStable) {
  Keys keys(store_.get());
  ASSERT_TRUE(keys.load(file()));
  const std::string secret = secret_in_file();
  struct stat st;
  ASSERT_EQ(::stat(file().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_EQ(keys.authenticate(secret).value().role, sandbox::Role::kAdmin);
  Keys again(store_.get());
  ASSERT_TRUE(again.load(file()));
  EXPECT_EQ(secret_in_file(), secret);
  EXPECT_TRUE(again.authenticate(secret));
}

TEST_F(KeysTest, KeysOfTenantsSurviveARestartAndEndWhenRemoved) {
  std::string secret, id;
  {
    Keys keys(store_.get());
    ASSERT_TRUE(keys.load(file()));
    NewKey wanted;
    wanted.name = "ci";
    wanted.tenant = "acme";
    wanted.default_runtime = runtime::Tier::kContainer;
    auto created = run(keys.create(wanted)).value();
    secret = created.secret;
    id = created.info.id;
  }
  Keys keys(store_.get());
  ASSERT_TRUE(keys.load(file()));
  const auto caller = keys.authenticate(secret).value();
  EXPECT_EQ(caller.tenant, "acme");
  EXPECT_EQ(caller.role, sandbox::Role::kUser);
  EXPECT_EQ(caller.default_runtime, runtime::Tier::kContainer);
  ASSERT_TRUE(run(keys.remove(id)));
  EXPECT_EQ(keys.authenticate(secret).error().code, Code::kUnauthenticated);
  EXPECT_EQ(run(keys.remove(id)).error().code, Code::kNotFound);
}

TEST_F(KeysTest, RefusesWrongAndEmptySecretsAndNeverListsOne) {
  Keys keys(store_.get());
  ASSERT_TRUE(keys.load(file()));
  for (const char* wrong : {"", "gbx_", "x"}) EXPECT_EQ(keys.authenticate(wrong).error().code, Code::kUnauthenticated);
  for (const KeyInfo& key : keys.list()) EXPECT_EQ(key.preview.find(secret_in_file()), std::string::npos);
  EXPECT_EQ(run(keys.remove("key-admin")).error().code, Code::kConflict);
}

TEST_F(KeysTest, AnEmptyAdminFileIsAnErrorNotAnOpenDoor) {
  std::ofstream(file()) << "\n";
  Keys keys(store_.get());
  EXPECT_EQ(keys.load(file()).error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace glovebox::tenant
