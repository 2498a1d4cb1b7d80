// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/unique_fd.h"
#include "http/server.h"

// For the tests of this module: a real server on a thread of its own, and a client that sends
// whatever it likes.
namespace glovebox::http::testing {

class TestServer {
 public:
  explicit TestServer(Handler handler, ServerConfig config = quick());
  ~TestServer();
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  // Port 0, and a sweep every 5 ms.
  static ServerConfig quick();

  uint16_t port() const { return port_; }
  Executor executor() { return loop_.get_executor(); }
  // Runs a coroutine on the loop's thread and waits for it.
  void run(std::function<Awaitable<void>(Server&)> task);
  size_t connections();

 private:
  boost::asio::io_context loop_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      loop_.get_executor()};
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// Runs a coroutine on a loop of its own, to its end.
void run_alone(std::function<Awaitable<void>()> task);

// Becomes true within a minute, or the caller's EXPECT fails.
bool eventually(const std::function<bool()>& condition);

// A blocking socket. Every wait ends after a minute.
class Raw {
 public:
  explicit Raw(uint16_t port, int receive_buffer = 0);
  bool send(std::string_view bytes);  // false when the connection is broken
  std::string read_for(
      std::string_view end);  // up to and with `end`, or to the end of the connection
  std::string read_bytes(size_t n);
  std::string read_all();  // to the end of the connection
  // The next response: head, and the body that its Content-Length announces.
  std::string read_response(bool is_head = false);
  bool is_closed();  // waits for the end of the connection
  bool was_reset() const { return was_reset_; }
  void finish_sending();
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool receive();
  UniqueFd fd_;
  std::string have_;
  bool was_reset_ = false;
};

int status_of(std::string_view response);
std::string body_of(std::string_view response);
// "GET <target> HTTP/1.1\r\nHost: x\r\n<extra>\r\n"
std::string get(std::string_view target, std::string_view extra = "");
std::string post(std::string_view target, std::string_view body, std::string_view extra = "");

}  // namespace glovebox::http::testing
