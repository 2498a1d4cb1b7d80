// SPDX-License-Identifier: Apache-2.0
#include "image/digest.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/text.h"

namespace glovebox::image {

Sha256::Sha256() {
  crypto_hash_sha256_init(&state_);
}

void Sha256::update(std::string_view bytes) {
  crypto_hash_sha256_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

std::string Sha256::hex_digest() {
  std::string raw(crypto_hash_sha256_BYTES, '\0');
  crypto_hash_sha256_final(&state_, reinterpret_cast<unsigned char*>(raw.data()));
  return hex(raw);
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

Result<std::string> sha256_of_fd(int fd, const std::string& name) {
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + name);
    if (n == 0) return hash.hex_digest();
    hash.update({buffer.data(), static_cast<size_t>(n)});
  }
}

bool is_sha256_hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace glovebox::image
