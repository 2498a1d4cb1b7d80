// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/text.h"
#include "registry/call.h"
#include "registry/names.h"
#include "registry/pypi_index.h"

// PyPI for pip, uv and poetry. How a refusal reaches the person in front of pip, which shows nothing of a failed index page:
//  - A refused version stays in the index as yanked (PEP 592), with the rule as the reason. Yanked files are chosen only for an
//    exact "==" pin; then pip prints the reason, asks for the file, and prints the reason phrase of the 403 that it gets.
//  - When every version is refused, none is marked: pip picks the best, and its download is refused with the rule.
//  - A marker, a yanked file of version "0+refused.by.<rule>", makes the rule appear where pip lists the versions that it found
//    after it found none that fits.
namespace glovebox::registry {
namespace {

using policy::PackageVerdict;

constexpr std::string_view kAccept = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";
constexpr std::string_view kJsonType = "application/vnd.pypi.simple.v1+json";
constexpr std::string_view kMarkerVersion = "0+refused.by.";
constexpr std::string_view kMetadataEnding = ".metadata";
constexpr uint64_t kMaxMetadataFile = 16 << 20;
constexpr size_t kMaxIndex = 64 << 20;

int64_t now_ms() { return unix_millis(std::chrono::system_clock::now()); }

// A local version label: lower case letters, digits and single dots (PEP 440).
std::string marker_label(std::string_view rule) {
  std::string out;
  for (const char c : rule) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (is_plain) out += c;
    if (!is_plain && !out.empty() && out.back() != '.') out += '.';
  }
  while (out.ends_with('.')) out.pop_back();
  return out;
}

IndexFile marker(const std::string& package, const PackageVerdict& verdict, bool is_yanked) {
  IndexFile file;
  file.version = std::string(kMarkerVersion) + marker_label(verdict.rule);
  std::string name = package;
  std::replace(name.begin(), name.end(), '-', '_');
  file.filename = name + "-" + file.version + "-py3-none-any.whl";
  if (is_yanked) file.yanked = "refused by " + verdict.rule + ": " + verdict.reason;
  return file;
}

PackageVerdict decide_file(const policy::PackagePolicy& policy, const Index& index, const IndexFile& file, const Downloads& downloads) {
  const policy::PackageAttempt attempt{policy::Registry::kPypi, index.name, file.version, file.uploaded_at_ms, file.is_source};
  auto verdict = policy::decide_package(policy, attempt, now_ms());
  if (!verdict.allowed) return verdict;
  if (policy.require_hashes && file.sha256.empty()) {
    return {false, "packages.require_hashes", "The index gives no SHA-256 for " + file.filename + "."};
  }
  if (policy.offline && !downloads.is_cached({file.url, sha256_integrity(file.sha256), true, file.size})) return offline_verdict(file.filename);
  return verdict;
}

// What a sandbox with this policy gets to see.
struct Visible {
  Index index;
  size_t refused = 0;
  PackageVerdict example;  // of the last in the list, mostly the newest version
};

Visible visible(const policy::PackagePolicy& policy, const Index& index, const Downloads& downloads) {
  Visible out{{index.name, index.files}, 0, {}};
  std::vector<PackageVerdict> verdicts;
  for (const IndexFile& file : index.files) {
    verdicts.push_back(decide_file(policy, index, file, downloads));
    if (verdicts.back().allowed) continue;
    ++out.refused;
    out.example = verdicts.back();
  }
  for (size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i].allowed) continue;
    out.index.files[i].has_metadata = false;
    if (out.refused < verdicts.size()) out.index.files[i].yanked = "refused by " + verdicts[i].rule + ": " + verdicts[i].reason;
  }
  if (out.refused > 0) out.index.files.push_back(marker(index.name, out.example, true));
  return out;
}

Result<std::shared_ptr<const void>> parse(const Document& document, const std::string& package) {
  GB_TRY(const auto base, parse_url(document.url));
  const bool is_json = document.content_type.find("json") != std::string::npos;
  GB_TRY(auto index, is_json ? parse_index_json(document.body, base, package) : parse_index_html(document.body, base, package));
  return std::shared_ptr<const void>(std::make_shared<const Index>(std::move(index)));
}

Async<std::shared_ptr<const Index>> load_index(Call& call) {
  const std::string& package = call.event.package;
  if (call.core.settings.pypi.empty()) co_return fail(Code::kUnavailable, "no upstream is configured for PyPI");
  Documents::Request request;
  request.url = call.core.settings.pypi + "/" + package + "/";
  request.key = "pypi " + request.url;
  request.accept = kAccept;
  request.max_bytes = kMaxIndex;
  request.only_cached = call.policy().offline;
  request.parse = [package](const Document& document) { return parse(document, package); };
  GB_CO_TRY(const auto document, co_await call.core.documents->get(std::move(request)));
  co_return std::static_pointer_cast<const Index>(document->parsed);
}

