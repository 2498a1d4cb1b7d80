// SPDX-License-Identifier: Apache-2.0
// HTTP requests as the proxy judges and rebuilds them. The head that is passed on must say the same
// again when it is read by the same rules: one host, one target, the same framing.
#include <cstdint>
#include <string>

#include "egress/internal/http_plan.h"
#include "http/framing.h"

namespace {

using namespace glovebox;
using namespace glovebox::egress;

constexpr http::HeadLimits kLimits{8192, 2048, 50};

void check(const http::Request& request, const RequestPlan& plan, const Destination& destination) {
  if (plan.kind == RequestKind::kConnect) return;
  const std::string head = forward_head(request, plan, "X-Glovebox-Sandbox: sb-1\r\n");
  http::HeadScanner scanner({16384, 4096, 60});
  const auto length = scanner.scan(head);
  if (!length || *length != head.size()) __builtin_trap();
  http::Request again;
  if (!http::parse_request_head(head, again)) __builtin_trap();
  const auto planned = plan_request(again, destination);
  if (!planned) __builtin_trap();
  if (planned->host != plan.host || planned->address != plan.address ||
      planned->target != plan.target || planned->kind != plan.kind ||
      again.method != request.method || again.path != request.path ||
      again.content_length != request.content_length || again.has_body != request.has_body) {
    __builtin_trap();
  }
  size_t ours = 0, hosts = 0;
  for (const auto& [name, value] : again.headers) {
    ours += http::same_name(name, "X-Glovebox-Sandbox");
    hosts += http::same_name(name, "Host");
  }
  if (ours != 1 || hosts != 1) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Destination destination{
      {}, policy::address_v4(0x2D420042), static_cast<uint16_t>(data[0] % 2 ? 80 : 8080)};
  if (data[0] % 4 >= 2) destination = {"allowed.test", std::nullopt, destination.port};
  (void)parse_authority(bytes);
  http::HeadScanner scanner(kLimits);
  const auto length = scanner.scan(bytes);
  if (!length || *length == 0) return 0;
  http::Request request;
  if (!http::parse_request_head(std::string_view(bytes).substr(0, *length), request)) return 0;
  if (const auto plan = plan_request(request, destination)) check(request, *plan, destination);
  return 0;
}
