// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"
#include "policy/egress.h"

namespace glovebox::policy {
namespace {

NetworkPolicy policy_of(std::string_view text) {
  return parse_network_policy(json::parse(text).value()).value();
}
Operator operator_of(std::string_view text) {
  return parse_operator(json::parse(text).value()).value();
}
Evaluator evaluator(std::string_view policy, std::string_view op = "{}") {
  return Evaluator(policy_of(policy), operator_of(op));
}

Attempt to(Protocol protocol, std::string host, std::string_view address, uint16_t port) {
  Attempt out;
  out.protocol = protocol;
  out.host = std::move(host);
  out.address = parse_address(address);
  out.port = port;
  return out;
}

// "allowed by allow[0]" or "denied by floor:private".
std::string outcome(const Verdict& verdict) {
  EXPECT_EQ(verdict.allowed, verdict.reason.empty()) << verdict.rule;
  EXPECT_EQ(verdict.allowed, verdict.how_to_allow.empty()) << verdict.rule;
  return (verdict.allowed ? "allowed by " : "denied by ") + verdict.rule;
}

constexpr std::string_view kPublic = "20.0.0.1";

TEST(Evaluator, NoneAllowsNothing) {
  const auto none = evaluator("{}");
  for (const auto protocol :
       {Protocol::kTls, Protocol::kHttp, Protocol::kTcp, Protocol::kUdp, Protocol::kIcmp}) {
    EXPECT_EQ(outcome(none.decide(to(protocol, "a.example", kPublic, 443))),
              "denied by default:none");
    EXPECT_EQ(outcome(none.decide(to(protocol, "", "127.0.0.1", 80))), "denied by default:none");
  }
  EXPECT_EQ(outcome(none.decide_name("a.example")), "denied by default:none");
}

TEST(Evaluator, DefaultsAreHttpOn80AndTlsElsewhere) {
  const auto e =
      evaluator(R"({"allow": [{"host": "a.example"}, {"host": "b.example", "ports": [8443]},
                                         {"host": "c.example", "ports": ["79-81"]}]})");
  struct Case {
    Protocol protocol;
    std::string host;
    uint16_t port;
    bool allowed;
  };
  using enum Protocol;
  const Case cases[] = {
      {kTls, "a.example", 443, true},    {kHttp, "a.example", 80, true},
      {kHttp, "a.example", 443, false},  {kTls, "a.example", 80, false},
      {kTcp, "a.example", 443, false},   {kTcp, "a.example", 80, false},
      {kTls, "a.example", 8443, false},  {kTls, "a.example", 0, false},
      {kUdp, "a.example", 443, false},   {kTls, "b.example", 8443, true},
      {kHttp, "b.example", 8443, false}, {kTls, "b.example", 443, false},
      {kTcp, "b.example", 8443, false},  {kTls, "c.example", 79, true},
      {kHttp, "c.example", 80, true},    {kTls, "c.example", 80, false},
      {kTls, "c.example", 81, true},     {kTls, "c.example", 82, false},
      {kIcmp, "a.example", 0, false},
  };
  for (const auto& c : cases)
    EXPECT_EQ(e.decide(to(c.protocol, c.host, kPublic, c.port)).allowed, c.allowed)
        << protocol_name(c.protocol) << " " << c.host << " " << c.port;
}

TEST(Evaluator, TcpIncludesWhatAStreamMayCarry) {
  const auto e =
      evaluator(R"({"allow": [{"cidr": "20.0.0.0/8", "ports": [5432], "protocols": ["tcp"]}]})");
  EXPECT_TRUE(e.decide(to(Protocol::kTcp, "", kPublic, 5432)).allowed);
  EXPECT_TRUE(e.decide(to(Protocol::kTls, "db.example", kPublic, 5432)).allowed);
  EXPECT_TRUE(e.decide(to(Protocol::kHttp, "", kPublic, 5432)).allowed);
  EXPECT_FALSE(e.decide(to(Protocol::kUdp, "", kPublic, 5432)).allowed);
  EXPECT_FALSE(e.decide(to(Protocol::kTcp, "", "21.0.0.1", 5432)).allowed);
}

