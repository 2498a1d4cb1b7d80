// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "registry/registry.h"

namespace glovebox::registry {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

std::string base_url(std::string_view path) { return "http://" + std::string(kHost) + std::string(path); }

void add_pypi(const policy::PackagePolicy& policy, Files& files) {
  const std::string index = base_url("/pypi/simple/");
  std::string pip = "[global]\nindex-url = " + index + "\ntrusted-host = " + std::string(kHost) +
                    "\n"
                    // Debian marks its Python as managed by apt (PEP 668); in a sandbox `pip install` is meant to just work.
                    "break-system-packages = true\ndisable-pip-version-check = true\nroot-user-action = ignore\n";
  if (policy.require_hashes) pip += "require-hashes = true\n";
  files.emplace_back("/etc/pip.conf", std::move(pip));
  std::string uv = "[[index]]\nurl = \"" + index + "\"\ndefault = true\n\n[pip]\nbreak-system-packages = true\n";
  if (policy.require_hashes) uv += "require-hashes = true\n";
  files.emplace_back("/etc/uv/uv.toml", std::move(uv));
}

void add_npm(const policy::PackagePolicy& policy, Files& files) {
  const std::string registry = base_url("/npm/");
  std::string npmrc = "registry=" + registry + "\n";
  npmrc +=
      // A lockfile made here must work elsewhere: no addresses of ours in it.
      "omit-lockfile-registry-resolved=true\n"
      "audit=false\nfund=false\nupdate-notifier=false\n";
  if (!policy.install_scripts) npmrc += "ignore-scripts=true\n";
  // Debian's npm reads the first. npm of nodejs.org, nodesource and the container images, and pnpm, read <prefix of node>/etc/npmrc.
  for (const char* path : {"/etc/npmrc", "/usr/etc/npmrc", "/usr/local/etc/npmrc"}) files.emplace_back(path, npmrc);
  // Yarn 1. Later Yarns look for .yarnrc.yml in each directory from the project up to the root.
  std::string yarn1 = "registry \"" + registry + "\"\ndisable-self-update-check true\n";
  if (!policy.install_scripts) yarn1 += "ignore-scripts true\n";
  files.emplace_back("/etc/yarnrc", std::move(yarn1));
  std::string yarn = "npmRegistryServer: \"" + registry + "\"\nunsafeHttpWhitelist:\n  - \"" + std::string(kHost) +
                     "\"\nenableTelemetry: false\n";
  if (!policy.install_scripts) yarn += "enableScripts: false\n";
  files.emplace_back("/.yarnrc.yml", std::move(yarn));
}

void add_debian(std::string_view codename, Files& files) {
  const std::string name(codename);
  const std::string keyring = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
  const std::string archive = "deb " + keyring + " " + base_url("/debian") + " " + name;
  files.emplace_back("/etc/apt/glovebox.list", archive + " main\n" + archive + "-updates main\n" + "deb " + keyring + " " +
                                                   base_url("/debian-security") + " " + name + "-security main\n");
  // Only this list: the sources that a template came with are not reachable, and each would be an error of every `apt update`.
  files.emplace_back("/etc/apt/apt.conf.d/90glovebox",
                     "Dir::Etc::SourceList \"/etc/apt/glovebox.list\";\nDir::Etc::SourceParts \"-\";\n"
                     "Acquire::http::Proxy::" + std::string(kHost) + " \"DIRECT\";\n");
}

}  // namespace

Files client_configuration(const policy::PackagePolicy& policy, std::string_view debian_codename) {
  const auto is_open = [&policy](policy::Registry registry) {
    return std::find(policy.registries.begin(), policy.registries.end(), registry) != policy.registries.end();
  };
  Files files;
  // Closed registries too: what is asked of them is refused with a reason, which is better than a client that runs into a timeout.
  add_pypi(policy, files);
  add_npm(policy, files);
  if (!debian_codename.empty() && is_open(policy::Registry::kDebian)) add_debian(debian_codename, files);
  return files;
}

}  // namespace glovebox::registry
