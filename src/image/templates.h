// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/text.h"

// Templates: named, content-addressed, read-only root file systems. Below <data>/templates:
//   versions/<version>/rootfs.erofs, manifest.json   immutable; made aside, synced, renamed into
//   place names/<name>                                     the version the name stands for,
//   replaced atomically tmp/, locks/                                     work of running builds;
//   leftovers of dead ones are removed
// Everything here blocks. Several threads and processes may work on one data directory at once.
namespace glovebox::image {

// What a template says about how to run things in it.
struct TemplateConfig {
  std::map<std::string, std::string> env;
  std::string user = "root";  // name or number in the image
  std::string workdir = "/";
  std::vector<std::string> entrypoint, cmd;
  std::vector<std::string> exposed_ports;  // "8080/tcp", as the imported image declares them
};

struct Package {
  std::string name, version, architecture;
};

struct Template {
  std::string name;     // empty when only a version is known (its name stands for a newer one)
  std::string version;  // 64 hex digits
  std::string kind;     // "debian", "oci-import"
  std::string image_path;
  std::string image_sha256;
  uint64_t image_bytes = 0;
  TemplateConfig config;
  WallTime created_at;
  size_t package_count = 0;
};

struct Progress {
  std::string
      phase;  // "waiting", "resolve", "download", "unpack", "configure", "layers", "image", "done"
  uint64_t done = 0;
  uint64_t total = 0;                // 0: unknown
  std::chrono::milliseconds eta{0};  // to the end of everything; 0: unknown
  std::string message;               // one line for people
};
using ProgressFn = std::function<void(const Progress&)>;

struct BuildOptions {
  std::string mirror;    // base URL of a Debian archive; empty: what this machine's apt uses
  std::string suite;     // empty: the recipe's
  bool refresh = false;  // look for newer packages; false: an unchanged recipe is up to date
};

// Bounds on what import_archive() accepts; passing one is kPayloadTooLarge with details.limit.
struct ImportLimits {
  uint64_t archive_bytes = 32ull << 30;   // blobs, as stored
  uint64_t unpacked_bytes = 64ull << 30;  // file contents and layer streams of all layers
  uint64_t entries = 1'000'000;           // of all layers together
  uint64_t path_bytes = 4095;
  uint64_t ratio = 200;  // unpacked to stored bytes of a layer, once past 64 MiB
  uint64_t cpu_seconds = 1800;
};

class Templates {
 public:
  // Makes the directories on first use, not here.
  explicit Templates(std::string data_dir);

  // `spec` is "name", "name@version-prefix" or "@version-prefix" (8 digits or more).
  // kTemplateNotFound, kInvalidArgument.
  Result<Template> find(const std::string& spec) const;
  // One for each name, in order of names.
  Result<std::vector<Template>> list() const;
  Result<std::vector<Package>> packages(const Template& t) const;
  // The manifest as stored, JSON.
  Result<std::string> manifest(const Template& t) const;
  // Reads the whole image and compares its digest: kCorrupt when it differs.
  Result<void> verify(const Template& t) const;

  // Builds the recipe compiled into this program. Returns at once when nothing changed. Waits for
  // another process that builds the same name. Needs root, mmdebstrap and mkfs.erofs: kUnavailable
  // names what is missing.
  Result<Template> build(const std::string& recipe, const BuildOptions& options,
                         const ProgressFn& progress);
  // `path`: a tar of `docker save`, an OCI image layout as tar or directory. The archive is
  // hostile: it is read in a child process in its own user, mount, pid and network namespace. Needs
  // run_helper() in main.
  Result<Template> import_archive(const std::string& name, const std::string& path,
                                  const ProgressFn& progress, const ImportLimits& limits = {});

  // Removes the name, and its version when no other name has it. kTemplateInUse when
  // in_use(version).
  Result<void> remove(const std::string& name,
                      const std::function<bool(const std::string& version)>& in_use);
  // Removes versions without a name that are not in use, and what dead builds left; returns the
  // versions removed.
  Result<std::vector<std::string>> collect_garbage(
      const std::function<bool(const std::string& version)>& in_use);

  // Names of the recipes compiled in.
  static std::vector<std::string> recipes();

 private:
  std::string data_dir_;
};

bool is_template_name(const std::string& name);  // [a-z0-9][a-z0-9._-]{0,62}

// The unprivileged half of build() and import_archive() runs as a fresh process of this same
// program. main calls this before anything else, before threads too; a value is the exit status of
// a helper process, to be returned from main at once.
std::optional<int> run_helper(int argc, char** argv);

}  // namespace glovebox::image
