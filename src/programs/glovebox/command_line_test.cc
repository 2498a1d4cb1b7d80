// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "programs/glovebox/copy.h"

namespace glovebox::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What a command line led to.
struct Called {
  int status = -1;
  std::string what;
  Settings settings;
  RunOptions run;
  CreateOptions create;
  ExecOptions exec;
  UpOptions up;
  LogsOptions logs;
  CodeOptions code;
  KillOptions kill;
  PauseOptions pause;
  SnapshotOptions snapshot;
  ForkOptions fork;
  ResetOptions reset;
  HibernateOptions hibernate;
  DiffOptions diff;
  ListOptions list;
  KeyOptions key;
  TemplateOptions templates;
  NetworkShowOptions network;
  NetworkLogOptions network_log;
  std::string errors;
};

Called call(const std::vector<std::string>& arguments) {
  Called c;
  Actions actions;
  const auto noted = [&c](const char* what, auto Called::* slot) {
    return [&c, what, slot](const Settings& settings, const auto& options) {
      c.what = what;
      c.settings = settings;
      c.*slot = options;
      return 42;
    };
  };
  actions.up = noted("up", &Called::up);
  actions.create = noted("create", &Called::create);
  actions.run = noted("run", &Called::run);
  actions.exec = noted("exec", &Called::exec);
  actions.shell = noted("shell", &Called::run);
  actions.logs = noted("logs", &Called::logs);
  actions.code = noted("code", &Called::code);
  actions.kill = noted("kill", &Called::kill);
  actions.pause = noted("pause", &Called::pause);
  actions.resume = noted("resume", &Called::pause);
  actions.snapshot_create = noted("snapshot create", &Called::snapshot);
  actions.snapshot_list = noted("snapshot ls", &Called::snapshot);
  actions.snapshot_rename = noted("snapshot rename", &Called::snapshot);
  actions.fork = noted("fork", &Called::fork);
  actions.reset = noted("reset", &Called::reset);
  actions.hibernate = noted("hibernate", &Called::hibernate);
  actions.diff = noted("diff", &Called::diff);
  actions.list = noted("ls", &Called::list);
  actions.key_create = noted("key create", &Called::key);
  actions.network = noted("network", &Called::network);
  actions.connections = noted("connections", &Called::network_log);
  actions.packages = noted("packages", &Called::network_log);
  actions.template_build = noted("template build", &Called::templates);
  actions.version = [&c](const Settings& settings) {
    c.what = "version";
    c.settings = settings;
    return 42;
  };
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  c.status =
      run_command_line(arguments, [](const char*) -> const char* { return nullptr; }, actions);
  c.errors = testing::internal::GetCapturedStderr();
  testing::internal::GetCapturedStdout();
  return c;
}

TEST(CommandLine, TheActionsStatusIsTheExitStatus) {
  EXPECT_EQ(call({"version"}).status, 42);
}

TEST(CommandLine, GlobalOptionsStandBeforeOrAfterTheCommand) {
  EXPECT_EQ(call({"--url", "http://a:1", "version"}).settings.url, "http://a:1");
  EXPECT_EQ(
      call({"version", "--url", "http://a:1", "--key=k", "--data-dir", "/d"}).settings.data_dir,
      "/d");
  EXPECT_TRUE(call({"--json", "version"}).settings.json);
  EXPECT_TRUE(call({"version", "--json"}).settings.json);
}

TEST(CommandLine, NothingAfterTheDashesIsOurs) {
  const auto c = call(
      {"run", "--template", "t", "-e", "A=1", "--", "sh", "-c", "echo --json", "--", "--help"});
  EXPECT_EQ(c.what, "run");
  EXPECT_THAT(c.run.exec.argv, ElementsAre("sh", "-c", "echo --json", "--", "--help"));
  EXPECT_EQ(c.run.create.template_name, "t");
  EXPECT_THAT(c.run.create.env, ElementsAre("A=1"));
  EXPECT_FALSE(c.settings.json);
}