TEST(Evaluator, DenyRulesForTlsOrHttpAlsoStopRawStreams) {
  const auto e =
      evaluator(R"({"allow": [{"host": "a.example", "ports": [443], "protocols": ["tcp", "http"]}],
                               "deny": [{"host": "a.example", "protocols": ["tls"]}]})");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "a.example", kPublic, 443))), "denied by deny[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTcp, "a.example", kPublic, 443))), "denied by deny[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kHttp, "a.example", kPublic, 443))),
            "allowed by allow[0]");
}

TEST(Evaluator, DatagramsNeedARuleThatNamesThem) {
  const auto e =
      evaluator(R"({"allow": [{"cidr": "20.0.0.0/8", "ports": [123], "protocols": ["udp"]},
                                         {"cidr": "20.0.0.0/8", "protocols": ["icmp"]}]})");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kUdp, "", kPublic, 123))), "allowed by allow[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kUdp, "", kPublic, 124))), "denied by default:allowlist");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTcp, "", kPublic, 123))), "denied by default:allowlist");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kIcmp, "", kPublic, 0))), "allowed by allow[1]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kIcmp, "", "10.0.0.1", 0))),
            "denied by default:allowlist");
  const auto open = evaluator(R"({"egress": "open"})");
  EXPECT_EQ(outcome(open.decide(to(Protocol::kUdp, "", kPublic, 443))), "denied by default:open");
  EXPECT_EQ(outcome(open.decide(to(Protocol::kIcmp, "", kPublic, 0))), "denied by default:open");
}

TEST(Evaluator, AsksOperatorThenDenyThenAllowThenDefault) {
  const auto e = evaluator(R"({"allow": [{"host": "*.example.com"}, {"host": "a.example.com"}],
                               "deny": [{"host": "bad.example.com"}, {"host": "worse.example.com"}, {"cidr": "20.6.6.0/24"}]})",
                           R"({"deny": [{"host": "worse.example.com"}, {"cidr": "20.7.0.0/16"}]})");
  const auto ask = [&](std::string host, std::string_view address) {
    return outcome(e.decide(to(Protocol::kTls, std::move(host), address, 443)));
  };
  EXPECT_EQ(ask("worse.example.com", kPublic), "denied by operator.deny[0]");
  EXPECT_EQ(ask("a.example.com", "20.7.1.1"), "denied by operator.deny[1]");
  EXPECT_EQ(ask("bad.example.com", kPublic), "denied by deny[0]");
  EXPECT_EQ(ask("a.example.com", "20.6.6.6"), "denied by deny[2]");
  EXPECT_EQ(ask("a.example.com", kPublic), "allowed by allow[0]");
  EXPECT_EQ(ask("example.com", kPublic), "denied by default:allowlist");
  EXPECT_EQ(ask("bad.example.com", "10.0.0.1"), "denied by deny[0]");
  EXPECT_EQ(ask("a.example.com", "10.0.0.1"), "denied by floor:private");
}

