// SPDX-License-Identifier: Apache-2.0
#include "peer.h"

#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/vfs.h>

#include <filesystem>
#include <fstream>

namespace glovebox::bench {
namespace {

namespace fs = std::filesystem;
constexpr const char* kUnified = "/sys/fs/cgroup/unified";

// What `crun spec` and `runsc spec` agree on, without a terminal.
constexpr const char* kConfig = R"({"ociVersion":"1.0.2",
"process":{"user":{"uid":0,"gid":0},"args":["/bin/sleep","1000000"],"cwd":"/","noNewPrivileges":true,
  "env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  "capabilities":{"bounding":["CAP_KILL"],"effective":["CAP_KILL"],"permitted":["CAP_KILL"]}},
"root":{"path":"%ROOT%","readonly":false},"hostname":"peer",
"mounts":[{"destination":"/proc","type":"proc","source":"proc"},
  {"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","strictatime","mode=755","size=65536k"]},
  {"destination":"/dev/pts","type":"devpts","source":"devpts","options":["nosuid","noexec","newinstance","ptmxmode=0666","mode=0620"]},
  {"destination":"/dev/shm","type":"tmpfs","source":"shm","options":["nosuid","noexec","nodev","mode=1777","size=65536k"]},
  {"destination":"/sys","type":"sysfs","source":"sysfs","options":["nosuid","noexec","nodev","ro"]}],
"linux":{"namespaces":[{"type":"pid"},{"type":"network"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}})";

bool is_hybrid() {
  struct statfs found{};
  if (::statfs(kUnified, &found) < 0 || found.f_type != CGROUP2_SUPER_MAGIC) return false;
  std::string controllers;
  return static_cast<bool>(std::ifstream(std::string(kUnified) + "/cgroup.controllers") >>
                           controllers);
}

Result<void> mount_template(const Peer::Options& options) {
  const std::string lower = options.work_dir + "/lower", merged = options.work_dir + "/merged";
  std::error_code ec;
  for (const char* name : {"/lower", "/merged", "/upper", "/overlay-work", "/runsc-layer"}) {
    fs::create_directories(options.work_dir + name, ec);
  }
  if (::mount(options.image.c_str(), lower.c_str(), "erofs", MS_RDONLY, nullptr) < 0) {
    // Before Linux 6.12 erofs wants a block device; mount(8) makes one that goes with the mount.
    const Commands commands(options.work_dir + "/mount.log");
    GB_TRYV(commands.run(
        {find_program("mount"), "-t", "erofs", "-o", "ro,loop", options.image, lower}));
  }
  const std::string layers = "lowerdir=" + lower + ",upperdir=" + options.work_dir +
                             "/upper,workdir=" + options.work_dir + "/overlay-work";
  if (::mount("overlay", merged.c_str(), "overlay", 0, layers.c_str()) < 0)
    return fail_errno("overlay");
  return {};
}

Result<void> write_bundle(const std::string& directory, const std::string& root) {
  std::error_code ec;
  fs::create_directories(directory, ec);
  std::string config = kConfig;
  config.replace(config.find("%ROOT%"), 6, root);
  std::ofstream file(directory + "/config.json");
  if (!(file << config).flush()) return fail(Code::kIo, directory + "/config.json");
  return {};
}

}  // namespace

Result<void> Peer::prepare(const Options& options) {
  if (::unshare(CLONE_NEWNS) < 0) return fail_errno("unshare");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) < 0)
    return fail_errno("mount --make-rprivate");
  if (is_hybrid() && ::mount("tmpfs", kUnified, "tmpfs", 0, "size=16m") < 0)
    return fail_errno(kUnified);
  return mount_template(options);
}

Result<std::unique_ptr<Peer>> Peer::make(const std::string& tier, const Options& options) {
  const bool is_gvisor = tier == "gvisor";
  const std::string name = is_gvisor ? "runsc" : "crun", program = find_program(name);
  if (program.empty()) return fail(Code::kUnavailable, name + " is not installed");
  std::unique_ptr<Peer> peer(new Peer(program, name, is_gvisor, options));
  GB_TRYV(write_bundle(peer->directory_, options.work_dir + (is_gvisor ? "/lower" : "/merged")));
  // The second start is like all that follow: the first one reads the engine from disk.
  for (const char* id : {"glovebox-bench-probe-1", "glovebox-bench-probe-2"}) {
    GB_TRYV(peer->create(id));
    GB_TRYV(peer->exec(id, {"/bin/true"}));
    GB_TRYV(peer->remove(id));
  }
  return peer;
}

Peer::Peer(std::string program, std::string name, bool is_gvisor, const Options& options)
    : program_(std::move(program)),
      name_(std::move(name)),
      directory_(options.work_dir + "/" + name_),
      is_gvisor_(is_gvisor),
      work_dir_(options.work_dir),
      commands_(options.work_dir + "/" + name_ + ".log") {}

Words Peer::global_words() const {
  if (!is_gvisor_) return {program_, "--root=" + directory_ + "/state"};
  return {program_,
          "--root=" + directory_ + "/state",
          "--network=none",
          "--ignore-cgroups",
          "--platform=systrap",
          "--overlay2=root:dir=" + work_dir_ + "/runsc-layer"};
}

Words Peer::create_command(const std::string& id) const {
  Words words = global_words();
  const Words rest =
      is_gvisor_ ? Words{"run", "-detach", "-bundle=" + directory_, "-pid-file=" + pid_file(id), id}
                 : Words{"run", "-d", "--bundle=" + directory_, "--pid-file=" + pid_file(id), id};
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

Words Peer::remove_command(const std::string& id) const {
  Words words = global_words();
  words.insert(words.end(), {"delete", is_gvisor_ ? "-force" : "-f", id});
  return words;
}

Result<void> Peer::checkpoint(const std::string& id, const std::string& directory) const {
  Words words = global_words();
  words.insert(words.end(), {"checkpoint", "-leave-running", "-image-path=" + directory, id});
  return commands_.run(words);
}

Result<void> Peer::restore(const std::string& id, const std::string& directory) const {
  Words words = global_words();
  words.insert(words.end(), {"restore", "-detach", "-bundle=" + directory_, "-pid-file=" + pid_file(id), "-image-path=" + directory, id});
  return commands_.run(words);
}

Words Peer::exec_command(const std::string& id, const Words& argv) const {
  Words words = global_words();
  words.insert(words.end(), {"exec", id});
  words.insert(words.end(), argv.begin(), argv.end());
  return words;
}

void Peer::send(const std::string& id, int signal) const {
  pid_t pid = 0;
  if (is_gvisor_ && std::ifstream(pid_file(id)) >> pid && pid > 1) ::kill(pid, signal);
}

void Peer::pause(const std::string& id) const {
  send(id, SIGSTOP);
}
void Peer::go_on(const std::string& id) const {
  send(id, SIGCONT);
}

}  // namespace glovebox::bench
