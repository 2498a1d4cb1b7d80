// SPDX-License-Identifier: Apache-2.0
// Runs the registry proxy as the daemon would: registry_driver CONTROL_FD RUN_DIR CACHE_DIR UID GID [CA_BUNDLE], or
// registry_driver --client-configuration POLICY_JSON CODENAME, which prints {path: content}.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "http/json.h"
#include "registry/registry.h"

namespace {

int print_configuration(const char* policy_json, const char* codename) {
  const auto value = glovebox::json::parse(policy_json);
  const auto policy = value ? glovebox::policy::parse_package_policy(*value, "policy") : glovebox::fail(value.error());
  if (!policy) {
    std::fprintf(stderr, "%s\n", policy.error().message.c_str());
    return 2;
  }
  boost::json::object files;
  for (const auto& [path, content] : glovebox::registry::client_configuration(*policy, codename)) files[path] = content;
  std::puts(glovebox::json::to_text(files).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4 && std::string_view(argv[1]) == "--client-configuration") return print_configuration(argv[2], argv[3]);
  if (argc < 6) return 2;
  glovebox::registry::RegistryOptions options;
  options.control_fd = std::atoi(argv[1]);
  options.run_dir = argv[2];
  options.cache_dir = argv[3];
  options.uid = static_cast<uid_t>(std::atoi(argv[4]));
  options.gid = static_cast<gid_t>(std::atoi(argv[5]));
  if (argc > 6) options.ca_bundle = argv[6];
  return glovebox::registry::run_registry_proxy(options);
}
