// SPDX-License-Identifier: Apache-2.0
#include "image/templates.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <tuple>

#include "base/log.h"
#include "base/unique_fd.h"
#include "image/build.h"
#include "image/digest.h"
#include "image/import.h"
#include "image/recipe.h"
#include "image/store.h"

namespace glovebox::image {
namespace {

constexpr size_t kMinPrefix = 8;

WallTime parse_time(const std::string& iso) {
  struct tm tm = {};
  const char* rest = ::strptime(iso.c_str(), "%Y-%m-%dT%H:%M:%S", &tm);
  if (rest == nullptr) return {};
  const auto millis =
      *rest == '.' ? parse_int(std::string_view(rest + 1).substr(0, 3)) : std::nullopt;
  return from_unix_millis(static_cast<int64_t>(::timegm(&tm)) * 1000 + millis.value_or(0));
}

Template to_template(const Store& store, const std::string& name, const Manifest& m) {
  Template t;
  t.name = name;
  t.version = m.version;
  t.kind = m.kind;
  t.image_path = store.version_dir(m.version) + "/rootfs.erofs";
  t.image_sha256 = m.image_sha256;
  t.image_bytes = m.image_bytes;
  t.config = m.config;
  t.created_at = parse_time(m.created_at);
  t.package_count = m.packages.size();
  return t;
}

// Every create call asks for a template, whose manifest is long and does not change any more. What
// was read is known by its file.
class Remembered {
 public:
  using Key = std::tuple<std::string, ino_t, time_t, long, off_t>;

  // Empty when the file cannot be seen.
  static std::optional<Key> key_of(const std::string& path) {
    struct stat st{};
    if (::stat(path.c_str(), &st) != 0) return std::nullopt;
    return Key(path, st.st_ino, st.st_mtim.tv_sec, st.st_mtim.tv_nsec, st.st_size);
  }
  std::optional<Template> find(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = templates_.find(key);
    return found == templates_.end() ? std::nullopt : std::optional(found->second);
  }
  void add(const Key& key, const Template& t) {
    const std::lock_guard lock(mutex_);
    if (templates_.size() >= kMost) templates_.clear();
    templates_[key] = t;
  }

