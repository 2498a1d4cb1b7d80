// SPDX-License-Identifier: Apache-2.0
#include "policy/packages.h"

#include <gtest/gtest.h>

#include "http/json.h"

namespace glovebox::policy {
namespace {

Result<PackagePolicy> parse(std::string_view text) {
  GB_TRY(const auto value, json::parse(text));
  return parse_package_policy(value, "packages");
}

PackageAttempt attempt(Registry registry, std::string name, std::string version = "") {
  PackageAttempt out;
  out.registry = registry;
  out.name = std::move(name);
  out.version = std::move(version);
  return out;
}

std::string outcome(const PackagePolicy& policy, const PackageAttempt& asked, int64_t now_ms = 0) {
  const auto verdict = decide_package(policy, asked, now_ms);
  EXPECT_EQ(verdict.allowed, verdict.reason.empty()) << verdict.rule;
  return (verdict.allowed ? "allowed by " : "denied by ") + verdict.rule;
}

constexpr std::string_view kAll = R"("registries": ["pypi", "npm", "debian"])";

TEST(PackagePolicy, ReadsRulesAsPeopleWriteThem) {
  struct Case {
    std::string text;
    std::optional<Registry> registry;
    std::string name, versions;
  };
  const Case cases[] = {
      {"requests", std::nullopt, "requests", ""},
      {"evil*", std::nullopt, "evil*", ""},
      {"*", std::nullopt, "*", ""},
      {"pypi:*", Registry::kPypi, "*", ""},
      {"pypi:Foo._Bar", Registry::kPypi, "foo-bar", ""},
      {"requests==2.31.0", Registry::kPypi, "requests", "==2.31.0"},
      {"Requests >=2.30, <3", Registry::kPypi, "requests", ">=2.30, <3"},
      {"pypi:requests~=2.0", Registry::kPypi, "requests", "~=2.0"},
      {"left-pad@1.3.0", Registry::kNpm, "left-pad", "1.3.0"},
      {"npm:left-pad@^1 || 2.x", Registry::kNpm, "left-pad", "^1 || 2.x"},
      {"@scope/name", Registry::kNpm, "@scope/name", ""},
      {"@scope/*", Registry::kNpm, "@scope/*", ""},
      {"@scope/name@>=1 <2", Registry::kNpm, "@scope/name", ">=1 <2"},
      {"debian:curl=7.88.1-10", Registry::kDebian, "curl", "7.88.1-10"},
      {"debian:libstdc++6=12*", Registry::kDebian, "libstdc++6", "12*"},
  };
  for (const auto& c : cases) {
    const auto policy = parse(R"({"deny": [")" + c.text + "\"]}");
    ASSERT_TRUE(policy) << c.text << " " << policy.error().message;
    const auto& rule = policy->deny.at(0);
    EXPECT_EQ(rule.registry, c.registry) << c.text;
    EXPECT_EQ(rule.name, c.name) << c.text;
    EXPECT_EQ(rule.versions, c.versions) << c.text;
    EXPECT_EQ(rule.rule, "packages.deny[0]");
    const auto again = parse_package_policy(to_json(*policy), "packages");
    ASSERT_TRUE(again) << c.text << " " << again.error().message;
    EXPECT_EQ(*again, *policy) << c.text;
  }
}

TEST(PackagePolicy, RefusesWhatItDoesNotUnderstand) {
  for (const std::string rule : {"",
                                 " ",
                                 "a b",
                                 "a*b",
                                 "**",
                                 "-x",
                                 ".x",
                                 "a/b",
                                 "@/x",
                                 "@a",
                                 "@a/",
                                 "@a/b/c",
                                 "@a/@b",
                                 "pypi:",
                                 "pypi:@a/b@1.0.0 x",
                                 "cargo:x",
                                 "requests==",
                                 "requests=2",
                                 "requests=>2",
                                 "requests[socks]",
                                 "requests==2.*.1",
                                 "left-pad@",
                                 "left-pad@latest",
                                 "pypi:left-pad@1",
                                 "npm:x==1.0.0.0",
                                 "debian:curl>=7",
                                 "debian:curl=",
                                 "curl=7.88"}) {
    for (const std::string list : {"allow", "deny"}) {
      const auto policy = parse(R"({")" + list + R"(": [")" + rule + "\"]}");
      ASSERT_FALSE(policy) << rule;
      EXPECT_EQ(policy.error().code, Code::kInvalidArgument) << rule;
      EXPECT_EQ(policy.error().details.at("field"), "packages." + list) << rule;
    }
  }
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"registries": ["cargo"]})", "packages.registries"},
      {R"({"registries": ["pypi", "pypi"]})", "packages.registries"},
      {R"({"registries": "pypi"})", "packages.registries"},
      {R"({"deny": ["a", "a"]})", "packages.deny"},
      {R"({"deny": ["pypi:Foo", "pypi:foo"]})", "packages.deny"},
      {R"({"allow": ["a"], "deny": ["a"]})", "packages.allow"},
      {R"({"allow": ["a==1"], "deny": ["pypi:a"]})", "packages.allow"},
      {R"({"minimum_age_hours": -1})", "packages.minimum_age_hours"},
      {R"({"minimum_age_hours": 87841})", "packages.minimum_age_hours"},
      {R"({"max_bytes": -1})", "packages.max_bytes"},
      {R"({"offline": "yes"})", "packages.offline"},
      {R"({"install_script": true})", "packages.install_script"},
      {"[]", "packages"},
  };
  for (const auto& [text, field] : cases) {
    const auto policy = parse(text);
    ASSERT_FALSE(policy) << text;
    EXPECT_EQ(policy.error().details.at("field"), field) << text;
  }
}

