// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sodium.h>

#include <boost/json/object.hpp>
#include <tuple>

#include "api/e2b/code_view.h"
#include "api/e2b/access.h"
#include "api/e2b/errors.h"
#include "api/e2b/list.h"
#include "api/e2b/multipart.h"
#include "api/e2b/names.h"
#include "api/e2b/network.h"
#include "api/e2b/output.h"
#include "api/e2b/rpc.h"
#include "api/e2b/target.h"
#include "api/e2b/template_plan.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

http::Request request(std::string target, http::Headers headers = {}, std::string method = "GET") {
  http::Request r;
  r.method = std::move(method);
  r.target = target;
  const size_t mark = target.find('?');
  r.path = target.substr(0, mark);
  if (mark != target.npos) r.query = http::parse_query(std::string_view(target).substr(mark + 1));
  r.headers = std::move(headers);
  return r;
}

TEST(E2bNames, IdsGoBothWays) {
  EXPECT_EQ(wire_id("sb-k3v9abcd1234"), "sbk3v9abcd1234");
  for (const char* wire : {"sbk3v9abcd1234", "sbk3v9abcd1234-6532622b", "sb-k3v9abcd1234"}) EXPECT_EQ(native_id(wire), "sb-k3v9abcd1234") << wire;
  for (const char* wire : {"", "-", "../etc", "ik3v9"}) EXPECT_FALSE(native_id(wire).starts_with("sb-")) << wire;
}

TEST(E2bNames, TemplateReferences) {
  const std::pair<const char*, const char*> table[] = {{"base", "base"},         {"team/base", "base"},     {"base:latest", "base"},
                                                       {"t/base:default", "base"}, {"base:v1", "base:v1"}, {"code-interpreter-v1", "interpreter"}};
  for (const auto& [reference, name] : table) EXPECT_EQ(template_name(reference), name);
}

TEST(E2bTemplates, ReadsPlans) {
  const auto plan = [](const char* text) { return read_plan(*json::parse(text)); };
  const auto good = plan(R"({"fromImage":"debian:13-slim","startCmd":"s","readyCmd":"r","force":true,"steps":[
      {"type":"RUN","args":["a && b","root"]},{"type":"ENV","args":["A","1","B","$A"]},{"type":"USER","args":["user"]}]})");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->from, "base");
  ASSERT_EQ(good->steps.size(), 3u);
  EXPECT_EQ(good->steps[0].text(), "RUN a && b root");
  EXPECT_EQ(plan(R"({"fromTemplate":"team/mine:latest"})")->from, "mine");
  EXPECT_EQ(plan(R"({"fromImage":"e2bdev/code-interpreter"})")->from, "interpreter");
  for (const auto& [text, code, named] :
       {std::tuple(R"({"fromImage":"debian:12"})", Code::kUnsupported, "debian:12"),
        std::tuple(R"({"fromImage":"debian","fromImageRegistry":{"type":"aws"}})", Code::kUnsupported, "fromImageRegistry"),
        std::tuple(R"({"steps":[{"type":"HEALTHCHECK","args":["x"]}]})", Code::kUnsupported, "HEALTHCHECK"),
        std::tuple(R"({"steps":[{"type":"COPY","args":["a","b"],"filesHash":"../../x"}]})", Code::kInvalidArgument, "filesHash"),
        std::tuple(R"({"steps":[{"type":"COPY","args":["a","b","--help"]}]})", Code::kInvalidArgument, "owner"),
        std::tuple(R"({"steps":[{"type":"ENV","args":["A","1","B"]}]})", Code::kInvalidArgument, "pairs"),
        std::tuple(R"({"steps":[{"type":"ENV","args":["A B","1"]}]})", Code::kInvalidArgument, "name"),
        std::tuple(R"({"steps":[{"type":"RUN","args":[]}]})", Code::kInvalidArgument, "args"),
        std::tuple(R"({"steps":[{"type":"USER","args":["-x"]}]})", Code::kInvalidArgument, "USER")}) {
    const auto bad = plan(text);
    ASSERT_FALSE(bad) << text;
    EXPECT_EQ(bad.error().code, code) << text;
    EXPECT_NE(bad.error().message.find(named), std::string::npos) << bad.error().message;
  }
}

