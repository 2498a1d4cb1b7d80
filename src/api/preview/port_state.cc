// SPDX-License-Identifier: Apache-2.0
#include "api/preview/port_state.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/random.h"
#include "base/unique_fd.h"

namespace glovebox::api::preview {
namespace {

constexpr std::string_view kPrefix = "preview.";
constexpr size_t kSecretBytes = 32;
constexpr std::string_view kTokenPrefix = "gbp_";  // for people and scanners who find one

Result<std::string> read_secret(int fd, const std::string& path) {
  std::array<char, kSecretBytes + 1> bytes;
  const ssize_t n = ::read(fd, bytes.data(), bytes.size());
  if (n < 0) return fail_errno(path);
  if (n != kSecretBytes) return fail(Code::kCorrupt, path + ": does not hold 32 bytes; remove it to have a new one made, which ends all preview links");
  return std::string(bytes.data(), kSecretBytes);
}

}  // namespace

PortState port_state(const sandbox::SandboxInfo& info, uint16_t port) {
  PortState out;
  const auto found = info.attributes.find(std::string(kPrefix) + std::to_string(port));
  if (found == info.attributes.end()) return out;
  for (const std::string& word : split(found->second, ' ')) {
    out.is_public |= word == "public";
    out.is_revoked |= word == "revoked";
    out.is_exposed |= word == "exposed";
    if (const auto number = parse_int(word)) out.generation = static_cast<uint32_t>(*number);
  }
  return out;
}

std::pair<std::string, std::string> attribute_of(uint16_t port, const PortState& state) {
  std::string value = std::to_string(state.generation);
  if (state.is_public) value += " public";
  if (state.is_revoked) value += " revoked";
  if (state.is_exposed) value += " exposed";
  return {std::string(kPrefix) + std::to_string(port), value};
}

size_t count_states(const sandbox::SandboxInfo& info) {
  return static_cast<size_t>(
      std::count_if(info.attributes.begin(), info.attributes.end(), [](const auto& a) { return a.first.starts_with(kPrefix); }));
}

Result<Tokens> Tokens::load(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno != ENOENT) return fail_errno(path);
  if (file) {
    GB_TRY(auto secret, read_secret(file.get(), path));
    return Tokens(std::move(secret));
  }
  // It appears whole: written aside, then put into place.
  const std::string secret = random_bytes(kSecretBytes), aside = path + ".new";
  UniqueFd out(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!out || ::fchmod(out.get(), 0600) != 0 || ::write(out.get(), secret.data(), secret.size()) != kSecretBytes ||
      ::fsync(out.get()) != 0 || ::rename(aside.c_str(), path.c_str()) != 0) {
    return fail_errno(path);
  }
  return Tokens(secret);
}

std::string Tokens::token(const std::string& id, uint16_t port, uint32_t generation) const {
  const std::string text = id + "\n" + std::to_string(port) + "\n" + std::to_string(generation);
  std::array<unsigned char, 32> out;
  crypto_generichash(out.data(), out.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                     reinterpret_cast<const unsigned char*>(secret_.data()), secret_.size());
  return std::string(kTokenPrefix) + hex(std::string_view(reinterpret_cast<const char*>(out.data()), out.size()));
}

bool Tokens::equal(const std::string& a, const std::string& b) {
  return a.size() == b.size() && sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace glovebox::api::preview
