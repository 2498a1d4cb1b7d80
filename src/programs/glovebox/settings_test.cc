// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/settings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace glovebox::cli {
namespace {

namespace fs = std::filesystem;

struct Variables {
  std::map<std::string, std::string> values;
  Environment environment() const {
    return [this](const char* name) {
      const auto found = values.find(name);
      return found == values.end() ? nullptr : found->second.c_str();
    };
  }
};

class DataDir : public testing::Test {
 protected:
  DataDir()
      : path_(fs::temp_directory_path() / ("glovebox-settings-" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
  }
  ~DataDir() override { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& content) {
    std::ofstream(path_ / name) << content;
  }
  Settings settings() const { return {"", "", path_.string(), false}; }
  const fs::path path_;
};

TEST(SettingsResolution, OptionsGoBeforeEnvironmentBeforeDefaults) {
  Variables variables{{{"GLOVEBOX_API_URL", "http://env:1"},
                       {"GLOVEBOX_API_KEY", "env"},
                       {"GLOVEBOX_DATA_DIR", "/env/data/"}}};
  const Settings from_environment = resolve_settings({}, variables.environment());
  EXPECT_EQ(from_environment.url, "http://env:1");
  EXPECT_EQ(from_environment.key, "env");
  EXPECT_EQ(from_environment.data_dir, "/env/data");
  const Settings from_options =
      resolve_settings({"http://option:1", "option", "/option", true}, variables.environment());
  EXPECT_EQ(from_options.url, "http://option:1");
  EXPECT_EQ(from_options.key, "option");
  EXPECT_EQ(from_options.data_dir, "/option");
  EXPECT_TRUE(from_options.json);
  const Settings defaults = resolve_settings({}, Variables().environment());
  EXPECT_EQ(defaults.url, "");
  EXPECT_EQ(defaults.data_dir, kDefaultDataDir);
}

TEST(SettingsResolution, EmptyVariablesCountAsNotSet) {
  Variables variables{{{"GLOVEBOX_DATA_DIR", ""}, {"GLOVEBOX_API_URL", ""}}};
  EXPECT_EQ(resolve_settings({}, variables.environment()).data_dir, kDefaultDataDir);
}

TEST_F(DataDir, PointsAtItsRunningDaemonWithTheAdminKey) {
  write("daemon.json",
        R"({"url":"http://127.0.0.1:4242","pid":)" + std::to_string(::getpid()) + "}");
  write("admin.key", "secret\n");
  const auto target = find_target(settings());
  ASSERT_TRUE(target);
  EXPECT_EQ(target->url, "http://127.0.0.1:4242");
  EXPECT_EQ(target->key, "secret");
}

TEST_F(DataDir, ADaemonThatIsGoneDoesNotGetTheKey) {
  write("admin.key", "secret\n");
  write("daemon.json", R"({"url":"http://127.0.0.1:4242","pid":2147483646})");
  EXPECT_FALSE(running_daemon(path_.string()));
  const auto target = find_target(settings());
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code, Code::kUnavailable);
}

TEST_F(DataDir, TheAdminKeyDoesNotLeaveThisHost) {
  write("admin.key", "secret\n");
  Settings remote = settings();
  remote.url = "http://example.com:7070";
  ASSERT_FALSE(find_target(remote));
  EXPECT_EQ(find_target(remote).error().code, Code::kUnauthenticated);
  remote.key = "other";
  EXPECT_EQ(find_target(remote).value().key, "other");
  Settings local = settings();
  local.url = "http://127.0.0.1:7071";
  EXPECT_EQ(find_target(local).value().key, "secret");
}

TEST_F(DataDir, BrokenDaemonFilesAreNoDaemon) {
  for (const char* content : {"", "{", "[]", "{}", R"({"url":"x"})", R"({"url":"x","pid":0})",
                              R"({"url":"x","pid":"1"})"}) {
    write("daemon.json", content);
    EXPECT_FALSE(running_daemon(path_.string())) << content;
  }
}

TEST(SettingsUrl, KnowsWhatIsLocal) {
  for (const char* url : {"http://127.0.0.1:7070", "http://127.9.9.9", "http://localhost:1",
                          "http://[::1]:7070", "unix:/run/x.sock"}) {
    EXPECT_TRUE(is_local_url(url)) << url;
  }
  for (const char* url : {"http://127.0.0.1.example.com", "http://10.0.0.1",
                          "http://localhost.example.com", "ftp://x", ""}) {
    EXPECT_FALSE(is_local_url(url)) << url;
  }
}

}  // namespace
}  // namespace glovebox::cli