TEST(Evaluator, TheFloorLiesUnderEveryRuleAndUnderOpen) {
  const auto listed =
      evaluator(R"({"allow": [{"host": "a.example"}, {"cidr": "0.0.0.0/0"}, {"cidr": "::/0"}]})",
                R"({"own_addresses": ["20.9.9.9", "2a00::9"]})");
  const auto open =
      evaluator(R"({"egress": "open"})", R"({"own_addresses": ["20.9.9.9", "2a00::9"]})");
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"127.0.0.1", "floor:loopback"},
      {"::1", "floor:loopback"},
      {"0.0.0.0", "floor:unspecified"},
      {"::", "floor:unspecified"},
      {"10.200.4.0", "floor:private"},
      {"192.168.1.1", "floor:private"},
      {"172.16.0.1", "floor:private"},
      {"fd00::1", "floor:private"},
      {"100.64.0.1", "floor:cgnat"},
      {"169.254.1.1", "floor:link_local"},
      {"fe80::1", "floor:link_local"},
      {"169.254.169.254", "floor:metadata"},
      {"168.63.129.16", "floor:metadata"},
      {"100.100.100.200", "floor:metadata"},
      {"fd00:ec2::254", "floor:metadata"},
      {"224.0.0.1", "floor:multicast"},
      {"ff02::1", "floor:multicast"},
      {"255.255.255.255", "floor:broadcast"},
      {"240.0.0.1", "floor:reserved"},
      {"203.0.113.1", "floor:documentation"},
      {"::ffff:10.0.0.1", "floor:private"},
      {"::ffff:20.0.0.1", "floor:translated"},
      {"64:ff9b::7f00:1", "floor:loopback"},
      {"2002:7f00:1::", "floor:loopback"},
      {"20.9.9.9", "floor:host"},
      {"2a00::9", "floor:host"},
  };
  for (const auto& [address, rule] : cases) {
    for (const std::string host : {"a.example", "metadata.google.internal", ""}) {
      for (const auto* e : {&listed, &open}) {
        const auto verdict = e->decide(to(Protocol::kTls, host, address, 443));
        EXPECT_EQ(outcome(verdict), "denied by " + std::string(rule)) << host << " " << address;
        EXPECT_NE(verdict.how_to_allow.find("No rule can"), std::string::npos);
      }
    }
    EXPECT_EQ(open.floor("a.example", *parse_address(address)), rule) << address;
  }
  EXPECT_EQ(open.floor("a.example", *parse_address(kPublic)), "");
  EXPECT_TRUE(listed.decide(to(Protocol::kTls, "a.example", kPublic, 443)).allowed);
  EXPECT_TRUE(open.decide(to(Protocol::kTls, "a.example", kPublic, 443)).allowed);
}

// What a default denies stays "default", but nobody is told to add a rule that would be refused.
TEST(Evaluator, DoesNotSuggestRulesWithinTheFloor) {
  const auto verdict = evaluator("{}").decide(to(Protocol::kHttp, "", "169.254.169.254", 80));
  EXPECT_EQ(verdict.rule, "default:none");
  EXPECT_EQ(verdict.how_to_allow.find("Add"), std::string::npos);
}

TEST(Evaluator, DnsGoesNowhereButToOurResolver) {
  const auto listed = evaluator(
      R"({"allow": [{"cidr": "0.0.0.0/0", "ports": ["1-65535"], "protocols": ["tcp", "udp"]},
                                              {"host": "dns.example", "ports": ["1-65535"], "protocols": ["tcp"]}]})");
  const auto open = evaluator(R"({"egress": "open"})");
  for (const uint16_t port : {53, 853}) {
    for (const auto* e : {&listed, &open}) {
      EXPECT_EQ(outcome(e->decide(to(Protocol::kTcp, "", kPublic, port))), "denied by floor:dns");
      EXPECT_EQ(outcome(e->decide(to(Protocol::kTls, "dns.example", kPublic, port))),
                "denied by floor:dns");
      EXPECT_EQ(outcome(e->decide(to(Protocol::kTls, "dns.example", "", port))),
                "denied by floor:dns");
    }
    EXPECT_EQ(outcome(listed.decide(to(Protocol::kUdp, "", kPublic, port))), "denied by floor:dns");
  }
  EXPECT_TRUE(listed.decide(to(Protocol::kTcp, "", kPublic, 54)).allowed);
}

