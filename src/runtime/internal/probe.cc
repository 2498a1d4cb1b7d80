// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/random.h"
#include "base/text.h"
#include "channel/frame.h"
#include "sys/command.h"
#include "runtime/internal/linux_runtime.h"
#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;

constexpr size_t kKept = 128 << 10;  // of what precedes SYNC; more than SYNC and HELLO_OK need

// Both directions at once: an agent that was under load has full pipes and reads only after
// somebody reads from it.
class Greeter {
 public:
  Greeter(const ChannelFds& channel, std::string greeting, std::chrono::milliseconds patience)
      : channel_(channel), greeting_(std::move(greeting)), end_(Clock::now() + patience) {}

  // Waits for progress, writes what can be written and appends what can be read. False at the
  // deadline or when the other side is gone.
  bool step(std::string* bytes) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end_ - Clock::now());
    pollfd fds[2] = {{channel_.from_agent.get(), POLLIN, 0},
                     {greeting_.empty() ? -1 : channel_.to_agent.get(), POLLOUT, 0}};
    if (left.count() <= 0 || ::poll(fds, 2, static_cast<int>(left.count())) < 0) return false;
    if (fds[1].revents != 0 && !write_some()) return false;
    return fds[0].revents == 0 || read_some(bytes);
  }

 private:
  static bool again() { return errno == EAGAIN || errno == EINTR; }
  bool write_some() {  // one atomic frame: all or nothing
    ssize_t n = ::write(channel_.to_agent.get(), greeting_.data(), greeting_.size());
    if (n > 0) greeting_.clear();
    return n > 0 || again();
  }
  bool read_some(std::string* bytes) {
    char buffer[16384];
    ssize_t n = ::read(channel_.from_agent.get(), buffer, sizeof buffer);
    if (n > 0) bytes->append(buffer, static_cast<size_t>(n));
    return n > 0 || (n < 0 && again());
  }

  const ChannelFds& channel_;
  std::string greeting_;
  Clock::time_point end_;
};

std::string hello(const std::string& nonce, const std::string& id, const Limits& limits) {
  std::string json = "{\"version\":1,\"nonce\":\"" + hex(nonce) + "\",\"unix_time_ns\":" +
                     std::to_string(unix_millis(std::chrono::system_clock::now()) * 1000000) +
                     ",\"sandbox\":";
  append_json_string(json, id);
  json += ",\"hostname\":";
  append_json_string(json, id);
  json += ",\"env\":{},\"default_user\":\"root\",\"limits\":{\"open_files\":" +
          std::to_string(limits.open_files) + ",\"processes\":" + std::to_string(limits.processes) +
          "},\"seed\":\"" + hex(random_bytes(32)) + "\"}";
  std::string bytes;
  channel::append_message(bytes, 0, channel::Type::kHello, json, channel::kMaxPayloadToAgent);
  return bytes;
}

}  // namespace

Result<void> shake_hands(const ChannelFds& channel, const std::string& id, const Limits& limits,
                         std::chrono::milliseconds patience) {
  std::string nonce = random_bytes(16), mark = channel::sync_mark(nonce);
  Greeter greeter(channel, hello(nonce, id, limits), patience);
  std::string bytes;
  size_t at = std::string::npos;
  while ((at = bytes.find(mark)) == std::string::npos) {
    if (bytes.size() > kKept) bytes.erase(0, bytes.size() - mark.size());
    if (!greeter.step(&bytes)) return fail(Code::kTimeout, "the agent does not answer HELLO");
  }
  channel::Decoder decoder(channel::kMaxPayloadFromAgent, channel::kMaxMessageFromAgent);
  decoder.feed(std::string_view(bytes).substr(at + channel::kSyncBytes));
  for (channel::Frame frame;;) {
    GB_TRY(bool complete, decoder.next(&frame));
    if (complete && frame.type == channel::Type::kHelloOk) return {};
    if (complete) return fail(Code::kAgentProtocol, "the agent's first frame is not HELLO_OK");
    bytes.clear();
    if (!greeter.step(&bytes)) return fail(Code::kTimeout, "the agent sends no HELLO_OK");
    decoder.feed(bytes);
  }
}

