// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sodium.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace glovebox::image {

// SHA-256 as lower-case hex, fed in pieces.
class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  std::string hex_digest();  // ends it; call once

 private:
  crypto_hash_sha256_state state_;
};

std::string sha256_hex(std::string_view bytes);
// Of everything that `fd` yields from its current offset.
Result<std::string> sha256_of_fd(int fd, const std::string& name);
bool is_sha256_hex(std::string_view text);

}  // namespace glovebox::image
