// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "api/call.h"
#include "api/lizard/lizard.h"
#include "http/json.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "sandbox/volumes.h"

namespace glovebox::api::lizard {

// A request of this dialect.
struct Call : api::Call {
  sandbox::SandboxService& service;
  sandbox::Snapshots& snapshots;
  sandbox::Volumes& volumes;
  tenant::Keys& keys;

  std::string query(std::string_view name) const { return request().query_value(name).value_or(""); }

  // The {id} of the path as a sandbox that has not ended: killed and expired ones are 404 in this dialect.
  Result<sandbox::SandboxInfo> live_sandbox() const;

  // The body as a JSON object; an empty body reads as {}.
  Async<boost::json::value> json_body(size_t limit = 4 << 20);
  Async<void> reply(boost::json::value value, int status = 200);
  Async<void> reply_empty();  // 204
  http::Headers json_headers() const;  // of a streamed answer
};

using Handler = std::function<Async<void>(Call&)>;

// Adds routes whose errors leave in this dialect's form.
class Routes {
 public:
  Routes(http::Router& router, sandbox::SandboxService& service, sandbox::Snapshots& snapshots, sandbox::Volumes& volumes, tenant::Keys& keys)
      : router_(router), service_(service), snapshots_(snapshots), volumes_(volumes), keys_(keys) {}
  void add(std::string_view method, std::string_view pattern, Handler handler);
  // An endpoint of the protocol that this server does not have: 501 that names `feature`. Below a sandbox it is 404 first when
  // there is no such sandbox.
  void add_unsupported(std::string_view method, std::string_view pattern, std::string feature);

 private:
  http::Router& router_;
  sandbox::SandboxService& service_;
  sandbox::Snapshots& snapshots_;
  sandbox::Volumes& volumes_;
  tenant::Keys& keys_;
};

void add_sandbox_routes(Routes& routes);
void add_snapshot_routes(Routes& routes);
void add_volume_routes(Routes& routes);
void add_exec_routes(Routes& routes);
void add_watch_routes(Routes& routes);
void add_file_routes(Routes& routes);
void add_account_routes(Routes& routes);
void add_port_routes(Routes& routes, preview::Gateway& previews);
void add_unsupported_routes(Routes& routes);

}  // namespace glovebox::api::lizard
