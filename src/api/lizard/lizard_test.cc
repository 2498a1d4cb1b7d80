// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "api/lizard/errors.h"
#include "api/lizard/exec_request.h"
#include "api/lizard/info.h"
#include "api/lizard/lines.h"
#include "api/lizard/network.h"
#include "api/lizard/write_request.h"
#include "base/text.h"
#include "http/json.h"
#include "policy/egress.h"

namespace glovebox::api::lizard {
namespace {

using Lines = std::vector<std::string>;

TEST(LizardErrors, StatusChoosesTheClientsExceptionClass) {
  const struct {
    Code code;
    int status;
    std::string_view name;
  } table[] = {{Code::kUnauthenticated, 401, "UNAUTHENTICATED"},       {Code::kForbidden, 403, "FORBIDDEN"},
               {Code::kTemplateNotFound, 400, "TEMPLATE_NOT_FOUND"},   {Code::kSandboxNotFound, 404, "SANDBOX_NOT_FOUND"},
               {Code::kSandboxEnded, 404, "SANDBOX_NOT_FOUND"},        {Code::kSandboxNotReady, 409, "SANDBOX_NOT_RUNNING"},
               {Code::kPermissionDenied, 400, "PERMISSION_DENIED"},    {Code::kFileNotFound, 404, "FILE_NOT_FOUND"},
               {Code::kUnsupported, 501, "UNSUPPORTED"},               {Code::kTimeout, 504, "TIMEOUT"},
               {Code::kUserUnknown, 400, "USER_UNKNOWN"},              {Code::kRateLimited, 429, "SANDBOX_RATE_LIMITED"}};
  for (const auto& row : table) {
    const WireError wire = wire_error(Error{row.code, "why", {}});
    EXPECT_EQ(wire.status, row.status) << row.name;
    EXPECT_EQ(wire.body.at("code").as_string(), row.name);
    EXPECT_EQ(wire.body.at("error").as_string(), "why");
  }
}

TEST(LizardErrors, EveryCodeIsUnderstoodByTheClient) {
  for (const CodeInfo* entry = begin_codes(); entry != end_codes(); ++entry) {
    const WireError wire = wire_error(Error{entry->code, "\xff", {}});
    EXPECT_GE(wire.status, 400);
    EXPECT_NE(wire.status, 499) << "not a status that clients know";
    EXPECT_EQ(wire.status == 401 || wire.status == 403, entry->code == Code::kUnauthenticated || entry->code == Code::kForbidden);
    EXPECT_EQ(wire.body.at("error").as_string(), "\xEF\xBF\xBD");
  }
}

TEST(LizardErrors, CapacityCarriesTheNumbers) {
  const WireError wire = wire_error(Error{Code::kCapacity, "full", {{"limit", "max_sandboxes"}, {"size", "3"}, {"use", "3"}}});
  EXPECT_EQ(wire.status, 429);
  EXPECT_EQ(wire.body.at("code").as_string(), "SANDBOX_LIMIT_REACHED");
  EXPECT_EQ(wire.body.at("limit").as_int64(), 3);
  EXPECT_EQ(wire.body.at("running").as_int64(), 3);
  EXPECT_EQ(wire.body.at("unit").as_string(), "sandboxes");
  EXPECT_GT(wire.body.at("retryAfterS").as_int64(), 0);
}

TEST(LizardErrors, OwnCodesWin) {
  const WireError wire = wire_error(refusal(Code::kInvalidArgument, "SANDBOX_SIZE_NOT_ALLOWED", "too large"));
  EXPECT_EQ(wire.status, 400);
  EXPECT_EQ(wire.body.at("code").as_string(), "SANDBOX_SIZE_NOT_ALLOWED");
}

TEST(LizardExec, TakesEveryFieldOfTheClient) {
  const auto body = json::parse(R"({"cmd":["a","b c"],"envs":{"K":"v"},"user":"user","workdir":"/w","timeoutMs":1500.5,"pidEvent":true})");
  const auto request = parse_exec(*body);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->spec.argv, (Lines{"a", "b c"}));
  EXPECT_EQ(request->spec.command, "");
  EXPECT_EQ(request->spec.env.at("K"), "v");
  EXPECT_EQ(request->spec.user, "user");
  EXPECT_EQ(request->spec.cwd, "/w");
  EXPECT_EQ(request->spec.timeout, sandbox::Millis(1500));
  EXPECT_TRUE(request->pid_event);
}

TEST(LizardExec, TimeoutIsClampedNotRefused) {
  const std::pair<const char*, int64_t> table[] = {{"", 60'000},
                                                   {R"(,"timeoutMs":645000)", 645'000},
                                                   {R"(,"timeoutMs":0)", 1},
                                                   {R"(,"timeoutMs":-5)", 1},
                                                   {R"(,"timeoutMs":1e300)", 86'400'000}};
  for (const auto& [field, expected] : table) {
    const auto body = json::parse(std::string(R"({"cmd":"true")") + field + "}");
    const auto request = parse_exec(*body);
    ASSERT_TRUE(request) << field;
    EXPECT_EQ(request->spec.timeout.count(), expected) << field;
    EXPECT_EQ(request->spec.command, "true");
  }
}

TEST(LizardExec, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"{}", R"({"cmd":""})", R"({"cmd":[]})", R"({"cmd":[1]})", R"({"cmd":1})", R"({"cmd":"x","stdin":"y"})",
                           R"({"cmd":"x","envs":{"A":1}})", R"({"cmd":"x","timeoutMs":"5"})"}) {
    const auto body = json::parse(text);
    const auto request = parse_exec(*body);
    ASSERT_FALSE(request) << text;
    EXPECT_EQ(request.error().code, Code::kInvalidArgument) << text;
  }
}

TEST(LizardExec, ExitCodes) {
  const auto code = [](std::string type, std::optional<int> exit, std::optional<int> signal, const char* reason = nullptr) {
    std::optional<sandbox::Ended> ended;
    if (reason != nullptr) ended = sandbox::Ended{{}, reason, ""};
    return exit_code(sandbox::Outcome{std::move(type), exit, signal, ""}, ended);
  };
  EXPECT_EQ(code("exited", 0, {}), 0);
  EXPECT_EQ(code("exited", 137, {}), 137);
  EXPECT_EQ(code("signalled", {}, 15), 143);
  EXPECT_EQ(code("timed_out", {}, 9), 124);
  EXPECT_EQ(code("oom_killed", {}, 9), 137);
  EXPECT_EQ(code("killed_by_caller", {}, 9), 137);
  EXPECT_EQ(code("sandbox_ended", {}, {}, "killed"), 137);
  EXPECT_EQ(code("sandbox_ended", {}, {}, "lifetime"), 137);
}

TEST(LizardExec, ALostSandboxHasNoExitCode) {
  EXPECT_EQ(exit_code({"sandbox_ended", {}, {}, ""}, sandbox::Ended{{}, "crashed", ""}), std::nullopt);
  EXPECT_EQ(exit_code({"sandbox_ended", {}, {}, ""}, sandbox::Ended{{}, "host_lost", ""}), std::nullopt);
  EXPECT_EQ(exit_code({"sandbox_ended", {}, {}, ""}, std::nullopt), std::nullopt);
  EXPECT_EQ(exit_code({"interrupted", {}, {}, ""}, std::nullopt), std::nullopt);
  EXPECT_EQ(exit_code({"something_new", 0, {}, ""}, std::nullopt), std::nullopt);
}

TEST(LizardLines, AreCutWhereverTheChunksEnd) {
  const std::string text = "one\n\ntwo \xe4\xb8\xad\r\nlast";
  const Lines expected{"one", "", "two \xe4\xb8\xad\r", "last"};
  for (size_t step = 1; step <= text.size(); ++step) {
    LineCutter cutter;
    Lines lines;
    for (size_t at = 0; at < text.size(); at += step) {
      for (auto& line : cutter.take(std::string_view(text).substr(at, step))) lines.push_back(line);
    }
    for (auto& line : cutter.finish()) lines.push_back(line);
    EXPECT_EQ(lines, expected) << step;
  }
  EXPECT_TRUE(LineCutter().finish().empty());
}

TEST(LizardLines, LongLinesComeInWholeCharacters) {
  LineCutter cutter(4);
  Lines lines = cutter.take("ab\xe4\xb8\xad" "cdefgh\n");
  EXPECT_EQ(lines, (Lines{"ab", "\xe4\xb8\xad" "c", "defg", "h"}));
  LineCutter invalid(2);
  EXPECT_EQ(invalid.take("\x80\x80\x80"), (Lines{"\x80\x80"})) << "bytes that are no text must not stop it";
}

TEST(LizardLines, HeadKeepsTheBeginning) {
  Head head(4);
  head.take("ab");
  EXPECT_FALSE(head.is_full());
  head.take("\xe4\xb8\xad");
  EXPECT_TRUE(head.is_full());
  head.take("more");
  EXPECT_EQ(head.text(), "ab") << "half a character is left out";
}

TEST(LizardWrite, ParsesInAnyPieces) {
  const std::string text = R"( {"path":"/tmp/a\u0020b","content":"line\n\ud83d\ude00 \u0000","encoding":"utf8","user":"user"} )";
  for (size_t step = 1; step <= text.size(); ++step) {
    WriteParser parser;
    for (size_t at = 0; at < text.size(); at += step) {
      const auto taken = parser.take(std::string_view(text).substr(at, step));
      ASSERT_TRUE(taken) << taken.error().message;
    }
    const auto request = parser.finish();
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request->path, "/tmp/a b");
    EXPECT_EQ(request->content, std::string("line\n\xf0\x9f\x98\x80 \0", 11));
    EXPECT_EQ(request->user, "user");
  }
}

