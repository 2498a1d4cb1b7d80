// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace glovebox::agent {

// A stream to port `port` of `cid`, tried again until `patience_ms` are over; -1 and errno when
// there is none. A connect that is sent before the device lives is lost, so a single try is short.
int connect_vsock(unsigned cid, unsigned port, int patience_ms);

}  // namespace glovebox::agent
