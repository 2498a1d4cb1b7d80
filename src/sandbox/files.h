// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "sandbox/sandbox.h"

// File operations of one sandbox: each is a request to its agent under a lease.
namespace glovebox::sandbox::files {

Result<void> check_path(const std::string& path);
// {"op":"watch",…} for the agent.
std::string watch_request(const Sandbox& box, const std::string& user, const std::string& path, bool recursive);

Async<FileEntry> stat(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool follow);
Async<codec::EntryList> list(std::shared_ptr<Sandbox> box, std::string user, std::string path, std::string after, size_t limit);
Async<bool> make_directory(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool parents, uint32_t mode);
Async<void> remove(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool recursive);
Async<void> move(std::shared_ptr<Sandbox> box, std::string user, std::string from, std::string to, bool parents, bool overwrite);
Async<std::unique_ptr<ByteSource>> read(std::shared_ptr<Sandbox> box, std::string user, std::string path, uint64_t offset,
                                        std::optional<uint64_t> length);
Async<std::unique_ptr<ByteSink>> write(std::shared_ptr<Sandbox> box, std::string user, std::string path, WriteOptions options);
Async<std::unique_ptr<ByteSource>> read_archive(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool gzip);
Async<std::unique_ptr<ByteSink>> write_archive(std::shared_ptr<Sandbox> box, std::string user, std::string path);
Async<std::vector<ProcessInfo>> processes(std::shared_ptr<Sandbox> box);
Async<void> signal_process(std::shared_ptr<Sandbox> box, int64_t pid, int signal, bool tree);

}  // namespace glovebox::sandbox::files
