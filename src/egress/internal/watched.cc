// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/watched.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace glovebox::egress {
namespace asio = boost::asio;
namespace {
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
using Descriptor = asio::posix::stream_descriptor;
}  // namespace

struct Watched::Impl {
  Impl(const Executor& executor, int fd) : descriptor(executor, fd) {}
  Descriptor descriptor;
  bool is_cancelled = false;
};

Watched::Watched(const Executor& executor, UniqueFd fd)
    : impl_(std::make_shared<Impl>(executor, fd.release())) {}
Watched::~Watched() {
  if (impl_) cancel();
}
Watched::Watched(Watched&&) noexcept = default;
Watched& Watched::operator=(Watched&&) noexcept = default;

int Watched::fd() const {
  return impl_->descriptor.native_handle();
}
bool Watched::is_cancelled() const {
  return impl_->is_cancelled;
}

Awaitable<bool> Watched::readable() {
  const auto impl = impl_;  // outlives the wait whatever happens to this object meanwhile
  if (impl->is_cancelled) co_return false;
  auto [ec] = co_await impl->descriptor.async_wait(Descriptor::wait_read, kTuple);
  co_return !ec && !impl->is_cancelled;
}

Awaitable<bool> Watched::writable() {
  const auto impl = impl_;
  if (impl->is_cancelled) co_return false;
  auto [ec] = co_await impl->descriptor.async_wait(Descriptor::wait_write, kTuple);
  co_return !ec && !impl->is_cancelled;
}

void Watched::cancel() {
  impl_->is_cancelled = true;
  interrupt();
}

void Watched::interrupt() {
  boost::system::error_code ignored;
  impl_->descriptor.cancel(ignored);
}

void Watched::abort() {
  // Dissolving the association is the one way to discard the send queue without closing the
  // descriptor (connect(2)).
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  if (::connect(fd(), &nowhere, sizeof nowhere) != 0) ::shutdown(fd(), SHUT_RDWR);
  cancel();
}

Awaitable<void> yield() {
  co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

}  // namespace glovebox::egress
