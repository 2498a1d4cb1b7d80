// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/async.h"
#include "registry/cache.h"
#include "registry/fetcher.h"

namespace glovebox::registry {

// A file to have. Without an integrity its content is known by its URL alone.
struct FileSpec {
  std::string url;
  Integrity integrity;
  bool is_named_by_index = false;
  std::optional<uint64_t> size;  // as the index says; a different one is kCorrupt
  uint64_t max_bytes = 8ull << 30;
};

// A file on its way into the cache. Its bytes can be read while they come, but the last of them only once all of it was verified: who
// reads it to the end has read a good file, and who reads a broken one never sees its end. Loop thread only, but for what Sink says.
class Download {
 public:
  virtual ~Download() = default;
  // Waits until bytes beyond `offset` may be read, or for the end; kCorrupt and others when there will be none. Empty at the end.
  virtual Async<std::string> read(uint64_t offset) = 0;
  // Waits until it is known how long the file will be; nothing when the upstream does not say.
  virtual Async<std::optional<uint64_t>> length() = 0;
  // Waits for the verified file.
  virtual Async<Cache::File> complete() = 0;
};

struct Source {
  std::optional<Cache::File> file;     // from the cache
  std::shared_ptr<Download> download;  // else
};

class Downloads {
 public:
  Downloads(Executor executor, BlockingPool& pool, Cache& cache, Fetcher& fetcher);
  // Equal files asked for at the same time are fetched once. The download goes on when everybody has left.
  // `only_cached`: kNotFound instead of a fetch.
  Async<Source> get(FileSpec spec, bool only_cached);
  bool is_cached(const FileSpec& spec) const;

 private:
  class Running;
  Async<Cache::File> find(const FileSpec& spec);

  Executor executor_;
  BlockingPool& pool_;
  Cache& cache_;
  Fetcher& fetcher_;
  std::map<std::string, std::weak_ptr<Running>> running_;
};

}  // namespace glovebox::registry
