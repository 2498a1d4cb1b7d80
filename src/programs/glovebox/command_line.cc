// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "http/message.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

template <class Parse>
CLI::Validator checked(Parse parse, const std::string& kind) {
  return CLI::Validator(
      [parse](std::string& text) {
        const auto value = parse(text);
        return value ? std::string() : value.error().message;
      },
      kind);
}

const CLI::Validator kDuration = checked(parse_duration, "DURATION");
const CLI::Validator kSize = checked(parse_size_mb, "SIZE");
const CLI::Validator kPair =
    checked([](const std::string& text) { return parse_pairs({text}, false); }, "NAME=VALUE");
const CLI::Validator kVolume = checked(parse_mount, "NAME:/PATH[:ro]");
const CLI::Validator kHostPorts = checked(allow_rules, "HOST[:PORTS]");
const CLI::Validator kBlockPorts = checked(allow_cidr_rules, "CIDR[:PORTS]");
const CLI::Validator kDenied = checked(deny_rules, "DESTINATION[:PORTS]");
const CLI::Validator kPolicy = checked(read_policy, "FILE");
const CLI::Validator kEnv =
    checked([](const std::string& text) { return parse_pairs({text}, true); }, "NAME[=VALUE]");
const CLI::Validator kSecret = checked(
    [](const std::string& text) -> Result<StringMap> {
      GB_TRY(auto pair, parse_pairs({text}, true));
      if (pair.empty()) return fail(Code::kInvalidArgument, "'" + text + "' is not set in this program's environment");
      return pair;
    },
    "NAME[=VALUE]");

// All that a parse fills in. One object, so that the callbacks below can point into it.
struct Parsed {
  GlobalOptions global;
  UpOptions up;
  RunOptions run;  // also `create` (its create part), `exec` (its exec part) and `shell`
  CopyOptions copy;
  ListOptions list;
  KillOptions kill;
  PauseOptions pause;
  SnapshotOptions snapshot;
  ForkOptions fork;
  ResetOptions reset;
  HibernateOptions hibernate;
  DiffOptions diff;
  LogsOptions logs;
  CodeOptions code;
  NetworkShowOptions network;
  NetworkLogOptions network_log;
  TemplateOptions templates;
  VolumeOptions volume;
  KeyOptions key;
  AttackOptions attack;
  std::string name, runsc;
  bool attacks = false;
};

class CommandLine {
 public:
  CommandLine(const Environment& environment, const Actions& actions);
  int run(const std::vector<std::string>& arguments);

 private:
  CLI::App* command(CLI::App& parent, const std::string& name, const std::string& what);
  void on_run(CLI::App* command, std::function<int(const Settings&)> action);
  void add_global_options(CLI::App& app);
  void add_create_options(CLI::App& app);
  static void add_environment_options(CLI::App& app, std::vector<std::string>& env, std::vector<std::string>& secrets);
  void add_network_options(CLI::App& app, NetworkOptions& o);
  void add_exec_options(CLI::App& app);
  void add_sandbox_commands();
  void add_run_commands();
  void add_snapshot_commands();
  void add_copy_commands();
  void add_network_commands();
  void add_template_commands();
  void add_kernel_commands();
  void add_volume_commands();
  void add_key_commands();
  void add_host_commands();
  int explain(const CLI::ParseError& error);
  void take_command(CLI::App& app, bool is_required);

  const Environment& environment_;
  const Actions& actions_;
  CLI::App app_{"Sandboxes for AI agents on your own machines.", "glovebox"};
  Parsed parsed_;
  std::vector<std::string> after_dashes_;
  bool has_dashes_ = false;
  std::function<int(const Settings&)> chosen_;
};

CLI::App* CommandLine::command(CLI::App& parent, const std::string& name, const std::string& what) {
  CLI::App* app = parent.add_subcommand(name, what);
  add_global_options(*app);
  return app;
}

void CommandLine::on_run(CLI::App* command, std::function<int(const Settings&)> action) {
  command->final_callback([this, action = std::move(action)] { chosen_ = action; });
}

