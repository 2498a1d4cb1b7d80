// SPDX-License-Identifier: Apache-2.0
#include "registry/digest.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/text.h"

namespace glovebox::registry {
namespace {

struct Kind {
  DigestKind kind;
  std::string_view name;
  size_t bytes;
  const EVP_MD* (*method)();
};
// Weakest first.
constexpr Kind kKinds[] = {{DigestKind::kSha1, "sha1", 20, &EVP_sha1},
                           {DigestKind::kSha256, "sha256", 32, &EVP_sha256},
                           {DigestKind::kSha384, "sha384", 48, &EVP_sha384},
                           {DigestKind::kSha512, "sha512", 64, &EVP_sha512}};

const Kind& info_of(DigestKind kind) { return kKinds[static_cast<size_t>(kind)]; }

bool is_hex(std::string_view text, size_t bytes) {
  return text.size() == 2 * bytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

}  // namespace

Hasher::Hasher(DigestKind kind) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
  GB_ASSERT(context_ && EVP_DigestInit_ex(context_.get(), info_of(kind).method(), nullptr) == 1);
}

void Hasher::update(std::string_view bytes) { GB_ASSERT(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1); }

std::string Hasher::hex_digest() {
  unsigned char raw[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  GB_ASSERT(EVP_DigestFinal_ex(context_.get(), raw, &size) == 1);
  return hex({reinterpret_cast<const char*>(raw), size});
}

std::string sha256_hex(std::string_view bytes) {
  Hasher hasher(DigestKind::kSha256);
  hasher.update(bytes);
  return hasher.hex_digest();
}

bool is_sha256_hex(std::string_view text) { return is_hex(text, 32); }

std::string Integrity::text() const { return std::string(info_of(kind).name) + ":" + hex; }

Integrity sha256_integrity(std::string_view hex_text) {
  std::string text = lower(hex_text);
  if (!is_hex(text, 32)) text.clear();
  return {DigestKind::kSha256, std::move(text)};
}

Integrity npm_integrity(std::string_view integrity, std::string_view shasum) {
  Integrity best;
  for (const std::string& item : split(integrity, ' ')) {
    const size_t dash = item.find('-');
    if (dash == item.npos) continue;
    for (const Kind& kind : kKinds) {
      if (std::string_view(item).substr(0, dash) != kind.name || (best.is_given() && best.kind >= kind.kind)) continue;
      const std::string_view rest = std::string_view(item).substr(dash + 1);
      const auto raw = base64_decode(rest.substr(0, rest.find('?')));  // options follow a '?'
      if (raw && raw->size() == kind.bytes) best = {kind.kind, hex(*raw)};
    }
  }
  const std::string sha1 = lower(shasum);
  if (!best.is_given() && is_hex(sha1, 20)) best = {DigestKind::kSha1, sha1};
  return best;
}

}  // namespace glovebox::registry
