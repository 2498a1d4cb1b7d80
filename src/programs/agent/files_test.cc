// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <algorithm>
#include <chrono>

#include "base/random.h"
#include "base/text.h"
#include "programs/agent/test_agent.h"

namespace glovebox::agent {
namespace {

using channel::Type;

class FilesTest : public AgentTest {
 protected:
  std::string code(json::object request) {
    return text_of(agent().request(std::move(request)), "code");
  }
  bool ok(json::object request) { return agent().request(std::move(request)).at("ok").as_bool(); }
  bool ok_write(const std::string& content, json::object fields) {
    return agent().write(content, std::move(fields)).at("ok").as_bool();
  }
};
INSTANTIATE_TEST_SUITE_P(Files, FilesTest, testing::Values(Engine::kNamespaces, Engine::kRunsc),
                         test_name);

TEST_P(FilesTest, ContentIsBitExact) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  for (const std::string& content :
       {std::string(), std::string("\xff"), all, random_bytes(8 << 20)}) {
    const json::object written = agent().write(content, {{"path", "/tmp/f"}});
    ASSERT_TRUE(written.at("ok").as_bool()) << to_text(written);
    EXPECT_EQ(written.at("entry").at("size").to_number<uint64_t>(), content.size());
    json::object answer;
    EXPECT_TRUE(agent().read("/tmp/f", &answer) == content);
    EXPECT_EQ(answer.at("length").to_number<uint64_t>(), content.size());
  }
}

TEST_P(FilesTest, OddNamesGoRoundTrip) {
  std::vector<std::string> names = {"a b.txt",
                                    "\xc3\xbc"
                                    "ber.txt",
                                    "emoji-\xf0\x9f\x98\x80",
                                    "line\nbreak",
                                    "-rf",
                                    std::string(255, 'n'),
                                    "not-utf8-\xff\xfe",
                                    "%2e%2e"};
  ASSERT_TRUE(ok({{"op", "mkdir"}, {"path", "names"}}));
  for (const std::string& name : names) {
    const std::string path = "/home/user/names/" + name;
    EXPECT_TRUE(ok_write(name, {{"path", json_bytes(path)}})) << name;
    EXPECT_EQ(agent().read(path), name);
  }
  std::sort(names.begin(), names.end());
  const json::object listed = agent().request({{"op", "list"}, {"path", "names"}});
  const auto& entries = listed.at("entries").as_array();
  ASSERT_EQ(entries.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(bytes_of(entries[i].at("name")), names[i]);
    EXPECT_EQ(entries[i].at("name").is_object(), !is_utf8(names[i]));
    EXPECT_TRUE(ok({{"op", "remove"}, {"path", entries[i].at("path")}}));
  }
  EXPECT_TRUE(
      agent().request({{"op", "list"}, {"path", "names"}}).at("entries").as_array().empty());
}

TEST_P(FilesTest, PagesAreStableAndComplete) {
  ASSERT_EQ(agent().sh("mkdir big && cd big && seq -f %05.0f 1 2500 | xargs touch").exit_code(), 0);
  std::string after;
  std::vector<std::string> names;
  int pages = 0;
  for (bool more = true; more; ++pages) {
    const json::object page =
        agent().request({{"op", "list"}, {"path", "big"}, {"after", after}, {"limit", 700}});
    for (const json::value& entry : page.at("entries").as_array())
      names.push_back(*bytes_of(entry.at("name")));
    after = names.back();
    more = page.at("more").as_bool();
  }
  EXPECT_EQ(pages, 4);
  ASSERT_EQ(names.size(), 2500u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(names.back(), "02500");
}

TEST_P(FilesTest, ErrorsHaveCodes) {
  ASSERT_EQ(
      agent()
          .run({{"command",
                 "cd /tmp && mkdir -p full/x && mkfifo pipe && ln -s loop loop && touch file && "
                 "mkdir locked && echo s > locked/secret && chmod 700 locked && echo s > own && "
                 "chmod 600 own"},
                {"user", "root"}})
          .exit_code(),
      0);
  const struct {
    json::object request;
    const char* expected;
  } cases[] = {
      {{{"op", "stat"}, {"path", "/tmp/none"}}, "file_not_found"},
      {{{"op", "stat"}, {"path", "/tmp/file/x"}}, "not_a_directory"},
      {{{"op", "stat"}, {"path", "/tmp/loop"}, {"follow", true}}, "too_many_links"},
      {{{"op", "stat"}, {"path", ""}}, "invalid_path"},
      {{{"op", "stat"}, {"path", std::string("/tmp\0/x", 7)}}, "invalid_path"},
      {{{"op", "stat"}, {"path", "/tmp/" + std::string(5000, 'x')}}, "invalid_path"},
      {{{"op", "stat"}, {"path", "/tmp/" + std::string(300, 'x')}}, "invalid_path"},
      {{{"op", "stat"}, {"path", "/tmp/locked/secret"}}, "permission_denied"},
      {{{"op", "list"}, {"path", "/tmp/file"}}, "not_a_directory"},
      {{{"op", "list"}, {"path", "/tmp/locked"}}, "permission_denied"},
      {{{"op", "list"}, {"path", "/tmp"}, {"limit", 0}}, "invalid_argument"},
      {{{"op", "read"}, {"path", "/tmp/full"}}, "is_a_directory"},
      {{{"op", "read"}, {"path", "/tmp/pipe"}}, "invalid_argument"},
      {{{"op", "read"}, {"path", "/dev/zero"}}, "invalid_argument"},
      {{{"op", "read"}, {"path", "/tmp/own"}}, "permission_denied"},
      {{{"op", "read"}, {"path", "/tmp/own"}, {"user", "nobody-here"}}, "user_unknown"},
      {{{"op", "write"}, {"path", "/tmp/full"}}, "is_a_directory"},
      {{{"op", "write"}, {"path", "/tmp/pipe"}}, "invalid_argument"},
      {{{"op", "write"}, {"path", "/tmp/own"}}, "permission_denied"},
      {{{"op", "write"}, {"path", "/etc/new"}}, "permission_denied"},
      {{{"op", "write"}, {"path", "/tmp/no/dir"}}, "file_not_found"},
      {{{"op", "write"}, {"path", "/tmp/file"}, {"exclusive", true}}, "file_exists"},
      {{{"op", "mkdir"}, {"path", "/tmp/full"}}, "file_exists"},
      {{{"op", "mkdir"}, {"path", "/tmp/file"}, {"parents", true}}, "file_exists"},
      {{{"op", "mkdir"}, {"path", "/tmp/a/b"}}, "file_not_found"},
      {{{"op", "remove"}, {"path", "/tmp/full"}, {"user", "root"}}, "directory_not_empty"},
      {{{"op", "remove"}, {"path", "/tmp/none"}}, "file_not_found"},
      {{{"op", "remove"}, {"path", "/etc/passwd"}}, "permission_denied"},
      {{{"op", "move"}, {"from", "/tmp/none"}, {"to", "/tmp/x"}}, "file_not_found"},
      {{{"op", "move"}, {"from", "/tmp/pipe"}, {"to", "/tmp/file"}, {"user", "root"}},
       "file_exists"},
      {{{"op", "chmod"}, {"path", "/tmp/file"}, {"mode", 511}}, "permission_denied"},
      {{{"op", "chmod"}, {"path", "/tmp/file"}}, "invalid_argument"},
      {{{"op", "signal"}, {"pid", 1}}, "not_found"},
      {{{"op", "signal"}, {"pid", 3999}}, "not_found"},
      {{{"op", "nonsense"}}, "invalid_argument"},
      {{{"op", "stat"}, {"path", 7}}, "invalid_path"},
  };
  for (const auto& item : cases)
    EXPECT_EQ(code(item.request), item.expected) << to_text(item.request).substr(0, 120);
}

TEST_P(FilesTest, OperationsDoWhatTheySay) {
  const json::object made =
      agent().request({{"op", "mkdir"}, {"path", "d/e/f"}, {"parents", true}, {"mode", 0700}});
  EXPECT_TRUE(made.at("created").as_bool());
  EXPECT_FALSE(agent()
                   .request({{"op", "mkdir"}, {"path", "d/e/f"}, {"parents", true}})
                   .at("created")
                   .as_bool());
  EXPECT_TRUE(ok_write("1", {{"path", "d/e/f/one"}, {"mode", 0600}}));
  EXPECT_TRUE(
      ok({{"op", "move"}, {"from", "d/e/f/one"}, {"to", "new/dir/two"}, {"parents", true}}));
  EXPECT_TRUE(ok({{"op", "chmod"}, {"path", "new/dir/two"}, {"mode", 0640}}));
  ASSERT_EQ(agent().sh("ln -s new/dir/two link").exit_code(), 0);
  const json::object link = agent().request({{"op", "stat"}, {"path", "link"}});
  EXPECT_EQ(link.at("entry").at("type").as_string(), "symlink");
  EXPECT_EQ(link.at("entry").at("target").as_string(), "new/dir/two");
  const json::object file = agent().request({{"op", "stat"}, {"path", "link"}, {"follow", true}});
  EXPECT_EQ(file.at("entry").at("type").as_string(), "file");
  EXPECT_EQ(file.at("entry").at("mode").to_number<int>(), 0640);
  EXPECT_EQ(file.at("entry").at("user").as_string(), "user");
  EXPECT_EQ(file.at("entry").at("path").as_string(), "/home/user/link");
  EXPECT_TRUE(ok_write("a", {{"path", "over"}}));
  EXPECT_TRUE(ok({{"op", "move"}, {"from", "new/dir/two"}, {"to", "over"}, {"overwrite", true}}));
  EXPECT_EQ(agent().read("over"), "1");
  EXPECT_TRUE(ok({{"op", "remove"}, {"path", "new"}, {"recursive", true}}));
  EXPECT_TRUE(ok({{"op", "remove"}, {"path", "link"}}));
  EXPECT_EQ(agent().sh("ls").out, "d\nover\n");
  EXPECT_TRUE(ok({{"op", "sync"}}));
  EXPECT_GE(agent().request({{"op", "stats"}}).at("processes").to_number<int>(), 0);
}

TEST_P(FilesTest, MovesAcrossFileSystems) {
  ASSERT_EQ(agent().run({{"command", "chmod 1777 /mnt"}, {"user", "root"}}).exit_code(), 0);
  ASSERT_EQ(agent()
                .sh("mkdir -p tree/sub && echo x > tree/sub/f && chmod 640 tree/sub/f && ln -s f "
                    "tree/sub/l")
                .exit_code(),
            0);
  EXPECT_TRUE(ok({{"op", "move"}, {"from", "tree"}, {"to", "/mnt/tree"}}));
  EXPECT_EQ(agent()
                .sh("stat -c '%n %a' /mnt/tree/sub/f; readlink /mnt/tree/sub/l; ls /home/user; rm "
                    "-r /mnt/tree")
                .out,
            "/mnt/tree/sub/f 640\nf\n");
}

TEST_P(FilesTest, AWriteKeepsOwnerModeAndLinksAndAsksForTheRight) {
  ASSERT_EQ(
      agent()
          .run({{"command",
                 "cd /tmp; echo old > team; chgrp team team; chmod 664 team; ln -s team alias; "
                 "echo x > setuid; chmod 4777 setuid"},
                {"user", "root"}})
          .exit_code(),
      0);
  EXPECT_TRUE(ok_write("new", {{"path", "/tmp/alias"}}));
  EXPECT_EQ(agent().sh("stat -c '%U %G %a' /tmp/team; readlink /tmp/alias; cat /tmp/team").out,
            "root team 664\nteam\nnew");
  EXPECT_TRUE(ok_write("new", {{"path", "/tmp/setuid"}}));
  EXPECT_EQ(agent().sh("stat -c '%U %a' /tmp/setuid").out, "root 777\n");
  EXPECT_TRUE(ok_write("-more", {{"path", "/tmp/team"}, {"append", true}}));
  EXPECT_EQ(agent().read("/tmp/team"), "new-more");
  EXPECT_TRUE(ok_write("x", {{"path", "/tmp/made"}, {"exclusive", true}, {"mode", 0600}}));
  EXPECT_EQ(agent().sh("stat -c '%U %a' /tmp/made; ls -A /tmp | grep -c glovebox; exit 0").out,
            "user 600\n0\n");
}

TEST_P(FilesTest, AnAbortedUploadLeavesNothing) {
  ASSERT_TRUE(ok_write("kept", {{"path", "w/target"}, {"parents", true}}));
  for (const bool append : {false, true}) {
    const uint32_t channel = agent().next_channel();
    agent().send(channel, Type::kRequest,
                 json::object{{"op", "write"}, {"path", "w/target"}, {"append", append}});
    agent().receive_json(channel, Type::kResponse);
    agent().send(channel, Type::kDataToAgent, "half");
    agent().send(channel, Type::kCancel);
  }
  for (const auto start = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - start < std::chrono::minutes(1);) {
    if (agent().sh("ls -A w; cat w/target").out == "target\nkept") return;
  }
  FAIL() << agent().sh("ls -A w; cat w/target").out;
}

TEST_P(FilesTest, RangesAndFilesWithoutASize) {
  ASSERT_TRUE(ok_write("0123456789", {{"path", "r"}}));
  auto range = [&](int offset, int length) {
    const uint32_t channel = agent().next_channel();
    agent().send(
        channel, Type::kRequest,
        json::object{{"op", "read"}, {"path", "r"}, {"offset", offset}, {"length", length}});
    agent().receive_json(channel, Type::kResponse);
    return agent().receive_data(channel);
  };
  EXPECT_EQ(range(3, 4), "3456");
  EXPECT_EQ(range(8, 100), "89");
  EXPECT_EQ(range(100, 1), "");
  EXPECT_NE(agent().read("/proc/meminfo").find("MemTotal"), std::string::npos);
}

TEST_P(FilesTest, NothingButTheSandboxIsReachable) {
  ASSERT_EQ(
      agent().sh("ln -s /etc/shadow x; ln -s /proc/1/root d; ln -s ../../../../ e").exit_code(), 0);
  EXPECT_EQ(code({{"op", "read"}, {"path", "x"}}), "file_not_found");
  EXPECT_EQ(agent().read("e/etc/hostname"), "box\n");
  EXPECT_EQ(agent().read("../../etc/hostname"), "box\n");
  EXPECT_EQ(agent().read("//etc//hostname"), "box\n");
  EXPECT_EQ(code({{"op", "list"}, {"path", "%2e%2e/"}}), "file_not_found");
  for (const char* path : {"/proc/self/fd/200", "/proc/self/fd/201", "/proc/1/fd/200"}) {
    for (const char* user : {"user", "root"}) {
      const std::string answer = code({{"op", "read"}, {"path", path}, {"user", user}});
      EXPECT_TRUE(answer == "invalid_argument" || answer == "permission_denied")
          << path << " " << answer;
    }
  }
  EXPECT_EQ(agent().sh("echo fine").out, "fine\n");  // the channel has not lost a byte
}

TEST_P(FilesTest, ManyStalledDownloadsDoNotStopOthers) {
  ASSERT_TRUE(ok_write(random_bytes(1 << 20), {{"path", "big"}}));
  std::vector<uint32_t> stalled;
  for (int i = 0; i < 30; ++i) {
    stalled.push_back(agent().next_channel());
    agent().send(stalled.back(), Type::kRequest, json::object{{"op", "read"}, {"path", "big"}});
    agent().receive_json(stalled.back(), Type::kResponse);
  }
  EXPECT_TRUE(ok({{"op", "stat"}, {"path", "big"}}));
  EXPECT_EQ(agent().sh("echo runs").out, "runs\n");
  for (const uint32_t channel : stalled) agent().send(channel, Type::kCancel);
  EXPECT_TRUE(ok({{"op", "stat"}, {"path", "big"}}));
}

TEST_P(FilesTest, MoreRequestsThanMayRunWaitInOrder) {
  std::vector<uint32_t> channels;
  for (int i = 0; i < 300; ++i) {
    channels.push_back(agent().next_channel());
    agent().send(channels.back(), Type::kRequest,
                 json::object{{"op", "stat"}, {"path", "/etc/passwd"}});
  }
  for (const uint32_t channel : channels) {
    EXPECT_TRUE(agent().receive_json(channel, Type::kResponse).at("ok").as_bool());
  }
}

TEST_P(FilesTest, RemovesVeryDeepTrees) {
  ASSERT_EQ(agent()
                .run({{"argv",
                       {"perl", "-e",
                        "chdir '/tmp'; for (1..2500) { mkdir 'd' or die; chdir 'd' or die }"}}})
                .exit_code(),
            0);
  EXPECT_TRUE(ok({{"op", "remove"}, {"path", "/tmp/d"}, {"recursive", true}}));
  EXPECT_EQ(code({{"op", "stat"}, {"path", "/tmp/d"}}), "file_not_found");
}

TEST_P(FilesTest, TheAgentIsNoProcessOfTheSandbox) {
  // Also not by the ids of its threads, which are small ones.
  for (int pid = 1; pid < 30; ++pid) {
    for (int signal : {SIGTERM, SIGKILL}) EXPECT_EQ(code({{"op", "signal"}, {"pid", pid}, {"signal", signal}}), "not_found") << pid;
  }
  EXPECT_EQ(agent().run({{"argv", {"true"}}}).exit_code(), 0);
}

TEST_P(FilesTest, SignalsAProcessById) {
  const uint32_t channel = agent().exec({{"argv", {"sleep", "100"}}});
  const auto pid = agent().receive_json(channel, Type::kStarted).at("pid").as_int64();
  EXPECT_TRUE(ok({{"op", "signal"}, {"pid", pid}, {"signal", 15}}));
  EXPECT_EQ(agent().finish(channel).outcome(), "signalled");
}

}  // namespace
}  // namespace glovebox::agent