TEST(E2bTemplates, VariablesAndNames) {
  const sandbox::StringMap env{{"A", "1"}, {"PATH", "/bin"}};
  for (const auto& [text, wanted] :
       {std::pair("/x:$PATH", "/x:/bin"), std::pair("${A}b$A", "1b1"), std::pair("$NONE.", "."), std::pair("\\$A", "$A"), std::pair("$", "$"),
        std::pair("${A", "${A"), std::pair("a$", "a$"), std::pair("$1", "$1"), std::pair("", "")})
    EXPECT_EQ(expand_variables(text, env), wanted) << text;
  EXPECT_EQ(read_build_name("team/mine:v1", {"latest", "v1"})->tags, (std::vector<std::string>{"v1", "default"}));
  EXPECT_EQ(read_build_name("mine", {})->tags, std::vector<std::string>{"default"});
  for (const char* bad : {"", "Mine", "a b", "mine:", "mine:a b"}) EXPECT_FALSE(read_build_name(bad, {})) << bad;
}

TEST(E2bNames, PathsBeginAtHome) {
  EXPECT_EQ(absolute_path("/a/b", "user", "/w"), "/a/b");
  EXPECT_EQ(absolute_path("", "user", "/w"), "/w");
  EXPECT_EQ(absolute_path("a/b", "user", "/w"), "/home/user/a/b");
  EXPECT_EQ(absolute_path("~", "root", "/w"), "/root");
  EXPECT_EQ(absolute_path("~/x", "user", "/w"), "/home/user/x");
  EXPECT_EQ(absolute_path("~other/x", "user", "/w"), std::nullopt);
}

TEST(E2bTarget, HostNamesBeforeHeaders) {
  const auto by_host = named_target(request("/", {{"Host", "8080-sbk3v9abcd1234.sbx.example:443"}, {"E2b-Sandbox-Id", "sbother1234567"}, {"E2b-Sandbox-Port", "1"}}));
  ASSERT_TRUE(by_host);
  EXPECT_EQ(by_host->id, "sb-k3v9abcd1234");
  EXPECT_EQ(by_host->port, 8080);
  const auto by_header = named_target(request("/", {{"Host", "localhost:7070"}, {"novita-sandbox-id", "sbk3v9abcd1234"}, {"novita-sandbox-port", "49983"}}));
  ASSERT_TRUE(by_header);
  EXPECT_EQ(by_header->port, kDaemonPort);
}

TEST(E2bTarget, WhatIsNotOurs) {
  // The native preview's form, other names, no port.
  for (const char* host : {"3000-sb-k3v9abcd1234.localhost", "sbk3v9abcd1234.localhost", "0-sbk3v9abcd1234.x", "70000-sbk3v9abcd1234.x", "localhost", "3000-sbk3v9abcd1234"}) {
    EXPECT_FALSE(target_of_host(request("/", {{"Host", host}}))) << host;
  }
  EXPECT_FALSE(has_marks(request("/v2/sandboxes", {{"Host", "localhost"}, {"X-API-Key", "k"}})));
  EXPECT_FALSE(has_marks(request("/filesx?signature=v1_x")));
  EXPECT_TRUE(has_marks(request("/files?signature=v1_x")));
  for (const http::Headers& headers : {http::Headers{{"E2b-Sandbox-Id", "sbk3v9abcd1234"}}, http::Headers{{"E2b-Sandbox-Port", "1"}},
                                       http::Headers{{"E2b-Sandbox-Id", "sbk3v9abcd1234"}, {"E2b-Sandbox-Port", "x"}}}) {
    const auto target = named_target(request("/", headers));
    ASSERT_FALSE(target);
    EXPECT_EQ(target.error().code, Code::kInvalidArgument);
  }
}

TEST(E2bAccess, TokensBelongToOneSandbox) {
  ASSERT_GE(::sodium_init(), 0);
  const preview::Tokens tokens(std::string(32, 'k')), others(std::string(32, 'x'));
  const Access access(tokens), other(others);
  const std::string token = access.daemon_token("sb-k3v9abcd1234");
  EXPECT_EQ(access.sandbox_of(token), "sb-k3v9abcd1234");
  EXPECT_EQ(other.sandbox_of(token), std::nullopt);
  EXPECT_EQ(access.sandbox_of("sbk3v9abcd1235" + token.substr(token.find('.'))), std::nullopt);
  EXPECT_EQ(access.sandbox_of(""), std::nullopt);
  EXPECT_FALSE(access.is_daemon_token("sb-k3v9abcd1234", access.traffic_token("sb-k3v9abcd1234")));
  EXPECT_FALSE(access.is_traffic_token("sb-k3v9abcd1234", token));
}

