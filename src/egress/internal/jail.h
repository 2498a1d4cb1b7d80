// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace glovebox::egress {

// Gives up, for good, everything that the proxy does not need: the file system but for
// `root_directory`, every user, group and capability, new privileges, most system calls. It is
// killed when its parent ends.
Result<void> enter_jail(const std::string& root_directory, uid_t uid, gid_t gid);

// How many descriptors may be open, raised as far as it goes.
size_t raise_descriptor_limit(size_t wanted);

}  // namespace glovebox::egress
