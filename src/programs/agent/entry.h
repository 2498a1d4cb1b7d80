// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/result.h"
#include "programs/agent/json.h"
#include "programs/agent/users.h"

namespace glovebox::agent {

// An `entry` of spec/channel.md. `directory` and `name` are where a link's target can be read.
json::object entry_json(Users& users, const std::string& path, const struct stat& st, int directory,
                        const std::string& name);
// lstat (or stat) of `path` as an entry.
Result<json::object> entry_at(Users& users, const std::string& path, bool follow);

// The last component, without slashes at the end; "/" for the root.
std::string base_name(const std::string& path);
// Everything before it: "/" or "." at least.
std::string parent_of(const std::string& path);
std::string join_path(const std::string& directory, const std::string& name);

}  // namespace glovebox::agent
