// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/preview/port_state.h"
#include "base/text.h"
#include "http/message.h"
#include "sandbox/service.h"
#include "tenant/keys.h"

// The secrets that open a sandbox of this dialect without an API key. They are made from a secret of the instance: nothing is stored,
// and they stay the same as long as the sandbox lives.
namespace glovebox::api::e2b {

// Keys of SandboxInfo::attributes.
inline constexpr const char* kDialectAttribute = "e2b";            // "on": created or connected to through this dialect
inline constexpr const char* kTemplateAttribute = "e2b.template";  // as the create call named it
inline constexpr const char* kTrafficAttribute = "e2b.traffic";    // of its ports: "public" or "private"; absent: private

class Access {
 public:
  explicit Access(const preview::Tokens& tokens) : tokens_(tokens) {}

  // For files and processes; begins with the wire id, so that it tells the sandbox.
  std::string daemon_token(const std::string& id) const;
  // For the ports of a sandbox whose ports are not public.
  std::string traffic_token(const std::string& id) const;
  bool is_daemon_token(const std::string& id, const std::string& shown) const;
  bool is_traffic_token(const std::string& id, const std::string& shown) const;

  // The native id that a daemon token belongs to; nothing when it is not one of ours.
  std::optional<std::string> sandbox_of(const std::string& token) const;

 private:
  const preview::Tokens& tokens_;
};

// The signature of a file URL: over path and user as the query has them, "read" or "write", and the sandbox's daemon token.
struct SignedUrl {
  std::string path, operation, user, signature;
  std::optional<std::string> expiration;  // Unix seconds, as text
};
std::optional<SignedUrl> signed_url(const http::Request& request);  // nothing without a signature
std::string signature_of(const SignedUrl& url, std::string_view token);
bool is_signed_by(const SignedUrl& url, const std::string& token);
bool has_expired(const SignedUrl& url, WallTime now);

}  // namespace glovebox::api::e2b
