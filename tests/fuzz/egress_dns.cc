// SPDX-License-Identifier: Apache-2.0
// DNS messages as queries of a sandbox and as responses of a name server. What we answer to a query
// must itself be well formed.
#include <cstdint>
#include <string>

#include "egress/internal/dns_message.h"

namespace {

using namespace glovebox::egress;

void check_query(std::string_view bytes) {
  const auto query = dns::parse_query(bytes);
  if (!query) {
    (void)dns::build_format_error(bytes);
    return;
  }
  const std::vector<glovebox::policy::Address> addresses(3,
                                                         glovebox::policy::address_v4(0x2D0A000A));
  const std::string answer = dns::build_answer(*query, dns::kNoError, addresses, 30, {18, "why"});
  if (query->type == dns::kA) {
    const auto read = dns::parse_response(answer, query->id, query->name);
    if (!read || read->addresses.size() != 3) __builtin_trap();
  }
  const std::string cut = dns::fit(answer, *query, 40);
  if (cut.size() > dns::kHeaderBytes + query->question.size()) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_query(bytes);
  if (size < 2) return 0;
  const auto id = static_cast<uint16_t>(data[0] << 8 | data[1]);
  const auto response = dns::parse_response(bytes, id, "a.test");
  if (response && (response->addresses.size() > 32 || response->alias.size() > 1100))
    __builtin_trap();
  return 0;
}
