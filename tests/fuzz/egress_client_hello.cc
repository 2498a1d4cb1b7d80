// SPDX-License-Identifier: Apache-2.0
// The first bytes of a connection, read as the proxy reads them: every prefix in turn. What was
// understood of a prefix must be what is understood of more.
#include <cstdint>
#include <string>

#include "egress/internal/client_hello.h"
#include "policy/egress.h"

namespace {

using namespace glovebox::egress;

void check_monotonic(std::string_view bytes) {
  std::string seen;
  bool is_refused = false, is_decided = false;
  for (size_t n = 0; n <= bytes.size(); ++n) {
    const auto hello = parse_client_hello(bytes.substr(0, n));
    if (!hello) {
      if (is_decided) __builtin_trap();
      is_refused = true;
      continue;
    }
    if (is_refused) __builtin_trap();
    if (!*hello) {
      if (is_decided) __builtin_trap();
      continue;
    }
    const std::string& name = (**hello).server_name;
    if (is_decided && name != seen) __builtin_trap();
    if (!name.empty() && glovebox::policy::normal_host(name) != name) __builtin_trap();
    is_decided = true;
    seen = name;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Opening last = Opening::kUndecided;
  for (size_t n = 0; n <= std::min<size_t>(size, 600); ++n) {
    const Opening now = classify(bytes.substr(0, n));
    if (last != Opening::kUndecided && now != last) __builtin_trap();
    last = now;
  }
  if (size <= 2048) {
    check_monotonic(bytes);
  } else {
    (void)parse_client_hello(bytes);
  }
  return 0;
}