void CommandLine::add_global_options(CLI::App& app) {
  auto& global = parsed_.global;
  app.add_option("--url", global.url,
                 "The daemon's address [GLOVEBOX_API_URL; default: the daemon of --data-dir]")
      ->group("Global options");
  app.add_option("--key", global.key, "API key [GLOVEBOX_API_KEY; default: <data-dir>/admin.key]")
      ->group("Global options");
  app.add_option("--data-dir", global.data_dir, "[GLOVEBOX_DATA_DIR; default: /var/lib/glovebox]")
      ->group("Global options");
  app.add_flag("--json", global.json, "Machine-readable output")->group("Global options");
}

void CommandLine::add_create_options(CLI::App& app) {
  auto& o = parsed_.run.create;
  CLI::Option* from = app.add_option("--template", o.template_name, "Root file system: NAME or NAME@VERSION [base]");
  app.add_option("--snapshot", o.snapshot, "Start from this snapshot")->excludes(from);
  app.add_option("--runtime", o.runtime,
                 "auto, microvm, gvisor or container [auto: the strongest that works]")
      ->check(CLI::IsMember({"auto", "microvm", "gvisor", "container"}));
  app.add_option("--cpus", o.cpus, "CPUs, for example 0.5")->check(CLI::PositiveNumber);
  app.add_option("--memory", o.memory, "Memory, for example 512M or 2G")->check(kSize);
  app.add_option("--disk", o.disk, "Private disk space, for example 4G")->check(kSize);
  app.add_option("--processes", o.processes, "Most processes and threads")
      ->check(CLI::PositiveNumber);
  app.add_option("--open-files", o.open_files, "Most open files of a process")
      ->check(CLI::PositiveNumber);
  app.add_option("--lifetime", o.lifetime,
                 "End the sandbox after this time, for example 30m; 0: never")
      ->check(kDuration);
  app.add_option("--idle-timeout", o.idle_timeout,
                 "End it when nothing was done in it for this time")
      ->check(kDuration);
  app.add_option("--on-timeout", o.on_timeout, "kill, pause or hibernate: what these two do [kill]")
      ->check(CLI::IsMember({"kill", "pause", "hibernate"}));
  app.add_option("--volume", o.volumes, "Mount a volume: NAME:/PATH, read-only NAME:/PATH:ro; repeatable")
      ->check(kVolume)
      ->allow_extra_args(false);
  app.add_option("--metadata", o.metadata, "A label, NAME=VALUE; repeatable")
      ->check(kPair)
      ->allow_extra_args(false);
  add_network_options(app, o.network);
}

void CommandLine::add_environment_options(CLI::App& app, std::vector<std::string>& env, std::vector<std::string>& secrets) {
  app.add_option("-e,--env", env, "NAME=VALUE, or NAME to pass this value on; repeatable")->check(kEnv)->allow_extra_args(false);
  app.add_option("--secret", secrets, "The same for what no answer and no log shows and copies begin without; NAME keeps it out of the list of processes, too")
      ->check(kSecret)
      ->allow_extra_args(false);
}

void CommandLine::add_network_options(CLI::App& app, NetworkOptions& o) {
  const std::vector<CLI::Option*> parts = {
      app.add_option("--egress", o.egress,
                     "none, allowlist or open [allowlist when something is allowed, else none]")
          ->check(CLI::IsMember({"none", "allowlist", "open"})),
      app.add_option("--allow", o.allow,
                     "A host that may be reached, HOST[:PORT[,PORT]]; repeatable")
          ->check(kHostPorts),
      app.add_option("--allow-cidr", o.allow_cidr,
                     "An address or block that may be reached, CIDR[:PORT[,PORT]]; repeatable")
          ->check(kBlockPorts),
      app.add_option("--deny", o.deny,
                     "A host or block that may not be reached whatever else allows it; repeatable")
          ->check(kDenied),
      app.add_option("--preset", o.presets, "Rules by name, see `glovebox presets`; repeatable")};
  CLI::Option* file =
      app.add_option("--network", o.file, "A file with the whole policy as JSON")->check(kPolicy);
  for (CLI::Option* part : parts) {
    part->group("Network")->allow_extra_args(false);
    file->excludes(part);
  }
  file->group("Network");
}

