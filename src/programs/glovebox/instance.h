// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/runtime.h"
#include "sandbox/service.h"

// What a daemon and `glovebox doctor` both need of the host.
namespace glovebox {

// Extracts the agent below the data directory and names the instance after it.
Result<runtime::HostConfig> prepare_host(const std::string& data_dir, const std::string& runsc, const runtime::MicrovmConfig& microvm);

std::vector<std::unique_ptr<runtime::Runtime>> make_runtimes(const runtime::HostConfig& host);

// Tries each runtime by starting a sandbox; strongest first.
Result<std::vector<sandbox::SandboxService::RuntimeInfo>> probe_runtimes(
    const runtime::HostConfig& host, const std::vector<std::unique_ptr<runtime::Runtime>>& runtimes);

}  // namespace glovebox
