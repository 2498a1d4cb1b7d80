// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/bundle.h"

#include <linux/capability.h>

#include "base/text.h"
#include "runtime/internal/launch.h"

namespace glovebox::runtime {
namespace {

std::string quoted(const std::string& text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

// The container tier's set, by name; and for the agent alone, which lets no user's program have it, what gives a copy of a sandbox its
// own host name.
std::string capability_list() {
  struct Name {
    int number;
    const char* name;
  };
  static constexpr Name kNames[] = {{CAP_CHOWN, "CAP_CHOWN"},
                                    {CAP_DAC_OVERRIDE, "CAP_DAC_OVERRIDE"},
                                    {CAP_FOWNER, "CAP_FOWNER"},
                                    {CAP_FSETID, "CAP_FSETID"},
                                    {CAP_KILL, "CAP_KILL"},
                                    {CAP_SETGID, "CAP_SETGID"},
                                    {CAP_SETUID, "CAP_SETUID"},
                                    {CAP_SETPCAP, "CAP_SETPCAP"},
                                    {CAP_NET_BIND_SERVICE, "CAP_NET_BIND_SERVICE"},
                                    {CAP_SETFCAP, "CAP_SETFCAP"}};
  std::string list;
  for (const auto& [number, name] : kNames) {
    if ((kSandboxCapabilities >> number & 1) != 0)
      list += (list.empty() ? "\"" : ",\"") + std::string(name) + "\"";
  }
  return "[" + list + R"(,"CAP_SYS_ADMIN"])";
}

std::string process_section(const StartSpec& spec) {
  std::string caps = capability_list();
  std::string files = std::to_string(spec.limits.open_files);
  return R"("process":{"user":{"uid":0,"gid":0},"args":["/.glovebox/agent"],"env":[],"cwd":"/","noNewPrivileges":true,)"
         R"("capabilities":{"bounding":)" +
         caps + R"(,"effective":)" + caps + R"(,"permitted":)" + caps + "}," +
         R"("rlimits":[{"type":"RLIMIT_NOFILE","hard":)" + files + R"(,"soft":)" + files + "}]}";
}

std::string volume_mounts(const StartSpec& spec, const BundlePaths& paths) {
  std::string out;
  for (size_t i = 0; i < spec.volumes.size(); ++i) {
    const VolumeDisk& volume = spec.volumes[i];
    out += R"(,{"destination":)" + quoted(volume.path) + R"(,"type":"bind","source":)" +
           quoted(paths.volumes + std::to_string(i)) + R"(,"options":["bind","nosuid","nodev",)" +
           (volume.read_only ? R"("ro"]})" : R"("rw"]})");
  }
  return out;
}

// The agent's directory is mounted, not the file: templates hold an empty /.glovebox, and runsc
// makes no mount points in erofs. Its "ro" keeps honest programs from writing only:
// open("/proc/1/exe", O_TRUNC) gets through to the host (20240729), so the source itself must be a
// read-only file system. /tmp is named because the engine would else put a tmpfs there, whose pages
// count as memory and whose filling ends the sandbox.
std::string mounts_section(const StartSpec& spec, const BundlePaths& paths) {
  std::string shm = std::to_string(spec.limits.memory_bytes / 2);
  return R"("mounts":[{"destination":"/proc","type":"proc","source":"proc"},)"
         R"({"destination":"/dev","type":"tmpfs","source":"tmpfs"},)"
         R"({"destination":"/sys","type":"sysfs","source":"sysfs","options":["nosuid","noexec","nodev","ro"]},)"
         R"({"destination":"/dev/shm","type":"tmpfs","source":"shm","options":["mode=1777","size=)" +
         shm +
         R"("]},)"
         R"({"destination":"/tmp","type":"bind","source":)" +
         quoted(paths.tmp) +
         R"(,"options":["bind","rw"]},)"
         R"({"destination":"/.glovebox","type":"bind","source":)" +
         quoted(paths.agent_directory) + R"(,"options":["bind","ro"]})" +
         volume_mounts(spec, paths) + "]";
}

}  // namespace

std::string bundle_config(const StartSpec& spec, const BundlePaths& paths) {
  // The engine is started in the namespace that it is to use.
  const std::string network = spec.netns_fd < 0 ? R"({"type":"network"})" : R"({"type":"network","path":"/proc/self/ns/net"})";
  return R"({"ociVersion":"1.0.2",)" + process_section(spec) + R"(,"root":{"path":)" +
         quoted(paths.rootfs) + R"(,"readonly":false},"hostname":)" +
         quoted(spec.hostname.empty() ? spec.id : spec.hostname) + "," +
         mounts_section(spec, paths) +
         R"(,"linux":{"namespaces":[{"type":"pid"},)" + network + R"(,{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}})";
}

}  // namespace glovebox::runtime