void CommandLine::add_exec_options(CLI::App& app) {
  auto& o = parsed_.run.exec;
  app.add_option("--timeout", o.timeout,
                 "Kill the command after this time; the exit status is 124 then")
      ->check(kDuration);
  app.add_flag("-t,--tty", o.tty, "Run it on a terminal");
}

void CommandLine::take_command(CLI::App& app, bool is_required) {
  auto words = app.remaining();
  if (has_dashes_ && !words.empty()) throw CLI::ExtrasError(app.get_name(), words);
  if (!words.empty() && words[0].size() > 1 && words[0][0] == '-')
    throw CLI::ExtrasError(app.get_name(), {words[0]});
  parsed_.run.exec.argv = has_dashes_ ? after_dashes_ : words;
  if (is_required && parsed_.run.exec.argv.empty())
    throw CLI::RequiredError("a command, after \"--\"");
}

void CommandLine::add_run_commands() {
  auto& o = parsed_.run;
  CLI::App* run = command(app_, "run", "Run a command in a new sandbox and remove it afterwards");
  add_create_options(*run);
  add_exec_options(*run);
  add_environment_options(*run, o.create.env, o.create.secrets);
  run->add_option("--user", o.create.user, "User in the sandbox");
  run->add_option("--workdir", o.create.workdir, "Directory to run in");
  run->add_flag("-i,--interactive", o.exec.interactive,
                "Forward standard input also when it is a terminal");
  run->add_flag("--keep", o.keep, "Leave the sandbox running");
  run->prefix_command()->footer("Usage: glovebox run [OPTIONS] -- COMMAND [ARGUMENT…]");
  run->final_callback([this, run] {
    take_command(*run, true);
    chosen_ = [this](const Settings& s) { return actions_.run(s, parsed_.run); };
  });

  CLI::App* exec = command(app_, "exec", "Run a command in a sandbox");
  add_exec_options(*exec);
  exec->add_option("ID", o.exec.sandbox, "The sandbox")->required();
  add_environment_options(*exec, o.exec.env, o.exec.secrets);
  exec->add_option("--user", o.exec.user, "User in the sandbox");
  exec->add_option("--workdir", o.exec.workdir, "Directory to run in");
  exec->add_option("--name", o.exec.name, "A label for the execution");
  exec->add_flag("-i,--stdin", o.exec.interactive, "Forward standard input");
  CLI::Option* tty = exec->get_option("--tty");
  exec->add_flag("-d,--detach", o.exec.detach, "Do not wait: print the execution's id")
      ->excludes(tty);
  exec->prefix_command()->footer("Usage: glovebox exec [OPTIONS] ID -- COMMAND [ARGUMENT…]");
  exec->final_callback([this, exec] {
    take_command(*exec, true);
    chosen_ = [this](const Settings& s) { return actions_.exec(s, parsed_.run.exec); };
  });

  CLI::App* shell = command(app_, "shell", "A terminal in a sandbox; without ID in a new one");
  add_create_options(*shell);
  shell->add_option("ID", o.exec.sandbox, "The sandbox");
  add_environment_options(*shell, o.exec.env, o.exec.secrets);
  shell->add_option("--user", o.exec.user, "User in the sandbox");
  shell->add_option("--workdir", o.exec.workdir, "Directory to start in");
  shell->prefix_command()->footer("Usage: glovebox shell [OPTIONS] [ID] [-- COMMAND [ARGUMENT…]]");
  shell->final_callback([this, shell] {
    take_command(*shell, false);
    chosen_ = [this](const Settings& s) { return actions_.shell(s, parsed_.run); };
  });

  CLI::App* code = command(app_, "code", "Run code in a context that keeps its state, and show its results");
  code->add_option("ID", parsed_.code.sandbox, "The sandbox")->required();
  code->add_option("FILE", parsed_.code.file, "The code; -: standard input")->capture_default_str();
  code->add_option("-l,--language", parsed_.code.language, "python, javascript or bash [python]");
  code->add_option("--context", parsed_.code.context, "A context's id [the language's own]")->excludes("--language");
  code->add_option("--timeout", parsed_.code.timeout, "Interrupt it after this time, for example 30s")->check(kDuration);
  on_run(code, [this](const Settings& s) { return actions_.code(s, parsed_.code); });

  CLI::App* logs = command(app_, "logs", "What an execution wrote");
  logs->add_option("ID", parsed_.logs.sandbox, "The sandbox")->required();
  logs->add_option("EXECUTION", parsed_.logs.execution, "The execution")->required();
  logs->add_flag("-f,--follow", parsed_.logs.follow, "Go on until it ends");
  logs->add_option("--since-cursor", parsed_.logs.since_cursor, "Begin at this position")
      ->check(CLI::NonNegativeNumber);
  on_run(logs, [this](const Settings& s) { return actions_.logs(s, parsed_.logs); });
}

