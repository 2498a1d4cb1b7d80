// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

// Which port of which sandbox a request is for.
namespace glovebox::api::preview {

struct Address {
  enum class Form { kPath, kHost };
  Form form = Form::kHost;
  std::string id;
  uint16_t port = 0;
  std::string prefix;  // "/p/<id>/<port>" of the path form; what stands before the app's own paths
  std::string path;    // the app's, raw; begins with '/'. Empty: the path form without its last slash
};

// 1 … 65535, without sign, leading zeros or anything else.
std::optional<uint16_t> parse_port(std::string_view text);

// "Host: 3000-sb-abc.localhost:7070" gives "3000-sb-abc.localhost": lower case, without port and final dot.
std::string host_name(std::string_view host_header);

// The host form below "localhost" and below `domain` (when not empty), <port>-<id> and <id>-<port>; else the path form. Nothing when
// it is no preview's. A name below the domain is always a preview's: one that names no port has port 0.
std::optional<Address> address_of(const http::Request& request, std::string_view domain);

}  // namespace glovebox::api::preview
