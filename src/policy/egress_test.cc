// SPDX-License-Identifier: Apache-2.0
#include "policy/egress.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"

namespace glovebox::policy {
namespace {

Result<NetworkPolicy> parse(std::string_view text) {
  GB_TRY(const auto value, json::parse(text));
  return parse_network_policy(value);
}

Result<Operator> parse_op(std::string_view text) {
  GB_TRY(const auto value, json::parse(text));
  return parse_operator(value);
}

TEST(NetworkPolicy, ReadsEveryField) {
  const auto policy = parse(R"({
    "egress": "allowlist", "presets": ["python-packages", "github"],
    "allow": [{"host": "API.Example.com."},
              {"host": "*.example.org", "ports": [8443, "9000-9100"], "protocols": ["tls", "http"]},
              {"cidr": "8.8.8.0/24", "ports": [5432], "protocols": ["tcp"]},
              {"cidr": "2a00::/16", "protocols": ["icmp"]},
              {"host": "web.example.com", "protocols": ["http"], "methods": ["GET", "HEAD"], "paths": ["/v1/*", "/"]}],
    "deny": [{"host": "*"  , "ports": [25]}, {"host": "bad.example.org"}],
    "limits": {"bandwidth": 1000000, "connections": 8, "bytes": 1000000000},
    "packages": {"registries": ["npm"], "deny": ["npm:evil"]}})");
  ASSERT_TRUE(policy) << policy.error().message;
  EXPECT_EQ(policy->egress, Egress::kAllowlist);
  EXPECT_EQ(policy->presets, (std::vector<std::string>{"python-packages", "github"}));
  ASSERT_EQ(policy->allow.size(), 5u);
  EXPECT_EQ(policy->allow[0].host, "api.example.com");
  EXPECT_EQ(policy->allow[0].name, "allow[0]");
  EXPECT_TRUE(policy->allow[0].ports.empty());
  EXPECT_EQ(policy->allow[1].ports, (std::vector<PortRange>{{8443, 8443}, {9000, 9100}}));
  EXPECT_EQ(policy->allow[1].protocols, 3);
  EXPECT_EQ(policy->allow[2].cidr->text(), "8.8.8.0/24");
  EXPECT_EQ(policy->allow[4].methods, (std::vector<std::string>{"GET", "HEAD"}));
  EXPECT_EQ(policy->deny[1].name, "deny[1]");
  EXPECT_EQ(policy->limits, (EgressLimits{1000000, 8, 1000000000}));
  ASSERT_TRUE(policy->packages);
}

TEST(NetworkPolicy, ChoosesTheLevelWhenNoneIsSaid) {
  const std::pair<std::string_view, Egress> cases[] = {
      {"{}", Egress::kNone},
      {R"({"packages": {"registries": ["pypi"]}})", Egress::kNone},
      {R"({"limits": {"connections": 1}})", Egress::kNone},
      {R"({"allow": [{"host": "a.example"}]})", Egress::kAllowlist},
      {R"({"presets": ["python-packages"]})", Egress::kAllowlist},
      {R"({"egress": "open"})", Egress::kOpen},
      {R"({"egress": "open", "presets": ["node-packages"], "deny": [{"host": "a.example"}]})",
       Egress::kOpen},
      {R"({"egress": "none", "presets": ["node-packages"]})", Egress::kNone},
      {R"({"egress": "allowlist"})", Egress::kAllowlist},
      {R"({"egress": null, "allow": null})", Egress::kNone},
  };
  for (const auto& [text, level] : cases) {
    const auto policy = parse(text);
    ASSERT_TRUE(policy) << text << policy.error().message;
    EXPECT_EQ(policy->egress, level) << text;
  }
  EXPECT_EQ(parse("{}")->limits, (EgressLimits{0, 256, 0}));
}

std::string rule(std::string_view fields) {
  return R"({"allow": [{)" + std::string(fields) + "}]}";
}
std::string deny(std::string_view fields) {
  return R"({"egress": "open", "deny": [{)" + std::string(fields) + "}]}";
}

struct Refusal {
  std::string text, field;
};

void expect_refused(const std::vector<Refusal>& cases) {
  for (const auto& c : cases) {
    const auto policy = parse(c.text);
    ASSERT_FALSE(policy) << c.text;
    EXPECT_EQ(policy.error().code, Code::kInvalidArgument) << c.text;
    const auto& details = policy.error().details;
    ASSERT_TRUE(details.contains("field")) << c.text << policy.error().message;
    EXPECT_EQ(details.at("field"), c.field) << c.text << " " << policy.error().message;
  }
}

TEST(NetworkPolicy, RefusesRulesThatNameNoDestination) {
  const std::string host = "network.allow[0].host", cidr = "network.allow[0].cidr";
  expect_refused({
      {rule(""), host},
      {rule(R"("host": "a.example", "cidr": "8.8.8.8")"), host},
      {rule(R"("host": "")"), host},
      {rule(R"("host": 5)"), host},
      {rule(R"("host": "*")"), host},
      {rule(R"("host": "*.com")"), host},
      {rule(R"("host": "*.")"), host},
      {rule(R"("host": "*example.com")"), host},
      {rule(R"("host": "a.*.example.com")"), host},
      {rule(R"("host": "*.*.example.com")"), host},
      {rule(R"("host": "example.*")"), host},
      {rule(R"("host": "1.2.3.4")"), host},
      {rule(R"("host": "8.8.8.0/24")"), host},
      {rule(R"("host": "127.1")"), host},
      {rule(R"("host": "0x7f000001")"), host},
      {rule(R"("host": "[::1]")"), host},
      {rule(R"("host": "::1")"), host},
      {rule(R"("host": "https://example.com")"), host},
      {rule(R"("host": "example.com:443")"), host},
      {rule(R"("host": "m\u00fcnchen.example")"), host},
      {rule(R"("host": "packages.glovebox.internal")"), host},
      {rule(R"("host": "*.Glovebox.Internal.")"), host},
      {rule(R"("host": "glovebox.internal")"), host},
      {rule(R"("host": ")" + std::string(256, 'a') + "\""), host},
      {rule(R"("cidr": "example.com")"), cidr},
      {rule(R"("cidr": "8.8.8.8/24")"), cidr},
      {rule(R"("cidr": "127.0.0.1")"), cidr},
      {rule(R"("cidr": "10.0.0.0/8")"), cidr},
      {rule(R"("cidr": "169.254.169.254/32")"), cidr},
      {rule(R"("cidr": "::ffff:8.8.8.8")"), cidr},
      {rule(R"("cidr": "2002::/16")"), cidr},
      {rule(R"("cidr": "224.0.0.0/3")"), cidr},
      {deny(R"("ports": [25])"), "network.deny[0].host"},
  });
}

TEST(NetworkPolicy, RefusesPortsAndProtocolsThatMakeNoSense) {
  const std::string ports = "network.allow[0].ports", protocols = "network.allow[0].protocols";
  const auto with = [](const std::string& fields) {
    return rule(R"("host": "a.example", )" + fields);
  };
  const auto block = [](const std::string& fields) {
    return rule(R"("cidr": "8.8.8.8", )" + fields);
  };
  std::string many = R"("ports": [1)";
  for (int i = 2; i < 67; ++i) many += "," + std::to_string(i);
  expect_refused({
      {with(R"("ports": [])"), ports},
      {with(R"("ports": 443)"), ports},
      {with(R"("ports": [0])"), ports},
      {with(R"("ports": [65536])"), ports},
      {with(R"("ports": [-1])"), ports},
      {with(R"("ports": [443.5])"), ports},
      {with(R"("ports": ["443"])"), ports},
      {with(R"("ports": ["0-80"])"), ports},
      {with(R"("ports": ["90-80"])"), ports},
      {with(R"("ports": ["80-65536"])"), ports},
      {with(R"("ports": ["80-"])"), ports},
      {with(R"("ports": ["-80"])"), ports},
      {with(R"("ports": ["1-2-3"])"), ports},
      {with(R"("ports": ["080-90"])"), ports},
      {with(R"("ports": [" 80-90"])"), ports},
      {with(R"("ports": ["*"])"), ports},
      {with(R"("ports": [null])"), ports},
      {with(R"("ports": [443, 443])"), ports},
      {with(R"("ports": ["80-90", 85])"), ports},
      {with(R"("ports": ["80-90", "90-95"])"), ports},
      {with(many + "]"), ports},
      {with(R"("protocols": [])"), protocols},
      {with(R"("protocols": "tls")"), protocols},
      {with(R"("protocols": ["TLS"])"), protocols},
      {with(R"("protocols": ["quic"])"), protocols},
      {with(R"("protocols": ["tls", "tls"])"), protocols},
      {with(R"("protocols": ["tcp"])"), ports},
      {block(R"("protocols": ["udp"])"), ports},
      {with(R"("protocols": ["udp"], "ports": [123])"), protocols},
      {with(R"("protocols": ["icmp"])"), protocols},
      {block(R"("protocols": ["icmp"], "ports": [1])"), protocols},
      {block(R"("protocols": ["icmp", "tcp"], "ports": [1])"), protocols},
      {block(R"("protocols": ["tcp"], "ports": [53])"), ports},
      {block(R"("protocols": ["udp"], "ports": [53, 853])"), ports},
  });
}

TEST(NetworkPolicy, RefusesMethodsAndPathsThatNobodyCouldCheck) {
  const std::string methods = "network.allow[0].methods", paths = "network.allow[0].paths";
  const auto with = [](const std::string& fields) {
    return rule(R"("host": "a.example", )" + fields);
  };
  const auto http = [&](const std::string& fields) {
    return with(R"("protocols": ["http"], )" + fields);
  };
  expect_refused({
      {with(R"("methods": ["GET"])"), methods},
      {with(R"("paths": ["/"])"), paths},
      {with(R"("protocols": ["http", "tls"], "methods": ["GET"])"), methods},
      {with(R"("protocols": ["tcp"], "ports": [80], "paths": ["/"])"), paths},
      {http(R"("methods": [])"), methods},
      {http(R"("methods": ["get"])"), methods},
      {http(R"("methods": ["GET", "GET"])"), methods},
      {http(R"("methods": ["CONNECT"])"), methods},
      {http(R"("methods": [""])"), methods},
      {http(R"("methods": ["GET "])"), methods},
      {http(R"("paths": [])"), paths},
      {http(R"("paths": ["v1"])"), paths},
      {http(R"("paths": ["/a/../b"])"), paths},
      {http(R"("paths": ["/a*"])"), paths},
      {http(R"("paths": ["/a?b=c"])"), paths},
      {http(R"("paths": ["/a", "/a"])"), paths},
      {http(R"("paths": ["/)" + std::string(1024, 'a') + "\"]"), paths},
  });
}

TEST(NetworkPolicy, RefusesWhatContradictsItself) {
  std::string many = R"({"allow": [)";
  for (int i = 0; i < 257; ++i)
    many += (i ? "," : "") + (R"({"host": "h)" + std::to_string(i)) + R"(.example"})";
  std::string both = R"({"deny": [{"host": "x.example"}], "allow": [)";
  for (int i = 0; i < 256; ++i)
    both += (i ? "," : "") + (R"({"host": "h)" + std::to_string(i)) + R"(.example"})";
  const std::string allow = R"("allow": [{"host": "a.b.example"}])";
  const auto denied = [&](const std::string& d) {
    return "{" + allow + R"(, "deny": [)" + d + "]}";
  };
  expect_refused({
      {R"({"egress": "none", )" + allow + "}", "network.allow"},
      {R"({"egress": "open", )" + allow + "}", "network.allow"},
      {R"({"egress": "none", "deny": [{"host": "a.example"}]})", "network.deny"},
      {R"({"deny": [{"host": "a.example"}]})", "network.deny"},
      {R"({"egress": "none", "presets": ["github"]})", "network.presets"},
      {R"({"egress": "open", "presets": ["python-packages", "openai"]})", "network.presets"},
      {R"({"egress": "all"})", "network.egress"},
      {R"({"presets": ["nope"]})", "network.presets"},
      {R"({"presets": ["github", "github"]})", "network.presets"},
      {R"({"presets": "github"})", "network.presets"},
      {R"({"allow": {}})", "network.allow"},
      {R"({"allow": ["a.example"]})", "network.allow"},
      {R"({"alow": []})", "network.alow"},
      {rule(R"("host": "a.example", "port": [80])"), "network.allow[0].port"},
      {R"({"allow": [{"host": "a.example"}, {"host": "A.example."}]})", "network.allow[1]"},
      {R"({"egress": "open", "deny": [{"cidr": "8.8.8.8"}, {"cidr": "8.8.8.8/32"}]})",
       "network.deny[1]"},
      {many + "]}", "network.allow"},
      {both + "]}", "network.allow"},
      {denied(R"({"host": "a.b.example"})"), "network.allow[0]"},
      {denied(R"({"host": "*.b.example"})"), "network.allow[0]"},
      {denied(R"({"host": "*"})"), "network.allow[0]"},
      {denied(R"({"host": "*", "ports": [80, 443]})"), "network.allow[0]"},
      {denied(R"({"host": "*", "ports": ["1-1000"], "protocols": ["tls", "http"]})"),
       "network.allow[0]"},
      {R"({"allow": [{"host": "*.a.example"}], "deny": [{"host": "*.a.example"}]})",
       "network.allow[0]"},
      {R"({"allow": [{"host": "*.b.a.example"}], "deny": [{"host": "*.a.example"}]})",
       "network.allow[0]"},
      {R"({"allow": [{"cidr": "8.8.8.8"}], "deny": [{"cidr": "8.8.0.0/16"}]})", "network.allow[0]"},
      {R"({"allow": [{"cidr": "8.8.8.8"}], "deny": [{"host": "*"}]})", "network.allow[0]"},
      {R"({"limits": {"connections": 0}})", "network.limits.connections"},
      {R"({"limits": {"connections": 4097}})", "network.limits.connections"},
      {R"({"limits": {"bandwidth": -1}})", "network.limits.bandwidth"},
      {R"({"limits": {"bandwidth": 999}})", "network.limits.bandwidth"},
      {R"({"limits": {"bandwidth": 1000000000001}})", "network.limits.bandwidth"},
      {R"({"limits": {"bytes": -1}})", "network.limits.bytes"},
      {R"({"limits": {"byte": 1}})", "network.limits.byte"},
      {R"({"packages": {}})", "network.packages.registries"},
      {R"({"packages": []})", "network.packages"},
      {R"({"presets": ["github"], "packages": {}})", "network.packages.registries"},
      {R"({"packages": {"registries": ["cargo"]}})", "network.packages.registries"},
      {"[]", "network"},
      {"null", "network"},
  });
}

TEST(NetworkPolicy, AcceptsOverlapsThatLeaveSomethingAllowed) {
  for (
      const std::string_view text : {
          R"({"allow": [{"host": "a.example"}], "deny": [{"host": "*.a.example"}]})",
          R"({"allow": [{"host": "*.a.example"}], "deny": [{"host": "a.example"}]})",
          R"({"allow": [{"host": "*.a.example"}], "deny": [{"host": "b.a.example"}]})",
          R"({"allow": [{"host": "a.example"}], "deny": [{"host": "a.example", "ports": [80]}]})",
          R"({"allow": [{"host": "a.example"}], "deny": [{"host": "a.example", "protocols": ["http"]}]})",
          R"({"allow": [{"host": "a.example"}], "deny": [{"cidr": "0.0.0.0/0"}]})",
          R"({"allow": [{"cidr": "8.8.8.0/24"}], "deny": [{"cidr": "8.8.8.8"}]})",
          R"({"allow": [{"cidr": "8.8.8.8"}], "deny": [{"host": "a.example"}]})",
          R"({"allow": [{"cidr": "0.0.0.0/0", "ports": ["1-65535"], "protocols": ["tcp"]}]})",
          R"({"allow": [{"cidr": "2000::/3"}]})",
          R"({"allow": [{"host": "a.example"}, {"host": "a.example", "ports": [443]}]})",
          R"({"allow": [{"host": "a.example", "ports": ["79-81"]}], "deny": [{"host": "a.example", "protocols": ["tls"]}]})",
          R"({"presets": ["github"], "deny": [{"host": "github.com"}]})",
          R"({"presets": ["python-packages"], "packages": {"deny": ["pypi:evil"]}})",
          R"({"egress": "open", "deny": [{"host": "*.com"}, {"host": "*", "ports": [25]}, {"cidr": "10.0.0.0/8"}]})",
      }) {
    const auto policy = parse(text);
    EXPECT_TRUE(policy) << text << " " << (policy ? "" : policy.error().message);
  }
}

TEST(NetworkPolicy, ComesBackFromItsJson) {
  for (
      const std::string_view text : {
          R"({})",
          R"({"egress": "open", "deny": [{"host": "*"  , "ports": [25, "6000-6063"]}, {"cidr": "2a00::/16", "protocols": ["udp", "tcp"]}]})",
          R"({"egress": "allowlist", "presets": ["github", "debian-packages"], "limits": {"bandwidth": 5000, "connections": 4096, "bytes": 7},
               "allow": [{"host": "*.a.example", "ports": ["5-5"]}, {"cidr": "8.8.8.8", "protocols": ["icmp"]},
                         {"host": "b.example", "protocols": ["http"], "methods": ["GET"], "paths": ["/a", "/b/*"]}],
               "packages": {"registries": ["npm", "pypi"], "allow": ["requests>=2,<3", "npm:@a/*@^1 || 2.x", "debian:curl=7.*", "x*"],
                            "deny": ["pypi:Foo._Bar"], "minimum_age_hours": 24, "install_scripts": false, "require_hashes": true,
                            "offline": true, "max_bytes": 1000}})",
      }) {
    const auto policy = parse(text);
    ASSERT_TRUE(policy) << text << policy.error().message;
    const auto again = parse(json::to_text(to_json(*policy)));
    ASSERT_TRUE(again) << json::to_text(to_json(*policy)) << again.error().message;
    EXPECT_EQ(*again, *policy) << text;
  }
  for (const auto& preset : presets()) {
    const auto policy = preset_policy(preset.name);
    const auto again = parse_network_policy(to_json(policy));
    ASSERT_TRUE(again) << preset.name << again.error().message;
    EXPECT_EQ(*again, policy) << preset.name;
  }
}

TEST(OperatorPolicy, ReadsAndComesBack) {
  const std::string text =
      R"({"max_egress": "allowlist", "deny": [{"host": "*.evil.test"}, {"host": "*", "ports": [25]}],
    "max_limits": {"bandwidth": 1000000, "connections": 100, "bytes": 5},
    "internal": [{"host": "DB.corp.internal.", "cidr": "10.1.0.0/16", "ports": [5432, "6000-6010"]}],
    "own_addresses": ["20.0.0.1", "2a00::1"], "forwards_datagrams": true})";
  const auto op = parse_op(text);
  ASSERT_TRUE(op) << op.error().message;
  EXPECT_EQ(op->deny[1].name, "operator.deny[1]");
  EXPECT_EQ(op->internal[0].host, "db.corp.internal");
  EXPECT_EQ(op->own_addresses.size(), 2u);
  const auto again = parse_op(json::to_text(to_json(*op)));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, *op);
  EXPECT_EQ(parse_op("{}").value(), Operator{});
  EXPECT_EQ(parse_op(json::to_text(to_json(Operator{}))).value(), Operator{});
}

