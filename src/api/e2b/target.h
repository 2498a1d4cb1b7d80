// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/message.h"

// Which port of which sandbox a request of this dialect is for.
namespace glovebox::api::e2b {

inline constexpr uint16_t kDaemonPort = 49983;       // files and processes
inline constexpr uint16_t kInterpreterPort = 49999;  // what a code interpreter inside listens on

struct Target {
  std::string id;  // native; empty: only a signature tells
  uint16_t port = 0;
};

// "49983-sbk3v9….anything": the host form.
std::optional<Target> target_of_host(const http::Request& request);
// True when the request carries what only this dialect sends: sandbox headers, an access token, a signed file URL, or a browser's
// question whether it may send them.
bool has_marks(const http::Request& request);
bool is_preflight(const http::Request& request);
// By host, then headers; then kNotFound: the access token or signature must tell. kInvalidArgument when one of the two headers is
// missing or makes no sense.
Result<Target> named_target(const http::Request& request);

}  // namespace glovebox::api::e2b