TEST(CommandLine, TheFirstWordThatIsNoOptionBeginsTheCommand) {
  EXPECT_THAT(call({"run", "--cpus", "0.5", "python3", "-c", "print(1)"}).run.exec.argv,
              ElementsAre("python3", "-c", "print(1)"));
  const auto c = call({"exec", "-t", "sbx-1", "ls", "-la", "--json"});
  EXPECT_EQ(c.exec.sandbox, "sbx-1");
  EXPECT_THAT(c.exec.argv, ElementsAre("ls", "-la", "--json"));
  EXPECT_TRUE(c.exec.tty);
}

TEST(CommandLine, RepeatedOptionsTakeOneValueEach) {
  const auto c = call({"run", "-e", "A=1", "--env", "B=2", "env"});
  EXPECT_THAT(c.run.create.env, ElementsAre("A=1", "B=2"));
  EXPECT_THAT(c.run.exec.argv, ElementsAre("env"));
}

TEST(CommandLine, ReadsSecrets) {
  ::setenv("GLOVEBOX_TEST_TOKEN", "t", 1);
  EXPECT_THAT(call({"run", "--secret", "GLOVEBOX_TEST_TOKEN", "--secret", "A=1", "true"}).run.create.secrets, ElementsAre("GLOVEBOX_TEST_TOKEN", "A=1"));
  EXPECT_THAT(call({"exec", "--secret", "A=1", "sb-1", "true"}).exec.secrets, ElementsAre("A=1"));
  ::unsetenv("GLOVEBOX_TEST_TOKEN");
  const auto missing = call({"run", "--secret", "GLOVEBOX_TEST_TOKEN", "true"});
  EXPECT_NE(missing.status, 0) << "one that is not set is a mistake";
}

TEST(CommandLine, ReadsEveryOptionOfRun) {
  const auto c = call({"run",  "--runtime",  "gvisor", "--cpus",         "1.5", "--memory",
                       "512M", "--disk",     "1G",     "--processes",    "99",  "--open-files",
                       "77",   "--user",     "u",      "--workdir",      "/w",  "--timeout",
                       "5s",   "--lifetime", "1h",     "--idle-timeout", "1m",  "--metadata",
                       "a=b",  "-t",         "-i",     "--keep",         "--",  "true"});
  EXPECT_EQ(c.status, 42) << c.errors;
  EXPECT_EQ(c.run.create.runtime, "gvisor");
  EXPECT_EQ(c.run.create.cpus, 1.5);
  EXPECT_EQ(c.run.create.memory, "512M");
  EXPECT_EQ(c.run.create.disk, "1G");
  EXPECT_EQ(c.run.create.processes, 99);
  EXPECT_EQ(c.run.create.open_files, 77);
  EXPECT_EQ(c.run.create.user, "u");
  EXPECT_EQ(c.run.create.workdir, "/w");
  EXPECT_EQ(c.run.create.lifetime, "1h");
  EXPECT_EQ(c.run.create.idle_timeout, "1m");
  EXPECT_THAT(c.run.create.metadata, ElementsAre("a=b"));
  EXPECT_EQ(c.run.exec.timeout, "5s");
  EXPECT_TRUE(c.run.exec.tty && c.run.exec.interactive && c.run.keep);
}

TEST(CommandLine, ShellTakesAnIdOrNone) {
  EXPECT_EQ(call({"shell"}).run.exec.sandbox, "");
  EXPECT_EQ(call({"shell", "sbx-1"}).run.exec.sandbox, "sbx-1");
  EXPECT_THAT(call({"shell", "sbx-1", "--", "python3", "-i"}).run.exec.argv,
              ElementsAre("python3", "-i"));
  EXPECT_THAT(call({"shell", "--", "sh"}).run.exec.argv, ElementsAre("sh"));
}

