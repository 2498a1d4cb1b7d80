// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/jailer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sys/files.h"

namespace glovebox::runtime::microvm {
namespace {

constexpr size_t kMaxId = 64;
constexpr std::string_view kAlphanumeric =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

bool has_only(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kAlphanumeric.find(c) != std::string_view::npos ||
           more.find(c) != std::string_view::npos;
  });
}

Result<void> check(const JailerSpec& spec) {
  const bool is_id = !spec.id.empty() && spec.id.size() <= kMaxId && has_only(spec.id, "-");
  if (!is_id) return fail(Code::kInvalidArgument, "\"" + spec.id + "\" cannot name a jail");
  if (spec.uid == 0) return fail(Code::kInvalidArgument, "a monitor must not be root");
  for (const auto& path : {spec.jailer, spec.firecracker, spec.base}) {
    if (path.empty() || path.front() != '/')
      return fail(Code::kInvalidPath, "\"" + path + "\": must be absolute");
  }
  return {};
}

// <base>/<name of the program>/<id>: the jailer's layout.
std::string jail_of(const JailerSpec& spec) {
  return spec.base + "/" + spec.firecracker.substr(spec.firecracker.rfind('/') + 1) + "/" + spec.id;
}

}  // namespace

Result<std::vector<std::string>> jailer_command(const JailerSpec& spec) {
  GB_TRYV(check(spec));
  const std::string user = std::to_string(spec.uid);
  std::vector<std::string> words = {spec.jailer,
                                    "--id",
                                    spec.id,
                                    "--exec-file",
                                    spec.firecracker,
                                    "--uid",
                                    user,
                                    "--gid",
                                    user,
                                    "--chroot-base-dir",
                                    spec.base,
                                    "--cgroup-version",
                                    "2",
                                    "--resource-limit",
                                    "no-file=" + std::to_string(spec.open_files)};
  if (!spec.netns.empty()) words.insert(words.end(), {"--netns", spec.netns});
  if (!spec.parent_cgroup.empty())
    words.insert(words.end(), {"--parent-cgroup", spec.parent_cgroup});
  // What follows "--" goes to the monitor, which the jailer also tells its id.
  words.insert(words.end(),
               {"--new-pid-ns", "--daemonize", "--", "--api-sock", kFirecrackerSocket});
  return words;
}

Result<JailRoot> JailRoot::make(const JailerSpec& spec) {
  GB_TRYV(check(spec));
  const std::string jail = jail_of(spec), root = jail + "/root";
  if (sys::exists(jail)) return fail(Code::kAlreadyExists, jail + " is still there");
  GB_TRYV(sys::make_directories(root, 0700));
  if (::chown(root.c_str(), spec.uid, spec.uid) < 0) return fail_errno(root);
  return JailRoot(root, spec.uid);
}

Result<std::string> JailRoot::place_of(std::string_view name) const {
  if (name.empty() || name.front() == '.' || !has_only(name, "-_.")) {
    return fail(Code::kInvalidPath, "\"" + std::string(name) + "\" cannot name a file of a jail");
  }
  return path_ + "/" + std::string(name);
}

Result<void> JailRoot::show(const std::string& file, std::string_view name) const {
  GB_TRY(const auto place, place_of(name));
  struct stat st{};
  if (::lstat(file.c_str(), &st) < 0) return fail_errno(file);
  if (!S_ISREG(st.st_mode)) return fail(Code::kInvalidPath, file + ": is no regular file");
  if ((st.st_mode & S_IROTH) != 0 && (st.st_mode & S_IWOTH) == 0 && st.st_uid != uid_) {
    if (::link(file.c_str(), place.c_str()) == 0) return {};
    if (errno != EXDEV && errno != EMLINK) return fail_errno(place);
  }
  GB_TRYV(sys::copy_sparse(file, place));
  if (::chmod(place.c_str(), 0400) < 0 || ::chown(place.c_str(), uid_, uid_) < 0)
    return fail_errno(place);
  return {};
}

Result<void> JailRoot::lend(const std::string& file, std::string_view name) const {
  GB_TRY(const auto place, place_of(name));
  struct stat st{};
  if (::lstat(file.c_str(), &st) < 0) return fail_errno(file);
  // Whoever has a second name for it would see what this guest writes.
  if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
    return fail(Code::kInvalidPath, file + ": is no file of its own");
  if (::link(file.c_str(), place.c_str()) < 0) return fail_errno(place);
  if (::chmod(place.c_str(), 0600) < 0 || ::chown(place.c_str(), uid_, uid_) < 0)
    return fail_errno(place);
  return {};
}

Result<void> remove_jail(const JailerSpec& spec) {
  GB_TRYV(check(spec));
  const std::string jail = jail_of(spec);
  return sys::exists(jail) ? sys::remove_tree(jail) : Result<void>{};
}

}  // namespace glovebox::runtime::microvm
