// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/call.h"
#include "base/text.h"

// What the protocol has and this server has not, said plainly. Anything else below /api is 404.
namespace glovebox::api::lizard {
namespace {

struct Missing {
  const char* methods;  // separated by spaces
  const char* pattern;
  const char* feature;
};

constexpr Missing kMissing[] = {
    {"POST GET DELETE", "/api/sandboxes/{id}/desktop", "desktops"},
    {"POST GET", "/api/sandboxes/{id}/schedules", "schedules"},
    {"GET", "/api/sandbox-schedules", "schedules"},
    {"GET PATCH DELETE", "/api/sandbox-schedules/{sid}", "schedules"},
    {"POST GET", "/api/sandbox-schedules/{sid}/{action}", "schedules"},
    {"GET", "/api/sandboxes/{id}/logs", "sandbox logs"},
    {"GET", "/api/sandboxes/terminal", "terminals in this dialect; see the native API's attach"},
    {"POST", "/api/projects", "further projects"},
    {"PATCH DELETE", "/api/projects/{project}", "changes of projects"},
};

}  // namespace

void add_unsupported_routes(Routes& routes) {
  for (const Missing& missing : kMissing) {
    for (const std::string& method : split(missing.methods, ' ')) routes.add_unsupported(method, missing.pattern, missing.feature);
  }
  routes.add("*", "/api/{rest...}", [](Call& call) -> Async<void> {
    co_return fail(Code::kRouteNotFound, "nothing is served at " + call.exchange.request.path);
  });
}

}  // namespace glovebox::api::lizard
