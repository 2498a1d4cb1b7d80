// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/rpc.h"

#include <algorithm>

#include "api/e2b/errors.h"
#include "base/text.h"
#include "http/json.h"
#include "http/sse.h"

namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
constexpr size_t kHeadBytes = 5;
constexpr char kCompressed = 1, kEnd = 2;
constexpr std::string_view kUnaryType = "application/json";
constexpr std::string_view kStreamType = "application/connect+json";

tl::unexpected<Error> wrong_type(std::string_view name, std::string_view what) {
  return fail(Code::kInvalidArgument, std::string(name) + ": must be " + std::string(what), {{"field", std::string(name)}});
}

std::string snake_case(std::string_view camel) {
  std::string out;
  for (const char c : camel) {
    if (c >= 'A' && c <= 'Z') out += '_';
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  return out;
}

bool is_type(const http::Request& request, std::string_view type) {
  const std::string have = request.header("Content-Type").value_or("");
  return http::same_name(have.substr(0, std::min(have.find(';'), have.size())), type);
}

std::string header_or(const http::Request& request, std::string_view name) { return request.header(name).value_or(""); }

const Method* find_method(std::string_view path) {
  for (const auto* list : {&process_methods(), &filesystem_methods()}) {
    for (const Method& method : *list) {
      if (method.path == path) return &method;
    }
  }
  return nullptr;
}

Async<void> send_unary_error(DaemonCall& call, const Error& error) {
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", kUnaryType);
  co_return co_await call.exchange.response.send(rpc_status(rpc_code(error)), std::move(headers), rpc_body(error));
}

Async<bj::value> answer_unary(DaemonCall& call, const Method& method) {
  if (!is_type(call.request(), kUnaryType)) co_return fail(Code::kUnsupported, "only the JSON codec is spoken here");
  GB_CO_TRY(const std::string text, co_await call.exchange.body.read_all(kMaxMessage));
  GB_CO_TRY(const auto body, json::parse_object(text.empty() ? "{}" : text));
  co_return co_await method.unary(call, Message(body));
}

Async<void> serve_unary(DaemonCall& call, const Method& method) {
  const auto answer = co_await answer_unary(call, method);
  if (!answer) {
    if (is_gone(answer.error())) co_return fail(answer.error());
    co_return co_await send_unary_error(call, answer.error());
  }
  http::Headers headers = open_headers();
  headers.emplace_back("Content-Type", kUnaryType);
  co_return co_await call.exchange.response.send(200, std::move(headers), json::to_text(*answer));
}

Async<void> answer_stream(DaemonCall& call, const Method& method, StreamAnswer& answer) {
  GB_CO_TRY(const std::string body, co_await call.exchange.body.read_all(kMaxMessage + kHeadBytes));
  GB_CO_TRY(const std::string text, open_envelope(body));
  GB_CO_TRY(const auto message, json::parse_object(text.empty() ? "{}" : text));
  co_return co_await method.streaming(call, Message(message), answer);
}

Async<void> serve_stream(DaemonCall& call, const Method& method) {
  if (!is_type(call.request(), kStreamType)) {
    co_return co_await call.exchange.response.send(415, open_headers(), "");
  }
  StreamAnswer answer(call);
  const auto done = co_await answer_stream(call, method, answer);
  if (done || answer.has_begun()) co_return done;
  if (is_gone(done.error())) co_return done;
  GB_CO_TRYV(co_await answer.begin());
  co_return co_await answer.end_with(done.error());
}

}  // namespace

Message::Message(const bj::value& value) : object_(value.if_object()) {}

const bj::value* Message::find(std::string_view name) const {
  if (object_ == nullptr) return nullptr;
  const bj::value* found = object_->if_contains(name);
  if (found == nullptr) found = object_->if_contains(snake_case(name));
  return found == nullptr || found->is_null() ? nullptr : found;
}

Result<std::string> Message::text(std::string_view name) const {
  const bj::value* value = find(name);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return wrong_type(name, "a string");
  std::string out(value->get_string());
  if (out.find('\0') != out.npos) return wrong_type(name, "without NUL");
  return out;
}

Result<std::optional<int64_t>> Message::integer(std::string_view name) const {
  const bj::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_int64()) return value->get_int64();
  if (const auto* real = value->if_double(); real != nullptr && *real == std::clamp(*real, -9e15, 9e15)) {
    const auto whole = static_cast<int64_t>(*real);
    if (static_cast<double>(whole) == *real) return whole;
  }
  const auto number = value->is_string() ? parse_int(std::string_view(value->get_string())) : std::nullopt;
  if (!number) return wrong_type(name, "an integer");
  return number;
}

Result<std::optional<bool>> Message::boolean(std::string_view name) const {
  const bj::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) return wrong_type(name, "true or false");
  return value->get_bool();
}

