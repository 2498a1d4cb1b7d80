// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/instance.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <future>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/glovebox/assets.h"

namespace glovebox {
namespace {

std::string short_hash(std::string_view bytes, size_t digits) {
  unsigned char out[crypto_generichash_BYTES];
  crypto_generichash(out, sizeof out, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr, 0);
  return hex(std::string_view(reinterpret_cast<const char*>(out), sizeof out)).substr(0, digits);
}

// <data>/agent/<hash>/agent: a new program brings a new agent, and sandboxes that use the old file keep it.
Result<std::string> extract_agent(const std::string& data_dir) {
  const std::string_view bytes = embedded_agent();
  const std::string directory = data_dir + "/agent/" + short_hash(bytes, 16);
  const std::string path = directory + "/agent", aside = path + ".new";
  std::error_code ec;
  if (std::filesystem::exists(path, ec)) return path;
  std::filesystem::create_directories(directory, ec);
  UniqueFd file(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755));
  if (!file) return fail_errno(aside);
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t n = ::write(file.get(), rest.data(), rest.size());
    if (n < 0 && errno != EINTR) return fail_errno(aside);
    if (n > 0) rest.remove_prefix(static_cast<size_t>(n));
  }
  // Readable by the sandbox's users whatever our umask is.
  for (const std::string& d : {data_dir + "/agent", directory}) {
    if (::chmod(d.c_str(), 0755) != 0) return fail_errno(d);
  }
  if (::fchmod(file.get(), 0755) != 0 || ::fsync(file.get()) != 0 || ::rename(aside.c_str(), path.c_str()) != 0) return fail_errno(path);
  return path;
}

}  // namespace

Result<runtime::HostConfig> prepare_host(const std::string& data_dir, const std::string& runsc, const runtime::MicrovmConfig& microvm) {
  if (::sodium_init() < 0) return fail(Code::kInternal, "libsodium does not initialise");
  runtime::HostConfig host;
  host.data_dir = data_dir;
  host.instance = short_hash(data_dir, 8);
  host.runsc_path = runsc;
  host.microvm = microvm;
  GB_TRY(host.agent_path, extract_agent(data_dir));
  return host;
}

std::vector<std::unique_ptr<runtime::Runtime>> make_runtimes(const runtime::HostConfig& host) {
  std::vector<std::unique_ptr<runtime::Runtime>> out;
  out.push_back(runtime::make_microvm_runtime(host));
  out.push_back(runtime::make_gvisor_runtime(host));
  out.push_back(runtime::make_container_runtime(host));
  return out;
}

Result<std::vector<sandbox::SandboxService::RuntimeInfo>> probe_runtimes(
    const runtime::HostConfig& host, const std::vector<std::unique_ptr<runtime::Runtime>>& runtimes) {
  std::vector<sandbox::SandboxService::RuntimeInfo> out;
  GB_TRY(const auto rootfs, runtime::make_probe_rootfs(host));
  std::vector<std::future<runtime::Capability>> probes;
  for (const auto& runtime : runtimes) {
    probes.push_back(std::async(std::launch::async, [&runtime, &rootfs] { return runtime->probe(rootfs); }));
  }
  for (size_t i = 0; i < runtimes.size(); ++i) out.push_back({runtimes[i]->tier(), probes[i].get()});
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.tier > b.tier; });
  return out;
}

}  // namespace glovebox