 private:
  static constexpr size_t kMost = 64;
  std::mutex mutex_;
  std::map<Key, Template> templates_;
};

Result<Template> load(const Store& store, const std::string& name, const std::string& version) {
  static Remembered remembered;
  const auto key = Remembered::key_of(store.version_dir(version) + "/manifest.json");
  if (key) {
    if (auto known = remembered.find(*key)) {
      known->name = name;
      return std::move(*known);
    }
  }
  GB_TRY(const auto manifest, store.manifest(version));
  Template t = to_template(store, name, manifest);
  if (key) remembered.add(*key, t);
  return t;
}

bool is_version_prefix(const std::string& text) {
  return text.size() >= kMinPrefix && text.size() <= 64 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Result<void> check_name(const std::string& name) {
  if (is_template_name(name)) return {};
  return fail(Code::kInvalidArgument,
              "a template name has 1 to 63 characters of a-z, 0-9, '.', '_', '-' and starts with a "
              "letter or digit");
}

// Which versions `name@prefix` may mean: the name's own first, then older ones that were made for
// it.
Result<Template> find_version(const Store& store, const std::string& name,
                              const std::string& prefix) {
  GB_TRY(const auto versions, store.versions());
  std::vector<Template> found;
  const auto named = name.empty() ? Result<std::string>("") : store.version_named(name);
  for (const auto& version : versions) {
    if (version.rfind(prefix, 0) != 0) continue;
    GB_TRY(const auto manifest, store.manifest(version));
    const bool is_current = named && *named == version;
    if (name.empty() || is_current || manifest.name == name) {
      found.push_back(to_template(store, is_current ? name : std::string(), manifest));
    }
  }
  if (found.empty())
    return fail(Code::kTemplateNotFound, "there is no template \"" + name + "@" + prefix + "\"");
  if (found.size() > 1)
    return fail(Code::kInvalidArgument, "\"" + prefix + "\" means more than one version");
  return found.front();
}

void report_waiting(const ProgressFn& progress, const std::string& name) {
  if (progress)
    progress({.phase = "waiting", .message = "another process is making \"" + name + "\""});
}

Template reported(const ProgressFn& progress, Template t) {
  if (progress)
    progress({.phase = "done",
              .done = 1,
              .total = 1,
              .message = t.name + "@" + t.version.substr(0, 12)});
  return t;
}

}  // namespace

bool is_template_name(const std::string& name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 63 && is_plain(name[0]) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
}

Templates::Templates(std::string data_dir) : data_dir_(std::move(data_dir)) {}

Result<Template> Templates::find(const std::string& spec) const {
  const Store store(data_dir_);
  const size_t at = spec.find('@');
  const std::string name = spec.substr(0, at);
  if (!name.empty() || at == std::string::npos) GB_TRYV(check_name(name));
  if (at == std::string::npos) {
    GB_TRY(const auto version, store.version_named(name));
    return load(store, name, version);
  }
  const std::string prefix = spec.substr(at + 1);
  if (!is_version_prefix(prefix)) {
    return fail(Code::kInvalidArgument,
                "a template version is given by 8 to 64 hexadecimal digits");
  }
  return find_version(store, name, prefix);
}

Result<std::vector<Template>> Templates::list() const {
  const Store store(data_dir_);
  GB_TRY(const auto names, store.names());
  std::vector<Template> out;
  for (const auto& name : names) {
    auto version = store.version_named(name);
    auto t = version ? load(store, name, *version) : Result<Template>(fail(version.error()));
    if (t) {
      out.push_back(std::move(*t));
    } else if (t.error().code != Code::kTemplateNotFound) {  // removed meanwhile
      log::warn("template.unreadable", {{"name", name}, {"error", t.error().message}});
    }
  }
  return out;
}

Result<std::vector<Package>> Templates::packages(const Template& t) const {
  GB_TRY(auto manifest, Store(data_dir_).manifest(t.version));
  return std::move(manifest.packages);
}

Result<std::string> Templates::manifest(const Template& t) const {
  return Store(data_dir_).manifest_text(t.version);
}

Result<void> Templates::verify(const Template& t) const {
  UniqueFd fd(::open(t.image_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno("open " + t.image_path);
  GB_TRY(const auto digest, sha256_of_fd(fd.get(), t.image_path));
  if (digest == t.image_sha256) return {};
  return fail(Code::kCorrupt, t.image_path + ": its SHA-256 is not the manifest's",
              {{"expected", t.image_sha256}, {"found", digest}});
}

Result<Template> Templates::build(const std::string& recipe_name, const BuildOptions& options,
                                  const ProgressFn& progress) {
  GB_TRY(const auto recipe, load_recipe(recipe_name));
  const Store store(data_dir_);
  GB_TRYV(store.make_layout());
  GB_TRY(auto lock, store.lock_name(recipe.name, [&] { report_waiting(progress, recipe.name); }));
  const auto current = store.version_named(recipe.name);
  if (current && !options.refresh) {
    const auto manifest = store.manifest(*current);
    if (manifest && manifest->inputs == inputs_digest(recipe, options)) {
      return reported(progress, to_template(store, recipe.name, *manifest));
    }
  }
  GB_TRY(const auto staging, store.make_staging());
  GB_TRY(auto built, build_debian(recipe, options, staging, data_dir_ + "/cache/apt", progress));
  GB_TRY(const auto published, store.publish(staging, recipe.name, std::move(built)));
  log::info(
      "template.built",
      {{"name", recipe.name}, {"version", published.version}, {"bytes", published.image_bytes}});
  return reported(progress, to_template(store, recipe.name, published));
}

Result<Template> Templates::import_archive(const std::string& name, const std::string& path,
                                           const ProgressFn& progress, const ImportLimits& limits) {
  GB_TRYV(check_name(name));
  const Store store(data_dir_);
  GB_TRYV(store.make_layout());
  GB_TRY(auto lock, store.lock_name(name, [&] { report_waiting(progress, name); }));
  GB_TRY(const auto staging, store.make_staging());
  GB_TRY(auto imported, import_image(path, staging, limits, progress));
  GB_TRY(const auto published, store.publish(staging, name, std::move(imported)));
  log::info("template.imported",
            {{"name", name}, {"version", published.version}, {"bytes", published.image_bytes}});
  return reported(progress, to_template(store, name, published));
}

Result<void> Templates::remove(const std::string& name,
                               const std::function<bool(const std::string& version)>& in_use) {
  GB_TRYV(check_name(name));
  return Store(data_dir_).remove_name(name, in_use);
}

Result<std::vector<std::string>> Templates::collect_garbage(
    const std::function<bool(const std::string& version)>& in_use) {
  return Store(data_dir_).collect_garbage(in_use);
}

std::vector<std::string> Templates::recipes() {
  std::vector<std::string> names;
  for (const auto& [name, text] : embedded_recipes()) names.push_back(name);
  return names;
}

}  // namespace glovebox::image
