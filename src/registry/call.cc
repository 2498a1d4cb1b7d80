// SPDX-License-Identifier: Apache-2.0
#include "registry/call.h"

#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "http/json.h"

namespace glovebox::registry {
namespace {

constexpr size_t kSendBytes = 256 << 10;
constexpr size_t kMaxLogText = 300;

int64_t now_ms() { return unix_millis(std::chrono::system_clock::now()); }

std::string logged(std::string_view text) { return utf8_lossy(text.substr(0, kMaxLogText)); }

int status_of(const Error& error) {
  switch (error.code) {
    case Code::kNotFound: return 404;
    case Code::kInvalidArgument: return 400;
    case Code::kDiskFull: return 507;
    // Not 500 or 503, which pip tries again five times.
    default: return 502;
  }
}

bool is_about_the_client(const Error& error) { return error.code == Code::kCancelled; }

http::Headers file_headers(std::optional<uint64_t> length) {
  http::Headers headers{{"Content-Type", "application/octet-stream"}, {"Cache-Control", "no-store"}};
  if (length) headers.emplace_back("Content-Length", std::to_string(*length));
  return headers;
}

}  // namespace

policy::PackageVerdict offline_verdict(std::string_view what) {
  return {false, "packages.offline", "The sandbox is in offline mode, and " + std::string(what) + " is not in the cache."};
}

policy::PackageVerdict Call::decide(const std::string& version, std::optional<int64_t> uploaded_at_ms, bool is_source) const {
  return policy::decide_package(policy(), {registry, event.package, version, uploaded_at_ms, is_source}, now_ms());
}

void Call::log(std::string_view outcome) {
  const std::string client = exchange.request.header("User-Agent").value_or("");
  core.on_event({{"time_ms", now_ms()},
                 {"sandbox", tenant->id},
                 {"registry", policy::registry_name(registry)},
                 {"package", logged(event.package)},
                 {"requested", logged(event.requested)},
                 {"version", logged(event.version)},
                 {"file", logged(event.file)},
                 {"sha256", event.sha256},
                 {"source", event.source},
                 {"bytes", event.bytes},
                 {"outcome", outcome},
                 {"rule", event.rule},
                 {"reason", logged(event.reason)},
                 {"client", logged(client.substr(0, client.find(' ')))}});
}

void Call::log_hidden(size_t hidden, size_t count, const policy::PackageVerdict& example) {
  event.rule = example.rule;
  event.reason = "metadata: " + std::to_string(hidden) + " of " + std::to_string(count) + " refused, for example: " + example.reason;
  log("served");
}

namespace {

Awaitable<void> answer_error(Call& call, int status, std::string_view code, std::string_view text) {
  const boost::json::object body{{"error", text}, {"code", code}, {"rule", call.event.rule}, {"reason", call.event.reason},
                                 {"package", call.event.package}, {"version", call.event.version}};
  call.exchange.response.set_reason(text);
  const auto sent = co_await call.exchange.response.send(
      status, {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}}, json::to_text(body) + "\n");
  (void)sent;  // nobody is left to be told
}

}  // namespace

Awaitable<void> Call::refuse(policy::PackageVerdict verdict) {
  event.rule = verdict.rule;
  event.reason = verdict.reason;
  log("denied");
  const std::string text = "Refused by " + verdict.rule + ": " + verdict.reason;
  co_await answer_error(*this, 403, "package_denied", text);
}

Awaitable<void> Call::fail_with(Error error) {
  event.reason = error.message;
  if (error.code == Code::kCorrupt) {
    event.rule = "integrity";
    log("failed");
    const std::string text = "Refused by integrity: " + error.message;
    co_await answer_error(*this, 403, "package_corrupt", text);
    co_return;
  }
  log("failed");
  const int status = status_of(error);
  const std::string text = std::string(status == 404 ? "Not found: " : "Package registry: ") + error.message;
  co_await answer_error(*this, status, info(error.code).name, text);
}

Awaitable<void> Call::send_document(int status, http::Headers headers, std::string body) {
  headers.emplace_back("Cache-Control", "no-store");  // another policy may be in force the next time
  const auto sent = co_await exchange.response.send(status, std::move(headers), std::move(body));
  (void)sent;
}

Awaitable<void> Call::send_plain(int status, std::string json) {
  co_await send_document(status, {{"Content-Type", "application/json"}}, std::move(json));
}

policy::PackageVerdict Call::charge(uint64_t bytes) {
  const uint64_t limit = policy().max_bytes;
  uint64_t& used = *tenant->used_bytes;
  if (limit > 0 && (used >= limit || bytes > limit - used)) {
    return {false, "packages.max_bytes",
            "The sandbox may download " + human_bytes(limit) + " of packages and has had " + human_bytes(used) + "."};
  }
  used += bytes;
  return {true, "", ""};
}