TEST(LizardWrite, RefusesEverythingElse) {
  for (const char* text : {"", "{", "[]", "\"x\"", "1", "null", R"({"path":"/a"})", R"({"content":"x"})",
                           R"({"path":"/a","content":"x","content":"y"})", R"({"path":"/a","content":"x","mode":"1"})",
                           R"({"path":"/a","content":{"x":"y"}})", R"({"path":"/a","content":["x"]})", R"({"path":"/a","content":1})",
                           R"({"path":"/a","content":null})", R"({"path":"/a","content":true})",
                           R"({"path":"/a","content":"x","encoding":"hex"})", R"({"path":"/a","content":"x"} {})",
                           "{\"path\":\"/a\",\"content\":\"\xff\"}"}) {
    WriteParser parser;
    const auto taken = parser.take(text);
    const auto request = taken ? parser.finish() : Result<WriteRequest>(fail(taken.error()));
    ASSERT_FALSE(request) << text;
    EXPECT_EQ(request.error().code, Code::kInvalidArgument) << text;
  }
}

TEST(LizardWrite, Base64IsReadInPieces) {
  std::string bytes(1'000'000, '\0');
  for (size_t n = 0; n < bytes.size(); ++n) bytes[n] = static_cast<char>(n * 7919 >> 3);
  const std::string text = base64_encode(bytes);
  Base64Reader reader(text);
  std::string back;
  for (auto piece = reader.read(); piece && !piece->empty(); piece = reader.read()) back += *piece;
  EXPECT_EQ(back, bytes);
  for (const std::string& bad : {std::string("%%%%"), std::string(256 << 10, 'A') + "!", "QQ==" + std::string(256 << 10, 'A')}) {
    Base64Reader broken(bad);
    auto piece = broken.read();
    while (piece && !piece->empty()) piece = broken.read();
    EXPECT_FALSE(piece) << bad.substr(0, 8);
  }
}

