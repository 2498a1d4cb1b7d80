// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "http/message.h"
#include "registry/call.h"
#include "registry/names.h"
#include "registry/npm_packument.h"
#include "registry/npm_repack.h"

// npm's registry for npm, pnpm and yarn.
namespace glovebox::registry {
namespace {

using policy::PackageVerdict;

constexpr std::string_view kShortType = "application/vnd.npm.install-v1+json";
constexpr size_t kMaxPackument = 128 << 20;
constexpr std::string_view kNothingToRepack = "as it is";

int64_t now_ms() { return unix_millis(std::chrono::system_clock::now()); }

FileSpec spec_of(const NpmVersion& version) { return {version.tarball, version.integrity, true, std::nullopt}; }

PackageVerdict decide_version(const policy::PackagePolicy& policy, const std::string& name, const NpmVersion& version, const Downloads& downloads) {
  auto verdict = policy::decide_package(policy, {policy::Registry::kNpm, name, version.version, version.uploaded_at_ms, false}, now_ms());
  if (!verdict.allowed) return verdict;
  if (policy.require_hashes && !version.integrity.is_strong()) {
    return {false, "packages.require_hashes", "The registry gives no SHA-2 hash for " + name + " " + version.version + "."};
  }
  if (policy.require_hashes && !policy.install_scripts && version.has_install_script) {
    return {false, "packages.install_scripts",
            name + " " + version.version + " has install scripts; without them its hash would differ, and packages.require_hashes is set."};
  }
  if (policy.offline && !downloads.is_cached(spec_of(version))) return offline_verdict(name + " " + version.version);
  return verdict;
}

std::string base_url(const http::Request& request) {
  const std::string host = request.header("Host").value_or("");
  const bool is_plain = !host.empty() && host.size() < 256 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || std::string_view(".-:[]").find(c) != std::string_view::npos;
  });
  return "http://" + (is_plain ? host : std::string("packages.glovebox.internal")) + "/npm";
}

Packument::View view_of(const Call& call, const Packument& packument) {
  Packument::View view;
  view.without_scripts = !call.policy().install_scripts;
  view.base_url = base_url(call.exchange.request);
  for (const auto& [version, known] : packument.versions()) {
    auto verdict = decide_version(call.policy(), packument.name(), known, *call.core.downloads);
    if (!verdict.allowed) view.refused.emplace(version, std::move(verdict));
  }
  return view;
}

// Upload times are in the full form only, which is many times larger.
Async<std::shared_ptr<const Packument>> load_packument(Call& call, bool needs_full) {
  const std::string& package = call.event.package;
  if (call.core.settings.npm.empty()) co_return fail(Code::kUnavailable, "no upstream is configured for npm");
  const bool is_full = needs_full || call.policy().minimum_age_hours > 0;
  const size_t slash = package.find('/');
  Documents::Request request;
  request.url = call.core.settings.npm + "/" +
                (slash == package.npos ? package : package.substr(0, slash) + "%2f" + package.substr(slash + 1));
  request.key = (is_full ? "npm full " : "npm short ") + request.url;
  request.accept = is_full ? "application/json" : std::string(kShortType) + ", application/json;q=0.5";
  request.max_bytes = kMaxPackument;
  request.only_cached = call.policy().offline;
  request.parse = [package](const Document& document) -> Result<std::shared_ptr<const void>> {
    GB_TRY(auto packument, Packument::parse(document.body, package));
    return std::shared_ptr<const void>(std::make_shared<const Packument>(std::move(packument)));
  };
  auto document = co_await call.core.documents->get(request);
  if (!document && request.only_cached && !is_full) {  // the other form says as much
    request.key = "npm full " + request.url;
    document = co_await call.core.documents->get(request);
  }
  if (!document) co_return fail(document.error());
  co_return std::static_pointer_cast<const Packument>((*document)->parsed);
}

