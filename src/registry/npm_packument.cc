// SPDX-License-Identifier: Apache-2.0
#include "registry/npm_packument.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"
#include "http/message.h"
#include "registry/bounded_json.h"
#include "registry/names.h"

namespace glovebox::registry {
namespace {

constexpr size_t kMaxMemory = 768 << 20, kMaxManifestMemory = 64 << 20;
// What npm, pnpm and yarn run of a package that comes from a registry ("prepare" is for checkouts and links).
constexpr std::string_view kInstallScripts[] = {"preinstall", "install", "postinstall"};
// https://github.com/npm/registry/blob/main/docs/responses/package-metadata.md, "abbreviated version object".
constexpr std::string_view kShortFields[] = {
    "name", "version", "dependencies", "optionalDependencies", "devDependencies", "bundleDependencies", "bundledDependencies",
    "peerDependencies", "peerDependenciesMeta", "acceptDependencies", "bin", "directories", "dist", "engines", "os", "cpu", "libc",
    "deprecated", "funding", "_hasShrinkwrap", "hasInstallScript"};

const boost::json::value* field(const boost::json::value& value, std::string_view name) {
  return value.is_object() ? value.get_object().if_contains(name) : nullptr;
}

std::string text_of(const boost::json::value& value, std::string_view name) {
  const auto* found = field(value, name);
  return found && found->is_string() ? std::string(found->get_string()) : "";
}

bool has_install_script(const boost::json::value& manifest) {
  const auto* flag = field(manifest, "hasInstallScript");
  if (flag && flag->is_bool() && flag->get_bool()) return true;
  const auto* gyp = field(manifest, "gypfile");
  if (gyp && gyp->is_bool() && gyp->get_bool()) return true;
  const auto* scripts = field(manifest, "scripts");
  if (!scripts || !scripts->is_object()) return false;
  return std::any_of(std::begin(kInstallScripts), std::end(kInstallScripts),
                     [scripts](std::string_view name) { return scripts->get_object().contains(name); });
}

// Characters of SemVer only: a version becomes part of paths.
bool is_npm_version(std::string_view version) {
  return !version.empty() && version.size() <= 200 && std::all_of(version.begin(), version.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '+';
  });
}

std::optional<NpmVersion> read_version(std::string_view version, const boost::json::value& manifest, std::string_view package) {
  const auto* dist = field(manifest, "dist");
  if (!is_npm_version(version) || !dist) return std::nullopt;
  if (text_of(manifest, "name") != package || text_of(manifest, "version") != version) return std::nullopt;
  NpmVersion out;
  out.version = version;
  out.tarball = text_of(*dist, "tarball");
  out.integrity = npm_integrity(text_of(*dist, "integrity"), text_of(*dist, "shasum"));
  out.has_install_script = has_install_script(manifest);
  if (out.tarball.empty()) return std::nullopt;
  return out;
}

void drop_install_scripts(boost::json::object& manifest) {
  auto* scripts = manifest.if_contains("scripts");
  if (scripts && scripts->is_object()) {
    for (const std::string_view name : kInstallScripts) scripts->get_object().erase(name);
  }
  manifest.erase("hasInstallScript");
  manifest["gypfile"] = false;
}

}  // namespace

Result<Packument> Packument::parse(std::string_view body, std::string_view package) {
  Packument out;
  GB_TRY(out.document_, parse_bounded_json(body, kMaxMemory));
  out.name_ = package;
  const auto* versions = field(out.document_, "versions");
  if (text_of(out.document_, "name") != package || !versions || !versions->is_object()) {
    return fail(Code::kCorrupt, "the upstream's metadata is not that of " + out.name_);
  }
  const auto* time = field(out.document_, "time");
  for (const auto& [key, manifest] : versions->get_object()) {
    auto version = read_version(key, manifest, package);
    if (!version) continue;
    if (time) version->uploaded_at_ms = parse_time(text_of(*time, key));
    out.versions_.emplace(key, std::move(*version));
  }
  return out;
}

const NpmVersion* Packument::find(std::string_view version) const {
  const auto it = versions_.find(version);
  return it == versions_.end() ? nullptr : &it->second;
}

std::string Packument::resolve(std::string_view wanted) const {
  if (find(wanted)) return std::string(wanted);
  const auto* all = field(document_, "dist-tags");
  const std::string named = all ? text_of(*all, wanted) : "";
  return find(named) ? named : "";
}

