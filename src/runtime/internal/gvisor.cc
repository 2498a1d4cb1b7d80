// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "base/log.h"
#include "base/text.h"
#include "runtime/internal/bundle.h"
#include "sys/command.h"
#include "runtime/internal/launch.h"
#include "runtime/internal/linux_runtime.h"
#include "runtime/internal/orphans.h"
#include "runtime/internal/snapshot_files.h"
#include "runtime/internal/volumes.h"
#include "sys/files.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kEngineMemory = 32 << 20;  // the engine's own, beside the guest's
constexpr uint64_t kEngineOpenFiles =
    1 << 20;  // as many as the host allows: it holds files for all guest processes
constexpr off_t kMaxEngineLog = 256 << 10;
constexpr size_t kIdLength = 40;
constexpr std::string_view kAgentSuffix = ".erofs";
constexpr uint64_t kRoom = 16 << 20;  // beside what a snapshot holds
constexpr uint64_t kMegabyte = 1 << 20;

// Without a copy where the file system can do it; another thread may be faster.
Result<void> share_file(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST) return {};
  return sys::copy_sparse(from, to);
}

uint64_t round_up(uint64_t bytes) { return (bytes + kMegabyte - 1) / kMegabyte * kMegabyte; }

// The engine finds sandboxes by the beginning of their id, so all have one length.
std::string engine_id(std::string id) {
  id.resize(std::max(id.size(), kIdLength), '_');
  return id;
}

// "runsc-<id>___….sock" and the like -> <id>
std::string id_of(std::string name) {
  if (name.starts_with("runsc-")) name.erase(0, 6);
  return name.substr(0, name.find('_'));
}

class GvisorRuntime final : public LinuxRuntime {
 public:
  using LinuxRuntime::LinuxRuntime;
  ~GvisorRuntime() override;
  Tier tier() const override { return Tier::kGvisor; }
  Kept keeps() const override { return Kept::kMemoryAndFiles; }
  Result<SnapshotImage> snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) override;
  Result<void> check_needs(const std::map<std::string, std::string>& needs) override;

 protected:
  sys::CgroupLimits cgroup_limits(const Limits& limits) const override;
  Result<void> launch(Launch& launch) override;
  void disk_usage(const Record& record, Usage* usage) const override;
  Result<void> remove_engine_state(const Record& record) const override;
  std::vector<std::string> sweep_engine_state(const std::vector<std::string>& known) const override;
  std::vector<HostObject> engine_objects() const override;
  std::string engine_log(const Record& record) const override;
  Result<std::string> engine_version() const override;
  std::string remedy() const override;

 private:
  std::string runsc() const {
    return sys::find_program(config().runsc_path.empty() ? "runsc" : config().runsc_path);
  }
  std::string state_directory() const { return storage().run_directory() + "/runsc"; }
  std::string log_path(const std::string& directory) const { return directory + "/engine.log"; }
  Result<Rootfs> agent_image();
  Result<Rootfs> agent_of_snapshot(const std::string& directory) const;
  Rootfs agent_image_named(const std::string& digest) const { return {digest, storage().run_directory() + "/" + digest + std::string(kAgentSuffix)}; }
  Result<void> keep_agent(const Record& record, const std::string& directory) const;
  Result<void> checkpoint(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) const;
  Result<std::map<std::string, std::string>> facts() const;
  Result<void> write_bundle(const StartSpec& spec) const;
  std::vector<std::string> command(const StartSpec& spec) const;
  Result<void> run_engine(Launch& launch, EnginePlan* plan);
  Result<void> remember_sandbox(Launch& launch) const;
  void note_groups(const std::string& id, bool with_members, std::set<pid_t>* groups) const;
  bool wait_for_engine(Launch& launch, const sys::Spawned& child, std::set<pid_t>* groups) const;

  mutable OrphanReaper orphans_;
  mutable std::mutex facts_mutex_;
  mutable std::pair<std::string, std::map<std::string, std::string>> facts_;  // of the engine with this identity
  std::mutex agent_mutex_;
  Rootfs agent_image_;  // the last one that was mounted
};

