// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "http/client.h"

namespace glovebox::bench {

// The daemon's REST API over one keep-alive connection: what a client library does, and no more.
// One coroutine at a time.
class Api {
 public:
  static Async<std::unique_ptr<Api>> connect(std::string url, std::string key);

  Async<void> health();
  enum class From { kCold, kPool };
  // The sandbox's id, when it is ready. kInternal when it came from elsewhere.
  Async<std::string> create(std::string tier, From from = From::kCold, std::string template_name = "base");
  Async<bool> pool_is_full(std::string tier);  // every pool of it, with what is to be warm
  Async<bool> keeps_warm(std::string tier);
  // `1+1` as a cell of the default context; kCorrupt when it is not 2.
  Async<void> cell(std::string id);
  Async<void> kill(std::string id);
  // Runs argv to its end. kInternal unless it exits with 0.
  Async<void> exec(std::string id, std::string_view program);
  // Starts argv and lets it run; its output stays with the daemon.
  Async<void> start(std::string id, std::vector<std::string> argv);
  Async<double> cpu_ms(std::string id);  // what the sandbox has used so far
  // Writes `bytes` times the same piece to a file; kCorrupt when the daemon says another size.
  Async<void> upload(std::string id, std::string path, std::string_view piece, size_t bytes);
  // Reads it back; kCorrupt when a byte differs.
  Async<void> download(std::string id, std::string path, std::string_view piece, size_t bytes);
  Async<void> upload_program(std::string id, std::string path, std::string_view program);
  Async<std::string> get(std::string path);  // the body
  Async<std::string> post(std::string path, std::string body, int expected);
  Async<void> remove(std::string path);
  Async<void> run(std::string id, std::vector<std::string> argv);  // to its end, as exec()

 private:
  Async<std::string> call(std::string method, std::string path, std::string body, int expected);
  http::Headers headers() const { return {{"X-API-Key", key_}}; }

  std::unique_ptr<http::Connection> connection_;
  std::string key_;
};

}  // namespace glovebox::bench