boost::json::object Packument::tags(const View& view) const {
  boost::json::object out;
  const auto is_left = [this, &view](std::string_view version) { return find(version) && !view.refused.contains(version); };
  const auto* all = field(document_, "dist-tags");
  if (all && all->is_object()) {
    for (const auto& [tag, version] : all->get_object()) {
      if (version.is_string() && is_left(std::string_view(version.get_string()))) out[tag] = version;
    }
  }
  if (out.contains("latest")) return out;
  std::string best;
  for (const auto& [version, info] : versions_) {
    if (!is_left(version)) continue;
    const bool is_better = best.empty() || is_prerelease(best) > is_prerelease(version) ||
                           (is_prerelease(best) == is_prerelease(version) && semver_less(best, version));
    if (is_better) best = version;
  }
  if (!best.empty()) out["latest"] = best;
  return out;
}

boost::json::value Packument::manifest(std::string_view version, const View& view) const {
  const NpmVersion& known = *find(version);
  const auto& source = field(*field(document_, "versions"), version)->get_object();
  boost::json::object out;
  if (view.is_abbreviated) {
    for (const std::string_view name : kShortFields) {
      if (const auto* value = source.if_contains(name)) out[name] = *value;
    }
    if (known.has_install_script) out["hasInstallScript"] = true;
  } else {
    out = boost::json::object(source, boost::json::storage_ptr());
  }
  boost::json::object dist(source.at("dist").get_object(), boost::json::storage_ptr());
  dist["tarball"] = view.base_url + "/" + name_ + "/-/" + http::percent_encode(npm_file_name(name_, version));
  if (view.without_scripts && known.has_install_script) {
    drop_install_scripts(out);
    for (const char* name : {"integrity", "shasum", "signatures", "npm-signature", "attestations"}) dist.erase(name);
  }
  out["dist"] = std::move(dist);
  return out;
}

std::string Packument::render_version(std::string_view version, const View& view) const { return json::to_text(manifest(version, view)); }

namespace {

// A line for each rule, with the reason for the newest version that it refuses.
std::string restriction_message(const std::string& name, const std::map<std::string, policy::PackageVerdict, std::less<>>& refused) {
  struct Group {
    std::string newest;
    const policy::PackageVerdict* verdict;
    size_t count;
  };
  std::map<std::string, Group> groups;
  for (const auto& [version, verdict] : refused) {
    auto& group = groups.try_emplace(verdict.rule, Group{version, &verdict, 0}).first->second;
    ++group.count;
    if (semver_less(group.newest, version)) {
      group.newest = version;
      group.verdict = &verdict;
    }
  }
  std::string out;
  for (const auto& [rule, group] : groups) {
    out += (out.empty() ? "" : "\n") + rule + " refuses " + std::to_string(group.count) + (group.count == 1 ? " version" : " versions") + " of " +
           name + ": " + group.verdict->reason;
  }
  return out;
}

}  // namespace

std::string Packument::render(const View& view) const {
  boost::json::object versions, time, restricted;
  const auto* times = field(document_, "time");
  for (const auto& [version, info] : versions_) {
    const auto refused = view.refused.find(version);
    if (refused != view.refused.end()) {
      restricted[version] = {{"name", name_}, {"version", version}};
      continue;
    }
    versions[version] = manifest(version, view);
    const auto* at = times ? field(*times, version) : nullptr;
    if (at) time[version] = *at;
  }
  boost::json::object out{{"name", name_}, {"dist-tags", tags(view)}, {"versions", std::move(versions)}};
  for (const char* name : {"created", "modified"}) {
    const auto* at = times ? field(*times, name) : nullptr;
    if (at && !view.is_abbreviated) time[name] = *at;
    if (at && view.is_abbreviated && std::string_view(name) == "modified") out["modified"] = *at;
  }
  if (!view.is_abbreviated) {
    out["_id"] = name_;
    for (const char* name : {"description", "license", "homepage", "repository", "keywords", "author", "maintainers", "bugs"}) {
      if (const auto* value = field(document_, name)) out[name] = *value;
    }
  }
  if (times) out["time"] = std::move(time);
  if (!restricted.empty()) {
    out["policyRestrictions"] = {{"versions", std::move(restricted)}, {"message", restriction_message(name_, view.refused)}};
  }
  return json::to_text(out);
}

Result<std::optional<std::string>> without_install_scripts(std::string_view package_json, bool has_gyp_file) {
  GB_TRY(auto value, parse_bounded_json(package_json, kMaxManifestMemory));
  if (!value.is_object()) return fail(Code::kCorrupt, "package.json is no object");
  auto& manifest = value.get_object();
  const auto* gyp = manifest.if_contains("gypfile");
  const bool builds = has_gyp_file && !(gyp && gyp->is_bool() && !gyp->get_bool());
  if (!builds && !has_install_script(value)) return std::optional<std::string>();
  drop_install_scripts(manifest);
  return std::optional<std::string>(json::to_text(value));
}

}  // namespace glovebox::registry
