// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/access.h"

#include <sodium.h>

#include "api/e2b/names.h"

namespace glovebox::api::e2b {
namespace {

// Not ports, which the same construction numbers for previews: it has another secret here.
constexpr uint16_t kDaemon = 1, kTraffic = 2;

std::string secret_part(const std::string& token) { return token.substr(token.find('_') + 1); }

}  // namespace

std::string Access::daemon_token(const std::string& id) const {
  return wire_id(id) + "." + secret_part(tokens_.token(id, kDaemon, 0));
}
std::string Access::traffic_token(const std::string& id) const { return secret_part(tokens_.token(id, kTraffic, 0)); }

bool Access::is_daemon_token(const std::string& id, const std::string& shown) const {
  return preview::Tokens::equal(shown, daemon_token(id));
}
bool Access::is_traffic_token(const std::string& id, const std::string& shown) const {
  return preview::Tokens::equal(shown, traffic_token(id));
}

std::optional<std::string> Access::sandbox_of(const std::string& token) const {
  const std::string id = native_id(token.substr(0, token.find('.')));
  if (!is_daemon_token(id, token)) return std::nullopt;
  return id;
}

std::optional<SignedUrl> signed_url(const http::Request& request) {
  auto signature = request.query_value("signature");
  if (!signature) return std::nullopt;
  return SignedUrl{request.query_value("path").value_or(""), request.method == "POST" ? "write" : "read",
                   request.query_value("username").value_or(""), std::move(*signature), request.query_value("signature_expiration")};
}

std::string signature_of(const SignedUrl& url, std::string_view token) {
  std::string raw = url.path + ":" + url.operation + ":" + url.user + ":";
  raw += token;
  if (url.expiration) raw += ":" + *url.expiration;
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(raw.data()), raw.size());
  std::string text = base64_encode(std::string_view(reinterpret_cast<const char*>(digest), sizeof digest));
  while (text.ends_with('=')) text.pop_back();
  return "v1_" + text;
}

bool is_signed_by(const SignedUrl& url, const std::string& token) {
  return preview::Tokens::equal(url.signature, signature_of(url, token));
}

bool has_expired(const SignedUrl& url, WallTime now) {
  if (!url.expiration) return false;
  const auto at = parse_int(*url.expiration);
  return !at || *at < unix_millis(now) / 1000;
}

}  // namespace glovebox::api::e2b