Result<std::optional<std::string>> Message::bytes(std::string_view name) const {
  const bj::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return wrong_type(name, "base64");
  std::string encoded(value->get_string());
  std::ranges::replace(encoded, '-', '+');
  std::ranges::replace(encoded, '_', '/');
  auto out = base64_decode(encoded);
  if (!out) return wrong_type(name, "base64");
  return out;
}

Result<std::vector<std::string>> Message::texts(std::string_view name) const {
  std::vector<std::string> out;
  const bj::value* value = find(name);
  if (value == nullptr) return out;
  if (!value->is_array()) return wrong_type(name, "an array of strings");
  for (const bj::value& item : value->get_array()) {
    if (!item.is_string()) return wrong_type(name, "an array of strings");
    out.emplace_back(item.get_string());
    if (out.back().find('\0') != std::string::npos) return wrong_type(name, "without NUL");
  }
  return out;
}

Result<sandbox::StringMap> Message::map(std::string_view name) const {
  sandbox::StringMap out;
  const bj::value* value = find(name);
  if (value == nullptr) return out;
  if (!value->is_object()) return wrong_type(name, "an object of strings");
  for (const auto& [key, item] : value->get_object()) {
    const bool fits = item.is_string() && !key.empty() && key.find_first_of(std::string_view("=\0", 2)) == key.npos &&
                      std::string_view(item.get_string()).find('\0') == std::string_view::npos;
    if (!fits) return wrong_type(name, "an object of strings with possible names");
    out.emplace(key, item.get_string());
  }
  return out;
}

Result<std::optional<Message>> Message::message(std::string_view name) const {
  const bj::value* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return wrong_type(name, "an object");
  return std::optional(Message(*value));
}

std::string envelope(std::string_view payload, bool is_end) {
  std::string out(1, is_end ? kEnd : '\0');
  const auto size = static_cast<uint32_t>(payload.size());
  for (const int shift : {24, 16, 8, 0}) out += static_cast<char>(size >> shift & 0xff);
  out += payload;
  return out;
}

Result<std::string> open_envelope(std::string_view body) {
  if (body.size() < kHeadBytes) return fail(Code::kInvalidArgument, "the body must be one envelope");
  if ((body[0] & kCompressed) != 0) return fail(Code::kUnsupported, "compressed messages are not taken");
  uint64_t size = 0;
  for (size_t i = 1; i < kHeadBytes; ++i) size = size << 8 | static_cast<unsigned char>(body[i]);
  if (body[0] != 0 || size != body.size() - kHeadBytes) return fail(Code::kInvalidArgument, "the body must be exactly one envelope");
  return std::string(body.substr(kHeadBytes));
}

Async<void> StreamAnswer::begin() {
  co_return co_await call_.exchange.response.begin(200, http::stream_headers(open_headers(), kStreamType));
}

Async<void> StreamAnswer::send(std::string payload) {
  const std::string framed = envelope(payload);
  co_return co_await call_.exchange.response.write(framed);
}

Async<void> StreamAnswer::write(std::string envelopes) { co_return co_await call_.exchange.response.write(envelopes); }

Async<void> StreamAnswer::end() {
  const std::string last = envelope("{}", true);
  GB_CO_TRYV(co_await call_.exchange.response.write(last));
  co_return co_await call_.exchange.response.end();
}

Async<void> StreamAnswer::end_with(const Error& error) {
  const std::string last = envelope("{\"error\":" + rpc_body(error) + "}", true);
  GB_CO_TRYV(co_await call_.exchange.response.write(last));
  co_return co_await call_.exchange.response.end();
}

sandbox::Millis client_timeout(const http::Request& request) {
  constexpr int64_t kMax = 365LL * 24 * 3600 * 1000;
  const auto ms = parse_int(header_or(request, "Connect-Timeout-Ms"));
  return sandbox::Millis(ms ? std::clamp<int64_t>(*ms, 0, kMax) : 0);
}

sandbox::Millis keepalive_interval(const http::Request& request) {
  constexpr int64_t kDefault = 90, kLongest = 240;
  const auto seconds = parse_int(header_or(request, "Keepalive-Ping-Interval"));
  return std::chrono::seconds(seconds ? std::clamp<int64_t>(*seconds, 1, kLongest) : kDefault);
}

Async<void> serve_rpc(DaemonCall& call) {
  const Method* method = find_method(call.request().path);
  if (method == nullptr) {
    co_return co_await send_unary_error(call, Error{Code::kUnsupported, "no such method: " + call.request().path, {}});
  }
  if (method->unary != nullptr) co_return co_await serve_unary(call, *method);
  co_return co_await serve_stream(call, *method);
}

}  // namespace glovebox::api::e2b
