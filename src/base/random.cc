// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

#include "base/result.h"

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

std::string random_name(size_t n) {
  constexpr char kAlphabet[] = "abcdefghjkmnpqrstuvwxyz023456789";  // 32 of them
  static_assert(sizeof(kAlphabet) == 33);
  std::string out = random_bytes(n);
  for (char& c : out) c = kAlphabet[static_cast<unsigned char>(c) & 31];
  return out;
}

}  // namespace glovebox
