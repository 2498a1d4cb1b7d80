// SPDX-License-Identifier: Apache-2.0
#include "image/build.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>

#include "base/log.h"
#include "image/apt_progress.h"
#include "image/apt_sources.h"
#include "image/digest.h"
#include "image/helper.h"
#include "image/helper_modes.h"
#include "image/jail.h"
#include "image/packages.h"

namespace glovebox::image {
namespace {

constexpr std::string_view kBuilder =
    "debian-1";  // change it when the same inputs give another image
constexpr size_t kMaxStatus = 64 << 20;

std::string join(const std::vector<std::string>& words, const char* separator) {
  std::string out;
  for (const auto& w : words) out += (out.empty() ? "" : separator) + w;
  return out;
}

// First line that a program of this machine prints. For versions and settings, not for anything
// hostile.
std::string output_of(const char* command, bool is_first_line_only) {
  std::string out;
  FILE* pipe = ::popen(command, "re");
  if (pipe == nullptr) return out;
  std::array<char, 4096> buffer;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe))
    out.append(buffer.data(), n);
  ::pclose(pipe);
  return is_first_line_only ? out.substr(0, out.find('\n')) : out;
}

// The proxy of the environment, unless apt has its own.
std::vector<std::string> proxy_options(const std::vector<std::string>& acquire) {
  std::vector<std::string> out = acquire;
  for (const auto& [scheme, lower, upper] : {std::array{"http", "http_proxy", "HTTP_PROXY"},
                                             std::array{"https", "https_proxy", "HTTPS_PROXY"}}) {
    const std::string key = std::string("Acquire::") + scheme + "::Proxy ";
    const bool is_set = std::any_of(acquire.begin(), acquire.end(),
                                    [&](const auto& l) { return l.rfind(key, 0) == 0; });
    const char* value = std::getenv(lower) != nullptr ? std::getenv(lower) : std::getenv(upper);
    if (!is_set && value != nullptr && *value != '\0' &&
        std::string_view(value).find('"') == std::string_view::npos) {
      out.push_back(key + "\"" + value + "\"");
    }
  }
  return out;
}

// Quoted for the hooks that mmdebstrap gives to sh.
std::string shell_quote(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Packages come from and go to the cache as hard links: no copy, and what the build removes stays
// in the cache. Copied where the links are not possible.
std::vector<std::string> cache_hooks(const std::string& cache) {
  const std::string quoted = shell_quote(cache);
  return {"--skip=essential/unlink",
          "--setup-hook=mkdir -p \"$1\"/var/cache/apt/archives/partial && find " + quoted +
              " -maxdepth 1 -name '*.deb' -exec cp -pl -t \"$1\"/var/cache/apt/archives {} + "
              "2>/dev/null || "
              "find " +
              quoted +
              " -maxdepth 1 -name '*.deb' -exec cp -p -t \"$1\"/var/cache/apt/archives {} +",
          "--customize-hook=rm -rf " + quoted + "/new && mkdir " + quoted +
              "/new && { find \"$1\"/var/cache/apt/archives -maxdepth 1 "
              "-name '*.deb' -exec cp -pl -t " +
              quoted +
              "/new {} + 2>/dev/null || find \"$1\"/var/cache/apt/archives -maxdepth 1 "
              "-name '*.deb' -exec cp -p -t " +
              quoted + "/new {} +; }"};
}

std::vector<std::string> mmdebstrap_command(const Recipe& recipe, const std::string& suite,
                                            const std::vector<std::string>& sources,
                                            const std::vector<std::string>& acquire,
                                            const std::string& cache, const std::string& root) {
  std::vector<std::string> command = {"mmdebstrap",
                                      "--mode=root",
                                      "--variant=minbase",
                                      "--format=directory",
                                      "--verbose",
                                      "--aptopt=APT::Install-Recommends \"0\"",
                                      "--aptopt=Acquire::Languages \"none\"",
                                      "--dpkgopt=force-unsafe-io"};
  for (const auto& option : acquire) command.push_back("--aptopt=" + option);
  for (const auto& glob : recipe.exclude) command.push_back("--dpkgopt=path-exclude=" + glob);
  for (const auto& glob : recipe.keep) command.push_back("--dpkgopt=path-include=" + glob);
  for (const auto& hook : cache_hooks(cache)) command.push_back(hook);
  for (const auto& line : recipe.run)
    command.push_back("--customize-hook=chroot \"$1\" /bin/sh -ec " + shell_quote(line));
  if (!recipe.packages.empty()) command.push_back("--include=" + join(recipe.packages, ","));
  command.push_back(suite);
  command.push_back(root);
  command.insert(command.end(), sources.begin(), sources.end());
  return command;
}

// Cached packages are the ones this build used; older versions go.
Result<void> prune_cache(const std::string& cache) {
  GB_TRY(const auto used, directory_names(cache + "/new"));
  const std::set<std::string> keep(used.begin(), used.end());
  GB_TRY(const auto all, directory_names(cache));
  for (const auto& name : all) {
    if (name != "new" && !keep.contains(name)) GB_TRYV(remove_tree(cache + "/" + name));
  }
  for (const auto& name : used) {
    if (::rename((cache + "/new/" + name).c_str(), (cache + "/" + name).c_str()) != 0)
      return fail_errno("keep package " + name);
  }
  return remove_tree(cache + "/new");
}

Result<void> run_mmdebstrap(const std::vector<std::string>& command, const Staging& staging,
                            const std::string& cache, const ProgressFn& progress) {
  AptProgress parser(std::chrono::steady_clock::now());
  HelperJob job{kModeDebian, {staging.path(), cache, "--"}, {}};
  job.arguments.insert(job.arguments.end(), command.begin(), command.end());
  auto done = run_helper_job(job, [&](std::string_view line) {
    if (parser.feed(line, std::chrono::steady_clock::now()) && progress) progress(parser.current());
  });
  if (!done && !parser.complaint().empty() && done.error().code == Code::kInternal) {
    return fail(Code::kUnavailable, "the Debian build failed: " + parser.complaint());
  }
  return done;
}

std::vector<std::string> suites_of(const std::vector<std::string>& sources) {
  std::vector<std::string> out;
  for (const auto& line : sources) {
    const auto words = split(line, ' ');
    if (words.size() >= 3) out.push_back(words[words.size() - 2]);
  }
  return out;
}

std::string suite_of(const Recipe& recipe, const BuildOptions& options) {
  return options.suite.empty() ? recipe.suite : options.suite;
}

Result<UniqueFd> open_directory(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail_errno("open " + path);
  return fd;
}

void report(const ProgressFn& progress, const std::string& phase, int eta_seconds,
            const std::string& message) {
  if (progress)
    progress({.phase = phase, .eta = std::chrono::seconds(eta_seconds), .message = message});
}

}  // namespace

