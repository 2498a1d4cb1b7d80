// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <new>

#include "base/text.h"
#include "image/files.h"
#include "image/helper_modes.h"
#include "image/import_protocol.h"
#include "image/jail.h"
#include "image/layer.h"
#include "image/oci.h"
#include "image/packages.h"
#include "image/skeleton.h"
#include "image/spool.h"
#include "image/store.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GLOVEBOX_ASAN 1  // its shadow memory is larger than any limit
#endif
#endif

namespace glovebox::image {
namespace {

constexpr int kBlobs = 3, kRoot = 4, kArchive = 5;
[[maybe_unused]] constexpr uint64_t kMaxMemory = 3ull << 30;  // a zstd window, a million inodes, slack
constexpr size_t kMaxPackageList = 64 << 20;

void report(const char* phase, uint64_t done, uint64_t total) {
  const std::string line = "!progress " + std::string(phase) + " " + std::to_string(done) + " " +
                           std::to_string(total) + "\n";
  (void)!::write(STDOUT_FILENO, line.data(), line.size());
}

Result<ImportLimits> limits_from(const std::vector<std::string>& words) {
  if (words.size() != kLimitCount) return fail(Code::kInvalidArgument, "unpack wants its limits");
  ImportLimits limits;
  const auto fields = limit_fields(limits);
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto n = parse_int(words[i]);
    if (!n || *n < 0) return fail(Code::kInvalidArgument, "bad limit");
    *fields[i] = static_cast<uint64_t>(*n);
  }
  return limits;
}

Result<void> apply_layers(const Blobs& blobs, const OciImage& image, const ImportLimits& limits) {
  LayerUse use;
  uint64_t done = 0, total = 0;
  for (const auto& layer : image.layers) total += layer.blob->size;
  int number = 0;
  for (const auto& layer : image.layers) {
    GB_TRY(const auto fd, blobs.open(*layer.blob));
    // How far the compressed file has been read is the honest measure of progress.
    LayerWriter writer(limits, use, [&] {
      const off_t at = ::lseek(fd.get(), 0, SEEK_CUR);
      report("layers", done + (at > 0 ? static_cast<uint64_t>(at) : 0), total);
    });
    GB_TRYV(writer.apply({fd.get(), layer.blob->size, layer.diff_id, ++number}));
    done += layer.blob->size;
    report("layers", done, total);
  }
  return {};
}

// The result goes through a file: a configuration can be longer than a line.
Result<void> write_result(const OciImage& image) {
  Manifest m;
  m.kind = "oci-import";
  m.config = image.config;
  m.source = image.source;
  if (const auto status = read_file("/var/lib/dpkg/status", kMaxPackageList))
    m.packages = parse_dpkg_status(*status);
  if (const auto list = read_file("/lib/apk/db/installed", kMaxPackageList);
      list && m.packages.empty()) {
    m.packages = parse_apk_installed(*list);
  }
  UniqueFd fd(
      ::openat(kBlobs, kResultFile, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) return fail_errno("create result");
  return write_fd(fd.get(), to_json(m), kResultFile);
}

Result<void> unpack(const UniqueFd& root, const ImportLimits& limits) {
  ::umask(022);
  const time_t start = ::time(nullptr);
  GB_TRYV(confine(root, limits));
  Blobs blobs(kBlobs);
  report("read", 0, 0);
  struct stat st;
  const bool is_layout = ::fstat(kArchive, &st) == 0 && S_ISDIR(st.st_mode);
  GB_TRYV(is_layout ? blobs.adopt_layout() : blobs.spool_archive(kArchive, limits));
  GB_TRY(const auto image, find_image(blobs, host_architecture()));
  GB_TRYV(apply_layers(blobs, image, limits));
  GB_TRYV(write_result(image));
  GB_TRYV(add_skeleton());
  return settle_times(start);
}

}  // namespace

Result<void> confine(const UniqueFd& root, const ImportLimits& limits) {
  GB_TRYV(enter_root(root));
  GB_TRYV(limit_resource(RLIMIT_CORE, 0));
  GB_TRYV(limit_resource(RLIMIT_NOFILE, 256));
  GB_TRYV(limit_resource(RLIMIT_CPU, limits.cpu_seconds));
  GB_TRYV(limit_resource(RLIMIT_FSIZE, std::max(limits.archive_bytes, limits.unpacked_bytes)));
#ifndef GLOVEBOX_ASAN
  GB_TRYV(limit_resource(RLIMIT_AS, kMaxMemory));
#endif
  GB_TRYV(keep_capabilities(
      {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER, CAP_FSETID}));
  return deny_dangerous_syscalls();
}

Result<void> helper_unpack(const std::vector<std::string>& arguments) {
  GB_TRY(const auto limits, limits_from(arguments));
  GB_TRY(const auto root, detach_directory(kRoot));
  ::close(kRoot);
  return run_in_jail({.has_user_namespace = true}, [&]() -> Result<void> {
    try {
      return unpack(root, limits);
    } catch (const std::bad_alloc&) {
      return fail(Code::kPayloadTooLarge, "reading the image takes too much memory",
                  {{"limit", "memory"}});
    }
  });
}

}  // namespace glovebox::image
