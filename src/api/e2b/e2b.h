// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "api/preview/gateway.h"
#include "api/watchers.h"
#include "base/async.h"
#include "code/interpreter.h"
#include "http/router.h"
#include "image/templates.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "tenant/keys.h"

// The E2B dialect: what the unmodified `e2b` clients (JavaScript, Python) and `novita-sandbox` speak, on the daemon's one address.
// docs/e2b.md says what is there.
namespace glovebox::api::e2b {

class TemplateBuilds;

struct Parts {
  sandbox::SandboxService& service;
  sandbox::Snapshots& snapshots;
  tenant::Keys& keys;
  preview::Gateway& previews;
  BlockingPool& pool;
  code::Interpreter& code;
  const image::Templates& templates;
  std::string data_dir;
  preview::Tokens tokens;  // of a secret of its own; see Access
  std::shared_ptr<Watchers> watchers = std::make_shared<Watchers>("no such watcher");
};

// Loop thread only.
class Dialect {
 public:
  // What `parts` refers to outlives it, and it outlives the router of add_control_routes().
  explicit Dialect(Parts parts);
  ~Dialect();

  // The control API: /sandboxes, /v2/sandboxes, /templates and the like.
  void add_control_routes(http::Router& router);

  // True for what goes to a port of a sandbox: its daemon of files and processes, or a server in it.
  bool claims(const http::Request& request) const;
  // The same where only host names count: what the public listener takes.
  bool claims_name(const http::Request& request) const;
  Awaitable<void> serve(http::Exchange& exchange);

  // When the sandboxes of an earlier daemon are known: ends those that its builds of templates have left.
  Awaitable<void> start();
  // Ends the builds of templates.
  Awaitable<void> stop();

 private:
  Parts parts_;
  std::unique_ptr<TemplateBuilds> builds_;
};

}  // namespace glovebox::api::e2b
