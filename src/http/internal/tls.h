// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/async.h"
#include "http/internal/transport.h"

namespace glovebox::http::internal {

// A certificate chain with its key, from two PEM files. TLS 1.2 and 1.3; of application protocols http/1.1 only.
class TlsIdentity {
 public:
  virtual ~TlsIdentity() = default;
  // kInvalidArgument that names the file when one cannot be used.
  static Result<std::unique_ptr<TlsIdentity>> load(const std::string& cert_file, const std::string& key_file);
  // Reads the files again when they have changed (looks at most once a second). What cannot be used is logged, and the old one stays.
  virtual void refresh() = 0;

  // Ends TLS on `socket`: after the handshake, which has until `deadline`, `serve` gets one end of a socket pair that carries the
  // plain bytes. Returns when both are over. What `serve` has written is delivered, as far as the client takes it within `flush`.
  using Serve = std::function<Awaitable<void>(Socket plain)>;
  virtual Awaitable<void> terminate(Socket socket, Deadline deadline, std::chrono::milliseconds flush, Serve serve) = 0;
};

}  // namespace glovebox::http::internal
