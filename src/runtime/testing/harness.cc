// SPDX-License-Identifier: Apache-2.0
#include "runtime/testing/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <thread>

#include "base/random.h"
#include "base/text.h"
#include "channel/frame.h"
#include "sys/command.h"
#include "runtime/internal/linux_runtime.h"
#include "runtime/microvm/kvm_probe.h"
#include "sys/cgroup.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/mounts.h"
#include "sys/process.h"

namespace glovebox::runtime::testing {
namespace {

std::unique_ptr<Runtime> make(Tier tier, const HostConfig& config) {
  if (tier == Tier::kMicrovm) return make_microvm_runtime(config);
  return tier == Tier::kContainer ? make_container_runtime(config) : make_gvisor_runtime(config);
}

// Where a built guest kernel is: a data directory's "kernels".
std::string kernels() {
  const char* directory = ::getenv("GLOVEBOX_TEST_DATA_DIR");
  return std::string(directory != nullptr ? directory : "/var/lib/glovebox") + "/kernels";
}

bool emulation_allowed() {
  const char* allowed = ::getenv("GLOVEBOX_MICROVM_ALLOW_EMULATION");
  return allowed != nullptr && std::string(allowed) == "1";
}

// What the tier's own probe would say first.
std::string why_no_microvm() {
  if (sys::find_program("qemu-system-x86_64").empty() && sys::find_program("firecracker").empty())
    return "needs qemu-system-x86_64 or firecracker";
  if (!sys::exists(kernels() + "/current")) return "needs a guest kernel (glovebox kernel build) in " + kernels();
  static const auto kvm = microvm::probe_kvm("");
  if (!kvm.works && !emulation_allowed()) return kvm.problem + "; GLOVEBOX_MICROVM_ALLOW_EMULATION=1 tests with an emulated processor";
  return "";
}

std::string make_directory() {
  const char* parent = ::getenv("TMPDIR");
  std::string path = std::string(parent != nullptr ? parent : "/tmp") + "/glovebox-runtime-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) ::abort();
  return path;
}

}  // namespace

Host::Host(Tier tier, const std::string& agent_path, MicrovmConfig::Engine engine) {
  config_.data_dir = make_directory();
  config_.instance = hex(random_bytes(4));
  config_.agent_path = config_.data_dir + "/agent";
  GB_ASSERT(
      sys::copy_sparse(agent_path.empty() ? GLOVEBOX_TEST_AGENT : agent_path, config_.agent_path));
  GB_ASSERT(::chmod(config_.agent_path.c_str(), 0755) == 0);
  config_.microvm.allow_emulation = emulation_allowed();
  config_.microvm.engine = engine;
  if (tier == Tier::kMicrovm) GB_ASSERT(::symlink(kernels().c_str(), (config_.data_dir + "/kernels").c_str()) == 0);
  rootfs_ = make_probe_rootfs(config_).value();
  runtime_ = make(tier, config_);
  GB_ASSERT(runtime_->prepare(rootfs_));
}

Host::Host(Tier tier, const Host& other)
    : config_(other.config_),
      rootfs_(other.rootfs_),
      runtime_(make(tier, config_)),
      owner_(false) {}

Host::~Host() {
  if (!owner_) return;
  (void)runtime_->sweep({});
  runtime_->forget(rootfs_);
  runtime_.reset();
  if (auto tree = sys::CgroupTree::detect(config_.cgroup_parent + "/" + config_.instance))
    tree->remove_parents();
  (void)sys::remove_tree(config_.data_dir);
}

StartSpec Host::spec(const std::string& id) const {
  StartSpec spec;
  spec.id = id;
  spec.directory = config_.data_dir + "/sandboxes/" + id;
  spec.rootfs = rootfs_;
  spec.limits = Limits{1, 128 << 20, 64 << 20, 0, 60, 512};
  spec.hostname = "box-" + id;
  GB_ASSERT(sys::make_directories(spec.directory, 0700));
  return spec;
}

std::string why_not(Tier tier) {
  if (::geteuid() != 0) return "needs root";
  static const Result<void> entered = [] {
    ::signal(SIGPIPE, SIG_IGN);
    return enter_private_namespace();
  }();
  if (!entered) return entered.error().message;
  if (sys::find_program("mkfs.erofs").empty() || sys::find_program("mkfs.ext4").empty())
    return "needs mkfs.erofs and mkfs.ext4";
  if (tier == Tier::kGvisor && sys::find_program("runsc").empty()) return "needs runsc";
  if (tier == Tier::kMicrovm && !why_no_microvm().empty()) return why_no_microvm();
  if (auto tree = sys::CgroupTree::detect("glovebox"); !tree) return tree.error().message;
  return "";
}

std::string to_text(const Record& record) {
  std::string text = record.id + "\n" + std::to_string(static_cast<int>(record.tier)) + "\n" +
                     record.directory + "\n";
  for (const auto& [key, value] : record.fields) text += key + "=" + value + "\n";
  return text;
}

Record record_from_text(const std::string& text) {
  auto lines = split(text, '\n');
  Record record{lines.at(0), static_cast<Tier>(std::stoi(lines.at(1))), lines.at(2), {}};
  for (size_t i = 3; i < lines.size(); ++i) {
    size_t equals = lines[i].find('=');
    if (equals != std::string::npos)
      record.fields[lines[i].substr(0, equals)] = lines[i].substr(equals + 1);
  }
  return record;
}

Result<void> shake_hands(const ChannelFds& channel, std::chrono::milliseconds patience) {
  return runtime::shake_hands(channel, "test", Limits{}, patience);
}

Result<std::string> ask(const ChannelFds& channel, const std::string& command,
                        std::chrono::milliseconds patience) {
  std::string frame;
  channel::append_frame(frame, 1, channel::Type::kRequest, command);
  if (::write(channel.to_agent.get(), frame.data(), frame.size()) < 0) return fail_errno("write");
  auto end = Clock::now() + patience;
  channel::Decoder decoder(channel::kMaxPayloadFromAgent, channel::kMaxMessageFromAgent);
  channel::Frame answer;
  while (!decoder.next(&answer).value_or(false)) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0 || !sys::wait_readable(channel.from_agent.get(), left)) break;
    char buffer[65536];
    ssize_t n = ::read(channel.from_agent.get(), buffer, sizeof buffer);
    if (n == 0) break;
    if (n > 0) decoder.feed(std::string_view(buffer, static_cast<size_t>(n)));
  }
  if (answer.type != channel::Type::kResponse)
    return fail(Code::kSandboxEnded, "no answer to " + command);
  return answer.payload;
}

