// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/result.h"
#include "base/text.h"

namespace glovebox {

std::string random_bytes(size_t n) {
  std::string out(n, '\0');
  size_t have = 0;
  while (have < n) {
    const ssize_t got = ::getrandom(out.data() + have, n - have, 0);
    GB_ASSERT(got > 0 || errno == EINTR);
    if (got > 0) have += static_cast<size_t>(got);
  }
  return out;
}

std::string random_uuid() {
  std::string bytes = random_bytes(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0F) | 0x40);
  bytes[8] = static_cast<char>((bytes[8] & 0x3F) | 0x80);
  std::string text = hex(bytes);
  for (const size_t at : {20, 16, 12, 8}) text.insert(at, 1, '-');
  return text;
}

std::string random_name(size_t n) {
  constexpr char kAlphabet[] = "abcdefghjkmnpqrstuvwxyz023456789";  // 32 of them
  static_assert(sizeof(kAlphabet) == 33);
  std::string out = random_bytes(n);
  for (char& c : out) c = kAlphabet[static_cast<unsigned char>(c) & 31];
  return out;
}

}  // namespace glovebox
