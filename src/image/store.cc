// SPDX-License-Identifier: Apache-2.0
#include "image/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/log.h"
#include "base/random.h"
#include "image/digest.h"

namespace glovebox::image {
namespace {

constexpr size_t kMaxManifest = 64 << 20;

void warn_leftover(const std::string& path, const Error& error) {
  log::warn("template.leftover", {{"path", path}, {"error", error.message}});
}

}  // namespace

Staging::~Staging() {
  if (!lock_) return;  // moved from
  if (auto gone = remove_tree(path_); !gone) warn_leftover(path_, gone.error());
}

Result<void> Store::make_layout() const {
  for (const char* part : {"", "/versions", "/names", "/tmp", "/locks"})
    GB_TRYV(make_directories(root_ + part, 0755));
  return {};
}

Result<FileLock> Store::lock_name(const std::string& name,
                                  const std::function<void()>& on_wait) const {
  const std::string path = root_ + "/locks/" + name;
  auto lock = FileLock::attempt(path);
  if (lock || lock.error().code != Code::kConflict) return lock;
  on_wait();
  return FileLock::wait(path);
}

// The lock is on the directory itself, so that it cannot outlive it; the store's lock keeps a sweep
// from meeting a directory between its creation and its locking.
Result<Staging> Store::make_staging() const {
  GB_TRY(auto guard, lock_store());
  GB_TRYV(remove_stale_staging());
  const std::string path = root_ + "/tmp/" + random_name(16);
  if (::mkdir(path.c_str(), 0700) != 0) return fail_errno("make directory " + path);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || lock_fd(fd.get(), false) != 0) return fail_errno("lock " + path);
  return Staging(path, std::move(fd));
}

Result<void> Store::remove_stale_staging() const {
  GB_TRY(const auto names, directory_names(root_ + "/tmp"));
  for (const auto& name : names) {
    const std::string path = root_ + "/tmp/" + name;
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd || lock_fd(fd.get(), false) != 0) continue;
    if (auto gone = remove_tree(path); !gone) warn_leftover(path, gone.error());
  }
  return {};
}

Result<std::string> Store::version_named(const std::string& name) const {
  auto text = read_file(root_ + "/names/" + name, 128);
  if (!text && text.error().code == Code::kCorrupt) return fail(std::move(text).error());
  if (!text)
    return fail(Code::kTemplateNotFound, "there is no template \"" + name + "\"",
                {{"template", name}});
  while (!text->empty() && text->back() == '\n') text->pop_back();
  if (!is_sha256_hex(*text))
    return fail(Code::kCorrupt, "templates/names/" + name + " does not hold a version");
  return *text;
}

Result<std::vector<std::string>> Store::names() const {
  GB_TRY(auto names, directory_names(root_ + "/names"));
  std::erase_if(names, [](const auto& n) {
    return !is_template_name(n) || n.find(".new-") != std::string::npos;
  });
  return names;
}

Result<std::vector<std::string>> Store::versions() const {
  GB_TRY(auto all, directory_names(root_ + "/versions"));
  std::erase_if(all, [](const auto& v) { return !is_sha256_hex(v); });
  return all;
}

Result<std::string> Store::manifest_text(const std::string& version) const {
  auto text = read_file(version_dir(version) + "/manifest.json", kMaxManifest);
  if (!text && !path_exists(version_dir(version))) {
    return fail(Code::kTemplateNotFound, "there is no template version " + version);
  }
  return text;
}

Result<Manifest> Store::manifest(const std::string& version) const {
  GB_TRY(const auto text, manifest_text(version));
  GB_TRY(auto manifest, manifest_from_json(text, version_dir(version) + "/manifest.json"));
  if (manifest.version != version)
    return fail(Code::kCorrupt, version_dir(version) + " holds another version's manifest");
  return manifest;
}

Result<Manifest> Store::publish(const Staging& staging, const std::string& name, Manifest m) const {
  const std::string image = staging.path() + "/rootfs.erofs";
  {
    UniqueFd fd(::open(image.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat st;
    if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno("open " + image);
    if (::fchown(fd.get(), 0, 0) != 0 && errno != EPERM) return fail_errno("own " + image);
    if (::fchmod(fd.get(), 0444) != 0) return fail_errno("set mode of " + image);
    GB_TRY(m.image_sha256, sha256_of_fd(fd.get(), image));
    m.image_bytes = static_cast<uint64_t>(st.st_size);
    if (::fsync(fd.get()) != 0) return fail_errno("sync " + image);
  }
  m.name = name;
  m.created_at = iso_time_now();
  m.version = version_of(m);
  const std::string aside = staging.path() + "/version";
  GB_TRYV(make_directories(aside, 0755));
  if (::rename(image.c_str(), (aside + "/rootfs.erofs").c_str()) != 0)
    return fail_errno("rename " + image);
  GB_TRYV(replace_file(aside + "/manifest.json", to_json(m), 0644));

  GB_TRY(auto guard, lock_store());
  if (path_exists(version_dir(m.version))) {
    GB_TRY(m, manifest(m.version));  // the same bytes are there already
  } else if (::rename(aside.c_str(), version_dir(m.version).c_str()) != 0) {
    return fail_errno("rename " + aside);
  }
  GB_TRYV(sync_path(root_ + "/versions"));
  GB_TRYV(replace_file(root_ + "/names/" + name, m.version + "\n", 0644));
  return m;
}

Result<void> Store::remove_version(const std::string& version) const {
  // Out of sight first: a version is whole or absent.
  const std::string aside = root_ + "/tmp/removed-" + random_name(12);
  if (::rename(version_dir(version).c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno("rename " + version_dir(version));
  }
  return remove_tree(aside);
}

Result<void> Store::remove_name(const std::string& name,
                                const std::function<bool(const std::string&)>& in_use) const {
  GB_TRYV(make_layout());
  GB_TRY(auto guard, lock_store());
  GB_TRY(const auto version, version_named(name));
  if (in_use && in_use(version)) {
    return fail(Code::kTemplateInUse, "template \"" + name + "\" is in use",
                {{"template", name}, {"version", version}});
  }
  bool is_shared = false;
  GB_TRY(const auto all, names());
  for (const auto& other : all) {
    const auto its = version_named(other);
    is_shared = is_shared || (other != name && its && *its == version);
  }
  if (::unlink((root_ + "/names/" + name).c_str()) != 0) return fail_errno("remove name " + name);
  GB_TRYV(sync_path(root_ + "/names"));
  return is_shared ? Result<void>() : remove_version(version);
}

Result<std::vector<std::string>> Store::collect_garbage(
    const std::function<bool(const std::string&)>& in_use) const {
  GB_TRYV(make_layout());
  GB_TRY(auto guard, lock_store());
  GB_TRYV(remove_stale_staging());
  std::set<std::string> named;
  GB_TRY(const auto all_names, names());
  for (const auto& name : all_names) {
    // An unreadable name must not cost its version.
    GB_TRY(auto version, version_named(name));
    named.insert(std::move(version));
  }
  std::vector<std::string> removed;
  GB_TRY(const auto all_versions, versions());
  for (const auto& version : all_versions) {
    if (named.contains(version) || (in_use && in_use(version))) continue;
    GB_TRYV(remove_version(version));
    removed.push_back(version);
  }
  return removed;
}

}  // namespace glovebox::image
