// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "image/files.h"
#include "image/templates.h"

// The directory behind Templates: where things lie, and the only code that changes names and
// versions.
namespace glovebox::image {

// manifest.json, schema 1.
struct Manifest {
  std::string version, kind, created_at;  // created_at in ISO 8601
  std::string name;  // the name it was made for; other names may stand for it too
  std::string image_sha256;
  uint64_t image_bytes = 0;
  TemplateConfig config;
  std::vector<Package> packages;
  std::string inputs;  // digest of recipe text, suite, archive and builder; empty for imports
  std::vector<std::string> suites;            // "trixie", "trixie-security"; never host names
  std::map<std::string, std::string> tools;   // "mmdebstrap": "1.3.5", …
  std::map<std::string, std::string> source;  // imports: "manifest_digest", "config_digest"
};
std::string to_json(const Manifest& manifest);
Result<Manifest> manifest_from_json(const std::string& text, const std::string& where);  // kCorrupt
// The digest that names a version: of the image and of how it is configured.
std::string version_of(const Manifest& manifest);

// A directory for one build, locked; removed when this goes out of scope or, after a crash, by the
// next build.
class Staging {
 public:
  Staging(Staging&&) = default;
  Staging& operator=(Staging&&) = delete;
  ~Staging();
  const std::string& path() const { return path_; }

 private:
  friend class Store;
  Staging(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  UniqueFd lock_;
};

class Store {
 public:
  explicit Store(const std::string& data_dir) : root_(data_dir + "/templates") {}

  std::string version_dir(const std::string& version) const {
    return root_ + "/versions/" + version;
  }
  Result<void> make_layout() const;
  Result<FileLock> lock_name(const std::string& name, const std::function<void()>& on_wait) const;
  Result<Staging> make_staging() const;

  Result<std::string> version_named(const std::string& name) const;  // kTemplateNotFound
  Result<std::vector<std::string>> names() const;
  Result<std::vector<std::string>> versions() const;
  Result<std::string> manifest_text(const std::string& version) const;
  Result<Manifest> manifest(const std::string& version) const;

  // Completes `manifest` from staging/rootfs.erofs, moves both into place and makes `name` stand
  // for them.
  Result<Manifest> publish(const Staging& staging, const std::string& name,
                           Manifest manifest) const;
  // Removes a name; the version too unless another name has it.
  Result<void> remove_name(const std::string& name,
                           const std::function<bool(const std::string&)>& in_use) const;
  Result<std::vector<std::string>> collect_garbage(
      const std::function<bool(const std::string&)>& in_use) const;

 private:
  Result<void> remove_stale_staging() const;
  Result<void> remove_version(const std::string& version) const;
  Result<FileLock> lock_store() const { return FileLock::wait(root_ + "/locks/.store"); }
  std::string root_;
};

}  // namespace glovebox::image