Result<void> need_program(const std::string& program, const std::string& package) {
  for (const char* dir :
       {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}) {
    if (::access((dir + program).c_str(), X_OK) == 0) return {};
  }
  return fail(Code::kUnavailable,
              program + " is missing on this machine; install the package " + package,
              {{"package", package}});
}

std::string inputs_digest(const Recipe& recipe, const BuildOptions& options) {
  struct utsname machine = {};
  ::uname(&machine);
  std::string all =
      std::string(kBuilder) + "\n" + machine.machine + "\n" + suite_of(recipe, options) + "\n";
  return sha256_hex(all + recipe.text);
}

Result<void> pack_image(const Staging& staging, bool has_shifted_ids) {
  const std::string out = staging.path() + "/out";
  GB_TRYV(make_directories(out, 0700));
  if (has_shifted_ids && ::chown(out.c_str(), kShiftedIds, kShiftedIds) != 0)
    return fail_errno("own " + out);
  GB_TRY(const auto root_fd, open_directory(staging.path() + "/root"));
  GB_TRY(const auto out_fd, open_directory(out));
  HelperJob job{kModePack, {has_shifted_ids ? "shifted" : "plain"}, {root_fd.get(), out_fd.get()}};
  GB_TRYV(run_helper_job(job, [](std::string_view) {}));
  if (::rename((out + "/rootfs.erofs").c_str(), (staging.path() + "/rootfs.erofs").c_str()) != 0) {
    return fail_errno("take over the image");
  }
  return {};
}

Result<Manifest> build_debian(const Recipe& recipe, const BuildOptions& options,
                              const Staging& staging, const std::string& cache_dir,
                              const ProgressFn& progress) {
  GB_TRYV(need_program("mmdebstrap", "mmdebstrap"));
  GB_TRYV(need_program("mkfs.erofs", "erofs-utils"));
  if (::geteuid() != 0) return fail(Code::kUnavailable, "building a template needs root");
  const std::string suite = suite_of(recipe, options), root = staging.path() + "/root";
  GB_TRY(const auto sources, machine_sources(options.mirror, suite));
  GB_TRYV(make_directories(cache_dir, 0755));
  // Two recipes may build at once; packages of both fit into one cache, but its clean-up does not.
  GB_TRY(auto cache_lock, FileLock::wait(cache_dir + "/.lock-" + recipe.name));
  const std::string cache = cache_dir + "/" + recipe.name;
  for (const auto& dir : {cache, staging.path() + "/tmp", root})
    GB_TRYV(make_directories(dir, 0755));
  // apt fetches as its own user, who has to reach the directory below.
  if (::chmod(staging.path().c_str(), 0711) != 0)
    return fail_errno("set mode of " + staging.path());

  const time_t start = ::time(nullptr);
  report(progress, "resolve", 90, "reading the package lists of " + suite);
  const auto acquire =
      proxy_options(acquire_options(output_of("apt-config dump 2>/dev/null", false)));
  GB_TRYV(run_mmdebstrap(mmdebstrap_command(recipe, suite, sources, acquire, cache, root), staging,
                         cache, progress));
  GB_TRYV(prune_cache(cache));
  GB_TRY(const auto status, read_file(root + "/var/lib/dpkg/status", kMaxStatus));

  report(progress, "image", 8, "packing the image");
  GB_TRY(const auto root_fd, open_directory(root));
  GB_TRYV(run_helper_job({kModeFinish, {recipe.name, std::to_string(start)}, {root_fd.get()}},
                         [](std::string_view) {}));
  GB_TRYV(pack_image(staging, false));

  Manifest m;
  m.kind = "debian";
  m.config = recipe.config;
  m.packages = parse_dpkg_status(status);
  m.inputs = inputs_digest(recipe, options);
  m.suites = suites_of(sources);
  m.tools = {{"builder", std::string(kBuilder)},
             {"mmdebstrap", output_of("mmdebstrap --version 2>/dev/null", true)},
             {"mkfs.erofs", output_of("mkfs.erofs -V 2>/dev/null", true)}};
  return m;
}

}  // namespace glovebox::image