TEST(Evaluator, InternalServicesNeedTheOperatorAndARuleWithTheirName) {
  const std::string_view op =
      R"({"internal": [{"host": "db.corp.example", "cidr": "10.1.0.0/16", "ports": [5432, 53]}],
                                  "own_addresses": ["20.9.9.9"]})";
  const auto named = evaluator(
      R"({"allow": [{"host": "db.corp.example", "ports": [5432, 53, 6000], "protocols": ["tcp"]},
                                             {"cidr": "0.0.0.0/0", "ports": [5432], "protocols": ["tcp"]}]})",
      op);
  const auto wildcard = evaluator(
      R"({"allow": [{"host": "*.corp.example", "ports": [5432], "protocols": ["tcp"]}]})", op);
  const auto by_block =
      evaluator(R"({"allow": [{"cidr": "0.0.0.0/0", "ports": [5432], "protocols": ["tcp"]}]})", op);
  const auto open = evaluator(R"({"egress": "open"})", op);
  const auto denied =
      evaluator(R"({"allow": [{"host": "*.corp.example", "ports": [5432], "protocols": ["tcp"]}],
                                    "deny": [{"host": "db.corp.example"}]})",
                op);
  const auto ask = [](const Evaluator& e, std::string host, std::string_view address,
                      uint16_t port) {
    return outcome(e.decide(to(Protocol::kTcp, std::move(host), address, port)));
  };
  EXPECT_EQ(ask(named, "db.corp.example", "10.1.2.3", 5432), "allowed by allow[0]");
  EXPECT_EQ(ask(named, "DB.corp.example.", "10.1.2.3", 5432), "allowed by allow[0]");
  EXPECT_EQ(ask(named, "db.corp.example", "10.1.2.3", 53), "allowed by allow[0]");
  EXPECT_EQ(ask(named, "db.corp.example", "10.1.2.3", 6000), "denied by floor:private");
  EXPECT_EQ(ask(named, "db.corp.example", "10.2.0.0", 5432), "denied by floor:private");
  EXPECT_EQ(ask(named, "db.corp.example", "20.9.9.9", 5432), "denied by floor:host");
  EXPECT_EQ(ask(named, "other.corp.example", "10.1.2.3", 5432), "denied by floor:private");
  EXPECT_EQ(ask(named, "", "10.1.2.3", 5432), "denied by floor:private");
  EXPECT_EQ(ask(wildcard, "db.corp.example", "10.1.2.3", 5432), "allowed by allow[0]");
  EXPECT_EQ(ask(wildcard, "x.corp.example", "10.1.2.3", 5432), "denied by floor:private");
  EXPECT_FALSE(by_block.decide(to(Protocol::kTcp, "db.corp.example", "10.1.2.3", 5432)).allowed);
  EXPECT_FALSE(open.decide(to(Protocol::kTcp, "db.corp.example", "10.1.2.3", 5432)).allowed);
  EXPECT_EQ(ask(denied, "db.corp.example", "10.1.2.3", 5432), "denied by deny[0]");

  EXPECT_EQ(named.floor("db.corp.example", *parse_address("10.1.2.3")), "");
  EXPECT_EQ(named.floor("db.corp.example", *parse_address("10.1.2.3"), 5432), "");
  EXPECT_EQ(named.floor("db.corp.example", *parse_address("10.1.2.3"), 22), "floor:private");
  EXPECT_EQ(named.floor("other.corp.example", *parse_address("10.1.2.3")), "floor:private");
}

TEST(Evaluator, OpenAllowsStreamsButForDenyRules) {
  const auto e = evaluator(
      R"({"egress": "open", "deny": [{"host": "*.evil.test"}, {"host": "*", "ports": [25]}, {"cidr": "20.6.0.0/16"},
                                                          {"host": "part.example", "ports": [80]}]})");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "a.example", kPublic, 443))),
            "allowed by default:open");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTcp, "", kPublic, 22))), "allowed by default:open");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "a.evil.test", kPublic, 443))),
            "denied by deny[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "evil.test", kPublic, 443))),
            "allowed by default:open");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTcp, "", kPublic, 25))), "denied by deny[1]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTcp, "mail.example", kPublic, 25))),
            "denied by deny[1]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTcp, "", "20.6.1.1", 22))), "denied by deny[2]");
  EXPECT_EQ(outcome(e.decide_name("a.evil.test")), "denied by deny[0]");
  EXPECT_EQ(outcome(e.decide_name("part.example")), "allowed by default:open");
  EXPECT_EQ(outcome(e.decide_name("any.example")), "allowed by default:open");
}

