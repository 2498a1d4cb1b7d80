// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "code/interpreter.h"
#include "http/router.h"
#include "image/templates.h"
#include "network/network.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "sandbox/volumes.h"
#include "tenant/keys.h"

// The native API of docs/reference/api.md: translations between JSON over HTTP and SandboxService. Decides nothing.
namespace glovebox::api::v1 {

struct Parts {
  sandbox::SandboxService* service = nullptr;
  sandbox::Snapshots* snapshots = nullptr;
  tenant::Keys* keys = nullptr;
  image::Templates* templates = nullptr;
  sandbox::Volumes* volumes = nullptr;
  network::Network* network = nullptr;
  code::Interpreter* code = nullptr;
  BlockingPool* pool = nullptr;
  Executor executor;
  std::string version;
  std::string data_dir;
  std::map<std::string, double> limits;  // the operator's limits and defaults, by name
  Clock::time_point started = Clock::now();
  std::string openapi_json;
  std::function<std::string()> not_ready;  // why /readyz says 503; empty when ready
};

// `parts` outlives the router.
void add_routes(http::Router& router, const Parts& parts);

}  // namespace glovebox::api::v1
