// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "programs/glovebox/api_client.h"
#include "programs/glovebox/attack.h"
#include "programs/glovebox/command_options.h"
#include "programs/glovebox/loop.h"
#include "programs/glovebox/settings.h"
#include "programs/glovebox/units.h"

// One function a command; each returns the program's exit status and has told the user what went
// wrong.
namespace glovebox::cli {

int command_create(const Settings& settings, const CreateOptions& options);
int command_list(const Settings& settings, const ListOptions& options);
int command_info(const Settings& settings, const std::string& sandbox);
int command_kill(const Settings& settings, const KillOptions& options);
int command_pause(const Settings& settings, const PauseOptions& options);
int command_resume(const Settings& settings, const PauseOptions& options);
int command_copy(const Settings& settings, const CopyOptions& options);

int command_snapshot_create(const Settings& settings, const SnapshotOptions& options);
int command_snapshot_list(const Settings& settings, const SnapshotOptions& options);
int command_snapshot_show(const Settings& settings, const SnapshotOptions& options);
int command_snapshot_rename(const Settings& settings, const SnapshotOptions& options);
int command_snapshot_remove(const Settings& settings, const SnapshotOptions& options);
int command_snapshot_verify(const Settings& settings, const SnapshotOptions& options);
int command_fork(const Settings& settings, const ForkOptions& options);
int command_reset(const Settings& settings, const ResetOptions& options);
int command_hibernate(const Settings& settings, const HibernateOptions& options);
int command_diff(const Settings& settings, const DiffOptions& options);

int command_run(const Settings& settings, const RunOptions& options);
int command_exec(const Settings& settings, const ExecOptions& options);
int command_shell(const Settings& settings, const RunOptions& options);
int command_code(const Settings& settings, const CodeOptions& options);
int command_logs(const Settings& settings, const LogsOptions& options);

int command_network(const Settings& settings, const NetworkShowOptions& options);
int command_connections(const Settings& settings, const NetworkLogOptions& options);
int command_packages(const Settings& settings, const NetworkLogOptions& options);
int command_presets(const Settings& settings);

int command_template_build(const Settings& settings, const TemplateOptions& options);
int command_template_import(const Settings& settings, const TemplateOptions& options);
int command_template_list(const Settings& settings);
int command_template_info(const Settings& settings, const std::string& name);
int command_template_remove(const Settings& settings, const std::string& name);

// The kernel of the microvm tier's guests, below the data directory. `package`: a .deb file, or empty.
int command_kernel_build(const Settings& settings, const std::string& package);
int command_kernel_show(const Settings& settings);

int command_volume_create(const Settings& settings, const VolumeOptions& options);
int command_volume_list(const Settings& settings, const VolumeOptions& options);
int command_volume_show(const Settings& settings, const VolumeOptions& options);
int command_volume_grow(const Settings& settings, const VolumeOptions& options);
int command_volume_remove(const Settings& settings, const VolumeOptions& options);
int command_volume_export(const Settings& settings, const VolumeOptions& options);
int command_volume_import(const Settings& settings, const VolumeOptions& options);

int command_key_create(const Settings& settings, const KeyOptions& options);
int command_key_list(const Settings& settings);
int command_key_remove(const Settings& settings, const std::string& id);

int command_attack(const Settings& settings, const AttackOptions& options);
int command_doctor(const Settings& settings, const std::string& runsc, bool allow_emulation);
int command_mcp(const Settings& settings);
int command_version(const Settings& settings);

// Shared by them
// ---------------------------------------------------------------------------------------------------------------

// Reports the error, if any, and gives the exit status.
int conclude(const Settings& settings, const Result<int>& result);
// Runs `work` with a client for the daemon the settings point at.
int with_api(const Settings& settings,
             const std::function<Async<int>(Loop&, const ApiClient&)>& work);
boost::json::object to_object(const StringMap& map);
// The body of POST /v1/sandboxes.
Result<boost::json::value> create_body(const CreateOptions& options);
// Every page of a list.
Async<boost::json::array> all_items(const ApiClient& api, std::string path, std::string name);

}  // namespace glovebox::cli
