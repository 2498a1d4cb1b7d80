// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/object.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#include "http/json.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/own_daemon.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
constexpr int kCodeFailed = 1;
constexpr std::chrono::minutes kSilence{5};  // there is a sign of life every ten seconds

Result<std::string> read_code(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail_errno("read " + file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

bj::value request_body(const CodeOptions& options, std::string code) {
  bj::object body{{"code", std::move(code)}};
  if (options.language) body["language"] = *options.language;
  if (options.context) body["context"] = *options.context;
  if (options.timeout) body["timeout_ms"] = parse_duration(*options.timeout).value().count();
  return body;
}

// A value as text when there is one; else what forms of it there are.
void show_result(const bj::value& event) {
  const bj::value* data = field(event, "data");
  if (data == nullptr || !data->is_object()) return;
  const auto& forms = data->get_object();
  if (const auto* plain = forms.if_contains("text/plain"); plain != nullptr && plain->is_string())
    print(std::string(plain->get_string()) + "\n");
  for (const auto& form : forms) {
    if (form.key().starts_with("image/"))
      print_note("a picture is not shown: " + std::string(form.key()));
  }
}

int show(const bj::value& event) {
  const std::string type = text(event, "type");
  if (type == "stdout") print(text(event, "text"));
  if (type == "stderr") std::fputs(text(event, "text").c_str(), stderr);
  if (type == "result") show_result(event);
  if (type != "error") return kOk;
  const std::string traceback = text(event, "traceback"), kind = text(event, "kind");
  if (kind != "exception" || traceback.empty())
    print_note(text(event, "name") + ": " + text(event, "value"));
  else
    std::fputs((traceback + "\n").c_str(), stderr);
  if (kind == "timeout") return kTimedOut;
  return kind == "sandbox_ended" ? kSandboxGone : kCodeFailed;
}

// Passes the answer's lines on as they come; the exit status is that of the last error.
Async<int> follow(http::Connection& connection, bool as_json) {
  std::string held;
  int status = kOk;
  while (true) {
    GB_CO_TRY(const auto piece, co_await connection.read_some());
    if (piece.empty()) co_return status;
    held += piece;
    for (size_t end; (end = held.find('\n')) != held.npos; held.erase(0, end + 1)) {
      GB_CO_TRY(const auto event, json::parse(std::string_view(held).substr(0, end)));
      if (as_json) print(held.substr(0, end + 1));
      const int now = as_json ? (text(event, "type") == "error" ? kCodeFailed : kOk) : show(event);
      if (now != kOk) status = now;
    }
  }
}

Async<int> run_code(const ApiClient& api, const CodeOptions& options, std::string code,
                    bool as_json) {
  const std::string body = json::to_text(request_body(options, std::move(code)));
  GB_CO_TRY(auto connection, co_await api.connect(kSilence));
  auto headers = api.headers();
  headers.emplace_back("Content-Type", "application/json");
  headers.emplace_back("Accept", "application/x-ndjson");
  const std::string path = "/v1/sandboxes/" + http::percent_encode(options.sandbox) + "/code";
  GB_CO_TRYV(co_await connection->start("POST", api.target(path), std::move(headers),
                                        static_cast<int64_t>(body.size())));
  (void)co_await connection->write(body);  // an early answer says more than this would
  GB_CO_TRY(auto head, co_await connection->finish());
  GB_CO_TRYV(co_await ApiClient::check(*connection, std::move(head)));
  co_return co_await follow(*connection, as_json);
}

}  // namespace

int command_code(const Settings& settings, const CodeOptions& options) {
  auto code = read_code(options.file);
  if (!code) return conclude(settings, fail(code.error()));
  return with_api(settings, [&](Loop&, const ApiClient& api) {
    return run_code(api, options, std::move(*code), settings.json);
  });
}

}  // namespace glovebox::cli