void CommandLine::add_sandbox_commands() {
  CLI::App* create = command(app_, "create", "Create a sandbox and print its id");
  add_create_options(*create);
  auto& o = parsed_.run.create;
  add_environment_options(*create, o.env, o.secrets);
  create->add_option("--user", o.user, "Default user");
  create->add_option("--workdir", o.workdir, "Default directory");
  on_run(create, [this](const Settings& s) { return actions_.create(s, parsed_.run.create); });

  CLI::App* list = command(app_, "ls", "List sandboxes");
  list->add_flag("-a,--all", parsed_.list.all, "Ended ones too");
  list->add_option("--metadata", parsed_.list.metadata, "Only those with NAME=VALUE; repeatable")
      ->check(kPair)
      ->allow_extra_args(false);
  on_run(list, [this](const Settings& s) { return actions_.list(s, parsed_.list); });

  CLI::App* info = command(app_, "info", "Everything about a sandbox");
  info->add_option("ID", parsed_.name, "The sandbox")->required();
  on_run(info, [this](const Settings& s) { return actions_.info(s, parsed_.name); });

  CLI::App* pause = command(app_, "pause", "Stop sandboxes as they are, memory included, until they are used again");
  pause->add_option("ID", parsed_.pause.sandboxes, "Sandboxes")->required();
  on_run(pause, [this](const Settings& s) { return actions_.pause(s, parsed_.pause); });
  CLI::App* resume = command(app_, "resume", "Let paused sandboxes go on");
  resume->add_option("ID", parsed_.pause.sandboxes, "Sandboxes")->required();
  on_run(resume, [this](const Settings& s) { return actions_.resume(s, parsed_.pause); });

  CLI::App* kill = command(app_, "kill", "End sandboxes");
  CLI::Option* ids = kill->add_option("ID", parsed_.kill.sandboxes, "Sandboxes");
  kill->add_flag("--all", parsed_.kill.all, "All of them")->excludes(ids);
  kill->final_callback([this] {
    if (parsed_.kill.sandboxes.empty() && !parsed_.kill.all)
      throw CLI::RequiredError("an ID, or --all");
    chosen_ = [this](const Settings& s) { return actions_.kill(s, parsed_.kill); };
  });

  CLI::App* copy = command(
      app_, "cp",
      "Copy files and directories: LOCAL ID:PATH, or ID:PATH LOCAL; - is standard input or output");
  copy->add_option("FROM", parsed_.copy.from, "Source")->required();
  copy->add_option("TO", parsed_.copy.to, "Target")->required();
  copy->add_option("--user", parsed_.copy.user, "Whose rights apply in the sandbox");
  on_run(copy, [this](const Settings& s) { return actions_.copy(s, parsed_.copy); });
}

