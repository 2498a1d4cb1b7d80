// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace glovebox::api::preview {

// The operator's [preview] section; docs/previews.md.
struct Settings {
  std::string domain;          // "preview.example.com": <port>-<id>.<domain> are previews; empty: none
  std::string scheme;          // of the domain's URLs: "https" or "http"; empty: https unless `listen` is without TLS
  uint16_t port = 0;           // of the domain's URLs; 0: that of `listen`, or else the scheme's own
  std::string listen;          // an address for previews only; empty: none
  std::string tls_cert, tls_key;     // PEM files; the listener then speaks TLS
  bool path_same_origin = false;     // apps on path URLs share the API's origin instead of being sandboxed by the browser
};

}  // namespace glovebox::api::preview