TEST(E2bAccess, SignaturesCoverPathOperationUserAndTime) {
  // sha256("/tmp/a b:read:user:secret:1800000000"), base64 without padding.
  SignedUrl url{"/tmp/a b", "read", "user", "", "1800000000"};
  url.signature = signature_of(url, "secret");
  EXPECT_EQ(url.signature, "v1_WkVCJ1/9Xc9+DnUV2Zzt9mg16BOMD+aFp1wU8EM6Ni8");
  EXPECT_TRUE(is_signed_by(url, "secret"));
  EXPECT_FALSE(is_signed_by(url, "Secret"));
  for (auto change : {+[](SignedUrl& u) { u.path = "/tmp/a"; }, +[](SignedUrl& u) { u.operation = "write"; }, +[](SignedUrl& u) { u.user = "root"; },
                      +[](SignedUrl& u) { u.expiration = "1900000000"; }, +[](SignedUrl& u) { u.expiration.reset(); }}) {
    SignedUrl changed = url;
    change(changed);
    EXPECT_FALSE(is_signed_by(changed, "secret"));
  }
  EXPECT_FALSE(has_expired(url, from_unix_millis(1799999999000)));
  EXPECT_TRUE(has_expired(url, from_unix_millis(1800000001000)));
  url.expiration = "soon";
  EXPECT_TRUE(has_expired(url, from_unix_millis(0)));
}

TEST(E2bErrors, CodesAreIntegersInRestAndNamesInRpc) {
  for (const CodeInfo* entry = begin_codes(); entry != end_codes(); ++entry) {
    const Error error{entry->code, "\xff", {}};
    for (const bool in_sandbox : {false, true}) {
      const int status = rest_status(error, in_sandbox);
      const auto body = json::parse_object(rest_body(error, status));
      ASSERT_TRUE(body);
      EXPECT_EQ(body->at("code").as_int64(), status);
      EXPECT_EQ(status == 502, (in_sandbox && is_gone(error)) || info(entry->code).http_status == 502) << entry->name;
    }
    const auto body = json::parse_object(rpc_body(error));
    ASSERT_TRUE(body);
    EXPECT_GE(rpc_status(body->at("code").as_string()), 400);
  }
  EXPECT_EQ(rpc_code(Error{Code::kFileNotFound, "", {}}), "not_found");
  EXPECT_EQ(rpc_status("not_found"), 404);
  EXPECT_EQ(rpc_code(rpc_error("already_exists", "")), "already_exists");
}

TEST(E2bList, MetadataIsEncodedTwice) {
  const auto filter = parse_metadata_filter("a%2520b%3Dc%2526d%26e=f%253D");
  ASSERT_TRUE(filter);
  EXPECT_EQ(*filter, (sandbox::StringMap{{"a b", "c&d"}, {"e", "f="}}));
  EXPECT_FALSE(parse_metadata_filter("%zz"));
}

TEST(E2bList, PlacesComeBack) {
  const Place place{1790000000123, "sb-k3v9abcd1234"};
  EXPECT_EQ(decode_place(encode_place(place)), place);
  for (const char* token : {"x", "zz", "00", "2e", "31"}) EXPECT_FALSE(decode_place(token)) << token;
}

std::string policy_text(std::optional<bool> internet, const char* network) {
  const auto value = json::parse(network);
  const auto policy = network_policy(internet, &*value);
  if (!policy) return std::string(info(policy.error().code).name);
  return *policy ? json::to_text(policy::to_json(**policy)) : "no choice";
}

std::vector<std::string> denied(const char* network) {
  const auto value = json::parse(network);
  const auto policy = network_policy({}, &*value);
  std::vector<std::string> out;
  for (const auto& rule : (*policy)->deny) out.push_back(rule.cidr->text());
  return out;
}

TEST(E2bNetwork, ChoicesBecomePolicies) {
  EXPECT_EQ(policy_text({}, "null"), "no choice");
  EXPECT_EQ(policy_text({}, R"({"allowPublicTraffic":false,"rules":{}})"), "no choice");
  EXPECT_NE(policy_text(true, "null").find(R"("egress":"open")"), std::string::npos);
  EXPECT_NE(policy_text(false, "null").find(R"("egress":"none")"), std::string::npos);
  EXPECT_NE(policy_text(false, R"({"allowOut":["example.com"]})").find(R"("egress":"allowlist")"), std::string::npos);
  EXPECT_EQ(policy_text({}, R"({"allowOut":["example.com"]})"), "invalid_argument");  // names need everything else denied
  EXPECT_EQ(policy_text({}, R"({"denyOut":["example.com"]})"), "invalid_argument");
  EXPECT_EQ(policy_text({}, R"({"denyOut":["0.0.0.0/0"],"allowOut":["10.0.0.0/8"]})"), "invalid_argument");  // no rule opens that
  EXPECT_EQ(policy_text({}, R"({"rules":{"a.com":[]}})"), "unsupported");
  EXPECT_EQ(policy_text({}, R"({"egressProxy":{"address":"1.2.3.4:1"}})"), "unsupported");
}