Awaitable<void> send_index(Call& call, Index index) {
  const bool wants_json = call.exchange.request.header("Accept").value_or("").find(kJsonType) != std::string::npos;
  std::string body = wants_json ? render_index_json(index) : render_index_html(index);
  co_await call.send_document(200, {{"Content-Type", std::string(wants_json ? kJsonType : "text/html; charset=utf-8")}}, std::move(body));
}

// Asking for an index is not yet an attempt to install something; only what goes wrong is logged.
Awaitable<void> refuse_index(Call& call, const PackageVerdict& verdict) {
  call.event.rule = verdict.rule;
  call.event.reason = verdict.reason;
  call.log("denied");
  co_await send_index(call, {call.event.package, {marker(call.event.package, verdict, false)}});
}

Awaitable<void> handle_index(Call& call, const std::string& name) {
  if (!is_pypi_name(name)) co_return co_await call.fail_with({Code::kNotFound, "no package can have this name", {}});
  call.event.requested = name;
  call.event.package = policy::normal_package(policy::Registry::kPypi, name);
  const auto verdict = call.decide();
  const bool is_open = verdict.allowed || verdict.rule != "packages.registries";
  if (!is_open) co_return co_await refuse_index(call, verdict);
  const auto index = co_await load_index(call);
  if (!index && !verdict.allowed) co_return co_await refuse_index(call, verdict);
  if (!index && call.policy().offline && index.error().code == Code::kNotFound) {
    co_return co_await refuse_index(call, offline_verdict("the index of " + call.event.package));
  }
  if (!index) co_return co_await call.fail_with(index.error());
  auto work = [&call, &index] { return visible(call.policy(), **index, *call.core.downloads); };
  auto seen = co_await run_blocking(*call.core.pool, work);
  if (!verdict.allowed) {
    call.event.rule = verdict.rule;
    call.event.reason = verdict.reason;
    call.log("denied");
  } else if (seen.refused > 0) {
    call.log_hidden(seen.refused, (*index)->files.size(), seen.example);
  }
  co_await send_index(call, std::move(seen.index));
}

Awaitable<void> refuse_marker(Call& call, std::string_view version) {
  auto verdict = call.decide();
  if (verdict.allowed) {
    verdict = {false, std::string(version.substr(kMarkerVersion.size())), "No version of " + call.event.package + " that fits is allowed."};
    if (verdict.rule == "packages.offline") verdict = offline_verdict(call.event.package);
  }
  co_await call.refuse(verdict);
}

Awaitable<void> handle_file(Call& call, const std::string& package, const std::string& hash, std::string filename) {
  const bool is_metadata = filename.ends_with(kMetadataEnding);
  if (is_metadata) filename.resize(filename.size() - kMetadataEnding.size());
  const auto read = is_pypi_name(package) ? read_pypi_file(filename, package) : std::nullopt;
  if (!read) co_return co_await call.fail_with({Code::kNotFound, "no such file of " + package, {}});
  call.event.package = call.event.requested = package;
  call.event.file = filename;
  call.event.version = read->version;
  if (read->version.starts_with(kMarkerVersion)) co_return co_await refuse_marker(call, read->version);
  if (const auto early = call.decide(); !early.allowed) co_return co_await call.refuse(early);
  const auto index = co_await load_index(call);
  if (!index && call.policy().offline) co_return co_await call.refuse(offline_verdict("the index of " + package));
  if (!index) co_return co_await call.fail_with(index.error());
  const IndexFile* file = (*index)->find(filename);
  if (!file) co_return co_await call.fail_with({Code::kNotFound, filename + " is not in the index of " + package, {}});
  // Without policy's file check first a lockfile's stale hash would hide the rule.
  const auto verdict = decide_file(call.policy(), **index, *file, *call.core.downloads);
  if (!verdict.allowed) co_return co_await call.refuse(verdict);
  if (hash != (file->sha256.empty() ? "unhashed" : file->sha256)) {
    co_return co_await call.fail_with({Code::kCorrupt, "the index has another hash for " + filename, {}});
  }
  FileSpec spec{file->url, sha256_integrity(file->sha256), true, file->size};
  if (is_metadata) {
    spec = {file->url + std::string(kMetadataEnding), sha256_integrity(file->metadata_sha256), true, std::nullopt, kMaxMetadataFile};
    if (!file->has_metadata) co_return co_await call.fail_with({Code::kNotFound, filename + " has no metadata file", {}});
  }
  co_await call.send_file(std::move(spec), !is_metadata);
}

}  // namespace

Awaitable<void> handle_pypi(Call& call, const std::vector<std::string>& path) {
  if (path.size() == 2 && path[0] == "simple") {
    co_await handle_index(call, path[1]);
  } else if (path.size() == 4 && path[0] == "files") {
    co_await handle_file(call, path[1], path[2], path[3]);
  } else {
    co_await call.send_plain(404, "{\"error\":\"Only the simple index and its files are offered.\"}\n");
  }
}

}  // namespace glovebox::registry