void CommandLine::add_snapshot_commands() {
  CLI::App* group = app_.add_subcommand("snapshot", "Copies of a sandbox at one moment, to start others from");
  group->require_subcommand(1);
  auto& o = parsed_.snapshot;
  const CLI::IsMember kept({"memory+files", "files"});
  const auto add = [&](const std::string& name, const std::string& what, auto action) {
    CLI::App* app = command(*group, name, what);
    on_run(app, [this, action](const Settings& s) { return (actions_.*action)(s, parsed_.snapshot); });
    return app;
  };
  const auto add_labels = [&](CLI::App* app, const std::string& what) {
    app->add_option("--label", o.labels, what)->check(kPair)->allow_extra_args(false);
  };
  CLI::App* create = add("create", "Take one of a sandbox, which goes on running, and print its id", &Actions::snapshot_create);
  create->add_option("ID", o.id, "The sandbox")->required();
  create->add_option("--name", o.name, "For people");
  create->add_option("--require", o.require, "Fail unless this is kept: memory+files or files")->check(kept);
  add_labels(create, "A label, NAME=VALUE; repeatable");
  CLI::App* list = add("ls", "List snapshots", &Actions::snapshot_list);
  list->add_option("--sandbox", o.sandbox, "Only those of this sandbox");
  list->add_option("--name", o.name, "Only those of this name");
  add_labels(list, "Only those with NAME=VALUE; repeatable");
  add("show", "Everything about a snapshot", &Actions::snapshot_show)->add_option("ID", o.id, "The snapshot")->required();
  CLI::App* rename = add("rename", "Give a snapshot another name", &Actions::snapshot_rename);
  rename->add_option("ID", o.id, "The snapshot")->required();
  rename->add_option("NAME", o.name, "Its new name")->required();
  add("rm", "Delete a snapshot", &Actions::snapshot_remove)->add_option("ID", o.id, "The snapshot")->required();
  add("verify", "Read all of a snapshot and compare it with its checksums", &Actions::snapshot_verify)
      ->add_option("ID", o.id, "The snapshot")
      ->required();
}

void CommandLine::add_copy_commands() {
  const CLI::IsMember kept({"memory+files", "files"});
  auto& o = parsed_.fork;
  CLI::App* fork = command(app_, "fork", "Make copies of a running sandbox and print their ids; what no option says is the sandbox's");
  fork->add_option("ID", o.sandbox, "The sandbox")->required();
  fork->add_option("-n,--count", o.count, "How many [1]")->check(CLI::Range(1, 100));
  fork->add_option("--lifetime", o.create.lifetime, "End them after this time; 0: never")->check(kDuration);
  fork->add_option("--require", o.require, "Fail unless this is kept: memory+files or files")->check(kept);
  add_environment_options(*fork, o.create.env, o.create.secrets);
  fork->add_flag("--inherit-secrets", o.inherit_secrets, "Give them the sandbox's secrets as well");
  fork->add_option("--metadata", o.create.metadata, "A label, NAME=VALUE; repeatable")->check(kPair)->allow_extra_args(false);
  add_network_options(*fork, o.create.network);
  on_run(fork, [this](const Settings& s) { return actions_.fork(s, parsed_.fork); });

  CLI::App* reset = command(app_, "reset", "Take a sandbox back to a snapshot, in place");
  reset->add_option("ID", parsed_.reset.sandbox, "The sandbox")->required();
  reset->add_option("--snapshot", parsed_.reset.snapshot, "The snapshot [the one it came from, or was reset to last]");
  on_run(reset, [this](const Settings& s) { return actions_.reset(s, parsed_.reset); });

  CLI::App* hibernate = command(app_, "hibernate", "Pause a sandbox and free its memory");
  hibernate->add_option("ID", parsed_.hibernate.sandbox, "The sandbox")->required();
  hibernate->add_option("--require", parsed_.hibernate.require, "Fail unless this is kept: memory+files or files")->check(kept);
  on_run(hibernate, [this](const Settings& s) { return actions_.hibernate(s, parsed_.hibernate); });

  CLI::App* diff = command(app_, "diff", "Which files of a sandbox were added (A), changed (C) or deleted (D)");
  diff->add_option("ID", parsed_.diff.sandbox, "The sandbox")->required();
  diff->add_option("--against", parsed_.diff.against, "template, or a snapshot's id [template]");
  on_run(diff, [this](const Settings& s) { return actions_.diff(s, parsed_.diff); });
}

