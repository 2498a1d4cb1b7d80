// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/async.h"
#include "base/unique_fd.h"

namespace glovebox::network {

// A process of this program that runs beside the daemon without privileges (egress proxy, registry proxy), started again
// whenever it ends. The two talk in JSON lines over a socket that the process finds as descriptor 3. Loop thread only.
class Helper : public std::enable_shared_from_this<Helper> {
 public:
  struct Options {
    std::string name;  // for logs and metrics: "egress"
    std::string program;
    std::vector<std::string> argv;
    std::vector<std::pair<int, int>> descriptors;  // more for the process: ours, its number; from 4 on
    // After each start, before anything else is sent: what it needs to know. An error ends this process.
    std::function<Async<void>(Helper&)> set_up;
    std::function<void(const boost::json::object&)> on_message;  // everything but "ready", "done" and "failed"
    std::chrono::milliseconds ping_every{5'000};
    std::chrono::milliseconds patience{10'000};  // for an answer; then the process counts as stuck and is killed
  };
  static std::shared_ptr<Helper> start(Executor executor, Options options);

  // Sends `message` with a number and waits for "done". kUnavailable when the process ends before, or is not running.
  Async<void> call(boost::json::object message);
  void send(const boost::json::object& message);
  // Waits until a process has been set up: true, or false at the deadline.
  Awaitable<bool> wait_up(Deadline deadline);
  bool is_up() const { return is_up_; }
  pid_t pid() const { return pid_; }
  // Ends the process and the supervision.
  Awaitable<void> stop();

 private:
  struct Waiting {
    bool is_answered = false;
    Result<void> answer;
  };
  Helper(Executor executor, Options options) : executor_(std::move(executor)), options_(std::move(options)) {}
  Awaitable<void> supervise();
  Result<void> launch();
  Awaitable<void> converse(pid_t pid);
  Awaitable<void> set_up();
  Awaitable<void> ping(int generation);
  bool read_lines();
  void take_line(std::string_view line);
  void give_up(std::string_view why);
  void reap(pid_t pid);
  Awaitable<void> flush();

  Executor executor_;
  Options options_;
  UniqueFd socket_;
  pid_t pid_ = 0;
  int generation_ = 0;  // of the process
  bool is_ready_ = false, is_up_ = false, is_stopping_ = false, is_flushing_ = false, is_over_ = false;
  std::string received_, unsent_;
  int64_t sequence_ = 0;
  std::map<int64_t, std::shared_ptr<Waiting>> waiting_;
  Notifier changed_;
};

}  // namespace glovebox::network
