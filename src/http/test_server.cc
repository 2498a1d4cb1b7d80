// SPDX-License-Identifier: Apache-2.0
#include "http/test_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdlib>
#include <future>

#include "base/text.h"

namespace glovebox::http::testing {
namespace {

Awaitable<void> and_tell(std::function<Awaitable<void>()> task, std::promise<void>& done) {
  co_await task();
  done.set_value();
}

}  // namespace

ServerConfig TestServer::quick() {
  ServerConfig config;
  config.listen = "127.0.0.1:0";
  config.sweep_interval = std::chrono::milliseconds(5);
  return config;
}

TestServer::TestServer(Handler handler, ServerConfig config) {
  auto server = Server::listen(loop_.get_executor(), std::move(config), std::move(handler));
  GB_ASSERT(server.has_value());
  server_ = *std::move(server);
  port_ = server_->port();
  thread_ = std::thread([this] { loop_.run(); });
}

TestServer::~TestServer() {
  run([](Server& server) -> Awaitable<void> {
    co_await server.stop(after(std::chrono::milliseconds(0)));
  });
  boost::asio::post(loop_, [this] {
    server_.reset();
    guard_.reset();
  });
  thread_.join();
}

void TestServer::run(std::function<Awaitable<void>(Server&)> task) {
  std::promise<void> done;
  std::function<Awaitable<void>()> bound = [this, task] { return task(*server_); };
  boost::asio::post(loop_, [&] { spawn(loop_.get_executor(), "test", and_tell(bound, done)); });
  done.get_future().wait();
}

size_t TestServer::connections() {
  std::promise<size_t> count;
  boost::asio::post(loop_, [&] { count.set_value(server_->connections()); });
  return count.get_future().get();
}

void run_alone(std::function<Awaitable<void>()> task) {
  boost::asio::io_context loop{1};
  spawn(loop.get_executor(), "test", task());
  loop.run();
}

bool eventually(const std::function<bool()>& condition) {
  for (const Deadline end = after(std::chrono::minutes(1)); !condition();) {
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

Raw::Raw(uint16_t port, int receive_buffer)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval limit{60, 0};
  ::setsockopt(fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (receive_buffer > 0)
    ::setsockopt(fd(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  GB_ASSERT(::connect(fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

bool Raw::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;  // with a time limit also when this process was stopped for a moment
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool Raw::receive() {
  char data[65536];
  ssize_t n;
  do n = ::recv(fd(), data, sizeof data, 0);
  while (n < 0 && errno == EINTR);
  was_reset_ = was_reset_ || (n < 0 && errno == ECONNRESET);
  GB_ASSERT(n >= 0 || errno == ECONNRESET);  // not a timeout
  if (n <= 0) return false;
  have_.append(data, static_cast<size_t>(n));
  return true;
}

std::string Raw::read_bytes(size_t n) {
  while (have_.size() < n && receive()) continue;
  std::string out = have_.substr(0, n);
  have_.erase(0, n);
  return out;
}

std::string Raw::read_for(std::string_view end) {
  size_t at;
  while ((at = have_.find(end)) == have_.npos) {
    if (!receive()) return read_bytes(have_.size());
  }
  return read_bytes(at + end.size());
}

std::string Raw::read_all() {
  while (receive()) continue;
  return std::exchange(have_, "");
}

std::string Raw::read_response(bool is_head) {
  std::string out = read_for("\r\n\r\n");
  constexpr std::string_view kLength = "Content-Length: ";
  const size_t at = out.find(kLength);
  if (at != out.npos && !is_head)
    out += read_bytes(std::strtoull(out.c_str() + at + kLength.size(), nullptr, 10));
  return out;
}

bool Raw::is_closed() {
  return have_.empty() && !receive();
}
void Raw::finish_sending() {
  ::shutdown(fd(), SHUT_WR);
}

int status_of(std::string_view response) {
  if (!response.starts_with("HTTP/1.1 ")) return 0;
  return static_cast<int>(parse_int(response.substr(9, 3)).value_or(0));
}

std::string body_of(std::string_view response) {
  const size_t at = response.find("\r\n\r\n");
  return at == response.npos ? "" : std::string(response.substr(at + 4));
}

std::string get(std::string_view target, std::string_view extra) {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n" + std::string(extra) + "\r\n";
}

std::string post(std::string_view target, std::string_view body, std::string_view extra) {
  return "POST " + std::string(target) +
         " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         std::string(extra) + "\r\n" + std::string(body);
}

}  // namespace glovebox::http::testing
