// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "http/message.h"
#include "registry/call.h"
#include "registry/names.h"

// A Debian archive for apt, which checks signatures and hashes itself. What is below by-hash/ and pool/ never changes and is kept; the
// rest of dists/ is asked for again after a minute.
namespace glovebox::registry {
namespace {

constexpr std::chrono::seconds kIndexLifetime{60};
constexpr size_t kMaxIndex = 256 << 20;

bool is_archive_segment(const std::string& segment) {
  return segment.size() <= 255 && std::all_of(segment.begin(), segment.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           std::string_view(".-_+~%:").find(c) != std::string_view::npos;
  });
}

std::string joined(const std::vector<std::string>& path) {
  std::string out;
  for (const std::string& segment : path) {
    out += "/";
    // "%3a", an epoch, is part of the name of a file in the pool: it was decoded once and is encoded again.
    for (const char c : segment) out += c == '%' ? "%25" : std::string(1, c);
  }
  return out;
}

Integrity by_hash(const std::vector<std::string>& path) {
  if (path.size() < 3 || path[path.size() - 3] != "by-hash") return {};
  if (path[path.size() - 2] == "SHA256") return sha256_integrity(path.back());
  return {};
}

Awaitable<void> send_index(Call& call, const std::string& url) {
  Documents::Request request;
  request.url = url;
  request.key = "debian " + url;
  request.lifetime = kIndexLifetime;
  request.is_compressible = false;
  request.max_bytes = kMaxIndex;
  request.only_cached = call.policy().offline;
  const auto document = co_await call.core.documents->get(std::move(request));
  if (!document && call.policy().offline) co_return co_await call.refuse(offline_verdict(call.event.file));
  // Not an entry of the log: apt tries names that need not exist.
  if (!document && document.error().code == Code::kNotFound) co_return co_await call.send_plain(404, "{\"error\":\"not found\"}\n");
  if (!document) co_return co_await call.fail_with(document.error());
  const std::string& modified = (*document)->last_modified;
  http::Headers headers{{"Content-Type", "application/octet-stream"}};
  if (!modified.empty()) headers.emplace_back("Last-Modified", modified);
  const bool is_same = !modified.empty() && call.exchange.request.header("If-Modified-Since") == modified;
  co_await call.send_document(is_same ? 304 : 200, std::move(headers), is_same ? "" : (*document)->body);
}

// Sources ("hello_2.10.orig.tar.gz") are judged by what stands before their first '_': nothing in the pool is beyond the rules.
DebianFile package_of(const std::string& path) {
  if (const auto file = read_debian_file(path)) return *file;
  const std::string name = path.substr(path.rfind('/') + 1);
  const size_t end = std::min(name.find('_'), name.size());
  return {name.substr(0, end), name.substr(std::min(end + 1, name.size()))};
}

Awaitable<void> send_package(Call& call, const std::string& url) {
  const auto file = package_of(call.event.file);
  call.event.package = file.package;
  call.event.version = file.version;
  const auto verdict = call.decide(file.version);
  if (!verdict.allowed) co_return co_await call.refuse(verdict);
  co_await call.send_file({url, {}, false, std::nullopt});
}

}  // namespace

Awaitable<void> handle_debian(Call& call, const std::string& upstream, const std::vector<std::string>& path) {
  call.event.file = call.event.requested = joined(path).substr(path.empty() ? 0 : 1);
  if (upstream.empty()) co_return co_await call.fail_with({Code::kUnavailable, "no upstream is configured for Debian", {}});
  // Whether the registry is open at all; there is no package yet that a rule could name.
  const auto verdict = call.decide();
  if (!verdict.allowed && verdict.rule == "packages.registries") co_return co_await call.refuse(verdict);
  const bool is_known = path.size() >= 2 && (path[0] == "dists" || path[0] == "pool") && std::all_of(path.begin(), path.end(), is_archive_segment);
  if (!is_known) co_return co_await call.send_plain(404, "{\"error\":\"Only dists/ and pool/ are offered.\"}\n");
  const std::string url = upstream + joined(path);
  const auto integrity = by_hash(path);
  if (path[0] == "pool") {
    co_await send_package(call, url);
  } else if (integrity.is_given()) {
    co_await call.send_file({url, integrity, false, std::nullopt}, false);
  } else {
    co_await send_index(call, url);
  }
}

}  // namespace glovebox::registry