TEST(CommandLine, ReadsTheOthers) {
  EXPECT_EQ(call({"up", "--listen", "127.0.0.1:0", "--json-logs"}).up.listen, "127.0.0.1:0");
  EXPECT_EQ(call({"code", "s"}).code.file, "-");
  EXPECT_EQ(call({"code", "s", "f.js", "-l", "js", "--timeout", "2s"}).code.language, "js");
  EXPECT_TRUE(call({"logs", "s", "e", "-f"}).logs.follow);
  EXPECT_EQ(call({"logs", "s", "e", "--since-cursor", "12"}).logs.since_cursor, 12u);
  EXPECT_THAT(call({"kill", "a", "b"}).kill.sandboxes, ElementsAre("a", "b"));
  EXPECT_TRUE(call({"kill", "--all"}).kill.all);
  EXPECT_THAT(call({"pause", "a", "b"}).pause.sandboxes, ElementsAre("a", "b"));
  EXPECT_EQ(call({"resume", "a"}).what, "resume");
  EXPECT_TRUE(call({"ls", "-a"}).list.all);
  EXPECT_EQ(call({"key", "create", "ci", "--role", "admin"}).key.role, "admin");
  EXPECT_TRUE(call({"template", "build", "base", "--refresh"}).templates.refresh);
}

TEST(CommandLine, ReadsTheNetworkOfANewSandbox) {
  for (const char* command : {"run", "shell"}) {
    const auto c = call({command, "--egress", "allowlist", "--allow", "a.example:443", "--allow",
                         "*.b.example", "--allow-cidr", "20.0.0.0/8:22", "--deny", "c.b.example",
                         "--preset", "github", "--preset", "python-packages", "--", "true"});
    EXPECT_EQ(c.status, 42) << c.errors;
    const NetworkOptions& network = c.run.create.network;
    EXPECT_EQ(network.egress, "allowlist");
    EXPECT_THAT(network.allow, ElementsAre("a.example:443", "*.b.example"));
    EXPECT_THAT(network.allow_cidr, ElementsAre("20.0.0.0/8:22"));
    EXPECT_THAT(network.deny, ElementsAre("c.b.example"));
    EXPECT_THAT(network.presets, ElementsAre("github", "python-packages"));
    EXPECT_THAT(c.run.exec.argv, ElementsAre("true"));
  }
  EXPECT_EQ(call({"create", "--egress", "none"}).create.network.egress, "none");
}

TEST(CommandLine, ReadsTheNetworkCommands) {
  EXPECT_EQ(call({"network", "sb-1"}).network.sandbox, "sb-1");
  EXPECT_FALSE(call({"network", "sb-1"}).network.file);
  EXPECT_TRUE(call({"connections", "sb-1", "--follow"}).network_log.follow);
  EXPECT_EQ(call({"packages", "sb-1"}).what, "packages");
}

TEST(CommandLine, ReadsTheSnapshotCommands) {
  auto c = call({"snapshot", "create", "sb-1", "--name", "n", "--label", "a=b", "--label", "c=d", "--require", "files"});
  EXPECT_EQ(c.what, "snapshot create");
  EXPECT_EQ(c.snapshot.id, "sb-1");
  EXPECT_EQ(c.snapshot.name, "n");
  EXPECT_EQ(c.snapshot.require, "files");
  EXPECT_THAT(c.snapshot.labels, ElementsAre("a=b", "c=d"));
  c = call({"snapshot", "rename", "snap-1", "golden", "--json"});
  EXPECT_EQ(c.snapshot.id + " " + c.snapshot.name, "snap-1 golden");
  EXPECT_TRUE(c.settings.json);
  EXPECT_EQ(call({"snapshot", "ls", "--sandbox", "sb-1"}).snapshot.sandbox, "sb-1");
  EXPECT_EQ(call({"create", "--snapshot", "snap-1"}).create.snapshot, "snap-1");
  EXPECT_EQ(call({"run", "--snapshot", "snap-1", "true"}).run.create.snapshot, "snap-1");
}

TEST(CommandLine, ReadsForkResetAndHibernate) {
  auto c = call({"fork", "sb-1", "-n", "4", "--lifetime", "1h", "-e", "A=1", "--allow", "example.com", "--require", "memory+files"});
  EXPECT_EQ(c.what, "fork");
  EXPECT_EQ(c.fork.count, 4);
  EXPECT_EQ(c.fork.require, "memory+files");
  EXPECT_EQ(c.fork.create.lifetime, "1h");
  EXPECT_THAT(c.fork.create.network.allow, ElementsAre("example.com"));
  c = call({"reset", "sb-1", "--snapshot", "snap-1"});
  EXPECT_EQ(c.reset.sandbox + " " + c.reset.snapshot, "sb-1 snap-1");
  EXPECT_EQ(call({"hibernate", "sb-1", "--require", "files"}).hibernate.require, "files");
  c = call({"diff", "sb-1", "--against", "snap-1"});
  EXPECT_EQ(c.diff.sandbox + " " + c.diff.against, "sb-1 snap-1");
}