Awaitable<void> Call::send_file(FileSpec spec, bool log_it) {
  if (exchange.request.method == "HEAD" && !core.downloads->is_cached(spec)) co_return co_await send_head(spec.size, false);
  auto source = co_await core.downloads->get(std::move(spec), policy().offline);
  if (!source && policy().offline && source.error().code == Code::kNotFound) {
    co_await refuse(offline_verdict(event.file));
  } else if (!source) {
    co_await fail_with(source.error());
  } else if (source->file) {
    co_await send_cached(std::move(*source->file), "cache", log_it);
  } else {
    co_await send_running(source->download, log_it);
  }
}

namespace {

struct Range {
  uint64_t first = 0, end = 0;
};

// The one range that "Range" asks for; nothing for several, none, or what makes no sense: then the whole file is a right answer.
std::optional<Range> wanted_range(const http::Request& request, uint64_t size) {
  const std::string header = request.header("Range").value_or("");
  const std::string_view text = header;
  const size_t dash = text.find('-');
  if (!text.starts_with("bytes=") || dash == text.npos || request.header("If-Range")) return std::nullopt;
  const auto first = parse_int(text.substr(6, dash - 6)), last = parse_int(text.substr(dash + 1));
  if (dash == 6 && last && *last > 0) return Range{size - std::min<uint64_t>(size, static_cast<uint64_t>(*last)), size};
  if (!first || *first < 0 || static_cast<uint64_t>(*first) >= size) return std::nullopt;
  if (dash + 1 == text.size()) return Range{static_cast<uint64_t>(*first), size};
  if (!last || *last < *first) return std::nullopt;
  return Range{static_cast<uint64_t>(*first), std::min(size, static_cast<uint64_t>(*last) + 1)};
}

}  // namespace

Awaitable<void> Call::send_head(std::optional<uint64_t> size, bool has_ranges) {
  auto headers = file_headers(size);
  headers.emplace_back("Accept-Ranges", has_ranges ? "bytes" : "none");
  if (co_await exchange.response.begin(200, std::move(headers))) (void)co_await exchange.response.end();
}

Awaitable<void> Call::send_cached(Cache::File file, const char* source, bool log_it) {
  if (exchange.request.method == "HEAD") co_return co_await send_head(file.size, true);
  event.source = source;
  event.sha256 = file.sha256;
  const auto range = wanted_range(exchange.request, file.size);
  const uint64_t first = range ? range->first : 0, end = range ? range->end : file.size;
  const auto charged = charge(end - first);
  if (!charged.allowed) co_return co_await refuse(charged);
  auto headers = file_headers(end - first);
  headers.emplace_back("Accept-Ranges", "bytes");
  if (range) {
    headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" + std::to_string(end - 1) + "/" + std::to_string(file.size));
  }
  auto sent = co_await exchange.response.begin(range ? 206 : 200, std::move(headers));
  std::string block;
  for (uint64_t at = first; sent && at < end; at += block.size()) {
    block.resize(std::min<uint64_t>(kSendBytes, end - at));
    auto read = [&] { return ::pread(file.fd.get(), block.data(), block.size(), static_cast<off_t>(at)); };
    if (co_await run_blocking(*core.pool, read) != static_cast<ssize_t>(block.size())) {
      exchange.response.abort();
      co_return;
    }
    sent = co_await exchange.response.write(block);
    event.bytes += block.size();
  }
  if (sent) sent = co_await exchange.response.end();
  if (!sent) event.reason = sent.error().message;
  if (log_it) log(sent ? "served" : "failed");
}

Awaitable<void> Call::send_running(std::shared_ptr<Download> download, bool log_it) {
  event.source = "upstream";
  const auto length = co_await download->length();
  if (!length) co_return co_await fail_with(length.error());
  if (const auto charged = charge(length->value_or(0)); !charged.allowed) co_return co_await refuse(charged);
  // The first bytes come before the head: a small file that turns out to be broken can still be refused with a reason.
  auto bytes = co_await download->read(0);
  if (!bytes) co_return co_await fail_with(bytes.error());
  auto sent = co_await exchange.response.begin(200, file_headers(*length));
  while (sent && bytes && !bytes->empty()) {
    if (!*length && !charge(bytes->size()).allowed) bytes = fail(Code::kForbidden, "over packages.max_bytes");
    if (bytes) sent = co_await exchange.response.write(*bytes);
    if (bytes) event.bytes += bytes->size();
    if (sent && bytes) bytes = co_await download->read(event.bytes);
  }
  if (!bytes) {
    exchange.response.abort();  // never the proper end of a file that is not good
    event.reason = bytes.error().message;
    if (bytes.error().code == Code::kCorrupt) event.rule = "integrity";
    if (bytes.error().code == Code::kForbidden) event.rule = "packages.max_bytes";
  } else if (sent) {
    const auto file = co_await download->complete();
    if (file) event.sha256 = file->sha256;
    sent = co_await exchange.response.end();
  }
  if (!sent && !is_about_the_client(sent.error())) event.reason = sent.error().message;
  if (!sent && event.reason.empty()) event.reason = "the client left";
  if (log_it || !bytes) log(bytes && sent ? "served" : "failed");
}

}  // namespace glovebox::registry
