// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/array.hpp>
#include <deque>
#include <memory>
#include <string>

#include "programs/glovebox/api_client.h"
#include "programs/glovebox/loop.h"
#include "programs/glovebox/sse_reader.h"

namespace glovebox::cli {

// The Model Context Protocol on standard input and output, one message a line, passed on to a
// daemon's /mcp: what there is to call is the daemon's business. A session lasts as long as this
// program, and its sandboxes with it, also when the daemon is replaced meanwhile.
class McpBridge : public std::enable_shared_from_this<McpBridge> {
 public:
  McpBridge(Loop& loop, const ApiClient& api, int input, int output);

  // Until the end of the input or a signal; the program's exit status.
  Async<int> run();

 private:
  Awaitable<void> read_lines();
  void take_bytes(std::string_view bytes);
  Async<std::string> next_line();
  Awaitable<void> pass_on(std::string line);
  Async<void> exchange(const std::string& line, bool may_begin_again);
  Async<std::unique_ptr<http::Connection>> send(std::string method, const std::string& body,
                                                http::Headers more, http::ResponseHead* head);
  Async<void> take_events(std::unique_ptr<http::Connection> connection);
  Async<bool> take_some_events(http::Connection& connection, std::string* last_id);
  Async<void> begin_again(std::string lost_session);
  void note_session(const http::ResponseHead& head, const std::string& answer);
  void answer_failure(const boost::json::array& ids, const Error& error);
  void put(std::string message);
  Awaitable<void> write_messages();
  Awaitable<void> keep_alive();
  Async<void> end_session();

  Loop& loop_;
  const ApiClient api_;
  const int input_, output_fd_;
  OutputQueue output_;
  std::string partial_;
  bool skips_line_ = false;  // the rest of one that was too long
  std::deque<std::string> lines_, outbox_;
  bool is_at_end_ = false;
  int under_way_ = 0;
  std::string session_, version_, initialize_;  // initialize_: what began the session
  bool is_beginning_ = false;
  Notifier changed_;
};

}  // namespace glovebox::cli
