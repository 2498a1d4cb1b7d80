// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <functional>
#include <memory>
#include <string>

#include "programs/glovebox/api_client.h"
#include "programs/glovebox/loop.h"

namespace glovebox::cli {

// What goes to the command's standard input. A terminal's keys travel as WebSocket frames; a pipe's
// bytes as one streamed request, whose answer tells that all have arrived.
enum class StdinMode { kNone, kTerminal, kPipe };
// `wanted`: the user asked for it (-i, -t, --stdin). `by_default`: a pipe or file is forwarded
// without asking.
StdinMode choose_stdin(int fd, bool wanted, bool by_default);

// Takes one piece of output; stream 1 or 2.
using OutputSink = std::function<Async<void>(int stream, std::string data)>;

// One execution, followed over the attach WebSocket to its end. A connection that breaks is made
// again at the same cursor, so nothing is lost or shown twice while the daemon keeps the output.
class ExecutionStream : public std::enable_shared_from_this<ExecutionStream> {
 public:
  ExecutionStream(Loop& loop, const ApiClient& api, std::string sandbox, std::string execution);

  // Returns the execution as the API describes it, ended. `sink` errors end it.
  Async<boost::json::value> follow(OutputSink sink);

  // Begin after follow() has begun; they end by themselves.
  void forward_stdin(StdinMode mode);
  void resize(int cols, int rows);
  void signal(int number);  // to every process of the execution
  Async<void> kill();

 private:
  Async<boost::json::value> follow_once(const OutputSink& sink);
  Async<bool> handle(const http::WebSocket::Message& message, const OutputSink& sink);
  Awaitable<void> forward_terminal();
  Awaitable<void> forward_pipe();
  Async<void> send_pipe();
  Awaitable<void> send(bool is_binary, std::string data);
  std::string path() const { return "/v1/sandboxes/" + sandbox_ + "/executions/" + execution_; }

  Loop& loop_;
  const ApiClient api_;
  const std::string sandbox_, execution_;
  std::shared_ptr<http::WebSocket> socket_;  // null between connections
  Notifier connected_;                       // or ended
  uint64_t cursor_ = 0;                      // everything before it went to the sink
  bool is_ended_ = false;
  bool made_progress_ = false;
  std::optional<Error> stdin_error_;
  boost::json::value result_;
};

}  // namespace glovebox::cli
