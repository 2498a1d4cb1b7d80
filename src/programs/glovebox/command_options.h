// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "programs/glovebox/network_options.h"

// What the command line says, one struct a command; durations, sizes and pairs were checked when it
// was read.
namespace glovebox::cli {

struct CreateOptions {
  std::optional<std::string> template_name, snapshot, runtime, memory, disk, user, workdir, lifetime,
      idle_timeout, on_timeout;
  std::optional<double> cpus;
  std::optional<int64_t> processes, open_files;
  std::vector<std::string> env, secrets, metadata, volumes;
  NetworkOptions network;
};

// How one command is run.
struct ExecOptions {
  std::string sandbox;
  std::vector<std::string> argv;
  std::vector<std::string> env, secrets;
  std::optional<std::string> user, workdir, timeout, name;
  bool tty = false;
  bool interactive = false;  // forward standard input
  bool detach = false;
};

struct RunOptions {
  CreateOptions create;
  ExecOptions exec;
  bool keep = false;  // do not kill the sandbox
};

struct LogsOptions {
  std::string sandbox, execution;
  bool follow = false;
  uint64_t since_cursor = 0;
};

struct CodeOptions {
  std::string sandbox, file = "-";  // standard input
  std::optional<std::string> language, context, timeout;
};

struct NetworkShowOptions {
  std::string sandbox;
  std::optional<std::string> file;  // the policy to set
};

struct NetworkLogOptions {
  std::string sandbox;
  bool follow = false;
};

struct ListOptions {
  bool all = false;
  std::vector<std::string> metadata;
};

struct KillOptions {
  std::vector<std::string> sandboxes;
  bool all = false;
};

struct PauseOptions {
  std::vector<std::string> sandboxes;
};

struct SnapshotOptions {
  std::string id;  // of the snapshot; of the sandbox to take one of
  std::string name, sandbox, require;
  std::vector<std::string> labels;
};

struct ForkOptions {
  std::string sandbox, require;
  int64_t count = 1;
  bool inherit_secrets = false;
  CreateOptions create;  // what the children have in place of the parent's
};

struct ResetOptions {
  std::string sandbox, snapshot;
};

struct HibernateOptions {
  std::string sandbox, require;
};

struct DiffOptions {
  std::string sandbox, against;
};

struct CopyOptions {
  std::string from, to, user;
};

struct TemplateOptions {
  std::string name, file, mirror;
  bool refresh = false;
};

struct VolumeOptions {
  std::string name;                 // or id
  std::optional<std::string> size;
  std::vector<std::string> labels;
  std::string file = "-";           // standard input or output
  bool get_or_create = false;
};

struct KeyOptions {
  std::string id, name, role = "user";
  std::optional<std::string> tenant;
  std::optional<std::string> default_runtime;  // what `auto` means for this key
};

struct AttackOptions {
  std::string runtime;  // empty: every usable one
  std::string template_name = "base";
};

}  // namespace glovebox::cli
