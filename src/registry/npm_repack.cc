// SPDX-License-Identifier: Apache-2.0
#include "registry/npm_repack.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "registry/npm_packument.h"

namespace glovebox::registry {
namespace {

constexpr uint64_t kMaxUnpacked = 2ull << 30;
constexpr size_t kMaxManifest = 8 << 20, kMaxEntries = 200'000, kBlock = 256 << 10;

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

tl::unexpected<Error> corrupt(archive* a) {
  const char* why = archive_error_string(a);
  return fail(Code::kCorrupt, std::string("the package file cannot be read: ") + (why ? why : "unknown"));
}

// Without "." and empty parts; nothing for a path that climbs.
std::optional<std::string> normal_path(const char* path) {
  std::string out;
  for (const std::string& part : split(path ? path : "", '/')) {
    if (part == "..") return std::nullopt;
    if (!part.empty() && part != ".") out += (out.empty() ? "" : "/") + part;
  }
  return out.empty() ? std::nullopt : std::optional<std::string>(out);
}

// The directory of a package whose manifest an installer acts on: the top, or one in node_modules; nothing for other paths. How many
// components installers strip at the top differs for odd paths ("./package.json"), so both spellings count.
bool is_package_directory(std::string_view directory) {
  if (directory.find('/') == directory.npos) return true;
  const auto parts = split(directory, '/');
  const size_t n = parts.size();
  return parts[n - 2] == "node_modules" || (n >= 3 && parts[n - 3] == "node_modules" && parts[n - 2].starts_with('@'));
}

std::string directory_of(std::string_view path) { return std::string(path.substr(0, path.rfind('/') == path.npos ? 0 : path.rfind('/'))); }
std::string_view base_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

class Package {
 public:
  explicit Package(int fd) : fd_(fd) {}
  Result<bool> repack(const std::function<Result<void>(std::string_view)>& write);

 private:
  // Calls `visit` for each file, which may read its content from the archive.
  Result<void> each_file(const std::function<Result<void>(archive*, archive_entry*, const std::string& path)>& visit);
  Result<void> collect();
  Result<void> copy(archive* out);

  const int fd_;
  std::map<std::string, std::string> manifests_;  // path -> content, the last of that name counts for installers; all are replaced
  std::set<std::string> gyp_directories_;
  std::map<std::string, std::string> replaced_;
};

Result<std::string> read_content(archive* in, size_t limit) {
  std::string out;
  const void* block;
  size_t size;
  la_int64_t offset;
  for (int status; (status = archive_read_data_block(in, &block, &size, &offset)) != ARCHIVE_EOF;) {
    if (status < ARCHIVE_WARN) return corrupt(in);
    if (out.size() + size > limit) return fail(Code::kPayloadTooLarge, "a package.json is too large");
    out.append(static_cast<const char*>(block), size);
  }
  return out;
}

Result<void> Package::each_file(const std::function<Result<void>(archive*, archive_entry*, const std::string&)>& visit) {
  if (::lseek(fd_, 0, SEEK_SET) != 0) return fail_errno("lseek");
  const Reader in(archive_read_new(), &archive_read_free);
  archive_read_support_filter_gzip(in.get());
  archive_read_support_format_tar(in.get());
  if (archive_read_open_fd(in.get(), fd_, kBlock) != ARCHIVE_OK) return corrupt(in.get());
  uint64_t total = 0;
  size_t count = 0;
  archive_entry* entry = nullptr;
  for (int status; (status = archive_read_next_header(in.get(), &entry)) != ARCHIVE_EOF;) {
    if (status < ARCHIVE_WARN) return corrupt(in.get());
    // npm unpacks files and directories only, and makes the directories that files need.
    if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry)) continue;
    const auto path = normal_path(archive_entry_pathname(entry));
    total += static_cast<uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
    if (!path || ++count > kMaxEntries) return fail(Code::kCorrupt, "the package file holds paths that are not its own, or too many");
    if (total > kMaxUnpacked) return fail(Code::kPayloadTooLarge, "the package file unpacks to too much");
    GB_TRYV(visit(in.get(), entry, *path));
  }
  return {};
}

Result<void> Package::collect() {
  return each_file([this](archive* in, archive_entry*, const std::string& path) -> Result<void> {
    const std::string directory = directory_of(path);
    if (!is_package_directory(directory)) return {};
    if (base_of(path) == "binding.gyp") gyp_directories_.insert(directory);
    if (base_of(path) != "package.json") return {};
    GB_TRY(manifests_[path], read_content(in, kMaxManifest));
    return {};
  });
}

Result<void> Package::copy(archive* out) {
  return each_file([this, out](archive* in, archive_entry* entry, const std::string& path) -> Result<void> {
    const auto replaced = replaced_.find(path);
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> fresh(archive_entry_new(), &archive_entry_free);
    archive_entry_set_pathname(fresh.get(), path.c_str());
    archive_entry_set_filetype(fresh.get(), AE_IFREG);
    archive_entry_set_perm(fresh.get(), archive_entry_perm(entry) & 0755 ? archive_entry_perm(entry) & 0755 : 0644);
    archive_entry_set_mtime(fresh.get(), archive_entry_mtime(entry), 0);
    archive_entry_set_size(fresh.get(), replaced == replaced_.end() ? archive_entry_size(entry) : static_cast<la_int64_t>(replaced->second.size()));
    if (archive_write_header(out, fresh.get()) < ARCHIVE_WARN) return corrupt(out);
    if (replaced != replaced_.end()) {
      const auto& text = replaced->second;
      return archive_write_data(out, text.data(), text.size()) == static_cast<la_ssize_t>(text.size()) ? Result<void>() : corrupt(out);
    }
    std::vector<char> block(kBlock);
    for (la_ssize_t n; (n = archive_read_data(in, block.data(), block.size())) != 0;) {
      if (n < 0) return corrupt(in);
      if (archive_write_data(out, block.data(), static_cast<size_t>(n)) != n) return corrupt(out);
    }
    return {};
  });
}

struct Output {
  const std::function<Result<void>(std::string_view)>& write;
  Result<void> result;
};

la_ssize_t put(archive* out, void* context, const void* data, size_t size) {
  auto& output = *static_cast<Output*>(context);
  output.result = output.write({static_cast<const char*>(data), size});
  if (output.result) return static_cast<la_ssize_t>(size);
  archive_set_error(out, EIO, "%s", output.result.error().message.c_str());
  return -1;
}

Result<bool> Package::repack(const std::function<Result<void>(std::string_view)>& write) {
  GB_TRYV(collect());
  for (const auto& [path, content] : manifests_) {
    GB_TRY(auto changed, without_install_scripts(content, gyp_directories_.contains(directory_of(path))));
    if (changed) replaced_[path] = std::move(*changed);
  }
  if (replaced_.empty()) return false;
  Output output{write, {}};
  const Reader out(archive_write_new(), &archive_write_free);
  archive_write_add_filter_gzip(out.get());
  archive_write_set_filter_option(out.get(), "gzip", "timestamp", nullptr);
  archive_write_set_format_pax_restricted(out.get());
  if (archive_write_open(out.get(), &output, nullptr, &put, nullptr) != ARCHIVE_OK) return corrupt(out.get());
  GB_TRYV(copy(out.get()));
  if (archive_write_close(out.get()) != ARCHIVE_OK) return output.result ? corrupt(out.get()) : fail(output.result.error());
  return true;
}

}  // namespace

Result<bool> repack_without_scripts(int fd, const std::function<Result<void>(std::string_view)>& write) {
  return Package(fd).repack(write);
}

}  // namespace glovebox::registry
