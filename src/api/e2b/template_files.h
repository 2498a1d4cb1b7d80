// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "http/server.h"
#include "sandbox/service.h"

// The archives that clients send for the COPY instructions of their templates, by the client's own name for the content: below
// <directory>/<tenant's digest>/<hash>. Nobody sees another tenant's. They are kept for a day after their last use. Loop thread only.
namespace glovebox::api::e2b {

class TemplateFiles {
 public:
  TemplateFiles(std::string directory, BlockingPool& pool) : directory_(std::move(directory)), pool_(pool) {}

  Awaitable<bool> has(const std::string& tenant, const std::string& hash);
  // kPayloadTooLarge, kCapacity (the tenant's archives together), kDiskFull; what came before an error leaves nothing behind.
  Async<void> put(const std::string& tenant, const std::string& hash, http::BodyReader& body, uint64_t size);
  // kNotFound.
  Async<void> send(const std::string& tenant, const std::string& hash, sandbox::ByteSink& sink);

 private:
  std::string folder(const std::string& tenant) const;
  Result<void> make_room(const std::string& folder, uint64_t wanted) const;
  Async<void> write(const std::string& path, http::BodyReader& body, uint64_t size);

  const std::string directory_;
  BlockingPool& pool_;
  std::map<std::string, uint64_t> coming_;  // bytes of uploads under way, by tenant
  uint64_t uploads_ = 0;
};

}  // namespace glovebox::api::e2b
