// SPDX-License-Identifier: Apache-2.0
#include "api/preview/pages.h"

#include "base/text.h"

namespace glovebox::api::preview {
namespace {

http::Headers own_headers() {
  return {{"X-Request-Id", http::new_request_id()},
          {"Cache-Control", "no-store"},
          {"Referrer-Policy", "no-referrer"},
          {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox"}};
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : utf8_lossy(text)) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

std::string page(int status, const Error& error) {
  const std::string title = std::to_string(status) + " " + std::string(http::reason_phrase(status));
  return "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>" + title +
         "</title><style>body{font:16px/1.5 system-ui,sans-serif;max-width:38em;margin:4em auto;padding:0 1em}code{color:#666}</style><h1>" +
         title + "</h1><p>" + escaped(error.message) + ".</p><p>" + escaped(info(error.code).advice) + "</p><p><code>" +
         std::string(info(error.code).name) + "</code></p></html>\n";
}

bool wants_page(const http::Request& request) {
  const auto accept = request.header("Accept");
  return accept && accept->find("text/html") != accept->npos;
}

}  // namespace

Async<void> send_error_page(http::Exchange& exchange, const Error& error) {
  const int status = info(error.code).http_status;
  http::Headers headers = own_headers();
  if (status == 401) headers.emplace_back("WWW-Authenticate", "Glovebox-Preview-Token");
  if (!wants_page(exchange.request)) co_return co_await exchange.response.send_error(error, std::move(headers));
  headers.emplace_back("Content-Type", "text/html; charset=utf-8");
  if (status == 429 || status == 503) headers.emplace_back("Retry-After", "1");
  co_return co_await exchange.response.send(status, std::move(headers), page(status, error));
}

Async<void> redirect(http::Exchange& exchange, int status, const std::string& location, http::Headers headers) {
  for (auto& header : own_headers()) headers.push_back(std::move(header));
  headers.emplace_back("Location", location);
  co_return co_await exchange.response.send(status, std::move(headers), "");
}

}  // namespace glovebox::api::preview
