// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "egress/internal/core.h"

namespace glovebox::egress {

// The stream to the daemon: JSON lines both ways.
class ControlWriter {
 public:
  ControlWriter(const Executor& executor, UniqueFd fd);
  void write(std::string line);
  // The same, but dropped and counted when the daemon has not read for long: entries of the log are
  // not held without end.
  void write_event(std::string line);
  Watched& stream() { return *stream_; }

 private:
  Awaitable<void> drain();
  Executor executor_;
  std::shared_ptr<Watched> stream_;
  std::string pending_;
  bool is_draining_ = false;
  uint64_t dropped_ = 0;
};

// What the daemon asks for.
class Control {
 public:
  Control(Core& core, ControlWriter& writer) : core_(core), writer_(writer) {}
  // Until the stream ends: false when it ended in the middle of a line or with one that is no
  // message.
  Awaitable<bool> run();
  // Each second: counters of the links that moved something.
  Awaitable<void> report_usage();

 private:
  bool take(std::string_view line);
  Result<void> apply(const boost::json::object& message, const std::string& op);
  Result<void> configure(const boost::json::object& message);
  Result<void> set_link(const boost::json::object& message);

  Core& core_;
  ControlWriter& writer_;
};

}  // namespace glovebox::egress