TEST(Evaluator, ResolvesOnlyNamesThatSomeRuleCouldUse) {
  const auto e = evaluator(
      R"({"presets": ["openai"], "allow": [{"host": "a.example"}, {"host": "*.wild.example"}, {"cidr": "20.0.0.0/8"}],
                               "deny": [{"host": "no.wild.example"}, {"host": "shut.wild.example", "ports": [80, 443]},
                                        {"host": "half.wild.example", "ports": [80]}, {"host": "api.openai.com", "protocols": ["tls"]}]})",
      R"({"deny": [{"host": "op.wild.example"}]})");
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"a.example", "allowed by allow[0]"},
      {"A.EXAMPLE.", "allowed by allow[0]"},
      {"x.wild.example", "allowed by allow[1]"},
      {"wild.example", "denied by default:allowlist"},
      {"no.wild.example", "denied by deny[0]"},
      {"shut.wild.example", "denied by deny[1]"},
      {"half.wild.example", "allowed by allow[1]"},
      {"op.wild.example", "denied by operator.deny[0]"},
      {"api.openai.com", "denied by deny[3]"},
      {"b.example", "denied by default:allowlist"},
      {"", "denied by floor:name"},
      {"1.2.3.4", "denied by floor:name"},
      {"a..example", "denied by floor:name"},
      {"0x7f.1", "denied by floor:name"},
  };
  for (const auto& [name, expected] : cases)
    EXPECT_EQ(outcome(e.decide_name(name)), expected) << name;
}

TEST(Evaluator, RefusesNamesThatAreNone) {
  const auto open = evaluator(R"({"egress": "open"})");
  for (const std::string host : {"a b", "127.1", "a..b", "*.example.com", "x\n.example"})
    EXPECT_EQ(outcome(open.decide(to(Protocol::kTls, host, kPublic, 443))), "denied by floor:name")
        << host;
}