GvisorRuntime::~GvisorRuntime() {
  if (!agent_image_.digest.empty()) forget(agent_image_);
}

// The engine uses host threads for guest processes and dies when it cannot get one, so this limit
// is a distant backstop; the guest's own is RLIMIT_NPROC, set by the agent. The memory limit ends
// the sandbox as a whole.
sys::CgroupLimits GvisorRuntime::cgroup_limits(const Limits& limits) const {
  return {limits.cpus, limits.memory_bytes + kEngineMemory, 2000 + 4 * limits.processes, true};
}

// The agent alone in an erofs image, one for each version: sandboxes that run keep theirs, and
// nobody can write to it.
Result<Rootfs> GvisorRuntime::agent_image() {
  struct stat st{};
  if (::stat(config().agent_path.c_str(), &st) < 0) return fail_errno(config().agent_path);
  std::string version = std::to_string(st.st_size) + "-" + std::to_string(st.st_mtim.tv_sec) + "." +
                        std::to_string(st.st_mtim.tv_nsec);
  std::string digest = std::to_string(std::hash<std::string>()(version)) + std::string(16, '0');
  const Rootfs image = agent_image_named("agent-" + digest.substr(0, 10));
  std::lock_guard lock(agent_mutex_);
  agent_image_ = image;
  if (sys::exists(image.image_path)) return image;
  std::string tree = storage().run_directory() + "/agent.tree",
              draft = storage().run_directory() + "/agent.draft";
  GB_TRYV(sys::remove_tree(tree));
  GB_TRYV(sys::make_directories(tree, 0755));
  GB_TRYV(sys::copy_sparse(config().agent_path, tree + "/agent"));
  if (::chmod((tree + "/agent").c_str(), 0755) < 0) return fail_errno(tree);
  GB_TRYV(sys::run_command({"mkfs.erofs", "--quiet", draft, tree}, 60s));
  GB_TRYV(sys::remove_tree(tree));
  if (::rename(draft.c_str(), image.image_path.c_str()) < 0) return fail_errno(image.image_path);
  return image;
}

Result<void> GvisorRuntime::write_bundle(const StartSpec& spec) const {
  const std::string& stage = storage().stage();
  const bool has_volumes = !spec.volumes.empty();
  BundlePaths paths{stage + (has_volumes ? "/m" : "/l"), stage + (has_volumes ? "/d/t" : "/t"), stage + "/a", stage + "/v"};
  GB_TRYV(sys::make_directory(spec.directory + "/bundle", 0700));
  return sys::put_file(spec.directory + "/bundle/config.json", bundle_config(spec, paths), 0600);
}

std::vector<std::string> GvisorRuntime::command(const StartSpec& spec) const {
  std::vector<std::string> words = {runsc(),
                                    "--root=" + state_directory(),
                                    spec.netns_fd < 0 ? "--network=none" : "--network=sandbox",
                                    "--ignore-cgroups",
                                    "--platform=systrap",
                                    // Connections to the outside end when the sandbox is copied; without this it could not be.
                                    "--net-disconnect-ok",
                                    // What is written to a volume goes to the volume, and nobody else writes there meanwhile.
                                    std::string(spec.volumes.empty() ? "--overlay2=all" : "--overlay2=root") + ":dir=" + storage().stage() + "/d",
                                    std::string("--file-access-mounts=") + (spec.volumes.empty() ? "shared" : "exclusive"),
                                    spec.snapshot.empty() ? "run" : "restore",
                                    "-detach",
                                    "-bundle=" + spec.directory + "/bundle",
                                    "-pid-file=" + spec.directory + "/pid"};
  if (!spec.snapshot.empty()) words.push_back("-image-path=" + spec.snapshot);
  words.push_back(engine_id(spec.id));
  return words;
}

