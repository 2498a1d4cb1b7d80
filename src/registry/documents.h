// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/async.h"
#include "registry/cache.h"
#include "registry/fetcher.h"

namespace glovebox::registry {

// Metadata of an upstream as it came.
struct Document {
  std::string body;
  std::string content_type;
  std::string etag, last_modified;
  std::string url;             // after redirects: what relative links are relative to
  int64_t fetched_at_ms = 0;   // fetched or confirmed
  // What a reader made of the body, once.
  std::shared_ptr<const void> parsed;
};
using DocumentPtr = std::shared_ptr<const Document>;

// Turns the body into what `parsed` points to; on the blocking pool. An error means that the upstream's answer is of no use.
using Parse = std::function<Result<std::shared_ptr<const void>>(const Document&)>;

// Metadata through the cache: fresh for `lifetime`, then asked for again with If-None-Match. When the upstream cannot be reached,
// what is there is used however old it is. Equal requests at the same time are one. Loop thread only.
class Documents {
 public:
  struct Request {
    std::string key;  // names it in the cache, and what kind it is
    std::string url;
    std::string accept;
    std::chrono::seconds lifetime{600};
    size_t max_bytes = 64 << 20;
    bool only_cached = false;  // then however old
    bool is_compressible = true;  // false: as it is on the server, also when that calls a .gz file an encoding
    Parse parse;
  };

  Documents(Executor executor, BlockingPool& pool, Cache& cache, Fetcher& fetcher);
  // kNotFound: the upstream says so (or, only cached, it is not there); kPayloadTooLarge; kCorrupt; what Fetcher says.
  Async<DocumentPtr> get(Request request);
  void clear_memory();  // after a change of upstreams

 private:
  struct Pending;
  Awaitable<void> load(Request request, std::shared_ptr<Pending> pending);
  Async<DocumentPtr> find_or_fetch(const Request& request);
  Async<DocumentPtr> fetch(const Request& request, DocumentPtr old);
  Async<DocumentPtr> from_disk(const Request& request);
  Async<void> parse(const Request& request, std::shared_ptr<Document> document);
  void remember(const std::string& key, DocumentPtr document);
  DocumentPtr recall(const std::string& key);

  Executor executor_;
  BlockingPool& pool_;
  Cache& cache_;
  Fetcher& fetcher_;
  std::map<std::string, std::shared_ptr<Pending>> pending_;
  // Parsed and ready, most recently used last.
  std::list<std::pair<std::string, DocumentPtr>> memory_;
  std::unordered_map<std::string, std::list<std::pair<std::string, DocumentPtr>>::iterator> in_memory_;
  size_t memory_bytes_ = 0;
};

}  // namespace glovebox::registry
