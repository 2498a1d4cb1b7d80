// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "programs/glovebox/command_options.h"
#include "programs/glovebox/settings.h"

namespace glovebox::cli {

struct UpOptions {
  std::string listen = "127.0.0.1:7070";
  std::string runsc;
  std::string log_level = "info";
  std::string config_file;
  std::string default_runtime;
  bool allow_emulation = false;
  bool json_logs = false;
  bool end_sandboxes = false;
};

// Everything a command does, so that tests can look at what would be called.
struct Actions {
  std::function<int(const Settings&, const UpOptions&)> up;
  std::function<int(const Settings&, const CreateOptions&)> create;
  std::function<int(const Settings&, const ListOptions&)> list;
  std::function<int(const Settings&, const std::string&)> info;
  std::function<int(const Settings&, const KillOptions&)> kill;
  std::function<int(const Settings&, const PauseOptions&)> pause, resume;
  std::function<int(const Settings&, const SnapshotOptions&)> snapshot_create, snapshot_list, snapshot_show, snapshot_rename,
      snapshot_remove, snapshot_verify;
  std::function<int(const Settings&, const ForkOptions&)> fork;
  std::function<int(const Settings&, const ResetOptions&)> reset;
  std::function<int(const Settings&, const HibernateOptions&)> hibernate;
  std::function<int(const Settings&, const DiffOptions&)> diff;
  std::function<int(const Settings&, const CopyOptions&)> copy;
  std::function<int(const Settings&, const RunOptions&)> run;
  std::function<int(const Settings&, const ExecOptions&)> exec;
  std::function<int(const Settings&, const RunOptions&)> shell;
  std::function<int(const Settings&, const LogsOptions&)> logs;
  std::function<int(const Settings&, const CodeOptions&)> code;
  std::function<int(const Settings&, const NetworkShowOptions&)> network;
  std::function<int(const Settings&, const NetworkLogOptions&)> connections, packages;
  std::function<int(const Settings&)> presets;
  std::function<int(const Settings&, const TemplateOptions&)> template_build, template_import;
  std::function<int(const Settings&)> template_list;
  std::function<int(const Settings&, const std::string&)> template_info, template_remove;
  std::function<int(const Settings&, const std::string& package)> kernel_build;
  std::function<int(const Settings&)> kernel_show;
  std::function<int(const Settings&, const VolumeOptions&)> volume_create, volume_list, volume_show, volume_grow, volume_remove,
      volume_export, volume_import;
  std::function<int(const Settings&, const KeyOptions&)> key_create;
  std::function<int(const Settings&)> key_list;
  std::function<int(const Settings&, const std::string&)> key_remove;
  std::function<int(const Settings&, const std::string& runsc, bool allow_emulation)> doctor;
  std::function<int(const Settings&)> version;
  std::function<int(const Settings&, const AttackOptions&)> attack;
  std::function<int(const Settings&)> mcp;
};
// The real ones; `up` is the caller's.
Actions real_actions(std::function<int(const Settings&, const UpOptions&)> up);

// Reads the command line and runs what it says. Wrong ones are explained on standard error: kUsage.
// Help goes to standard output. In `run`, `exec` and `shell` the command begins after "--", or at
// the first word that is no option of ours.
int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const Actions& actions);

}  // namespace glovebox::cli