void CommandLine::add_network_commands() {
  auto& show = parsed_.network;
  auto& log = parsed_.network_log;
  CLI::App* network = command(app_, "network", "What a sandbox may reach; sets it while it runs");
  network->add_option("ID", show.sandbox, "The sandbox")->required();
  network->add_option("--set", show.file, "A file with the new policy as JSON")->check(kPolicy);
  on_run(network, [this](const Settings& s) { return actions_.network(s, parsed_.network); });

  CLI::App* connections =
      command(app_, "connections", "What a sandbox tried to reach, and what became of it");
  connections->add_option("ID", log.sandbox, "The sandbox")->required();
  connections->add_flag("-f,--follow", log.follow, "Go on until the sandbox has ended");
  on_run(connections,
         [this](const Settings& s) { return actions_.connections(s, parsed_.network_log); });

  CLI::App* packages = command(app_, "packages", "Which packages a sandbox asked for and got");
  packages->add_option("ID", log.sandbox, "The sandbox")->required();
  packages->add_flag("-f,--follow", log.follow, "Go on until the sandbox has ended");
  on_run(packages, [this](const Settings& s) { return actions_.packages(s, parsed_.network_log); });

  on_run(command(app_, "presets", "Ready-made network rules"),
         [this](const Settings& s) { return actions_.presets(s); });
}

void CommandLine::add_template_commands() {
  CLI::App* group = app_.add_subcommand("template", "Root file systems that sandboxes start from");
  group->require_subcommand(1);
  auto& o = parsed_.templates;
  CLI::App* build = command(*group, "build", "Build a template from its recipe");
  build->add_option("NAME", o.name, "The recipe, for example base")->required();
  build->add_flag("--refresh", o.refresh, "Look for newer packages");
  build->add_option("--mirror", o.mirror, "URL of a Debian archive [what this machine's apt uses]");
  on_run(build,
         [this](const Settings& s) { return actions_.template_build(s, parsed_.templates); });

  CLI::App* import = command(*group, "import",
                             "Make a template from a container image (`docker save`, OCI layout)");
  import->add_option("NAME", o.name, "The template's name")->required();
  import->add_option("FILE", o.file, "Archive or directory")->required()->check(CLI::ExistingPath);
  on_run(import,
         [this](const Settings& s) { return actions_.template_import(s, parsed_.templates); });

  on_run(command(*group, "ls", "List templates"),
         [this](const Settings& s) { return actions_.template_list(s); });
  CLI::App* info = command(*group, "info", "Everything about a template");
  info->add_option("NAME", parsed_.name, "NAME or NAME@VERSION")->required();
  on_run(info, [this](const Settings& s) { return actions_.template_info(s, parsed_.name); });
  CLI::App* remove = command(*group, "rm", "Remove a template");
  remove->add_option("NAME", parsed_.name, "NAME or NAME@VERSION")->required();
  on_run(remove, [this](const Settings& s) { return actions_.template_remove(s, parsed_.name); });
}

void CommandLine::add_kernel_commands() {
  CLI::App* group = app_.add_subcommand("kernel", "The kernel of microvm guests");
  group->require_subcommand(1);
  CLI::App* build = command(*group, "build", "Make one out of Debian's cloud kernel package, which is not installed");
  build->add_option("--from", parsed_.name, "A .deb file [what this machine's apt has]")->check(CLI::ExistingFile);
  on_run(build, [this](const Settings& s) { return actions_.kernel_build(s, parsed_.name); });
  on_run(command(*group, "show", "The one in use"), [this](const Settings& s) { return actions_.kernel_show(s); });
}

