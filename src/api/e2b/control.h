// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <functional>

#include "api/call.h"
#include "api/e2b/access.h"
#include "api/e2b/e2b.h"

namespace glovebox::api::e2b {

// A request of the control API.
struct ControlCall : api::Call {
  const Parts& parts;

  std::string id() const;  // the {id} of the path, native
  // That sandbox, which has not ended: others are 404 in this dialect.
  Result<sandbox::SandboxInfo> live_sandbox() const;
  Async<boost::json::value> json_body();  // an object; an empty body reads as {}
  Async<void> reply(boost::json::value value, int status = 200, http::Headers more = {});
  Async<void> reply_empty();  // 204
};
using ControlHandler = std::function<Async<void>(ControlCall&)>;

class TemplateBuilds;

// The snapshot that a template reference names: its id, the id of a template that was built, or else the newest of that name (and
// tag, where it was built).
std::optional<sandbox::SnapshotInfo> find_snapshot(const sandbox::Snapshots& snapshots, const sandbox::Caller& caller,
                                                   std::string_view reference);

// A sandbox from what `template_name` names: a snapshot by its id, or by its name where no template has that name.
Async<sandbox::SandboxService::Created> create_from(const Parts& parts, const sandbox::Caller& caller, sandbox::CreateSpec spec);

class ControlRoutes {
 public:
  ControlRoutes(http::Router& router, const Parts& parts) : router_(router), parts_(parts) {}
  void add(std::string_view method, std::string_view pattern, ControlHandler handler);
  // An endpoint of the protocol that this server does not have: 501 that names `feature`.
  void add_unsupported(std::string_view method, std::string_view pattern, std::string feature);

 private:
  http::Router& router_;
  const Parts& parts_;
};

void add_sandbox_routes(ControlRoutes& routes);
void add_lifecycle_routes(ControlRoutes& routes);
void add_snapshot_routes(ControlRoutes& routes);
void add_list_routes(ControlRoutes& routes);
void add_network_routes(ControlRoutes& routes);
void add_metrics_routes(ControlRoutes& routes);
void add_template_routes(ControlRoutes& routes, http::Router& router, const Parts& parts, TemplateBuilds& builds);
void add_unsupported_routes(ControlRoutes& routes);

}  // namespace glovebox::api::e2b
