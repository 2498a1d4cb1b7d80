// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/network_options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "http/json.h"

namespace glovebox::cli {
namespace {

std::string written(const Result<boost::json::array>& rules) {
  return rules ? json::to_text(*rules) : "error: " + rules.error().message;
}

TEST(NetworkOptions, PortsOfTheWebKeepTheirProtocolsAndOthersAreTcp) {
  EXPECT_EQ(written(allow_rules("a.example")), R"([{"host":"a.example"}])");
  EXPECT_EQ(written(allow_rules("*.a.example:443")), R"([{"host":"*.a.example","ports":[443]}])");
  EXPECT_EQ(written(allow_rules("a.example:80,443")), R"([{"host":"a.example","ports":[80,443]}])");
  EXPECT_EQ(written(allow_rules("a.example:5432,443,8000-8100")),
            R"([{"host":"a.example","ports":[443]},)"
            R"({"host":"a.example","ports":[5432,"8000-8100"],"protocols":["tcp"]}])");
  EXPECT_EQ(written(allow_cidr_rules("20.30.0.0/16")), R"([{"cidr":"20.30.0.0/16"}])");
  EXPECT_EQ(written(allow_cidr_rules("20.30.1.2:22")),
            R"([{"cidr":"20.30.1.2","ports":[22],"protocols":["tcp"]}])");
  EXPECT_EQ(written(allow_cidr_rules("[2a00::]/32:443")),
            R"([{"cidr":"2a00::/32","ports":[443]}])");
  EXPECT_EQ(written(allow_cidr_rules("[2a00::1]")), R"([{"cidr":"2a00::1"}])");
}

TEST(NetworkOptions, DenyTakesEveryKindOfDestination) {
  EXPECT_EQ(written(deny_rules("*")), R"([{"host":"*"}])");
  EXPECT_EQ(written(deny_rules("a.example:443,25")), R"([{"host":"a.example","ports":[443,25]}])");
  EXPECT_EQ(written(deny_rules("20.0.0.0/8")), R"([{"cidr":"20.0.0.0/8"}])");
  EXPECT_EQ(written(deny_rules("20.0.0.1:1-65535")),
            R"([{"cidr":"20.0.0.1","ports":["1-65535"]}])");
}

TEST(NetworkOptions, WrongFormsAreRefused) {
  for (const char* bad :
       {"", ":443", "a.example:", "a.example:0", "a.example:65536", "a.example:http",
        "a.example:80,", "a.example:80-", "a.example:-80", "a.example:+80", "a.example:80:90",
        "[2a00::", "[]", "2a00::/32", "::1"}) {
    for (const auto rules : {allow_rules, allow_cidr_rules, deny_rules})
      EXPECT_FALSE(rules(bad)) << bad;
  }
  EXPECT_FALSE(allow_rules("20.0.0.1"));
  EXPECT_FALSE(allow_rules("20.0.0.0/8"));
  EXPECT_FALSE(allow_cidr_rules("a.example"));
}

TEST(NetworkOptions, NothingSaidIsNoPolicy) {
  EXPECT_FALSE(network_policy({}).value());
  NetworkOptions none;
  none.egress = "none";
  EXPECT_EQ(json::to_text(*network_policy(none).value()), R"({"egress":"none"})");
  NetworkOptions all;
  all.presets = {"github"};
  all.allow = {"a.example", "b.example:22"};
  all.allow_cidr = {"20.0.0.1"};
  all.deny = {"c.example"};
  EXPECT_EQ(json::to_text(*network_policy(all).value()),
            R"({"presets":["github"],"allow":[{"host":"a.example"},)"
            R"({"host":"b.example","ports":[22],"protocols":["tcp"]},{"cidr":"20.0.0.1"}],)"
            R"("deny":[{"host":"c.example"}]})");
}

TEST(NetworkOptions, AFileIsAWholePolicy) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("glovebox-policy-" + std::to_string(::getpid())))
          .string();
  const auto read = [&](const std::string& content) {
    std::ofstream(path) << content;
    return read_policy(path);
  };
  EXPECT_EQ(json::to_text(read(R"({"egress": "none"})").value()), R"({"egress":"none"})");
  const auto broken = read("{\n  \"egress\": none}");
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Code::kInvalidArgument);
  EXPECT_NE(broken.error().message.find(path), std::string::npos);
  EXPECT_NE(broken.error().message.find("line 2"), std::string::npos) << broken.error().message;
  EXPECT_FALSE(read("[]"));
  EXPECT_EQ(read(std::string((1 << 20) + 1, ' ')).error().code, Code::kPayloadTooLarge);
  std::filesystem::remove(path);
  EXPECT_FALSE(read_policy(path));
  EXPECT_FALSE(read_policy("/"));
}

}  // namespace
}  // namespace glovebox::cli