TEST(LizardInfo, SaysFirecrackerOnlyWhereItIs) {
  sandbox::SandboxInfo info;
  info.tier = runtime::Tier::kMicrovm;
  EXPECT_EQ(info_object(info).at("runtime").as_string(), "microvm");
  info.engine = "qemu";
  EXPECT_EQ(info_object(info).at("runtime").as_string(), "microvm");
  info.engine = "firecracker";
  EXPECT_EQ(info_object(info).at("runtime").as_string(), "firecracker");
  info.tier = runtime::Tier::kContainer;
  EXPECT_EQ(info_object(info).at("runtime").as_string(), "container");
}

TEST(LizardInfo, DescribesASandboxTruthfully) {
  sandbox::SandboxInfo info;
  info.id = "sbx-1";
  info.state = sandbox::State::kReady;
  info.tier = runtime::Tier::kGvisor;
  info.template_name = "base";
  info.limits = {.cpus = 2, .memory_bytes = 4ull << 30};
  info.metadata = {{"a", "b"}};
  const auto object = info_object(info);
  EXPECT_EQ(object.at("sandboxId").as_string(), "sbx-1");
  EXPECT_EQ(object.at("runtime").as_string(), "gvisor");
  EXPECT_EQ(object.at("status").as_string(), "running");
  EXPECT_EQ(object.at("memoryMb").to_number<int>(), 4096);
  EXPECT_TRUE(object.at("endAt").is_null());
  EXPECT_TRUE(object.at("size").is_null()) << "made by another dialect";
  EXPECT_FALSE(object.at("internetAccess").as_bool());
  EXPECT_TRUE(object.at("allowedHosts").is_array());
}