// The engine's child outlives this call as a child of ours (we are the subreaper) and is the
// sandbox.
Result<void> GvisorRuntime::remember_sandbox(Launch& launch) const {
  GB_TRY(auto text, sys::read_file(launch.spec.directory + "/pid"));
  auto process = sys::identify(static_cast<pid_t>(parse_int(text).value_or(0)));
  if (!process)
    return fail(Code::kStartFailed,
                "runsc: the sandbox ended at once: " + engine_log(launch.record));
  remember_process(&launch.record, *process);
  return {};
}

void GvisorRuntime::note_groups(const std::string& id, bool with_members,
                                std::set<pid_t>* groups) const {
  for (pid_t pid : (*cgroups())->processes(id)) {
    if (pid_t group = ::getpgid(pid); group > 0) groups->insert(group);
    if (with_members) groups->insert(pid);  // it may open its own group before it ends
  }
}

// Looks at the engine's processes from the beginning: when it fails, its dead are ours to reap.
bool GvisorRuntime::wait_for_engine(Launch& launch, const sys::Spawned& child,
                                    std::set<pid_t>* groups) const {
  for (bool ended = false;;) {
    ended = sys::wait_readable(child.pidfd.get(), 10ms);
    note_groups(launch.spec.id, true, groups);
    groups->erase(child.pid);
    if (ended || Clock::now() > launch.deadline) return ended;
  }
}

Result<void> GvisorRuntime::run_engine(Launch& launch, EnginePlan* plan) {
  GB_TRY(auto child, sys::spawn_sharing_memory(CLONE_NEWNS, engine_child, plan));
  if (plan->error != 0) {
    ::waitpid(child.pid, nullptr, 0);
    if (plan->step == LaunchStep::kVolumes) return volume_error(plan->error, launch.spec);
    return fail_errno(std::string("runsc: ") + step_name(plan->step), plan->error);
  }
  launch.timer.done(*plan);
  std::set<pid_t> groups;
  bool ended = wait_for_engine(launch, child, &groups);
  if (!ended) ::kill(child.pid, SIGKILL);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  launch.timer.done("runsc");
  remember_groups(&launch.record, groups);
  if (!ended) return fail(Code::kTimeout, "runsc did not start the sandbox in time");
  if (status != 0) return fail(Code::kStartFailed, "runsc failed: " + engine_log(launch.record));
  GB_TRYV(remember_sandbox(launch));
  groups.clear();
  note_groups(launch.spec.id, false, &groups);
  groups.erase(process_of(launch.record).pid);
  remember_groups(&launch.record, groups);
  orphans_.add(launch.spec.id, process_of(launch.record), {groups.begin(), groups.end()});
  return {};
}

Result<void> GvisorRuntime::launch(Launch& launch) {
  const auto& spec = launch.spec;
  if (runsc().empty()) return fail(Code::kRuntimeUnavailable, "runsc is not installed");
  GB_TRYV(sys::make_directories(state_directory(), 0700));
  GB_TRYV(write_bundle(spec));
  GB_TRY(auto disk, private_disk(launch));
  GB_TRY(auto rootfs, storage().rootfs_copy(spec.rootfs));
  GB_TRY(const auto volumes, VolumeMounts::make(spec));
  GB_TRY(auto image, spec.snapshot.empty() ? agent_image() : agent_of_snapshot(spec.snapshot));
  launch.record.fields["agent"] = image.digest;
  GB_TRY(auto agent, storage().rootfs_copy(image));
  GB_TRY(auto error_log,
         sys::open_fd(log_path(spec.directory), O_WRONLY | O_CREAT | O_APPEND, 0600));
  auto words = command(spec);
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  const char* environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               "HOME=/", nullptr};
  std::string kilobytes = std::to_string(spec.limits.memory_bytes >> 10);
  std::string meminfo = "MemTotal: " + kilobytes + " kB\nMemFree: " + kilobytes +
                        " kB\nMemAvailable: " + kilobytes + " kB\n";
  EnginePlan plan;
  plan.cgroup_fds = launch.cgroup_fds.data();
  plan.cgroup_count = launch.cgroup_fds.size();
  plan.stage = storage().stage().c_str();
  plan.rootfs_fd = rootfs.get();
  volumes.point_to(&plan);
  plan.disk_fd = disk.get();
  plan.agent_mount_fd = agent.get();
  plan.stdin_fd = launch.to_agent.inner.get();
  plan.stdout_fd = launch.from_agent.inner.get();
  plan.stderr_fd = error_log.get();
  plan.netns_fd = spec.netns_fd;
  plan.open_files = kEngineOpenFiles;
  plan.meminfo = meminfo.c_str();
  plan.argv = argv.data();
  plan.environment = environment;
  launch.timer.done("prepare");
  return run_engine(launch, &plan);
}

