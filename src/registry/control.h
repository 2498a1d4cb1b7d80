// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/async.h"

namespace glovebox::registry {

// The channel to the daemon: one JSON object a line, at most 1 MiB, both ways, over a stream socket. The daemon says
//   {"op":"config","upstreams":{"pypi","npm","debian","debian_security"},"cache_bytes":N,"file_hosts":[…]}
//   {"op":"sandbox","seq":1,"sandbox":"sb-…","policy":{…}}   {"op":"forget","seq":2,"sandbox":"sb-…"}
// and hears {"op":"ready"}, {"op":"done","seq"}, {"op":"failed","seq","message"}, {"op":"event","event":{…}}.
class Control {
 public:
  // `fd` is borrowed and becomes non-blocking for reading only as far as this class is concerned.
  Control(int fd, Executor executor);
  ~Control();
  // Hands each operation to `handle` and answers it with done or failed (when it has a "seq"). Returns when the daemon has closed
  // the channel or broken its form.
  Awaitable<void> run(std::function<Result<void>(const boost::json::object&)> handle);
  // Queues a line. A daemon that takes nothing loses events beyond 8 MiB; how many is logged.
  void send(boost::json::object message);

 private:
  struct Writer;
  int fd_;
  Executor executor_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace glovebox::registry
