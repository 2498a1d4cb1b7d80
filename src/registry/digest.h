// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_md_ctx_st;

namespace glovebox::registry {

enum class DigestKind { kSha1, kSha256, kSha384, kSha512 };

// Fed in pieces.
class Hasher {
 public:
  explicit Hasher(DigestKind kind);
  void update(std::string_view bytes);
  std::string hex_digest();  // ends it; call once

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string sha256_hex(std::string_view bytes);
bool is_sha256_hex(std::string_view text);  // lower case

// What a registry says that a file hashes to.
struct Integrity {
  DigestKind kind = DigestKind::kSha256;
  std::string hex;  // lower case; empty: it says nothing
  bool is_given() const { return !hex.empty(); }
  // SHA-1 finds accidents, but no forger.
  bool is_strong() const { return is_given() && kind != DigestKind::kSha1; }
  std::string text() const;  // "sha512:…": a name for the content
};

Integrity sha256_integrity(std::string_view hex);  // nothing given when it is no SHA-256
// npm's dist: the strongest of "integrity" (Subresource Integrity: "sha512-<base64> …"), else "shasum" (SHA-1 as hex).
Integrity npm_integrity(std::string_view integrity, std::string_view shasum);

}  // namespace glovebox::registry