// ---- Snapshots ----

// What must be the same wherever an image of this engine is restored.
Result<std::map<std::string, std::string>> GvisorRuntime::facts() const {
  struct stat st{};
  const std::string path = runsc();
  if (path.empty() || ::stat(path.c_str(), &st) < 0) return fail(Code::kRuntimeUnavailable, "runsc is not installed");
  const std::string identity = path + "-" + std::to_string(st.st_ino) + "-" + std::to_string(st.st_mtim.tv_sec);
  const std::lock_guard lock(facts_mutex_);
  if (facts_.first != identity) {
    GB_TRY(const auto version, engine_version());
    facts_ = {identity, {{"engine", version}, {"processor", processor_features()}}};
  }
  return facts_.second;
}

Result<void> GvisorRuntime::check_needs(const std::map<std::string, std::string>& needs) {
  GB_TRY(const auto here, facts());
  return compare_needs(needs, here);
}

// The memory of the sandbox maps its agent, so that very file has to be there at a restore: the snapshot holds it.
Result<void> GvisorRuntime::keep_agent(const Record& record, const std::string& directory) const {
  const auto digest = record.fields.find("agent");
  if (digest == record.fields.end()) return fail(Code::kUnsupported, "the sandbox was started by a version that did not note its agent");
  return share_file(agent_image_named(digest->second).image_path, directory + "/" + digest->second + std::string(kAgentSuffix));
}

// One that this data directory no longer has, or never had, is taken from the snapshot: a copy outlives it.

Result<Rootfs> GvisorRuntime::agent_of_snapshot(const std::string& directory) const {
  for (const auto& name : sys::list_directory(directory)) {
    if (!name.starts_with("agent-") || !name.ends_with(kAgentSuffix)) continue;
    const Rootfs image = agent_image_named(name.substr(0, name.size() - kAgentSuffix.size()));
    if (!sys::exists(image.image_path)) GB_TRYV(share_file(directory + "/" + name, image.image_path));
    return image;
  }
  return fail(Code::kCorrupt, "the snapshot holds no agent");
}

Result<void> GvisorRuntime::checkpoint(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) const {
  std::vector<std::string> words = {runsc(), "--root=" + state_directory(), "checkpoint", "-compression=none", "-image-path=" + directory};
  if (afterwards == Afterwards::kGoesOn) words.emplace_back("-leave-running");
  words.push_back(engine_id(record.id));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  auto done = sys::run_command(words, std::max(left, 1ms));
  if (done) return {};
  if (sys::is_alive(process_of(record))) return fail(Code::kIo, "the engine could not write its state: " + done.error().message);
  return fail(Code::kSandboxEnded, "the sandbox ended while its state was written: " + engine_log(record), {{"reason", "crashed"}});
}

// What the guest needs at least is an upper bound: its memory and its files are in one file of the image.
Result<SnapshotImage> GvisorRuntime::snapshot(const Record& record, const std::string& directory, Afterwards afterwards, Deadline deadline) {
  SnapshotImage image;
  image.kept = Kept::kMemoryAndFiles;
  GB_TRY(image.needs, facts());
  GB_TRY(const auto used, usage(record));
  GB_TRYV(keep_agent(record, directory));
  GB_TRYV(checkpoint(record, directory, afterwards, deadline));
  image.parts = list_parts(directory);
  uint64_t pages = 0;
  for (const auto& part : image.parts) pages = std::max(pages, part.name == "pages.img" ? part.bytes : 0);
  image.min_memory_bytes = round_up(std::min(used.memory_bytes, pages) + kRoom);
  image.min_disk_bytes = round_up(used.disk_bytes + used.disk_bytes / 8 + kRoom);
  return image;
}

