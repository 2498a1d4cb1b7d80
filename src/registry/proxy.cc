// SPDX-License-Identifier: Apache-2.0
#include "registry/proxy.h"

namespace glovebox::registry {
namespace {
class Nothing final : public Proxy {
 public:
  Result<void> configure(const Settings&) override { return {}; }
  void set_policy(const std::string&, policy::PackagePolicy) override {}
  void forget(const std::string&) override {}
  Awaitable<void> handle(http::Exchange& exchange) override {
    co_await exchange.response.send_error({Code::kUnavailable, "not configured", {}});
  }
};
}  // namespace
Result<std::unique_ptr<Proxy>> Proxy::create(Parts) { return std::make_unique<Nothing>(); }
}  // namespace glovebox::registry
