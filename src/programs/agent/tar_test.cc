// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/tar_format.h"
#include "programs/agent/test_agent.h"

namespace glovebox::agent {
namespace {

using channel::Type;

class TarTest : public AgentTest {
 protected:
  std::string tar_out(const std::string& path, json::object* answer, std::string* end = nullptr) {
    const uint32_t channel = agent().next_channel();
    agent().send(channel, Type::kRequest, json::object{{"op", "tar_out"}, {"path", path}});
    *answer = agent().receive_json(channel, Type::kResponse);
    return answer->at("ok").as_bool() ? agent().receive_data(channel, end) : std::string();
  }
  json::object tar_in(const std::string& archive, const char* path, const char* user = "user") {
    return agent().write(archive, {{"op", "tar_in"}, {"path", path}, {"user", user}});
  }
  static std::string file(const std::string& path, const std::string& content, char type = '0',
                          const std::string& target = "") {
    TarEntry entry;
    entry.type = type;
    entry.path = path;
    entry.target = target;
    entry.size = content.size();
    return tar_header(entry) + content + std::string(tar_padding(content.size()), '\0');
  }
};
INSTANTIATE_TEST_SUITE_P(Tar, TarTest, testing::Values(Engine::kNamespaces, Engine::kRunsc),
                         test_name);

const std::string kEnd(1024, '\0');

TEST_P(TarTest, ATreeGoesOutAndInUnchanged) {
  ASSERT_EQ(agent()
                .sh("mkdir -p t/sub/" + std::string(120, 'd') + "/" + std::string(120, 'e') +
                    " && cd t && echo hi > a && chmod 750 a && touch -d @1600000000 a && head -c "
                    "100000 /dev/urandom > sub/bin && "
                    "ln -s ../a sub/link && mkfifo pipe && for d in sub/*/*; do echo deep > "
                    "$d/file; done && printf x > \"$(printf 'odd\\377')\" && "
                    "mkdir ro && echo r > ro/f && chmod 555 ro && : > empty")
                .exit_code(),
            0);
  json::object answer;
  std::string end;
  const std::string archive = tar_out("t", &answer, &end);
  ASSERT_TRUE(answer.at("ok").as_bool());
  EXPECT_EQ(end, "");
  EXPECT_EQ(archive.size() % kTarBlock, 0u);
  const json::object in = tar_in(archive, "copy");
  ASSERT_TRUE(in.at("ok").as_bool()) << to_text(in);
  EXPECT_EQ(agent()
                .sh("rm t/pipe; diff -r t copy && (cd t; find . -printf '%P %m %T@ %l\\n' | cut "
                    "-d. -f1 | sort | grep -v '^ ') > 1; "
                    "(cd copy; find . -printf '%P %m %T@ %l\\n' | cut -d. -f1 | sort | grep -v '^ "
                    "') > 2; cmp 1 2 && echo same")
                .out,
            "same\n");
  // And other programs read it, and the agent theirs.
  ASSERT_TRUE(agent().write(archive, {{"path", "a.tar"}}).at("ok").as_bool());
  EXPECT_EQ(agent().sh("mkdir x && tar -xf a.tar -C x && diff -r t x && echo same").out, "same\n");
  for (const char* format : {"gnu", "pax", "ustar --exclude=sub"}) {
    ASSERT_EQ(agent().sh(std::string("tar --format=") + format + " -cf b.tar -C t .").exit_code(),
              0);
    ASSERT_TRUE(tar_in(agent().read("b.tar"), "y").at("ok").as_bool()) << format;
    EXPECT_EQ(agent().sh("diff -r t y | grep -v sub; chmod -R u+w y; rm -r y").out, "") << format;
  }
}

TEST_P(TarTest, ASingleFileGoesOutUnderItsName) {
  ASSERT_TRUE(agent().write("content", {{"path", "one.txt"}}).at("ok").as_bool());
  json::object answer;
  const std::string archive = tar_out("one.txt", &answer);
  ASSERT_TRUE(tar_in(archive, "into").at("ok").as_bool());
  EXPECT_EQ(agent().read("into/one.txt"), "content");
}

TEST_P(TarTest, DeepTreesGoOutAndVeryDeepOnesAreRefused) {
  ASSERT_EQ(agent()
                .sh("p=deep; i=0; while [ $i -lt 190 ]; do p=$p/d; i=$((i+1)); done; mkdir -p $p; "
                    "ln -s x $p/l")
                .exit_code(),
            0);
  json::object answer;
  std::string end;
  ASSERT_TRUE(tar_in(tar_out("deep", &answer, &end), "deep2").at("ok").as_bool());
  EXPECT_EQ(end, "");
  EXPECT_EQ(agent().sh("find deep2 | wc -l").out, "192\n");
  ASSERT_EQ(agent()
                .sh("mkdir even; mv deep2 even/; mkdir -p x/x/x/x/x/x/x/x/x/x/x; mv even "
                    "x/x/x/x/x/x/x/x/x/x/x/")
                .exit_code(),
            0);
  tar_out("x", &answer, &end);
  EXPECT_EQ(text_of(parse_object(end).value_or(json::object()), "code"), "unsupported");
}

TEST_P(TarTest, AnUnreadableFileBreaksTheArchiveVisibly) {
  ASSERT_EQ(agent().sh("mkdir u; echo x > u/f; chmod 0 u/f").exit_code(), 0);
  json::object answer;
  std::string end;
  tar_out("u", &answer, &end);
  EXPECT_EQ(text_of(parse_object(end).value_or(json::object()), "code"), "permission_denied");
}

TEST_P(TarTest, NothingIsWrittenOutsideTheTarget) {
  ASSERT_EQ(agent().sh("mkdir out base; ln -s ../out base/link").exit_code(), 0);
  const struct {
    const char* name;
    std::string archive;
    const char* code;
  } cases[] = {
      {"absolute", file("/tmp/evil", "x"), "invalid_path"},
      {"dots", file("../out/evil", "x"), "invalid_path"},
      {"inner dots", file("a/../../out/evil", "x"), "invalid_path"},
      {"existing link", file("link/evil", "x"), "invalid_path"},
      {"own link", file("mine", "", '2', "../out") + file("mine/evil", "x"), "invalid_path"},
      {"absolute link", file("abs", "", '2', "/home/user/out") + file("abs/evil", "x"),
       "invalid_path"},
      {"hard link out", file("hard", "", '1', "../out/victim"), "invalid_path"},
      {"hard link through a link", file("hard", "", '1', "link/victim"), "invalid_path"},
      {"a directory over a link", file("link/", "", '5') + file("link/evil", "x"), "invalid_path"},
      {"cut off", file("a", std::string(2000, 'x')).substr(0, 1000), "invalid_argument"},
      {"garbage", std::string(1024, 'g'), "invalid_argument"},
  };
  ASSERT_TRUE(agent().write("v", {{"path", "out/victim"}}).at("ok").as_bool());
  for (const auto& item : cases)
    EXPECT_EQ(text_of(tar_in(item.archive + kEnd, "base"), "code"), item.code) << item.name;
  EXPECT_EQ(agent().sh("ls -A out; cat out/victim; stat -c %h out/victim; ls /tmp").out,
            "victim\nv1\n");
  // Replacing the link itself is fine, and so is writing where it stood.
  EXPECT_TRUE(tar_in(file("link", "plain") + kEnd, "base").at("ok").as_bool());
  EXPECT_EQ(agent().sh("cat base/link; ls out").out, "plainvictim\n");
}

TEST_P(TarTest, DevicesAreSkippedAndOwnersAreRootsToGive) {
  TarEntry owned;
  owned.path = "owned";
  owned.uid = 1001;
  owned.gid = 2000;
  owned.mode = 04755;
  const std::string archive =
      tar_header(owned) + file("null", "", '3') + file("hard", "", '1', "owned") + kEnd;
  const json::object as_user = tar_in(archive, "u");
  EXPECT_EQ(as_user.at("skipped").to_number<int>(), 1);
  EXPECT_EQ(agent().sh("stat -c '%U %G %a %h' u/owned; ls u").out,
            "user user 755 2\nhard\nowned\n");
  // Without the hard link: making one resets owner and mode in gVisor's overlay (20240729).
  EXPECT_TRUE(tar_in(tar_header(owned) + kEnd, "/srv/r", "root").at("ok").as_bool());
  EXPECT_EQ(agent().sh("stat -c '%U %G %a' /srv/r/owned").out, "other team 4755\n");
}

}  // namespace
}  // namespace glovebox::agent