// The guest's files are in unnamed files on the private disk, which is mounted nowhere any more; a
// descriptor of the engine leads to it.
void GvisorRuntime::disk_usage(const Record& record, Usage* usage) const {
  struct stat log{};
  if (::stat(log_path(record.directory).c_str(), &log) == 0 && log.st_size > kMaxEngineLog) {
    (void)::truncate(log_path(record.directory).c_str(),
                     0);  // opened for appending, so writing goes on at the start
  }
  usage->processes = 0;
  std::string directory = "/proc/" + std::to_string(process_of(record).pid) + "/fd/";
  for (const auto& name : sys::list_directory(directory)) {
    if (sys::read_link(directory + name).find("runsc-filestore") == std::string::npos) continue;
    struct statfs fs{};
    if (::statfs((directory + name).c_str(), &fs) < 0) continue;
    usage->disk_bytes = (fs.f_blocks - fs.f_bfree) * static_cast<uint64_t>(fs.f_bsize);
    return;
  }
}

// What `runsc delete -force` would do after the processes are gone, without starting runsc for it.
Result<void> GvisorRuntime::remove_engine_state(const Record& record) const {
  orphans_.remove(record.id);
  orphans_.reap_strays();
  std::string id = engine_id(record.id);
  for (const auto& name : sys::list_directory(state_directory())) {
    if (name.find(id) != std::string::npos)
      GB_TRYV(sys::remove_tree(state_directory() + "/" + name));
  }
  // The control socket, when the state directory's path is too long for one.
  for (const char* directory : {"/var/run", "/run", "/tmp"}) {
    (void)::unlink((std::string(directory) + "/runsc-" + id + ".sock").c_str());
  }
  return {};
}

std::vector<std::string> GvisorRuntime::sweep_engine_state(
    const std::vector<std::string>& known) const {
  std::vector<std::string> swept;
  for (const auto& name : sys::list_directory(state_directory())) {
    if (std::find(known.begin(), known.end(), id_of(name)) != known.end()) continue;
    if (sys::remove_tree(state_directory() + "/" + name)) swept.push_back("engine state " + name);
  }
  return swept;
}

std::vector<HostObject> GvisorRuntime::engine_objects() const {
  std::vector<HostObject> found;
  for (const auto& name : sys::list_directory(state_directory()))
    found.push_back({id_of(name), "engine state " + name});
  return found;
}

std::string GvisorRuntime::engine_log(const Record& record) const {
  constexpr size_t kShown = 2000;
  auto text = sys::read_file(log_path(record.directory));
  if (!text) return {};
  if (text->size() > kShown) text->erase(0, text->size() - kShown);
  while (!text->empty() && text->back() == '\n') text->pop_back();
  return utf8_lossy(*text);
}

Result<std::string> GvisorRuntime::engine_version() const {
  if (runsc().empty()) return fail(Code::kRuntimeUnavailable, "runsc is not installed");
  GB_TRY(auto text, sys::run_command({runsc(), "--version"}, 20s));
  auto words = split(text.substr(0, text.find('\n')), ' ');  // "runsc version 0.0~20240729.0"
  std::string version = words.back();
  return "runsc " +
         version.substr(version.find('~') == std::string::npos ? 0 : version.find('~') + 1);
}

std::string GvisorRuntime::remedy() const {
  return "Install runsc 20240729 or newer (scripts/install-deps-runsc, or the Debian package from "
         "backports) and see that the "
         "container tier's needs are met too.";
}

}  // namespace

std::unique_ptr<Runtime> make_gvisor_runtime(const HostConfig& config) {
  return std::make_unique<GvisorRuntime>(config);
}

}  // namespace glovebox::runtime