TEST(LizardInfo, FilesLookLikeLs) {
  sandbox::FileEntry entry{.name = "f", .path = "/f", .type = "file", .size = 3, .mode = 0644, .user = "root", .mtime_ms = 5};
  EXPECT_EQ(file_object(entry).at("permissions").as_string(), "-rw-r--r--");
  EXPECT_EQ(file_object(entry).at("mode").to_number<int>(), 420);
  EXPECT_FALSE(file_object(entry).contains("symlinkTarget"));
  entry.type = "directory";
  entry.mode = 01777;
  EXPECT_EQ(file_object(entry).at("permissions").as_string(), "drwxrwxrwt");
  EXPECT_EQ(file_object(entry).at("type").as_string(), "dir");
  entry.mode = 06750;
  EXPECT_EQ(file_object(entry).at("permissions").as_string(), "drwsr-s---");
  entry.target = "x";
  EXPECT_EQ(file_object(entry).at("symlinkTarget").as_string(), "x");
}

TEST(LizardInfo, SizesAreThoseOfTheProtocol) {
  EXPECT_EQ(sizes().size(), 6u);
  EXPECT_EQ(find_size("small")->cpus, 2);
  EXPECT_EQ(find_size("small")->memory_bytes, 4ull << 30);
  EXPECT_EQ(find_size("huge"), nullptr);
  for (size_t n = 1; n < sizes().size(); ++n) EXPECT_GT(sizes()[n].memory_bytes, sizes()[n - 1].memory_bytes);
}

TEST(LizardInfo, ProjectsMatchByIdAndTenant) {
  sandbox::Caller caller;
  caller.tenant = "acme";
  EXPECT_TRUE(is_project(caller, "DEFAULT"));
  EXPECT_TRUE(is_project(caller, "Acme"));
  EXPECT_FALSE(is_project(caller, "acme2"));
  EXPECT_FALSE(is_project(caller, ""));
}

// Network -------------------------------------------------------------------------------------------------------------------

using sandbox::NetworkPolicyPtr;

NetworkPolicyPtr policy_from(const char* text) {
  return std::make_shared<const policy::NetworkPolicy>(policy::parse_network_policy(json::parse(text).value()).value());
}

std::string allowed_text(const NetworkPolicyPtr& policy) { return json::to_text(allowed_hosts(policy)); }

