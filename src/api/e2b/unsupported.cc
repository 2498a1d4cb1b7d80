// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/control.h"
#include "base/text.h"

// What the protocol has and this server has not, said plainly.
namespace glovebox::api::e2b {
namespace {

struct Missing {
  const char* methods;  // separated by spaces
  const char* pattern;
  const char* feature;
};

constexpr Missing kMissing[] = {
    {"POST", "/sandboxes/{id}/hotplug-memory", "changes of a running sandbox's memory"},
    {"POST DELETE", "/sandboxes/{id}/volume-mounts", "volumes"},
    {"GET", "/sandboxes/{id}/logs", "sandbox logs"},
    {"GET", "/v2/sandboxes/{id}/logs", "sandbox logs"},
    {"GET", "/sandboxes/metrics", "metrics of several sandboxes"},
    {"GET", "/sandboxes/quota", "quotas"},
    {"GET", "/sandboxes/events", "an event list"},
    {"POST DELETE", "/templates/tags", "template tags"},
    {"GET", "/templates/{template}/tags", "template tags"},
    {"GET", "/templates", "template management in this dialect"},
    {"GET", "/v2/templates", "template management in this dialect"},
    {"GET", "/templates/{template}", "template management in this dialect"},
    {"PATCH", "/v2/templates/{template}", "template management in this dialect"},
    {"GET POST", "/volumes", "volumes"},
    {"GET DELETE PATCH", "/volumes/{volume}", "volumes"},
    {"*", "/volumecontent/{volume}/{rest...}", "volumes"},
    {"GET POST", "/secrets", "secrets"},
    {"GET POST PUT DELETE", "/secrets/{secret}", "secrets"},
};

}  // namespace

void add_unsupported_routes(ControlRoutes& routes) {
  for (const Missing& missing : kMissing) {
    for (const std::string& method : split(missing.methods, ' ')) routes.add_unsupported(method, missing.pattern, missing.feature);
  }
}

}  // namespace glovebox::api::e2b
