// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/async.h"
#include "http/stream.h"

namespace glovebox::http::internal {

using Socket = boost::asio::generic::stream_protocol::socket;  // TCP or Unix
inline constexpr Deadline kNever = Deadline::max();

// A connected socket whose waits have deadlines. Somebody must call check() now and then (a
// Ticker): one timer for many waits, instead of one armed and cancelled for each.
class Transport {
 public:
  explicit Transport(Socket socket);

  // At least one byte, or 0 at the end of the stream. kTimeout at the deadline, after which the
  // socket is still usable; kCancelled when the peer reset the connection or it was cut.
  Async<size_t> read_some(char* data, size_t size, Deadline deadline);
  // Writes all the pieces. kTimeout when the kernel takes nothing for `idle`. Tries without
  // suspending first, and yields to the loop once in a megabyte.
  Async<void> write(std::chrono::milliseconds idle, std::string_view a, std::string_view b = {},
                    std::string_view c = {});

  // Tells the peer now what has arrived: one that holds small pieces back until then (Nagle) sends on at once, and not after the
  // kernel's 40 ms.
  void acknowledge();
  void check(Deadline now);  // ends waits that are over
  void shutdown_write();
  void cut();    // ends everything, now; the descriptor is closed with the object
  void reset();  // as cut(), and the peer gets a reset (RST) instead of an orderly end
  bool is_cut() const { return is_cut_; }
  Socket& socket() { return socket_; }
  int fd() { return socket_.native_handle(); }

 private:
  Error failure(const boost::system::error_code& ec);
  Result<bool> send_now(std::array<iovec, 3>& pieces, size_t& sent);

  Socket socket_;
  Deadline read_deadline_ = kNever;
  Deadline write_deadline_ = kNever;
  size_t unyielded_ = 0;
  bool expired_ = false;  // check() has cancelled what waits
  bool is_cut_ = false;
};

// Calls `tick` every `interval` until it is destroyed. Keeps the loop alive as long.
class Ticker {
 public:
  Ticker(const Executor& executor, std::chrono::milliseconds interval, std::function<void()> tick);
  ~Ticker();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A Stream over a Transport. `prefix` are bytes that were received already.
class TransportStream final : public Stream {
 public:
  TransportStream(std::shared_ptr<Transport> transport, std::string prefix,
                  std::chrono::milliseconds read_idle, std::chrono::milliseconds write_idle)
      : transport_(std::move(transport)),
        prefix_(std::move(prefix)),
        read_idle_(read_idle),
        write_idle_(write_idle) {}
  Async<size_t> read_some(char* data, size_t size) override;
  Async<void> write(std::string_view data) override { return transport_->write(write_idle_, data); }
  void shutdown_write() override { transport_->shutdown_write(); }
  void close() override { transport_->cut(); }
  Transport& transport() { return *transport_; }

 private:
  std::shared_ptr<Transport> transport_;
  std::string prefix_;
  std::chrono::milliseconds read_idle_;  // zero: none
  std::chrono::milliseconds write_idle_;
};

// Received bytes that are not used yet.
class InputBuffer {
 public:
  std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
  bool empty() const { return begin_ == end_; }
  void consume(size_t n);
  // Room for at least `size` bytes behind view(), which may move.
  char* prepare(size_t size);
  void commit(size_t n) { end_ += n; }
  void trim(size_t keep);  // gives memory back when it is empty and larger than `keep`

 private:
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace glovebox::http::internal