TEST(LizardNetwork, AllowedHostsAreAnAllowlistAndAreEchoed) {
  const NetworkRequest request{.internet = false, .hosts = {"pypi.org", "*.pythonhosted.org", "20.82.112.0/20", "20.1.2.3", "pypi.org"}};
  EXPECT_TRUE(request.is_closed());
  const auto policy = policy_for(request, policy_from(R"({"egress": "open"})")).value();
  EXPECT_EQ(policy->egress, policy::Egress::kAllowlist);
  EXPECT_FALSE(has_internet(policy));
  EXPECT_EQ(allowed_text(policy), R"(["pypi.org","*.pythonhosted.org","20.82.112.0/20","20.1.2.3"])");
  const policy::Evaluator evaluator(*policy, policy::Operator{});
  const auto address = [](const char* text) { return policy::parse_address(text); };
  const struct {
    policy::Attempt attempt;
    bool is_allowed;
  } table[] = {{{policy::Protocol::kTls, "pypi.org", address("20.9.9.9"), 443, "", ""}, true},
               {{policy::Protocol::kHttp, "pypi.org", address("20.9.9.9"), 80, "GET", "/"}, true},
               {{policy::Protocol::kTls, "pypi.org", address("20.9.9.9"), 8443, "", ""}, false},
               {{policy::Protocol::kTls, "files.pythonhosted.org", address("20.9.9.9"), 443, "", ""}, true},
               {{policy::Protocol::kTls, "example.com", address("20.9.9.9"), 443, "", ""}, false},
               {{policy::Protocol::kTcp, "", address("20.1.2.3"), 22, "", ""}, true},
               {{policy::Protocol::kUdp, "", address("20.82.120.1"), 9999, "", ""}, true},
               {{policy::Protocol::kTcp, "", address("20.1.2.4"), 22, "", ""}, false}};
  for (const auto& row : table) EXPECT_EQ(evaluator.decide(row.attempt).allowed, row.is_allowed) << row.attempt.host << row.attempt.port;
  EXPECT_TRUE(evaluator.decide_name("pypi.org").allowed);
  const auto addresses_only = policy_for({.internet = std::nullopt, .hosts = {"20.1.2.3"}}, nullptr).value();
  EXPECT_FALSE(policy::Evaluator(*addresses_only, policy::Operator{}).decide_name("pypi.org").allowed);
}

TEST(LizardNetwork, WordsOfTheCallerInRefusals) {
  for (const char* bad : {"*", "allowed.*", "https://pypi.org", "", "10.0.0.0/8", "169.254.169.254", "a b", "pypi.org:443", "127.1", "20.1.2.3/20",
                          "2a00::1", "2a00::/32", "20.0.0.0/33", "*.com"}) {
    const auto policy = policy_for({.internet = false, .hosts = {"good.example.com", bad}}, nullptr);
    ASSERT_FALSE(policy) << bad;
    EXPECT_EQ(policy.error().code, Code::kInvalidArgument) << bad;
    EXPECT_TRUE(policy.error().details.at("field").starts_with("allowedHosts[1]")) << bad << policy.error().details.at("field");
    EXPECT_TRUE(policy.error().message.starts_with("allowedHosts[1]")) << policy.error().message;
  }
}

TEST(LizardNetwork, WithoutHostsTheOperatorsDefaultDecides) {
  const auto open = policy_from(R"({"egress": "open"})"), some = policy_from(R"({"presets": ["github"]})");
  EXPECT_EQ(policy_for({}, open).value(), nullptr);
  EXPECT_EQ(policy_for({.internet = true, .hosts = {}}, open).value(), nullptr);
  EXPECT_EQ(policy_for({.internet = false, .hosts = {}}, nullptr).value(), nullptr);
  EXPECT_EQ(policy_for({.internet = false, .hosts = {}}, open).value()->egress, policy::Egress::kNone);
  EXPECT_FALSE(policy_for({.internet = false, .hosts = {}}, some).value()->packages);
  for (const auto& usual : {NetworkPolicyPtr(), some}) {
    const auto refused = policy_for({.internet = true, .hosts = {}}, usual);
    ASSERT_FALSE(refused);
    const WireError wire = wire_error(refused.error());
    EXPECT_EQ(wire.status, 400);
    EXPECT_EQ(wire.body.at("code"), "INTERNET_ACCESS_NOT_OFFERED");
    EXPECT_NE(std::string(wire.body.at("error").as_string()).find("network.default"), std::string::npos);
  }
  EXPECT_EQ(policy_for({.internet = true, .hosts = {"pypi.org"}}, open).error().details.at("field"), "allowedHosts");
}

TEST(LizardNetwork, WhatIsShownIsWhatThePolicySays) {
  EXPECT_TRUE(has_internet(policy_from(R"({"egress": "open"})")));
  for (const char* closed : {"{}", R"({"presets": ["github"]})", R"({"allow": [{"host": "a.example"}]})"}) EXPECT_FALSE(has_internet(policy_from(closed)));
  EXPECT_FALSE(has_internet(nullptr));
  EXPECT_EQ(allowed_text(nullptr), "[]");
}

}  // namespace
}  // namespace glovebox::api::lizard
