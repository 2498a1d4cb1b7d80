// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"
#include "programs/agent/users.h"

namespace glovebox::agent {

struct Pty {
  UniqueFd master;  // non-blocking
  UniqueFd slave;
};

// A new pseudo-terminal from the sandbox's own devpts, owned by `user`. kUnsupported where there is
// none.
Result<Pty> open_pty(const User& user, uint16_t columns, uint16_t rows);
// False when the foreground processes could not be told (gVisor does not, and does not say who they
// are).
bool resize_pty(int master, uint16_t columns, uint16_t rows);
// The byte that means end of file to the terminal's line discipline now; 0 when it is switched off.
char pty_eof_character(int master);

}  // namespace glovebox::agent
