// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "command.h"

namespace glovebox::bench {

// An OCI engine driven by its command line, as a program would that has no Glovebox. Its sandboxes
// run `sleep` on the same template. They do less than ours: no user namespace, no system call
// filter, no disk of their own (container); the engine's cgroup handling is off where ours has its
// own (gvisor).
class Peer {
 public:
  struct Options {
    std::string work_dir;  // for bundles, states and the writable layer
    std::string image;     // the template's erofs image
  };

  // Once per process, before any thread: a private mount namespace, the template mounted in it, and
  // a tmpfs over a cgroup v2 hierarchy beside v1 ones, which crun 1.8 refuses.
  static Result<void> prepare(const Options& options);
  // The engine for our tier of that name. kUnavailable says why there is none.
  static Result<std::unique_ptr<Peer>> make(const std::string& tier, const Options& options);

  const std::string& name() const { return name_; }
  std::string create_name() const { return name_ + (is_gvisor_ ? " run -detach" : " run -d"); }
  std::string remove_name() const { return name_ + (is_gvisor_ ? " delete -force" : " delete -f"); }
  const Commands& commands() const { return commands_; }
  const std::string& work_dir() const { return work_dir_; }

  Words create_command(const std::string& id) const;
  Words remove_command(const std::string& id) const;
  Words exec_command(const std::string& id, const Words& argv) const;

  Result<void> create(const std::string& id) const { return commands_.run(create_command(id)); }
  Result<void> remove(const std::string& id) const {
    return commands_.run_and_reap(remove_command(id));
  }
  Result<void> exec(const std::string& id, const Words& argv) const {
    return commands_.run(exec_command(id, argv));
  }

  // gVisor only. The sandbox goes on; a restored one runs when the command ends.
  Result<void> checkpoint(const std::string& id, const std::string& directory) const;
  Result<void> restore(const std::string& id, const std::string& directory) const;

  // gVisor's systrap platform burns 4-6 % of a core in an idle sandbox, so ours and the peer's are
  // both stopped while idle: ours by the daemon, the peer's by these, outside of what is timed.
  // Nothing for crun.
  void pause(const std::string& id) const;
  void go_on(const std::string& id) const;

 private:
  Peer(std::string program, std::string name, bool is_gvisor, const Options& options);
  Words global_words() const;
  std::string pid_file(const std::string& id) const { return directory_ + "/" + id + ".pid"; }
  void send(const std::string& id, int signal) const;

  std::string program_, name_, directory_;
  bool is_gvisor_;
  std::string work_dir_;
  Commands commands_;
};

}  // namespace glovebox::bench
