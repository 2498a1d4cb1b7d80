// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "http/client.h"
#include "http/server.h"
#include "http/stream.h"

// Passes one exchange on to another server, as a reverse proxy: request and response stream at the same time, nothing is held back
// but what a peer does not take, and an upgraded connection becomes raw bytes both ways.
namespace glovebox::http {

// Without what speaks of one connection only (RFC 9110, 7.6.1): Connection and what it names, Keep-Alive, TE, Trailer,
// Transfer-Encoding, Upgrade, Proxy-…; Content-Length and Expect, which the relay sets or answers itself, are left out, too.
Headers end_to_end(const Headers& headers);

struct RelayRequest {
  std::string target;  // for the upstream's request line
  Headers headers;     // as the upstream is to get them, Host included; see end_to_end()
};

struct RelayOptions {
  size_t max_head_bytes = 64 << 10;  // of the upstream's response
  // May change the headers of the response on their way; Content-Length and hop-by-hop headers are gone already.
  std::function<void(int status, Headers&)> edit;
};

// Ends when the response has been passed on, or the upgraded connection has ended. Errors: kCancelled (the client went away; the
// upstream was closed within 200 ms), kUnavailable (the upstream closed before it answered), kCorrupt (it breaks HTTP), those of the
// body's reader and of the upstream stream. When a head was sent before, the response is broken off visibly.
Async<void> relay(Exchange& exchange, std::shared_ptr<Stream> upstream, RelayRequest request, RelayOptions options);

}  // namespace glovebox::http
