// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "sandbox/service.h"

// What is remembered of one port's preview. It is kept among the sandbox's attributes, so it lives as long as the sandbox does.
namespace glovebox::api::preview {

struct PortState {
  uint32_t generation = 0;   // part of the token: one more ends all links given out before
  bool is_public = false;    // no token is asked for
  bool is_revoked = false;   // nobody is let in
  bool is_exposed = false;   // the Lizard dialect's token, one for all of a sandbox's ports, is good for it
};

// The generation of that one token is kept as port 0's.
inline constexpr uint16_t kAllPorts = 0;

PortState port_state(const sandbox::SandboxInfo& info, uint16_t port);
// The attribute to be merged into the sandbox's, its name and value.
std::pair<std::string, std::string> attribute_of(uint16_t port, const PortState& state);
// How many ports have one.
size_t count_states(const sandbox::SandboxInfo& info);

// Makes tokens from a secret of the instance, so that nothing has to be stored and links outlive a restart.
class Tokens {
 public:
  Tokens() = default;
  // Reads the secret from the file (mode 0600), or makes it.
  static Result<Tokens> load(const std::string& path);
  explicit Tokens(std::string secret) : secret_(std::move(secret)) {}

  std::string token(const std::string& id, uint16_t port, uint32_t generation) const;
  // Takes the same time wherever they differ.
  static bool equal(const std::string& a, const std::string& b);

 private:
  std::string secret_;  // 32 bytes
};

}  // namespace glovebox::api::preview
