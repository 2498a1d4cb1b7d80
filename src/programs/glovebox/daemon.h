// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace glovebox {

struct DaemonOptions {
  std::string data_dir = "/var/lib/glovebox";
  std::string listen = "127.0.0.1:7070";  // port 0: the kernel chooses; <data_dir>/daemon.json tells
  std::string runsc;                      // path of gVisor's engine; empty: look in PATH
  bool allow_emulation = false;           // of the microvm tier's processor, see runtime::MicrovmConfig
  std::string default_runtime;            // what "auto" means: a tier's name; empty: the strongest usable one
  std::string config_file;                // empty: <data_dir>/config.toml when it exists
  std::string log_level = "info";         // debug, info, warn, error
  bool json_logs = false;
  bool end_sandboxes = false;             // at a graceful stop; otherwise they live on and the next daemon takes them over
  std::function<void(uint16_t port)> on_ready;
};

// Runs the daemon until SIGTERM or SIGINT. Call before any thread is started. Returns the process's exit code: 0 after a graceful
// stop, 1 when it could not start (the reason is in the log).
int run_daemon(const DaemonOptions& options);

// The native API's routes as JSON, for the test that compares them with the OpenAPI document: [{"method", "pattern"}].
int print_routes();

}  // namespace glovebox