TEST(OperatorPolicy, RefusesWhatItCannotMean) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"max_egress": "some"})", "network.max_egress"},
      {R"({"deny": [{"ports": [25]}]})", "network.deny[0].host"},
      {R"({"allow": []})", "network.allow"},
      {R"({"internal": [{"host": "*.corp", "cidr": "10.0.0.1", "ports": [1]}]})",
       "network.internal[0].host"},
      {R"({"internal": [{"host": "10.0.0.1", "cidr": "10.0.0.1", "ports": [1]}]})",
       "network.internal[0].host"},
      {R"({"internal": [{"host": "a", "ports": [1]}]})", "network.internal[0].cidr"},
      {R"({"internal": [{"host": "a", "cidr": "10.0.0.1"}]})", "network.internal[0].ports"},
      {R"({"internal": [{"host": "a", "cidr": "0.0.0.0/0", "ports": [1]}]})",
       "network.internal[0].cidr"},
      {R"({"internal": [{"host": "a", "cidr": "224.0.0.1", "ports": [1]}]})",
       "network.internal[0].cidr"},
      {R"({"own_addresses": ["host"]})", "network.own_addresses"},
      {R"({"max_limits": {"connections": 5000}})", "network.max_limits.connections"},
      {R"({"forwards_datagrams": 1})", "network.forwards_datagrams"},
  };
  for (const auto& [text, field] : cases) {
    const auto op = parse_op(text);
    ASSERT_FALSE(op) << text;
    EXPECT_EQ(op.error().code, Code::kInvalidArgument) << text;
    EXPECT_EQ(op.error().details.at("field"), field) << text;
  }
}