TEST(Evaluator, ChecksMethodsAndPathsByRequest) {
  const auto e = evaluator(
      R"({"allow": [{"host": "a.example", "protocols": ["http"], "methods": ["GET", "HEAD"], "paths": ["/v1/*", "/health"]},
                                         {"host": "b.example"}],
                               "deny": [{"host": "b.example", "protocols": ["http"], "methods": ["DELETE"]},
                                        {"host": "b.example", "protocols": ["http"], "paths": ["/admin/*"]}]})");
  struct Case {
    std::string host, method, path, expected;
  };
  const Case cases[] = {
      {"a.example", "GET", "/v1/items?x=1", "allowed by allow[0]"},
      {"a.example", "HEAD", "/health", "allowed by allow[0]"},
      {"a.example", "POST", "/v1/items", "denied by default:allowlist"},
      {"a.example", "get", "/v1/items", "denied by default:allowlist"},
      {"a.example", "GET", "/v2", "denied by default:allowlist"},
      {"a.example", "GET", "/v1/../admin", "denied by default:allowlist"},
      {"a.example", "GET", "/v1/%2e%2e/admin", "denied by default:allowlist"},
      {"a.example", "", "", "denied by default:allowlist"},
      {"b.example", "GET", "/x", "allowed by allow[1]"},
      {"b.example", "DELETE", "/x", "denied by deny[0]"},
      {"b.example", "GET", "/admin/x", "denied by deny[1]"},
      {"b.example", "GET", "/%61dmin/x", "denied by deny[1]"},
      {"b.example", "GET", "/x/../admin/x", "denied by deny[1]"},
      {"b.example", "GET", "//admin/x", "denied by deny[1]"},
  };
  for (const auto& c : cases) {
    auto attempt = to(Protocol::kHttp, c.host, kPublic, 80);
    attempt.method = c.method;
    attempt.path = c.path;
    EXPECT_EQ(outcome(e.decide(attempt)), c.expected) << c.method << " " << c.path;
  }
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "b.example", kPublic, 443))),
            "allowed by allow[1]");
}

TEST(Evaluator, BlocksMatchOnlyOnceTheAddressIsKnown) {
  const auto e =
      evaluator(R"({"allow": [{"cidr": "20.0.0.0/8"}], "deny": [{"cidr": "20.6.0.0/16"}]})");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "a.example", "", 443))),
            "denied by default:allowlist");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "a.example", kPublic, 443))),
            "allowed by allow[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "", "20.6.0.1", 443))), "denied by deny[0]");
}

TEST(Evaluator, TheOperatorCapsLevelAndLimits) {
  const std::string_view op =
      R"({"max_egress": "allowlist", "max_limits": {"bandwidth": 5000, "connections": 100}})";
  const auto lowered = evaluator(R"({"egress": "open", "limits": {"bytes": 7}})", op);
  EXPECT_EQ(lowered.egress(), Egress::kAllowlist);
  EXPECT_EQ(outcome(lowered.decide(to(Protocol::kTls, "a.example", kPublic, 443))),
            "denied by operator.max_egress");
  EXPECT_EQ(lowered.limits(), (EgressLimits{5000, 100, 7}));
  const auto small = evaluator(R"({"limits": {"bandwidth": 1000, "connections": 5}})", op);
  EXPECT_EQ(small.limits(), (EgressLimits{1000, 5, 0}));
  EXPECT_EQ(evaluator("{}").limits(), (EgressLimits{0, 256, 0}));
  const auto off = evaluator(R"({"allow": [{"host": "a.example"}]})", R"({"max_egress": "none"})");
  EXPECT_EQ(outcome(off.decide_name("a.example")), "denied by operator.max_egress");
  EXPECT_NE(off.decide_name("a.example").how_to_allow.find("operator"), std::string::npos);
}

// Whoever follows the advice gets what was denied.
TEST(Evaluator, AdviceWorks) {
  const auto none = evaluator(R"({"allow": [{"host": "other.example"}]})");
  const Attempt attempts[] = {
      to(Protocol::kTls, "a.example", kPublic, 443),
      to(Protocol::kTls, "a.example", kPublic, 8443),
      to(Protocol::kHttp, "a.example", kPublic, 80),
      to(Protocol::kHttp, "a.example", kPublic, 8080),
      to(Protocol::kTls, "a.example", kPublic, 80),
      to(Protocol::kTcp, "a.example", kPublic, 22),
      to(Protocol::kTcp, "", kPublic, 22),
      to(Protocol::kTls, "", "2a00::5", 443),
      to(Protocol::kUdp, "", kPublic, 123),
      to(Protocol::kIcmp, "", kPublic, 0),
      to(Protocol::kUdp, "a.example", kPublic, 123),
  };
  for (const auto& attempt : attempts) {
    const auto verdict = none.decide(attempt);
    ASSERT_FALSE(verdict.allowed);
    const size_t start = verdict.how_to_allow.find('{'), end = verdict.how_to_allow.rfind('}');
    ASSERT_NE(start, std::string::npos) << verdict.how_to_allow;
    const auto rule = verdict.how_to_allow.substr(start, end - start + 1);
    const auto e = evaluator(R"({"allow": [)" + rule + "]}");
    EXPECT_EQ(outcome(e.decide(attempt)), "allowed by allow[0]") << rule;
  }
}

TEST(Evaluator, PresetsUnfoldAndCombine) {
  const auto e = evaluator(
      R"({"presets": ["github", "python-packages", "node-packages"], "allow": [{"host": "a.example"}],
                               "deny": [{"host": "api.github.com"}]})");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "a.example", kPublic, 443))),
            "allowed by allow[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "github.com", kPublic, 443))),
            "allowed by preset:github[0]");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kHttp, "github.com", kPublic, 80))),
            "denied by default:allowlist");
  EXPECT_EQ(outcome(e.decide(to(Protocol::kTls, "api.github.com", kPublic, 443))),
            "denied by deny[0]");
  ASSERT_TRUE(e.packages());
  EXPECT_EQ(e.packages()->registries, (std::vector<Registry>{Registry::kPypi, Registry::kNpm}));
  EXPECT_FALSE(evaluator(R"({"presets": ["github"]})").packages());

  const auto own = evaluator(R"({"presets": ["python-packages", "node-packages"],
                                 "packages": {"registries": ["npm", "debian"], "minimum_age_hours": 24, "deny": ["evil"]}})");
  EXPECT_EQ(own.packages()->registries,
            (std::vector<Registry>{Registry::kNpm, Registry::kDebian, Registry::kPypi}));
  EXPECT_EQ(own.packages()->minimum_age_hours, 24u);
  EXPECT_EQ(own.packages()->deny.size(), 1u);
}

TEST(Evaluator, ReadonlyPresetOpensNoHostThatTakesWrites) {
  const auto e = evaluator(R"({"presets": ["github-readonly"]})");
  for (const std::string host :
       {"github.com", "api.github.com", "uploads.github.com", "gist.github.com", "lfs.github.com"})
    EXPECT_FALSE(e.decide_name(host).allowed) << host;
  EXPECT_TRUE(e.decide_name("codeload.github.com").allowed);
}

TEST(Evaluator, PresetPolicySaysWhatThePresetDoes) {
  for (const auto& preset : presets()) {
    const auto by_name = evaluator(R"({"presets": [")" + std::string(preset.name) + "\"]}");
    const Evaluator written(preset_policy(preset.name), Operator{});
    ASSERT_EQ(by_name.allow().size(), written.allow().size()) << preset.name;
    for (size_t i = 0; i < by_name.allow().size(); ++i) {
      auto rule = by_name.allow()[i];
      EXPECT_EQ(rule.name, "preset:" + std::string(preset.name) + "[" + std::to_string(i) + "]");
      rule.name = written.allow()[i].name;
      EXPECT_EQ(rule, written.allow()[i]) << preset.name;
    }
    EXPECT_EQ(by_name.packages(), written.packages()) << preset.name;
    EXPECT_TRUE(!by_name.allow().empty() || by_name.packages()) << preset.name;
  }
}

TEST(Evaluator, ShowsEveryRuleInForce) {
  const auto e = evaluator(
      R"({"presets": ["openai"], "allow": [{"host": "db.corp.example", "ports": ["79-81"]}, {"cidr": "20.0.0.0/8", "protocols": ["icmp"]}],
                               "deny": [{"host": "x.example"}]})",
      R"({"deny": [{"host": "*", "ports": [25]}], "internal": [{"host": "db.corp.example", "cidr": "10.1.0.0/16", "ports": [80]},
                                                                                    {"host": "secret.corp.example", "cidr": "10.1.0.0/16", "ports": [80]}]})");
  EXPECT_EQ(e.effective(), json::parse(R"({
    "egress": "allowlist",
    "allow": [{"host": "db.corp.example", "ports": ["79-81"], "name": "allow[0]", "matches": ["tls:79", "http:80", "tls:81"]},
              {"cidr": "20.0.0.0/8", "protocols": ["icmp"], "name": "allow[1]", "matches": ["icmp:*"]},
              {"host": "api.openai.com", "ports": [443], "protocols": ["tls"], "name": "preset:openai[0]", "matches": ["tls:443"]}],
    "deny": [{"host": "*", "ports": [25], "name": "operator.deny[0]", "matches": ["any:25"]},
             {"host": "x.example", "name": "deny[0]", "matches": ["any:*"]}],
    "limits": {"bandwidth": 0, "connections": 256, "bytes": 0},
    "internal": [{"host": "db.corp.example", "ports": [80]}],
    "packages": null})")
                               .value());
}

}  // namespace
}  // namespace glovebox::policy