// Nothing when the request was answered.
Awaitable<std::shared_ptr<const Packument>> load_or_answer(Call& call, bool needs_full) {
  const auto verdict = call.decide();
  if (!verdict.allowed) {
    co_await call.refuse(verdict);
    co_return nullptr;
  }
  auto packument = co_await load_packument(call, needs_full);
  if (packument) co_return *packument;
  if (call.policy().offline && packument.error().code == Code::kNotFound) {
    co_await call.refuse(offline_verdict(call.event.package));
  } else {
    co_await call.fail_with(packument.error());
  }
  co_return nullptr;
}

// The rule that refuses the newest of the versions, in the name of all of them.
PackageVerdict refused_wholly(const Call& call, const Packument& packument) {
  const std::string latest = packument.resolve("latest");
  const NpmVersion& version = latest.empty() ? packument.versions().rbegin()->second : *packument.find(latest);
  return decide_version(call.policy(), packument.name(), version, *call.core.downloads);
}

Awaitable<void> send_packument(Call& call) {
  const std::string accept = call.exchange.request.header("Accept").value_or("");
  const bool is_short = accept.find(kShortType) != std::string::npos;
  const auto packument = co_await load_or_answer(call, !is_short);
  if (!packument) co_return;
  Packument::View view;
  auto work = [&]() -> std::string {
    view = view_of(call, *packument);
    view.is_abbreviated = is_short;
    const bool any_left = view.refused.size() < packument->versions().size() || packument->versions().empty();
    return any_left ? packument->render(view) : "";
  };
  std::string body = co_await run_blocking(*call.core.pool, work);
  if (body.empty()) co_return co_await call.refuse(refused_wholly(call, *packument));
  if (!view.refused.empty()) call.log_hidden(view.refused.size(), packument->versions().size(), view.refused.rbegin()->second);
  co_await call.send_document(200, {{"Content-Type", is_short ? std::string(kShortType) : "application/json"}}, std::move(body));
}

Awaitable<void> send_manifest(Call& call, const std::string& wanted) {
  call.event.requested = call.event.package + "@" + wanted;
  const auto packument = co_await load_or_answer(call, false);
  if (!packument) co_return;
  const std::string version = packument->resolve(wanted);
  if (version.empty()) co_return co_await call.fail_with({Code::kNotFound, "no version " + wanted + " of " + call.event.package, {}});
  call.event.version = version;
  const auto verdict = decide_version(call.policy(), packument->name(), *packument->find(version), *call.core.downloads);
  if (!verdict.allowed) co_return co_await call.refuse(verdict);
  auto work = [&] { return packument->render_version(version, view_of(call, *packument)); };
  co_await call.send_document(200, {{"Content-Type", "application/json"}}, co_await run_blocking(*call.core.pool, work));
}

// The SHA-256 of the repacked file, or nothing when there is nothing to take out.
Result<std::optional<std::string>> repack(Cache& cache, const Cache::File& original) {
  const std::string key = "npm without scripts " + original.sha256;
  if (const auto known = cache.read_record(key)) {
    if (*known == kNothingToRepack) return std::optional<std::string>();
    if (cache.contains(*known)) return std::optional<std::string>(*known);
  }
  GB_TRY(const auto writer, cache.begin({}));
  GB_TRY(const bool has_scripts, repack_without_scripts(original.fd.get(), [&](std::string_view bytes) { return writer->write(bytes); }));
  std::optional<std::string> repacked;
  if (has_scripts) {
    GB_TRY(repacked, writer->commit());
  }
  const auto noted = cache.write_record(key, repacked ? *repacked : std::string(kNothingToRepack));
  if (!noted) log::warn("registry.repack_not_noted", {{"message", noted.error().message}});
  return repacked;
}

