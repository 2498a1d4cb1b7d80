// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/mcp_bridge.h"
#include "programs/glovebox/own_daemon.h"
#include "programs/glovebox/report.h"

namespace glovebox::cli {
namespace {

// With a daemon of its own when none runs.
Async<int> serve(Loop& loop, const Settings& settings) {
  loop.on_signal = [](int) {};  // a daemon that was started must be let go of
  GB_CO_TRY(auto lease, co_await DaemonLease::acquire(settings));
  auto api = ApiClient::make(lease->target().url, lease->target().key);
  if (!api) co_return fail(std::move(api).error());
  auto bridge = std::make_shared<McpBridge>(loop, *api, STDIN_FILENO, STDOUT_FILENO);
  auto result = co_await bridge->run();
  auto released = co_await lease->release();
  if (!released) print_error(released.error(), settings.json);
  co_return result;
}

}  // namespace

int command_mcp(const Settings& settings) {
  return conclude(settings, run_loop([&](Loop& loop) { return serve(loop, settings); }));
}

}  // namespace glovebox::cli
