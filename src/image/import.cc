// SPDX-License-Identifier: Apache-2.0
#include "image/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/unique_fd.h"
#include "image/build.h"
#include "image/files.h"
#include "image/helper.h"
#include "image/helper_modes.h"
#include "image/import_protocol.h"
#include "image/jail.h"
#include "image/spool.h"

namespace glovebox::image {
namespace {

constexpr size_t kMaxResult = 64 << 20;
constexpr std::string_view kProgressMark = "!progress ";

// A directory of the staging area that belongs to root of the shifted ids.
Result<UniqueFd> shifted_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0) return fail_errno("make directory " + path);
  if (::chown(path.c_str(), kShiftedIds, kShiftedIds) != 0) return fail_errno("own " + path);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno("open " + path);
  return fd;
}

Result<UniqueFd> open_source(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT)
      return fail(Code::kFileNotFound, path + " does not exist", {{"path", path}});
    return fail_errno("open " + path);
  }
  struct stat st;
  if (::fstat(fd.get(), &st) != 0) return fail_errno("stat " + path);
  if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return fd;
  return fail(Code::kInvalidArgument, path + " is neither a file nor a directory",
              {{"path", path}});
}

// Lines of the helper, which may be in hostile hands: only numbers and known phases pass.
void pass_progress(std::string_view line, std::chrono::steady_clock::time_point start,
                   const ProgressFn& progress) {
  if (!progress || line.substr(0, kProgressMark.size()) != kProgressMark) return;
  const auto words = split(line.substr(kProgressMark.size()), ' ');
  if (words.size() != 3 || (words[0] != "read" && words[0] != "layers")) return;
  const auto done = parse_int(words[1]), total = parse_int(words[2]);
  if (!done || !total || *done < 0 || *total < 0) return;
  Progress p{.phase = words[0],
             .done = static_cast<uint64_t>(*done),
             .total = static_cast<uint64_t>(*total)};
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  if (p.done > 0 && p.total >= p.done) {
    const double factor = static_cast<double>(p.total - p.done) / static_cast<double>(p.done);
    p.eta = std::chrono::milliseconds(
        static_cast<int64_t>(static_cast<double>(elapsed.count()) * factor));
  }
  p.message = p.phase == "read" ? "reading the archive"
                                : human_bytes(p.done) + " of " + human_bytes(p.total);
  progress(p);
}

Result<Manifest> read_result(int blobs_fd) {
  UniqueFd fd(::openat(blobs_fd, kResultFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return fail(Code::kInternal, "the unpacking helper left no result");
  GB_TRY(const auto text, read_fd(fd.get(), kMaxResult, kResultFile));
  return manifest_from_json(text, kResultFile);
}

}  // namespace

Result<Manifest> import_image(const std::string& path, const Staging& staging,
                              const ImportLimits& limits, const ProgressFn& progress) {
  GB_TRYV(need_program("mkfs.erofs", "erofs-utils"));
  if (::geteuid() != 0) return fail(Code::kUnavailable, "importing an image needs root");
  GB_TRY(const auto source, open_source(path));
  GB_TRY(const auto blobs, shifted_directory(staging.path() + "/blobs"));
  GB_TRY(const auto root, shifted_directory(staging.path() + "/root"));
  struct stat st;
  if (::fstat(source.get(), &st) == 0 && S_ISDIR(st.st_mode))
    GB_TRYV(copy_layout(path, blobs.get(), limits));

  HelperJob job{kModeUnpack, {}, {blobs.get(), root.get(), source.get()}};
  ImportLimits given = limits;
  for (const uint64_t* field : limit_fields(given)) job.arguments.push_back(std::to_string(*field));
  const auto start = std::chrono::steady_clock::now();
  GB_TRYV(
      run_helper_job(job, [&](std::string_view line) { pass_progress(line, start, progress); }));
  GB_TRY(const auto result, read_result(blobs.get()));
  if (progress) progress({.phase = "image", .message = "packing the image"});
  GB_TRYV(pack_image(staging, true));

  Manifest m;
  m.kind = "oci-import";
  m.config = result.config;
  m.packages = result.packages;
  m.source = result.source;
  return m;
}

}  // namespace glovebox::image
