// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// What the first bytes of a connection say, without I/O. The bytes come from a sandbox.
namespace glovebox::egress {

constexpr uint8_t kHandshakeRecord = 22;  // the first byte of TLS

enum class Opening {
  kUndecided,  // more bytes are needed
  kTls,
  kHttp,  // a request line that ends in "HTTP/x.y"
  kOther,
};
// An HTTP request line may be kMaxRequestLine long before it counts as something else.
constexpr size_t kMaxRequestLine = 16 << 10;
Opening classify(std::string_view bytes);

struct ClientHello {
  // As policy::normal_host() has it; empty when the client named no server.
  std::string server_name;
  // The extension encrypted_client_hello is there. Browsers send it to every server, mostly filled
  // with random bytes, so it cannot be told from a real one. `server_name` is the outer name.
  bool has_encrypted_hello = false;
};

// `bytes` from the first byte of the connection: one or more handshake records (RFC 8446, 4.1.2
// and 5.1). Nothing while the message is not complete. kInvalidArgument when it is no ClientHello,
// is larger than kMaxHelloBytes, or can be read in two ways: an extension twice, two server names,
// a name that is no host name.
constexpr size_t kMaxHelloBytes = 32 << 10;
Result<std::optional<ClientHello>> parse_client_hello(std::string_view bytes);

}  // namespace glovebox::egress