void CommandLine::add_volume_commands() {
  CLI::App* group = app_.add_subcommand("volume", "Disks that outlive sandboxes");
  group->require_subcommand(1);
  auto& o = parsed_.volume;
  const auto add = [&](const std::string& name, const std::string& what, std::function<int(const Settings&, const VolumeOptions&)> Actions::*action) {
    CLI::App* app = command(*group, name, what);
    on_run(app, [this, action](const Settings& s) { return (actions_.*action)(s, parsed_.volume); });
    if (name != "ls") app->add_option("NAME", o.name, name == "create" ? "Its name" : "Its name or id")->required();
    return app;
  };
  CLI::App* create = add("create", "Create a volume and print its id", &Actions::volume_create);
  create->add_option("--size", o.size, "For example 512M or 20G [1G]")->check(kSize);
  create->add_option("--label", o.labels, "A label, NAME=VALUE; repeatable")->check(kPair)->allow_extra_args(false);
  create->add_flag("--get-or-create", o.get_or_create, "One of this name that exists is as good");
  add("ls", "List volumes", &Actions::volume_list);
  add("show", "Everything about a volume", &Actions::volume_show);
  add("grow", "Make a volume larger; nobody may have it meanwhile", &Actions::volume_grow)
      ->add_option("SIZE", o.size, "For example 20G")->required()->check(kSize);
  add("rm", "Delete a volume and what is in it", &Actions::volume_remove);
  add("export", "Write what is in a volume as a tar archive", &Actions::volume_export)
      ->add_option("FILE", o.file, "The archive [-: standard output]");
  add("import", "Extract a tar archive into a volume; when that fails it is as before", &Actions::volume_import)
      ->add_option("FILE", o.file, "The archive [-: standard input]");
}

void CommandLine::add_key_commands() {
  CLI::App* group = app_.add_subcommand("key", "API keys");
  group->require_subcommand(1);
  CLI::App* create = command(*group, "create", "Create a key and print it");
  create->add_option("NAME", parsed_.key.name, "For people")->required();
  create->add_option("--role", parsed_.key.role, "user or admin [user]")
      ->check(CLI::IsMember({"user", "admin"}));
  create->add_option("--tenant", parsed_.key.tenant,
                     "Whose sandboxes it sees [that of the calling key]");
  create->add_option("--default-runtime", parsed_.key.default_runtime,
                     "What `auto` means for this key: microvm, gvisor or container");
  on_run(create, [this](const Settings& s) { return actions_.key_create(s, parsed_.key); });
  on_run(command(*group, "ls", "List keys"),
         [this](const Settings& s) { return actions_.key_list(s); });
  CLI::App* remove = command(*group, "rm", "Withdraw a key");
  remove->add_option("ID", parsed_.name, "The key's id")->required();
  on_run(remove, [this](const Settings& s) { return actions_.key_remove(s, parsed_.name); });
}

constexpr const char* kEmulationHelp =
    "Where machines do not run on the processor, let the microvm tier emulate one: for tests, slow, and no wall against hostile code";

void CommandLine::add_host_commands() {
  CLI::App* up = command(app_, "up", "Run the daemon");
  auto& o = parsed_.up;
  up->add_option("--listen", o.listen, "ADDRESS:PORT; port 0: any free one [127.0.0.1:7070]");
  up->add_option("--runsc", o.runsc, "The gVisor program [runsc in PATH]");
  up->add_option("--config", o.config_file, "Configuration file")->check(CLI::ExistingFile);
  up->add_option("--log-level", o.log_level, "debug, info, warn or error [info]")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  up->add_option("--default-runtime", o.default_runtime,
                 "What `auto` means: gvisor, container or microvm [the strongest that works]")
      ->check(CLI::IsMember({"microvm", "gvisor", "container"}));
  up->add_flag("--microvm-allow-emulation", o.allow_emulation, kEmulationHelp)->envname("GLOVEBOX_MICROVM_ALLOW_EMULATION");
  up->add_flag(
      "--end-sandboxes", o.end_sandboxes,
      "End all sandboxes when the daemon stops; without it the next daemon takes them over");
  up->add_flag("--json-logs", o.json_logs, "One JSON object a line");
  on_run(up, [this](const Settings& s) { return actions_.up(s, parsed_.up); });

  CLI::App* doctor =
      command(app_, "doctor", "Which runtimes work here, what is missing, and how to get it");
  doctor->add_option("--runsc", parsed_.runsc, "The gVisor program [runsc in PATH]");
  doctor->add_flag("--microvm-allow-emulation", o.allow_emulation, kEmulationHelp)->envname("GLOVEBOX_MICROVM_ALLOW_EMULATION");
  CLI::Option* attack = doctor->add_flag(
      "--attack", parsed_.attacks,
      "Try to break out of a sandbox of every runtime that works, and say what stopped it");
  doctor->add_option("--runtime", parsed_.attack.runtime, "Attack only this one")
      ->check(CLI::IsMember({"microvm", "gvisor", "container"}))
      ->needs(attack);
  doctor->add_option("--template", parsed_.attack.template_name, "What to attack from [base]")
      ->needs(attack);
  on_run(doctor, [this](const Settings& s) {
    return parsed_.attacks ? actions_.attack(s, parsed_.attack) : actions_.doctor(s, parsed_.runsc, parsed_.up.allow_emulation);
  });
  on_run(command(app_, "mcp",
                 "Serve the Model Context Protocol on standard input and output, for clients that "
                 "start their servers themselves"),
         [this](const Settings& s) { return actions_.mcp(s); });
  on_run(command(app_, "version", "Versions of this program and the daemon"),
         [this](const Settings& s) { return actions_.version(s); });
}

