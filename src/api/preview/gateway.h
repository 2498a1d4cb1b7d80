// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "api/preview/address.h"
#include "api/preview/headers.h"
#include "api/preview/port_state.h"
#include "api/preview/settings.h"
#include "http/server.h"
#include "sandbox/gate.h"
#include "sandbox/service.h"
#include "tenant/keys.h"

// Previews: HTTP to a port inside a sandbox, through its agent. docs/previews.md.
namespace glovebox::api::preview {

// Loop thread only.
class Gateway {
 public:
  // `service` and `keys` outlive it. `listen_port`: where *.localhost URLs lead; 0: nowhere.
  Gateway(sandbox::SandboxService& service, const tenant::Keys& keys, Settings settings, Tokens tokens)
      : service_(service), keys_(keys), settings_(std::move(settings)), tokens_(std::move(tokens)) {}
  void set_ports(uint16_t listen_port, uint16_t domain_port) {
    listen_port_ = listen_port;
    domain_port_ = domain_port;
  }

  // Serves a request that is for a preview; the others belong to the API.
  bool claims(const http::Request& request) const { return address_of(request, settings_.domain).has_value(); }
  // `only_names`: host names below the domain; everything else is 404.
  Awaitable<void> serve(http::Exchange& exchange, bool only_names = false);

  // Passes a request on whose sender another dialect has let in: the host form, every path the app's. kNotFound for a port whose
  // preview was revoked; otherwise the errors of a dial, kPreviewUnreachable where it is the app's.
  Async<void> pass(http::Exchange& exchange, const std::string& id, uint16_t port);
  // What stands behind "<port>-<id>." in host names: the domain, or "localhost:<port>"; empty where there are none.
  std::string parent_domain() const;

  // Ends everything that is open.
  void cut_all();

  // What the API shows and changes. Another tenant's sandbox is kSandboxNotFound.
  struct Urls {
    std::string path, localhost, domain;  // empty: there is none
  };
  struct View {
    std::string sandbox_id;
    uint16_t port = 0;
    PortState state;
    std::optional<bool> listening;
    std::optional<std::string> token;  // absent when nobody is let in
    Urls urls;
    std::optional<WallTime> expires_at;
  };
  Async<View> view(const sandbox::Caller& caller, const std::string& id, uint16_t port, const Outside& outside);
  // New links; those given out before end, and what is open through them is cut.
  Async<void> open(const sandbox::Caller& caller, const std::string& id, uint16_t port, bool is_public);
  Async<void> revoke(const sandbox::Caller& caller, const std::string& id, uint16_t port);

  // The Lizard dialect's: one token for all ports that it has exposed.
  struct Exposed {
    std::string host, url, token;
  };
  Async<Exposed> expose(const sandbox::Caller& caller, const std::string& id, uint16_t port);
  Async<void> unexpose(const sandbox::Caller& caller, const std::string& id, uint16_t port);

 private:
  struct Admission {
    enum class Kind { kServe, kExchange } kind = Kind::kServe;
    std::string token;          // that came in the query
    bool by_cookie = false;
  };
  struct Use;
  using Key = std::pair<std::string, uint16_t>;

  Result<sandbox::SandboxInfo> live_sandbox(const Address& address) const;
  Result<Admission> admit(const http::Request& request, const Address& address, const sandbox::SandboxInfo& info) const;
  Result<bool> admits_key(const http::Request& request, const sandbox::SandboxInfo& info) const;
  Async<void> answer(http::Exchange& exchange, const Address& address);
  Async<void> pass_on(http::Exchange& exchange, const Address& address, const sandbox::SandboxInfo& info);
  Async<void> exchange_token(http::Exchange& exchange, const Address& address, const std::string& token) const;
  std::string browser_target(const http::Request& request, const Address& address, const Admission& admission) const;
  std::string domain_authority() const;
  std::string domain_scheme() const;
  Async<void> change(const sandbox::Caller& caller, const sandbox::SandboxInfo& info, uint16_t port, const PortState& state);
  std::shared_ptr<sandbox::Gate> turns_of(const std::string& id);
  void cut(const std::string& id, uint16_t port);
  void strip_keys(http::Headers& headers, const http::Request& request) const;

  sandbox::SandboxService& service_;
  const tenant::Keys& keys_;
  Settings settings_;
  Tokens tokens_;
  uint16_t listen_port_ = 0, domain_port_ = 0;
  std::map<std::string, std::weak_ptr<sandbox::Gate>> turns_;          // of changes, by sandbox
  std::map<std::string, int> uses_;                                    // by sandbox
  std::multimap<Key, std::weak_ptr<http::Stream>> open_;               // what cut() ends
};

}  // namespace glovebox::api::preview