Result<void> LinuxRuntime::probe_once(const Rootfs& probe, const std::string& directory,
                                      Capability* capability) {
  GB_TRY(capability->engine, engine_version());
  GB_TRY(const auto* tree, cgroups());
  capability->facts["cgroup"] = "v" + std::to_string(tree->version());
  GB_TRYV(prepare(probe));
  capability->facts["erofs"] = storage_.erofs_needs_loop() ? "loop device" : "file";
  StartSpec spec;
  spec.id = directory.substr(directory.rfind('/') + 1);
  spec.directory = directory;
  spec.rootfs = probe;
  spec.limits = Limits{1, 256 << 20, 64 << 20, 0, 64, 1024};
  GB_TRYV(sys::make_directories(directory, 0700));
  auto begin = Clock::now();
  GB_TRY(auto started, start(spec, plan(spec), after(20s)));
  auto ms = [&] {
    return std::to_string(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count());
  };
  capability->facts["start_ms"] = ms();
  auto check = [&]() -> Result<void> {
    GB_TRYV(shake_hands(started.channel, spec.id, spec.limits, 10s));
    capability->facts["first_answer_ms"] = ms();
    GB_TRYV(freeze(started.record));
    GB_TRYV(thaw(started.record));
    capability->facts["freezer"] = "works";
    return shake_hands(started.channel, spec.id, spec.limits, 10s);
  };
  auto checked = check();
  auto destroyed = destroy(started.record);
  return checked ? destroyed : checked;
}

namespace {
constexpr int kMoreProbes = 2;
}  // namespace

Capability LinuxRuntime::probe(const Rootfs& probe) {
  Capability capability;
  std::string directory = config_.data_dir + "/sandboxes/probe-" + random_name(12);
  auto done = probe_once(probe, directory, &capability);
  // A busy host can make one attempt miss a deadline; what is missing stays missing.
  for (int again = 0; !done && done.error().code != Code::kRuntimeUnavailable && again < kMoreProbes; ++again) {
    (void)sys::remove_tree(directory);
    directory = config_.data_dir + "/sandboxes/probe-" + random_name(12);
    done = probe_once(probe, directory, &capability);
  }
  (void)sys::remove_tree(directory);
  capability.usable = done.has_value();
  if (done) return capability;
  capability.problem = done.error().message;
  capability.remedy = remedy();
  return capability;
}

namespace {

struct SkeletonFile {
  const char* path;
  const char* text;
};
constexpr SkeletonFile kSkeletonFiles[] = {
    {"/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"},
    {"/etc/group", "root:x:0:\ntty:x:5:\nuser:x:1000:\n"}};
constexpr const char* kSkeletonDirectories[] = {"/proc", "/sys",  "/dev",       "/tmp",
                                                "/etc",  "/root", "/home/user", "/.glovebox"};
constexpr const char* kProbeDigest =
    "676c6f7665626f7870726f626500000000000000000000000000000000000002";

}  // namespace

Result<Rootfs> make_probe_rootfs(const HostConfig& config) {
  std::string directory = config.data_dir + "/probe";
  Rootfs rootfs{kProbeDigest, directory + "/rootfs.erofs"};
  if (sys::exists(rootfs.image_path)) return rootfs;
  std::string tree = directory + "/tree-" + random_name(8);
  for (const char* path : kSkeletonDirectories) GB_TRYV(sys::make_directories(tree + path, 0755));
  for (const auto& file : kSkeletonFiles) GB_TRYV(sys::put_file(tree + file.path, file.text, 0644));
  if (::chmod((tree + "/tmp").c_str(), 01777) < 0) return fail_errno("chmod /tmp");
  std::string draft = tree + ".erofs";
  GB_TRYV(sys::run_command({"mkfs.erofs", "--quiet", "-Enoinline_data", draft, tree}, 60s));
  GB_TRYV(sys::remove_tree(tree));
  if (::rename(draft.c_str(), rootfs.image_path.c_str()) < 0) return fail_errno("rename " + draft);
  return rootfs;
}

}  // namespace glovebox::runtime
