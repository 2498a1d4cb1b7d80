// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "image/templates.h"
#include "programs/glovebox/command_line.h"
#include "programs/glovebox/daemon.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/network_process.h"
#include "programs/glovebox/report.h"

namespace {

int up(const glovebox::cli::Settings& settings, const glovebox::cli::UpOptions& options) {
  glovebox::DaemonOptions daemon;
  daemon.data_dir = settings.data_dir;
  daemon.listen = options.listen;
  daemon.runsc = options.runsc;
  daemon.allow_emulation = options.allow_emulation;
  daemon.default_runtime = options.default_runtime;
  daemon.end_sandboxes = options.end_sandboxes;
  daemon.json_logs = options.json_logs;
  daemon.log_level = options.log_level;
  daemon.config_file = options.config_file;
  return glovebox::run_daemon(daemon);
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = glovebox::image::run_helper(argc, argv)) return *status;
  if (argc == 2 && std::string_view(argv[1]) == "internal-routes") return glovebox::print_routes();
  if (argc > 1) {
    if (const auto status = glovebox::run_network_process({argv + 1, argv + argc})) return *status;
  }
  std::signal(SIGPIPE, SIG_IGN);  // NOLINT(bugprone-signal-handler)
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    return glovebox::cli::run_command_line(
        arguments, [](const char* name) { return std::getenv(name); },
        glovebox::cli::real_actions(up));
  } catch (const std::exception& failure) {
    glovebox::cli::print_error({glovebox::Code::kInternal, failure.what(), {}}, false);
    return glovebox::cli::kGlovebox;
  }
}