TEST(PackagePolicy, ComesBackFromItsJson) {
  const auto policy = parse(
      R"({"registries": ["npm", "pypi"], "allow": ["a", "@s/*", "b>=1"], "deny": ["c@^1"], "minimum_age_hours": 87840,
                                "install_scripts": false, "require_hashes": true, "offline": true, "max_bytes": 5})");
  ASSERT_TRUE(policy);
  EXPECT_EQ(parse_package_policy(to_json(*policy), "p").value(), *policy);
  EXPECT_EQ(parse_package_policy(to_json(PackagePolicy{}), "p").value(), PackagePolicy{});
}

TEST(NormalPackage, FoldsPypiNamesOnly) {
  EXPECT_EQ(normal_package(Registry::kPypi, "Foo._Bar"), "foo-bar");
  EXPECT_EQ(normal_package(Registry::kPypi, "a--b__c..d"), "a-b-c-d");
  EXPECT_EQ(normal_package(Registry::kNpm, "Foo._Bar"), "Foo._Bar");
  EXPECT_EQ(normal_package(Registry::kDebian, "libstdc++6"), "libstdc++6");
}

TEST(DecidePackage, OpensOnlyTheRegistriesNamed) {
  const auto policy = parse(R"({"registries": ["pypi"]})").value();
  EXPECT_EQ(outcome(policy, attempt(Registry::kPypi, "requests", "2.31.0")),
            "allowed by packages.registries");
  EXPECT_EQ(outcome(policy, attempt(Registry::kNpm, "left-pad")), "denied by packages.registries");
  EXPECT_EQ(outcome(PackagePolicy{}, attempt(Registry::kPypi, "requests")),
            "denied by packages.registries");
}

TEST(DecidePackage, DenyBeatsAllow) {
  const auto policy =
      parse("{" + std::string(kAll) +
            R"(, "allow": ["pypi:requests", "good*", "@s/*", "left-pad@^1", "debian:curl"],
                                "deny": ["requests<2.20", "goodbye", "npm:@s/bad", "evil*", "left-pad@1.2.x", "debian:curl=7.1*"]})")
          .value();
  struct Case {
    Registry registry;
    std::string name, version, expected;
  };
  using enum Registry;
  const Case cases[] = {
      {kPypi, "requests", "2.31.0", "allowed by packages.allow[0]"},
      {kPypi, "Requests", "", "allowed by packages.allow[0]"},
      {kPypi, "requests", "2.19", "denied by packages.deny[0]"},
      {kPypi, "requests", "2.19rc1", "denied by packages.deny[0]"},
      {kPypi, "requests", "0-nonsense", "denied by packages.deny[0]"},
      {kNpm, "requests", "2.31.0", "denied by packages.allow"},
      {kPypi, "Good.Thing", "1", "allowed by packages.allow[1]"},
      {kNpm, "goodbye", "1.0.0", "denied by packages.deny[1]"},
      {kPypi, "GoodBye", "1", "denied by packages.deny[1]"},
      {kNpm, "@s/x", "1.0.0", "allowed by packages.allow[2]"},
      {kNpm, "@s/bad", "", "denied by packages.deny[2]"},
      {kNpm, "@sx/x", "1.0.0", "denied by packages.allow"},
      {kPypi, "Evil_thing", "", "denied by packages.deny[3]"},
      {kNpm, "left-pad", "", "allowed by packages.allow[3]"},
      {kNpm, "left-pad", "1.3.0", "allowed by packages.allow[3]"},
      {kNpm, "left-pad", "2.0.0", "denied by packages.allow"},
      {kNpm, "left-pad", "1.2.5", "denied by packages.deny[4]"},
      {kNpm, "left-pad", "1.2.5-beta", "denied by packages.deny[4]"},
      {kNpm, "left-pad", "1.3.0-beta", "denied by packages.allow"},
      {kDebian, "curl", "7.88", "allowed by packages.allow[4]"},
      {kDebian, "curl", "7.10", "denied by packages.deny[5]"},
      {kDebian, "bash", "", "denied by packages.allow"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(outcome(policy, attempt(c.registry, c.name, c.version)), c.expected)
        << c.name << " " << c.version;
}

TEST(DecidePackage, KeepsASeparatorBeforeTheStar) {
  const auto policy = parse(R"({"registries": ["pypi"], "deny": ["pypi:Acme_*"]})").value();
  EXPECT_FALSE(decide_package(policy, attempt(Registry::kPypi, "acme.tool"), 0).allowed);
  EXPECT_TRUE(decide_package(policy, attempt(Registry::kPypi, "acmetool"), 0).allowed);
}

TEST(DecidePackage, WantsVersionsOfAge) {
  const auto policy = parse(R"({"registries": ["pypi"], "minimum_age_hours": 24})").value();
  constexpr int64_t kHour = 3'600'000, kNow = 1000 * kHour;
  const auto aged = [&](std::optional<int64_t> uploaded) {
    auto out = attempt(Registry::kPypi, "a", "1");
    out.uploaded_at_ms = uploaded;
    return outcome(policy, out, kNow);
  };
  EXPECT_EQ(aged(kNow - 24 * kHour), "allowed by packages.registries");
  EXPECT_EQ(aged(kNow - 24 * kHour + 1), "denied by packages.minimum_age_hours");
  EXPECT_EQ(aged(kNow + kHour), "denied by packages.minimum_age_hours");
  EXPECT_EQ(aged(std::nullopt), "denied by packages.minimum_age_hours");
  EXPECT_EQ(outcome(policy, attempt(Registry::kPypi, "a"), kNow), "allowed by packages.registries");
}

TEST(DecidePackage, ServesNoSourceWithoutInstallScripts) {
  const auto policy = parse("{" + std::string(kAll) + R"(, "install_scripts": false})").value();
  auto source = attempt(Registry::kPypi, "a", "1");
  source.is_source = true;
  EXPECT_EQ(outcome(policy, source), "denied by packages.install_scripts");
  source.is_source = false;
  EXPECT_EQ(outcome(policy, source), "allowed by packages.registries");
}

}  // namespace
}  // namespace glovebox::policy
