// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <exception>

#include "base/text.h"
#include "image/files.h"
#include "image/helper.h"
#include "image/helper_modes.h"
#include "image/jail.h"
#include "image/recipe.h"
#include "image/skeleton.h"

namespace glovebox::image {
namespace {

bool is_wired = false;

Result<void> execute(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  std::vector<std::string> words = command;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const Code code = errno == ENOENT ? Code::kUnavailable : errno_code(errno);
  return fail(code, "cannot run " + words[0] + ": " + errno_text(errno));
}

Result<void> remove_listed(const Recipe& recipe) {
  for (const auto& path : recipe.remove) GB_TRYV(remove_tree(path));
  return {};
}

// Things of the building machine and of the build itself.
Result<void> remove_leftovers() {
  for (const char* path : {"/etc/apt/sources.list.d",
                           "/etc/apt/apt.conf.d/99mmdebstrap",
                           "/etc/apt/apt.conf.d/00mmdebstrap",
                           "/etc/apt/auth.conf",
                           "/etc/apt/auth.conf.d",
                           "/var/lib/apt/lists",
                           "/var/cache/apt/archives",
                           "/var/cache/apt/pkgcache.bin",
                           "/var/cache/apt/srcpkgcache.bin",
                           "/var/cache/debconf/templates.dat-old",
                           "/var/cache/debconf/config.dat-old",
                           "/var/cache/ldconfig/aux-cache",
                           "/var/log/apt",
                           "/var/log/dpkg.log",
                           "/var/log/alternatives.log",
                           "/var/log/bootstrap.log",
                           "/var/lib/dpkg/status-old",
                           "/var/lib/dpkg/available",
                           "/var/lib/dbus/machine-id",
                           "/var/lib/systemd/random-seed",
                           "/etc/passwd-",
                           "/etc/group-",
                           "/etc/shadow-",
                           "/etc/gshadow-",
                           "/etc/subuid-",
                           "/etc/subgid-",
                           "/dev",
                           "/run",
                           "/tmp"}) {
    GB_TRYV(remove_tree(path));
  }
  for (const char* path : {"/etc/apt/sources.list.d", "/var/lib/apt/lists/partial",
                           "/var/cache/apt/archives/partial"}) {
    GB_TRYV(make_directories(path, 0755));
  }
  return {};
}

Result<void> run_mode(const std::string& mode, const std::vector<std::string>& arguments) {
  if (mode == kModeDebian) return helper_debian(arguments);
  if (mode == kModeFinish) return helper_finish(arguments);
  if (mode == kModeUnpack) return helper_unpack(arguments);
  if (mode == kModePack) return helper_pack(arguments);
  if (mode == kModeVolumePack) return helper_volume_pack(arguments);
  if (mode == kModeVolumeUnpack) return helper_volume_unpack(arguments);
  return fail(Code::kInvalidArgument, "unknown helper mode " + mode);
}

}  // namespace

bool helper_is_wired() {
  return is_wired;
}

// Arguments: directories the build may write to, the first with a tmp in it, "--", the command.
Result<void> helper_debian(const std::vector<std::string>& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end()) return fail(Code::kInvalidArgument, "no command");
  const std::vector<std::string> writable(arguments.begin(), dashes),
      command(dashes + 1, arguments.end());
  return run_in_jail({.has_user_namespace = false, .has_network = true}, [&]() -> Result<void> {
    ::umask(022);
    GB_TRYV(only_writable(writable));
    GB_TRYV(mount_own_proc());
    if (!writable.empty()) ::setenv("TMPDIR", (writable[0] + "/tmp").c_str(), 1);
    if (::chdir("/") != 0) return fail_errno("enter /");
    GB_TRYV(skip_fsync());
    return execute(command);
  });
}

Result<void> helper_finish(const std::vector<std::string>& arguments) {
  const auto start = arguments.size() == 2 ? parse_int(arguments[1]) : std::nullopt;
  if (!start) return fail(Code::kInvalidArgument, "finish wants a recipe and a time");
  GB_TRY(const auto recipe, load_recipe(arguments[0]));
  GB_TRY(const auto root, detach_directory(3));
  return run_in_jail({}, [&]() -> Result<void> {
    GB_TRYV(enter_root(root));
    GB_TRYV(remove_leftovers());
    GB_TRYV(add_skeleton());
    GB_TRYV(add_nodes(recipe.nodes));
    GB_TRYV(remove_listed(recipe));
    return settle_times(*start);
  });
}

// The tree on fd 3 into image "rootfs.erofs" in the directory on fd 4. Argument: "shifted" for a
// tree with shifted ids.
Result<void> helper_pack(const std::vector<std::string>& arguments) {
  const bool is_shifted = !arguments.empty() && arguments[0] == "shifted";
  GB_TRY(const auto root, detach_directory(3));
  GB_TRY(const auto out, detach_directory(4));
  return run_in_jail({.has_user_namespace = is_shifted}, [&]() -> Result<void> {
    GB_TRYV(mount_private_tmp());
    GB_TRYV(attach_directory(root, "/tmp/root"));
    GB_TRYV(attach_directory(out, "/tmp/out"));
    GB_TRYV(limit_resource(RLIMIT_CORE, 0));
    GB_TRYV(keep_capabilities({CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH}));
    ::close(3);  // mkfs gets paths only
    ::close(4);
    // The image's own date, fixed so that equal trees are equal images; far off, because later
    // files would be cut back to it.
    ::setenv("SOURCE_DATE_EPOCH", "4102444800", 1);
    // 64 KiB clusters: the knee between size, build time and cost of a random read.
    return execute({"mkfs.erofs", "-zlz4", "-C65536", "--preserve-mtime",
                    "-U00000000-0000-0000-0000-000000000000", "--quiet", "/tmp/out/rootfs.erofs",
                    "/tmp/root"});
  });
}

std::optional<int> run_helper(int argc, char** argv) {
  is_wired = true;
  if (argc < 3 || kHelperName != argv[0]) return std::nullopt;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::to_string(::getppid()) != argv[2]) return 1;  // the parent died before the line above
  ::signal(SIGXFSZ, SIG_IGN);
  ::setlocale(LC_CTYPE,
              "C.UTF-8");  // names in archives are bytes; this keeps libarchive from refusing them
  auto result = [&]() -> Result<void> {
    try {
      return run_mode(argv[1], std::vector<std::string>(argv + 3, argv + argc));
    } catch (const std::exception& e) {
      return fail(Code::kInternal, std::string("exception: ") + e.what());
    }
  }();
  if (result) return 0;
  if (!result.error().message.empty()) {
    const std::string line = error_line(result.error());
    (void)!::write(STDOUT_FILENO, line.data(), line.size());
  }
  return 1;
}

}  // namespace glovebox::image