TEST(E2bNetwork, AllowedBlocksAreCutOutOfDeniedOnes) {
  EXPECT_EQ(denied(R"({"denyOut":["1.1.1.0/24"],"allowOut":["1.1.1.128/25"]})"), (std::vector<std::string>{"1.1.1.0/25"}));
  EXPECT_EQ(denied(R"({"denyOut":["8.8.8.0/30"],"allowOut":["8.8.8.1"]})"), (std::vector<std::string>{"8.8.8.0/32", "8.8.8.2/31"}));
  EXPECT_EQ(denied(R"({"denyOut":["8.8.8.8"],"allowOut":["8.8.0.0/16"]})"), std::vector<std::string>{});
  EXPECT_EQ(denied(R"({"denyOut":["8.8.8.8"],"allowOut":["9.9.9.9"]})").size(), 1u);
  EXPECT_EQ(denied(R"({"denyOut":["0.0.0.0/0"],"allowOut":["0.0.0.0/0"]})"), std::vector<std::string>{});
}

TEST(E2bRpc, EnvelopesAreExact) {
  EXPECT_EQ(envelope("{}"), std::string("\0\0\0\0\2{}", 7));
  EXPECT_EQ(envelope("{}", true)[0], 2);
  EXPECT_EQ(*open_envelope(envelope("{\"a\":1}")), "{\"a\":1}");
  for (const std::string& body : {std::string(), std::string("\0\0\0", 3), envelope("{}") + "x", std::string("\0\0\0\0\3{}", 7), std::string("\0\xff\xff\xff\xff", 5)}) {
    EXPECT_FALSE(open_envelope(body));
  }
}

TEST(E2bRpc, FieldsInBothSpellings) {
  const auto value = *json::parse(R"({"source_path":"a","count":"7","big":3.0,"flag":true,"data":"-_-_","map":{"A":"b"},"none":null,"list":["x"]})");
  const Message m(value);
  EXPECT_EQ(*m.text("sourcePath"), "a");
  EXPECT_EQ(**m.integer("count"), 7);
  EXPECT_EQ(**m.integer("big"), 3);
  EXPECT_EQ(**m.bytes("data"), "\xfb\xff\xbf");
  EXPECT_EQ(m.map("map")->at("A"), "b");
  EXPECT_EQ(*m.text("none"), "");
  EXPECT_EQ(m.texts("list")->size(), 1u);
  EXPECT_FALSE(m.integer("flag"));
  EXPECT_FALSE(m.text("count_").value_or("x") != "");
  EXPECT_FALSE(m.map("list"));
  EXPECT_FALSE(m.message("data"));
}

std::string payloads(std::string_view stream) {
  std::string out;
  while (stream.size() >= 5) {
    const size_t size = static_cast<unsigned char>(stream[3]) << 8 | static_cast<unsigned char>(stream[4]);
    const auto event = json::parse(stream.substr(5, size));
    const auto& data = event->at("event").at("data").as_object();
    out += std::string(data.begin()->key()) + "=" + *base64_decode(std::string_view(data.begin()->value().as_string())) + ";";
    stream.remove_prefix(5 + size);
  }
  return out;
}

TEST(E2bOutput, CharactersStayWhole) {
  OutputEvents events(false);
  EXPECT_EQ(payloads(events.take(sandbox::Stream::kStdout, "a\xc3")), "stdout=a;");
  EXPECT_EQ(payloads(events.take(sandbox::Stream::kStderr, "e")), "stderr=e;");
  EXPECT_EQ(payloads(events.take(sandbox::Stream::kStdout, "\xa9\xe2\x82")), "stdout=\xc3\xa9;");
  EXPECT_EQ(payloads(events.finish()), "stdout=\xe2\x82;");
  EXPECT_EQ(events.finish(), "");
  OutputEvents terminal(true);
  EXPECT_EQ(payloads(terminal.take(sandbox::Stream::kStdout, "\xc3")), "pty=\xc3;");
}

