// SPDX-License-Identifier: Apache-2.0
#include "http/internal/transport.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <cstring>

namespace glovebox::http::internal {
namespace asio = boost::asio;
namespace {
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kYieldBytes = 1 << 20;

void skip(std::array<iovec, 3>& pieces, size_t n) {
  for (iovec& piece : pieces) {
    const size_t part = std::min(n, piece.iov_len);
    piece.iov_base = static_cast<char*>(piece.iov_base) + part;
    piece.iov_len -= part;
    n -= part;
  }
}

bool is_empty(const std::array<iovec, 3>& pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [](const iovec& p) { return p.iov_len == 0; });
}

iovec piece_of(std::string_view text) {
  return {const_cast<char*>(text.data()), text.size()};
}

}  // namespace

Transport::Transport(Socket socket) : socket_(std::move(socket)) {
  boost::system::error_code ignored;
  socket_.native_non_blocking(true, ignored);
  // Fails on Unix sockets, which never wait to fill a segment.
  const int on = 1;
  ::setsockopt(fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Transport::acknowledge() {
  const int on = 1;
  ::setsockopt(fd(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

Error Transport::failure(const boost::system::error_code& ec) {
  if (ec == asio::error::operation_aborted && expired_ && !is_cut_) {
    expired_ = false;
    return Error{Code::kTimeout, "the peer was silent for too long"};
  }
  return Error{Code::kCancelled, "the connection was lost: " + ec.message()};
}

Async<size_t> Transport::read_some(char* data, size_t size, Deadline deadline) {
  if (is_cut_) co_return fail(Code::kCancelled, "the connection was cut");
  read_deadline_ = deadline;
  auto [ec, n] = co_await socket_.async_read_some(asio::buffer(data, size), kTuple);
  read_deadline_ = kNever;
  if (ec == asio::error::eof) co_return 0;
  if (ec) co_return fail(failure(ec));
  co_return n;
}

// True when all is sent, false when the socket takes no more now.
Result<bool> Transport::send_now(std::array<iovec, 3>& pieces, size_t& sent) {
  while (!is_empty(pieces)) {
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t n = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (n < 0) return fail(Code::kCancelled, "the connection was lost: " + errno_text(errno));
    skip(pieces, static_cast<size_t>(n));
    sent += static_cast<size_t>(n);
  }
  return true;
}

Async<void> Transport::write(std::chrono::milliseconds idle, std::string_view a, std::string_view b,
                             std::string_view c) {
  std::array<iovec, 3> pieces{piece_of(a), piece_of(b), piece_of(c)};
  for (;;) {
    if (is_cut_) co_return fail(Code::kCancelled, "the connection was cut");
    GB_CO_TRY(const bool done, send_now(pieces, unyielded_));
    if (done) break;
    std::array<asio::const_buffer, 3> buffers;
    std::transform(pieces.begin(), pieces.end(), buffers.begin(),
                   [](const iovec& p) { return asio::const_buffer(p.iov_base, p.iov_len); });
    write_deadline_ = after(idle);
    auto [ec, n] = co_await socket_.async_write_some(buffers, kTuple);
    write_deadline_ = kNever;
    unyielded_ = 0;
    if (ec) co_return fail(failure(ec));
    skip(pieces, n);
  }
  if (unyielded_ > kYieldBytes) {
    unyielded_ = 0;
    co_await asio::post(socket_.get_executor(), asio::use_awaitable);
  }
  co_return Result<void>();
}

void Transport::check(Deadline now) {
  if (now < read_deadline_ && now < write_deadline_) return;
  expired_ = true;
  boost::system::error_code ignored;
  socket_.cancel(ignored);
}

void Transport::shutdown_write() {
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void Transport::cut() {
  is_cut_ = true;
  boost::system::error_code ignored;
  socket_.shutdown(Socket::shutdown_both, ignored);
  socket_.cancel(ignored);
}

void Transport::reset() {
  const linger now{1, 0};
  ::setsockopt(fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  is_cut_ = true;
  boost::system::error_code ignored;
  socket_.close(ignored);
}

struct Ticker::State {
  State(const Executor& executor, std::chrono::milliseconds i, std::function<void()> t)
      : timer(executor), interval(i), tick(std::move(t)) {}
  asio::steady_timer timer;
  std::chrono::milliseconds interval;
  std::function<void()> tick;
  bool stopped = false;

  static void arm(const std::shared_ptr<State>& self) {
    self->timer.expires_after(self->interval);
    self->timer.async_wait([self](const boost::system::error_code&) {
      if (self->stopped) return;
      self->tick();
      if (!self->stopped) arm(self);
    });
  }
};

Ticker::Ticker(const Executor& executor, std::chrono::milliseconds interval,
               std::function<void()> tick)
    : state_(std::make_shared<State>(executor, interval, std::move(tick))) {
  State::arm(state_);
}

Ticker::~Ticker() {
  state_->stopped = true;
  state_->timer.cancel();
}

Async<size_t> TransportStream::read_some(char* data, size_t size) {
  if (!prefix_.empty()) {
    const size_t n = std::min(size, prefix_.size());
    std::memcpy(data, prefix_.data(), n);
    prefix_.erase(0, n);
    co_return n;
  }
  const Deadline deadline = read_idle_.count() > 0 ? after(read_idle_) : kNever;
  co_return co_await transport_->read_some(data, size, deadline);
}

void InputBuffer::consume(size_t n) {
  GB_ASSERT(n <= end_ - begin_);
  begin_ += n;
  if (begin_ == end_) begin_ = end_ = 0;
}

char* InputBuffer::prepare(size_t size) {
  if (capacity_ - end_ >= size) return data_.get() + end_;
  const size_t held = end_ - begin_;
  if (capacity_ - held >= size) {
    std::memmove(data_.get(), data_.get() + begin_, held);
  } else {
    const size_t wanted = std::max(held + size, std::min<size_t>(capacity_ * 2, 256 << 10));
    auto larger = std::make_unique_for_overwrite<char[]>(wanted);
    if (held > 0) std::memcpy(larger.get(), data_.get() + begin_, held);
    data_ = std::move(larger);
    capacity_ = wanted;
  }
  begin_ = 0;
  end_ = held;
  return data_.get() + end_;
}

void InputBuffer::trim(size_t keep) {
  if (!empty() || capacity_ <= keep) return;
  data_.reset();
  capacity_ = begin_ = end_ = 0;
}

}  // namespace glovebox::http::internal
