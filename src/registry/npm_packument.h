// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "policy/packages.h"
#include "registry/digest.h"

// npm's metadata of one package (a "packument"), full and abbreviated (application/vnd.npm.install-v1+json).
namespace glovebox::registry {

struct NpmVersion {
  std::string version;
  std::string tarball;  // URL as the upstream wrote it
  Integrity integrity;
  std::optional<int64_t> uploaded_at_ms;
  bool has_install_script = false;  // as far as the metadata says
};

class Packument {
 public:
  // kCorrupt when it is not the packument of `package`. Versions that could not be asked for (odd characters), have no tarball or a
  // manifest of another package are left out.
  static Result<Packument> parse(std::string_view body, std::string_view package);

  const std::string& name() const { return name_; }
  const std::map<std::string, NpmVersion, std::less<>>& versions() const { return versions_; }
  const NpmVersion* find(std::string_view version) const;
  // A version or a dist-tag; empty when there is none.
  std::string resolve(std::string_view wanted) const;

  struct View {
    std::map<std::string, policy::PackageVerdict, std::less<>> refused;  // version -> why
    bool is_abbreviated = false;
    bool without_scripts = false;     // install scripts, and the hashes of files that will be repacked, are left out
    std::string base_url;             // tarballs are <base_url>/<package>/-/<file>
  };
  // Without the refused versions. Tags that named one of them are gone, but `latest` moves to the highest release that is left. The
  // refused ones are listed under "policyRestrictions": npm takes none of them, and when nothing else fits it prints why.
  std::string render(const View& view) const;
  // The manifest of one version, as GET /<package>/<version> gives it.
  std::string render_version(std::string_view version, const View& view) const;

 private:
  boost::json::value manifest(std::string_view version, const View& view) const;
  boost::json::object tags(const View& view) const;

  std::string name_;
  boost::json::value document_;
  std::map<std::string, NpmVersion, std::less<>> versions_;
};

// package.json without the scripts that an installing npm, pnpm or yarn would run; nothing when there are none. `has_gyp_file`: a binding.gyp beside it would make npm run node-gyp, which
// "gypfile": false prevents. kCorrupt when it is no JSON object.
Result<std::optional<std::string>> without_install_scripts(std::string_view package_json, bool has_gyp_file);

}  // namespace glovebox::registry
