// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "programs/glovebox/api_client.h"
#include "programs/glovebox/loop.h"

namespace glovebox::cli {

// One side of `glovebox cp`: "ID:PATH", "-" (standard input or output) or a path of this host. A
// name with a colon is local when something stands before the colon that cannot be an id ("./a:b").
struct Place {
  std::string sandbox;  // empty: this host
  std::string path;
  bool is_stdio = false;
  bool is_remote() const { return !sandbox.empty(); }
};
Place parse_place(const std::string& text);

struct CopyResult {
  uint64_t bytes = 0;  // of file contents or archive
  std::vector<std::string> left_out;
};

// Files and whole directories, one way or the other, in constant memory. Into an existing
// directory, or a path that ends in '/', the source goes under its own name; "DIR/." as source
// means what is in it. `user`: whose rights apply in the sandbox.
Async<CopyResult> copy(Loop& loop, const ApiClient& api, Place from, Place to, std::string user);

}  // namespace glovebox::cli