void make_traffic(const ChannelFds& channel) {
  std::string frame;
  channel::append_frame(frame, 0, channel::Type::kPing, std::string(64, 'p'));
  while (::write(channel.to_agent.get(), frame.data(), frame.size()) > 0) {
  }
  char buffer[10007];  // ends in the middle of frames
  for (int i = 0; i < 20; ++i) (void)!::read(channel.from_agent.get(), buffer, sizeof buffer);
}

HostObjects count_objects(const HostConfig& config) {
  HostObjects objects;
  objects.processes = static_cast<int>(sys::children().size());
  objects.mounts = static_cast<int>(sys::mount_table().size());
  if (auto tree = sys::CgroupTree::detect(config.cgroup_parent + "/" + config.instance)) {
    objects.cgroups = static_cast<int>(tree->names().size());
  }
  objects.loops = static_cast<int>(sys::loops_below(config.data_dir).size());
  objects.descriptors = static_cast<int>(sys::list_directory("/proc/self/fd").size());
  return objects;
}

HostObjects left_over(const HostConfig& config, const HostObjects& before) {
  const auto more = [&](int HostObjects::*which, const HostObjects& now) { return std::max(now.*which - before.*which, 0); };
  for (const Deadline end = after(std::chrono::minutes(1));; std::this_thread::sleep_for(std::chrono::milliseconds(10))) {
    const HostObjects now = count_objects(config);
    const HostObjects excess{more(&HostObjects::processes, now), more(&HostObjects::mounts, now), more(&HostObjects::cgroups, now),
                             more(&HostObjects::loops, now), more(&HostObjects::descriptors, now)};
    if (excess == HostObjects{} || Clock::now() >= end) return excess;
  }
}

std::ostream& operator<<(std::ostream& out, const HostObjects& o) {
  return out << "processes " << o.processes << ", mounts " << o.mounts << ", cgroups " << o.cgroups
             << ", loops " << o.loops << ", descriptors " << o.descriptors;
}

}  // namespace glovebox::runtime::testing