TEST(CheckWithin, NamesTheOperatorsRule) {
  const auto op =
      parse_op(
          R"({"max_egress": "allowlist", "max_limits": {"bandwidth": 5000, "connections": 100, "bytes": 10}})")
          .value();
  const std::pair<std::string_view, std::string_view> refused[] = {
      {R"({"egress": "open"})", "operator.max_egress"},
      {R"({"limits": {"bandwidth": 5001}})", "operator.max_limits.bandwidth"},
      {R"({"limits": {"connections": 101}})", "operator.max_limits.connections"},
      {R"({"limits": {"bytes": 11}})", "operator.max_limits.bytes"},
  };
  for (const auto& [text, name] : refused) {
    const auto checked = check_within(parse(text).value(), op);
    ASSERT_FALSE(checked) << text;
    EXPECT_EQ(checked.error().code, Code::kForbidden) << text;
    EXPECT_EQ(checked.error().details.at("rule"), name) << text;
    EXPECT_TRUE(check_within(parse(text).value(), Operator{})) << text;
  }
  for (const std::string_view text :
       {"{}", R"({"egress": "allowlist"})",
        R"({"limits": {"bandwidth": 5000, "connections": 100, "bytes": 10}})"})
    EXPECT_TRUE(check_within(parse(text).value(), op)) << text;
}

TEST(CheckWithin, RefusesDatagramsThatNothingCarries) {
  Operator op;
  for (const std::string_view text :
       {R"({"allow": [{"cidr": "8.8.8.8", "ports": [123], "protocols": ["udp"]}]})",
        R"({"allow": [{"cidr": "8.8.8.8", "protocols": ["icmp"]}]})"}) {
    op.forwards_datagrams = false;
    const auto checked = check_within(parse(text).value(), op);
    ASSERT_FALSE(checked) << text;
    EXPECT_EQ(checked.error().code, Code::kUnsupported) << text;
    op.forwards_datagrams = true;
    EXPECT_TRUE(check_within(parse(text).value(), op)) << text;
  }
}

}  // namespace
}  // namespace glovebox::policy
