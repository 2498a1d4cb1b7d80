// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "programs/glovebox/api_client.h"
#include "programs/glovebox/loop.h"

// Bodies that stream between a descriptor of this program and the daemon.
namespace glovebox::cli {

// PUTs what `fd` gives; `length` below 0: to its end. Returns how much it was.
Async<uint64_t> upload(const ApiClient& api, std::string path, int fd, int64_t length);
// A GET whose answer's body comes.
Async<std::unique_ptr<http::Connection>> start_download(const ApiClient& api, std::string path);
// That body into `fd`, on a thread of the pool: `fd` may be a pipe whose reader is slow. Returns
// how much it was.
Async<uint64_t> save_body(Loop& loop, http::Connection& connection, int fd);
// Into a new file beside the target, renamed when it is whole; a device or a pipe is written to as
// it is.
Async<uint64_t> save_file(Loop& loop, http::Connection& connection, std::string to, mode_t mode);

}  // namespace glovebox::cli