Awaitable<void> send_without_scripts(Call& call, const NpmVersion& version) {
  auto source = co_await call.core.downloads->get(spec_of(version), call.policy().offline);
  if (!source) co_return co_await call.fail_with(source.error());
  const bool was_cached = source->file.has_value();
  auto original = was_cached ? Result<Cache::File>(std::move(*source->file)) : co_await source->download->complete();
  if (!original) co_return co_await call.fail_with(original.error());
  auto work = [&] { return repack(*call.core.cache, *original); };
  const auto repacked = co_await run_blocking(*call.core.pool, work);
  if (!repacked) co_return co_await call.fail_with(repacked.error());
  const char* const from = was_cached ? "cache" : "upstream";
  if (!*repacked) co_return co_await call.send_cached(std::move(*original), from);
  if (!version.has_install_script) {
    co_return co_await call.refuse({false, "packages.install_scripts",
                                    call.event.file + " has install scripts that its metadata does not mention."});
  }
  auto find = [&] { return call.core.cache->find(**repacked); };
  auto file = co_await run_blocking(*call.core.pool, find);
  if (!file) co_return co_await call.fail_with({Code::kDiskFull, "the package cache is too small for this file", {}});
  call.event.rule = "packages.install_scripts";
  call.event.reason = "served without its install scripts";
  co_await call.send_cached(std::move(*file), from);
}

Awaitable<void> send_tarball(Call& call, const std::string& filename) {
  call.event.file = filename;
  const auto wanted = npm_file_version(filename, call.event.package);
  if (!wanted) co_return co_await call.fail_with({Code::kNotFound, "no such file of " + call.event.package, {}});
  call.event.version = *wanted;
  const auto packument = co_await load_or_answer(call, false);
  if (!packument) co_return;
  const NpmVersion* version = packument->find(*wanted);
  if (!version) co_return co_await call.fail_with({Code::kNotFound, "no version " + *wanted + " of " + call.event.package, {}});
  const auto verdict = decide_version(call.policy(), packument->name(), *version, *call.core.downloads);
  if (!verdict.allowed) co_return co_await call.refuse(verdict);
  if (!call.policy().install_scripts) co_return co_await send_without_scripts(call, *version);
  co_await call.send_file(spec_of(*version));
}

// "/-/…": not about one package.
Awaitable<void> handle_service(Call& call, const std::vector<std::string>& path) {
  const std::string& what = path.size() > 1 ? path[1] : path[0];
  if (what == "ping") co_return co_await call.send_plain(200, "{}\n");
  // `npm audit` after each install: nothing is known here, which is no error.
  if (path.back() == "bulk" && call.exchange.request.method == "POST") co_return co_await call.send_plain(200, "{}\n");
  if ((path.back() == "quick" || path.back() == "audits") && call.exchange.request.method == "POST") {
    co_return co_await call.send_plain(200,
                                       "{\"actions\":[],\"advisories\":{},\"muted\":[],\"metadata\":{\"vulnerabilities\":{\"info\":0,\"low\":0,"
                                       "\"moderate\":0,\"high\":0,\"critical\":0},\"dependencies\":0,\"devDependencies\":0,"
                                       "\"optionalDependencies\":0,\"totalDependencies\":0}}\n");
  }
  co_await call.send_plain(404, "{\"error\":\"This registry offers packages only.\"}\n");
}

}  // namespace

Awaitable<void> handle_npm(Call& call, const std::vector<std::string>& path) {
  if (!path.empty() && path[0] == "-") co_return co_await handle_service(call, path);
  const bool is_scoped = !path.empty() && path[0].starts_with('@');
  const size_t used = is_scoped ? 2 : 1;
  const std::string name = path.size() < used ? "" : is_scoped ? path[0] + "/" + path[1] : path[0];
  if (!is_npm_name(name)) co_return co_await call.fail_with({Code::kNotFound, "no package can have this name", {}});
  call.event.package = call.event.requested = name;
  if (path.size() == used) {
    co_await send_packument(call);
  } else if (path.size() == used + 2 && path[used] == "-") {
    co_await send_tarball(call, path[used + 1]);
  } else if (path.size() == used + 1) {
    co_await send_manifest(call, path[used]);
  } else {
    co_await call.send_plain(404, "{\"error\":\"This registry offers packages only.\"}\n");
  }
}

}  // namespace glovebox::registry