TEST(E2bOutput, EndsSayTheTruth) {
  const auto text = [](sandbox::Outcome outcome) { return end_event(outcome).value_or("nothing"); };
  EXPECT_EQ(text({"exited", 0, {}, ""}), R"({"event":{"end":{"exited":true,"status":"exit status 0"}}})");
  EXPECT_EQ(text({"exited", 3, {}, ""}), R"({"event":{"end":{"exited":true,"status":"exit status 3","exitCode":3,"error":"exit status 3"}}})");
  EXPECT_EQ(text({"signalled", {}, 15, ""}), R"({"event":{"end":{"exitCode":-1,"status":"signal: terminated","error":"signal: terminated"}}})");
  EXPECT_EQ(text({"killed_by_caller", {}, {}, ""}), R"({"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}})");
  for (const char* unknown : {"interrupted", "sandbox_ended", "timed_out"}) EXPECT_EQ(text({unknown, {}, {}, ""}), "nothing") << unknown;
}

std::string parts_of(std::string_view body, size_t piece) {
  auto parser = Multipart::create("multipart/form-data; boundary=\"X Y\"");
  std::string out;
  for (size_t at = 0; at < body.size(); at += piece) {
    const auto events = parser->take(body.substr(at, piece));
    if (!events) return std::string("error: ") + std::string(info(events.error().code).name);
    for (const auto& event : *events) {
      using Kind = Multipart::Event::Kind;
      out += event.kind == Kind::kBegin ? "[" + event.name + "|" + event.file_name + "]" : event.kind == Kind::kEnd ? ";" : event.data;
    }
  }
  return parser->finish() ? out : out + " unfinished";
}

TEST(E2bMultipart, AnyCutGivesTheSameParts) {
  const std::string body =
      "--X Y\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/a %22b%22.txt\"\r\nContent-Type: text/plain\r\n\r\none\r\n--X\r\n two"
      "\r\n--X Y\r\ncontent-disposition: form-data; filename=b; name=\"file\"\r\n\r\n\r\n--X Y--\r\nrest";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    EXPECT_EQ(parts_of(body, piece), "[file|/tmp/a \"b\".txt]one\r\n--X\r\n two;[file|b];") << piece;
  }
  EXPECT_EQ(parts_of(body.substr(0, body.find(" two") + 4), 7), "[file|/tmp/a \"b\".txt]one\r\n--X unfinished");
}

TEST(E2bMultipart, BrokenBodiesAreRefused) {
  EXPECT_FALSE(Multipart::create("multipart/form-data"));
  EXPECT_FALSE(Multipart::create("multipart/form-data; boundary=" + std::string(300, 'x')));
  EXPECT_EQ(parts_of(std::string(20'000, 'x'), 1000), "error: invalid_argument");
  EXPECT_EQ(parts_of("--X Yno line", 5), "error: invalid_argument");
  EXPECT_EQ(parts_of("--X Y\r\nA: " + std::string(20'000, 'x'), 1000), "error: invalid_argument");
}

TEST(E2bCode, LinesAreAsciiAndSayWhatClientsKnow) {
  const WallTime time = from_unix_millis(1'769'860'800'123);
  const auto line = [&](std::string_view text) { return event_line(*code::decode_event(text), time); };
  EXPECT_EQ(line(R"({"event":"start","count":2})"), "{\"type\":\"number_of_executions\",\"execution_count\":2}\n");
  EXPECT_EQ(line("{\"event\":\"stdout\",\"text\":\"\u00e9\U0001F40D\\n\"}"),
            "{\"type\":\"stdout\",\"text\":\"\\u00e9\\ud83d\\udc0d\\n\",\"timestamp\":\"" + iso_time(time) + "\"}\n");
  EXPECT_EQ(line(R"({"event":"result","main":true,"data":{"text/plain":"'it'","image/png":"aA==","x/y":1}})"),
            "{\"type\":\"result\",\"is_main_result\":true,\"text\":\"it\",\"png\":\"aA==\",\"extra\":{\"x/y\":1}}\n");
  EXPECT_EQ(line(R"({"event":"error","name":"E","value":"v","traceback":"t","kind":"died"})"),
            "{\"type\":\"error\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"t\"}\n");
  EXPECT_EQ(line(R"({"event":"keepalive"})"), "{\"type\":\"keepalive\"}\n");
  EXPECT_EQ(line(R"({"event":"end","count":2})"), "{\"type\":\"end_of_execution\"}\n");
  EXPECT_EQ(ascii_json("\xff\xe2\x82"), "\\ufffd\\ufffd");
}

}  // namespace
}  // namespace glovebox::api::e2b