TEST(CommandLine, WrongOnesAreExplainedAndRunNothing) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"run"},
      {"run", "--"},
      {"run", "--tempalte", "x", "--", "true"},
      {"run", "-x", "true"},
      {"run", "--memory", "many", "--", "true"},
      {"run", "--timeout", "soon", "--", "true"},
      {"run", "--runtime", "docker", "--", "true"},
      {"run", "--cpus", "0", "--", "true"},
      {"run", "-e", "=1", "--", "true"},
      {"run", "true", "--", "true"},
      {"exec"},
      {"exec", "sbx-1"},
      {"exec", "-d", "-t", "sbx-1", "--", "true"},
      {"ls", "--", "x"},
      {"ls", "extra"},
      {"ls", "--metadata", "novalue"},
      {"kill"},
      {"pause"},
      {"resume"},
      {"kill", "--all", "x"},
      {"logs", "s"},
      {"code"},
      {"code", "s", "--timeout", "soon"},
      {"code", "s", "-l", "js", "--context", "c"},
      {"run", "--egress", "some", "--", "true"},
      {"run", "--allow", "a.example:0", "--", "true"},
      {"run", "--allow", "20.0.0.1", "--", "true"},
      {"run", "--allow-cidr", "a.example", "--", "true"},
      {"run", "--network", "/nonexistent.json", "--", "true"},
      {"run", "--network", "/proc/self/status", "--", "true"},
      {"network"},
      {"network", "s", "--set", "/nonexistent.json"},
      {"connections"},
      {"presets", "extra"},
      {"snapshot"},
      {"snapshot", "create"},
      {"snapshot", "create", "sb-1", "--label", "x"},
      {"snapshot", "create", "sb-1", "--require", "memory"},
      {"snapshot", "rename", "snap-1"},
      {"create", "--template", "t", "--snapshot", "s"},
      {"fork", "sb-1", "-n", "0"},
      {"fork", "sb-1", "-n", "101"},
      {"fork"},
      {"logs", "s", "e", "--since-cursor", "-1"},
      {"template"},
      {"key", "create", "x", "--role", "root"},
      {"up", "--log-level", "loud"},
  };
  for (const auto& arguments : wrong) {
    const auto c = call(arguments);
    EXPECT_EQ(c.status, 120) << testing::PrintToString(arguments);
    EXPECT_EQ(c.what, "") << testing::PrintToString(arguments);
    EXPECT_THAT(c.errors, HasSubstr("--help")) << testing::PrintToString(arguments);
  }
}

TEST(CommandLine, WithJsonErrorsAreJsonToo) {
  EXPECT_THAT(call({"ls", "--json", "extra"}).errors, HasSubstr(R"("code":"invalid_argument")"));
}

TEST(CommandLine, HelpIsNoError) {
  EXPECT_EQ(call({"--help"}).status, 0);
  EXPECT_EQ(call({"run", "--help"}).status, 0);
  EXPECT_EQ(call({"--version"}).status, 0);
}

TEST(CopyPlaces, AreTakenApart) {
  const auto check = [](const char* text, const char* sandbox, const char* path, bool is_stdio) {
    const Place place = parse_place(text);
    EXPECT_EQ(place.sandbox, sandbox) << text;
    EXPECT_EQ(place.path, path) << text;
    EXPECT_EQ(place.is_stdio, is_stdio) << text;
  };
  check("sbx-2k4m:/tmp/x", "sbx-2k4m", "/tmp/x", false);
  check("sbx-2k4m:", "sbx-2k4m", ".", false);
  check("sbx-2k4m:a:b", "sbx-2k4m", "a:b", false);
  check("./a:b", "", "./a:b", false);
  check("/a:b", "", "/a:b", false);
  check(":x", "", ":x", false);
  check("C:x", "", "C:x", false);
  check("-", "", "", true);
  check("plain", "", "plain", false);
}

}  // namespace
}  // namespace glovebox::cli
