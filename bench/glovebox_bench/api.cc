// SPDX-License-Identifier: Apache-2.0
#include "api.h"

#include <algorithm>

#include "base/text.h"
#include "http/json.h"

namespace glovebox::bench {
namespace {

tl::unexpected<Error> refused(const std::string& what, int status, const std::string& body) {
  return fail(Code::kInternal,
              what + " answered " + std::to_string(status) + ": " + body.substr(0, 500));
}

}  // namespace

Async<std::unique_ptr<Api>> Api::connect(std::string url, std::string key) {
  GB_CO_TRY(auto base, http::parse_url(url));
  auto api = std::make_unique<Api>();
  GB_CO_TRY(api->connection_, co_await http::Connection::connect(base));
  api->key_ = std::move(key);
  co_return std::move(api);
}

Async<std::string> Api::call(std::string method, std::string path, std::string body, int expected) {
  auto response = co_await connection_->request(method, path, headers(), std::move(body));
  if (!response) co_return fail(std::move(response).error());
  if (response->head.status != expected)
    co_return refused(method + " " + path, response->head.status, response->body);
  co_return std::move(response->body);
}

Async<void> Api::health() {
  GB_CO_TRYV(co_await call("GET", "/healthz", {}, 200));
  co_return Result<void>();
}

Async<std::string> Api::get(std::string path) {
  return call("GET", std::move(path), {}, 200);
}

Async<std::string> Api::post(std::string path, std::string body, int expected) {
  return call("POST", std::move(path), std::move(body), expected);
}

Async<void> Api::remove(std::string path) {
  GB_CO_TRYV(co_await call("DELETE", std::move(path), {}, 200));
  co_return Result<void>();
}

Async<std::string> Api::create(std::string tier, From from, std::string template_name) {
  const bool is_fresh = from == From::kCold;
  std::string body = R"({"runtime":")" + tier + R"(","template":")" + template_name + R"(","lifetime_ms":1800000,"fresh":)" + (is_fresh ? "true}" : "false}");
  GB_CO_TRY(const auto text, co_await call("POST", "/v1/sandboxes", std::move(body), 201));
  GB_CO_TRY(const auto answer, json::parse_object(text));
  if (answer.at("started_from").as_string() != (is_fresh ? "cold" : "pool"))
    co_return fail(Code::kInternal, "not from where it was wanted: " + text);
  co_return std::string(answer.at("id").as_string());
}

Async<bool> Api::pool_is_full(std::string tier) {
  GB_CO_TRY(const auto text, co_await get("/v1/pool"));
  GB_CO_TRY(const auto answer, json::parse_object(text));
  bool has_any = false;
  for (const auto& pool : answer.at("pools").as_array()) {
    if (pool.at("runtime").as_string() != tier) continue;
    has_any = true;
    const char* which = pool.at("warm").as_array().empty() ? "ready" : "ready_warm";
    if (pool.at(which).to_number<int64_t>() != pool.at("wanted").to_number<int64_t>()) co_return false;
  }
  if (has_any) co_return true;
  co_return fail(Code::kNotFound, "the daemon keeps no pool of " + tier);
}

Async<bool> Api::keeps_warm(std::string tier) {
  GB_CO_TRY(const auto text, co_await get("/v1/pool"));
  GB_CO_TRY(const auto answer, json::parse_object(text));
  const auto& pools = answer.at("pools").as_array();
  co_return std::any_of(pools.begin(), pools.end(), [&](const auto& pool) {
    return pool.at("runtime").as_string() == tier && !pool.at("warm").as_array().empty();
  });
}

Async<void> Api::cell(std::string id) {
  GB_CO_TRY(const auto text, co_await post("/v1/sandboxes/" + id + "/code", R"({"code":"1+1"})", 200));
  if (text.find(R"("text/plain":"2")") == std::string::npos) co_return fail(Code::kCorrupt, "1+1 is not 2: " + text);
  co_return Result<void>();
}

Async<void> Api::kill(std::string id) { return remove("/v1/sandboxes/" + id); }

namespace {

std::string argv_body(const std::vector<std::string>& argv) {
  std::string words;
  for (const auto& word : argv) {
    if (!words.empty()) words += ',';
    append_json_string(words, word);
  }
  return R"({"argv":[)" + words + "]}";
}

}  // namespace

Async<void> Api::run(std::string id, std::vector<std::string> argv) {
  GB_CO_TRY(const auto text, co_await call("POST", "/v1/sandboxes/" + id + "/executions?wait=true", argv_body(argv), 200));
  if (text.find("\"exit_code\":0,") != std::string::npos) co_return Result<void>();
  co_return fail(Code::kInternal, argv[0] + " did not exit with 0: " + text);
}

Async<void> Api::exec(std::string id, std::string_view program) { return run(std::move(id), {std::string(program)}); }

Async<void> Api::start(std::string id, std::vector<std::string> argv) {
  GB_CO_TRYV(co_await call("POST", "/v1/sandboxes/" + id + "/executions", argv_body(argv), 201));
  co_return Result<void>();
}

Async<double> Api::cpu_ms(std::string id) {
  GB_CO_TRY(const auto text, co_await get("/v1/sandboxes/" + id + "/stats"));
  GB_CO_TRY(const auto answer, json::parse_object(text));
  co_return answer.at("cpu_ms").to_number<double>();
}

Async<void> Api::upload(std::string id, std::string path, std::string_view piece, size_t bytes) {
  const std::string target = "/v1/sandboxes/" + id + "/files?path=" + path;
  GB_CO_TRYV(co_await connection_->start("PUT", target, headers(), static_cast<int64_t>(bytes)));
  for (size_t sent = 0; sent < bytes; sent += piece.size()) {
    GB_CO_TRYV(co_await connection_->write(piece.substr(0, std::min(piece.size(), bytes - sent))));
  }
  GB_CO_TRY(const auto head, co_await connection_->finish());
  std::string body;
  while (true) {
    GB_CO_TRY(const auto part, co_await connection_->read_some());
    if (part.empty()) break;
    body += part;
  }
  if (head.status != 200 && head.status != 201) co_return refused("upload", head.status, body);
  if (body.find("\"size_bytes\":" + std::to_string(bytes)) != std::string::npos)
    co_return Result<void>();
  co_return fail(Code::kCorrupt, "the uploaded file has another size: " + body);
}

Async<void> Api::download(std::string id, std::string path, std::string_view piece, size_t bytes) {
  const std::string target = "/v1/sandboxes/" + id + "/files?path=" + path;
  GB_CO_TRYV(co_await connection_->start("GET", target, headers(), http::Connection::kNoBody));
  GB_CO_TRY(const auto head, co_await connection_->finish());
  size_t got = 0;
  bool is_same = true;
  while (true) {
    GB_CO_TRY(const auto part, co_await connection_->read_some());
    if (part.empty()) break;
    for (std::string_view rest = part; !rest.empty();) {
      const std::string_view wanted = piece.substr(got % piece.size(), rest.size());
      is_same = is_same && rest.substr(0, wanted.size()) == wanted;
      rest.remove_prefix(wanted.size());
      got += wanted.size();
    }
  }
  if (head.status != 200) co_return refused("download", head.status, {});
  if (is_same && got == bytes) co_return Result<void>();
  co_return fail(Code::kCorrupt, "the downloaded file differs: " + std::to_string(got) + " bytes");
}

Async<void> Api::upload_program(std::string id, std::string path, std::string_view program) {
  return upload(std::move(id), path + "&mode=0755", program, program.size());
}

}  // namespace glovebox::bench
