// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace glovebox::agent {

// Starts a detached thread with a small stack and every signal blocked (the loop takes them). False
// when the sandbox's process limit is reached.
bool start_thread(std::function<void()> body);

}  // namespace glovebox::agent
