// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace glovebox::agent {

// Ends the TCP connections of a guest that belong to another address than `own` (dotted; empty: to any that is not loopback), as those
// of a copy do which were made by its source: their programs get ECONNABORTED at once and not after minutes without an answer. Does
// nothing where the kernel cannot do it (module tcp_diag).
void end_connections_of_others(const std::string& own);

}  // namespace glovebox::agent
