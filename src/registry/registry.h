// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/packages.h"

// The package registry proxy: the only way for a sandbox to packages of PyPI, npm and Debian. It speaks the registries' own
// protocols on a Unix socket, fetches from the operator's upstreams, keeps what it fetched, and applies each sandbox's package policy
// to metadata and again to every file. What clients see when a package is refused: docs/package-policy.md, "How a refusal looks".
namespace glovebox::registry {

// The name under which a sandbox sees it.
inline constexpr std::string_view kHost = "packages.glovebox.internal";

struct RegistryOptions {
  int control_fd = -1;     // stream socket to the daemon; JSON lines, see control.h. Its end ends the process
  std::string run_dir;     // exists; the socket <run_dir>/registry.sock is made in it. Who may connect is decided by its mode
  std::string cache_dir;   // created when missing; everything in it belongs to the proxy and may be removed by it
  uid_t uid = 0;           // to run as. Ignored unless the process starts as root, and then not 0
  gid_t gid = 0;
  std::string ca_bundle;   // PEM file with the authorities to trust; empty: the system's
};

// Runs until the control channel ends; the exit status of the process. Call it in a process of its own, before any thread is started.
int run_registry_proxy(const RegistryOptions& options);

// The files that point a sandbox's pip, uv, npm, pnpm, yarn and apt at the proxy: absolute path -> content, mode 0644, owned by root.
// They replace what a template has there. `debian_codename` ("trixie") is that of the template; empty: apt is left alone.
std::vector<std::pair<std::string, std::string>> client_configuration(const policy::PackagePolicy& policy,
                                                                      std::string_view debian_codename);

}  // namespace glovebox::registry