CommandLine::CommandLine(const Environment& environment, const Actions& actions)
    : environment_(environment), actions_(actions) {
  app_.require_subcommand(1);
  app_.set_help_flag("-h,--help", "This help");
  app_.set_version_flag("--version", "glovebox " GLOVEBOX_VERSION);
  add_global_options(app_);
  add_host_commands();
  add_run_commands();
  add_sandbox_commands();
  add_snapshot_commands();
  add_copy_commands();
  add_network_commands();
  add_template_commands();
  add_kernel_commands();
  add_volume_commands();
  add_key_commands();
}

int CommandLine::explain(const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    app_.exit(error);
    return kOk;
  }
  const Error usage{Code::kInvalidArgument, error.what(), {}};
  if (parsed_.global.json) {
    print_error(usage, true);
  } else {
    print_note(std::string("error: ") + error.what());
    print_note("see `glovebox --help`, or `glovebox COMMAND --help`");
  }
  return kUsage;
}

int CommandLine::run(const std::vector<std::string>& arguments) {
  // Nothing after "--" is ours to read.
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  has_dashes_ = dashes != arguments.end();
  if (has_dashes_) after_dashes_.assign(dashes + 1, arguments.end());
  std::vector<std::string> ours(arguments.begin(), dashes);
  std::reverse(ours.begin(), ours.end());  // as CLI11 wants them
  try {
    app_.parse(ours);
    const auto used = app_.get_subcommands();
    const std::string name = used.empty() ? "" : used[0]->get_name();
    if (has_dashes_ && name != "run" && name != "exec" && name != "shell")
      throw CLI::ExtrasError({"--"});
  } catch (const CLI::ParseError& error) {
    return explain(error);
  }
  return chosen_(resolve_settings(parsed_.global, environment_));
}

}  // namespace

Actions real_actions(std::function<int(const Settings&, const UpOptions&)> up) {
  return {std::move(up),
          command_create,
          command_list,
          command_info,
          command_kill,
          command_pause,
          command_resume,
          command_snapshot_create,
          command_snapshot_list,
          command_snapshot_show,
          command_snapshot_rename,
          command_snapshot_remove,
          command_snapshot_verify,
          command_fork,
          command_reset,
          command_hibernate,
          command_diff,
          command_copy,
          command_run,
          command_exec,
          command_shell,
          command_logs,
          command_code,
          command_network,
          command_connections,
          command_packages,
          command_presets,
          command_template_build,
          command_template_import,
          command_template_list,
          command_template_info,
          command_template_remove,
          command_kernel_build,
          command_kernel_show,
          command_volume_create,
          command_volume_list,
          command_volume_show,
          command_volume_grow,
          command_volume_remove,
          command_volume_export,
          command_volume_import,
          command_key_create,
          command_key_list,
          command_key_remove,
          command_doctor,
          command_version,
          command_attack,
          command_mcp};
}

int run_command_line(const std::vector<std::string>& arguments, const Environment& environment,
                     const Actions& actions) {
  return CommandLine(environment, actions).run(arguments);
}

}  // namespace glovebox::cli
