// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cerrno>
#include <vector>

#include "base/log.h"
#include "http/internal/connection.h"
#include "http/internal/listener.h"

namespace glovebox::http {
namespace asio = boost::asio;
namespace {

using internal::ServerConnection;
using internal::ServerState;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::milliseconds kAcceptPause{
    100};  // when the process is out of descriptors or memory
constexpr std::chrono::milliseconds kCutTime = std::chrono::seconds(2);
constexpr std::chrono::milliseconds kTlsFlushTime = std::chrono::seconds(5);
constexpr int kAcceptBatch = 64;
constexpr size_t kMaxTurnedAway =
    64;  // connections beyond the limit that get an answer at the same time

// Accepts until it is closed.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  Acceptor(std::shared_ptr<ServerState> server, internal::ListenSocket socket)
      : server_(std::move(server)), socket_(std::move(socket)), waiter_(server_->executor) {
    waiter_.assign(::dup(socket_->fd()));
  }
  Awaitable<void> run();
  void close() {
    boost::system::error_code ignored;
    waiter_.close(ignored);
    socket_.reset();
  }

 private:
  bool accept_some();  // false when the process lacks what a connection needs
  void start(UniqueFd fd, const sockaddr_storage& peer);
  Awaitable<void> start_tls(internal::Socket socket, std::string peer);
  void serve(internal::Socket socket, std::string peer);
  std::pair<std::shared_ptr<ServerConnection>, bool> enlist(internal::Socket socket, std::string peer);
  bool make_room();

  std::shared_ptr<ServerState> server_;
  std::optional<internal::ListenSocket> socket_;
  asio::posix::stream_descriptor waiter_;
};

Awaitable<void> Acceptor::run() {
  const auto self = shared_from_this();
  while (socket_) {
    auto [ec] = co_await waiter_.async_wait(asio::posix::stream_descriptor::wait_read, kTuple);
    if (ec || !socket_) break;
    if (accept_some()) continue;
    log::warn("http.accept_failed",
              {{"error", errno_text(errno)}, {"connections", server_->connections.size()}});
    co_await sleep_for(kAcceptPause);
  }
}

bool Acceptor::accept_some() {
  for (int i = 0; i < kAcceptBatch; ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    UniqueFd fd(::accept4(socket_->fd(), reinterpret_cast<sockaddr*>(&peer), &size,
                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      start(std::move(fd), peer);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return false;
    }  // else: that one connection has failed already (accept(2), "Error handling")
  }
  return true;
}

void Acceptor::start(UniqueFd fd, const sockaddr_storage& peer) {
  internal::Socket socket(server_->executor);
  boost::system::error_code ec;
  socket.assign(asio::generic::stream_protocol(socket_->family(), 0), fd.get(), ec);
  if (ec) {
    log::warn("http.accept_failed", {{"error", ec.message()}});
    return;
  }
  fd.release();
  if (!server_->tls) return serve(std::move(socket), internal::address_text(peer));
  if (server_->handshakes >= server_->config.max_connections) return;
  server_->tls->refresh();
  spawn(server_->executor, "http.tls", start_tls(std::move(socket), internal::address_text(peer)));
}

// The connection with whether it may be served; null when there are too many even to say so.
std::pair<std::shared_ptr<ServerConnection>, bool> Acceptor::enlist(internal::Socket socket,
                                                                    std::string peer) {
  const size_t limit = server_->config.max_connections;
  const bool has_room = server_->connections.size() < limit || make_room();
  if (!has_room && server_->connections.size() >= limit + kMaxTurnedAway) return {};
  auto connection =
      std::make_shared<ServerConnection>(server_, std::move(socket), std::move(peer));
  server_->connections.insert(connection);
  return {std::move(connection), has_room};
}

void Acceptor::serve(internal::Socket socket, std::string peer) {
  const auto [connection, has_room] = enlist(std::move(socket), std::move(peer));
  if (!connection) return;
  spawn(server_->executor, "http.connection",
        has_room ? connection->run() : connection->turn_away());
}

Awaitable<void> Acceptor::start_tls(internal::Socket socket, std::string peer) {
  const auto self = shared_from_this();
  const auto server = server_;
  ++server->handshakes;
  bool has_begun = false;
  auto serve_plain = [&](internal::Socket plain) -> Awaitable<void> {
    --server->handshakes;
    has_begun = true;
    if (server->is_stopping) co_return;
    const auto [connection, has_room] = enlist(std::move(plain), std::move(peer));
    if (!connection) co_return;
    if (has_room) {
      co_await connection->run();
    } else {
      co_await connection->turn_away();
    }
  };
  co_await server->tls->terminate(std::move(socket), after(server->config.header_timeout),
                                  kTlsFlushTime, serve_plain);
  if (!has_begun) --server->handshakes;
}

// Closes the connection that has been idle for longest.
bool Acceptor::make_room() {
  ServerConnection* oldest = nullptr;
  for (const auto& connection : server_->connections) {
    if (!connection->is_idle() || connection->transport->is_cut()) continue;
    if (!oldest || connection->idle_since() < oldest->idle_since()) oldest = connection.get();
  }
  if (oldest) oldest->cut();
  return oldest != nullptr;
}

// Looks at the deadlines of all connections, and at which clients have left.
void sweep(ServerState& server) {
  const Deadline now = Clock::now();
  std::vector<pollfd> fds;
  std::vector<std::shared_ptr<ServerConnection>> watched;
  for (const auto& connection : server.connections) {
    connection->transport->check(now);
    if (!connection->in_exchange() || connection->transport->is_cut()) continue;
    fds.push_back({connection->transport->fd(), POLLRDHUP, 0});
    watched.push_back(connection);
  }
  if (fds.empty() || ::poll(fds.data(), fds.size(), 0) <= 0) return;
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) watched[i]->mark_gone();
  }
}

class ServerImpl final : public Server {
 public:
  ServerImpl(std::shared_ptr<ServerState> state, internal::ListenSocket socket)
      : state_(std::move(state)),
        port_(socket.port()),
        address_(socket.text()),
        acceptor_(std::make_shared<Acceptor>(state_, std::move(socket))),
        ticker_(state_->executor, state_->config.sweep_interval,
                [s = state_.get()] { sweep(*s); }) {
    spawn(state_->executor, "http.accept", acceptor_->run());
  }
  ~ServerImpl() override {
    acceptor_->close();
    cut_all();
  }
  uint16_t port() const override { return port_; }
  std::string address() const override { return address_; }
  size_t connections() const override { return state_->connections.size(); }
  Awaitable<void> stop(Deadline deadline) override;

 private:
  Awaitable<void> wait_empty(Deadline deadline);
  void cut_all();

  std::shared_ptr<ServerState> state_;
  uint16_t port_;
  std::string address_;
  std::shared_ptr<Acceptor> acceptor_;
  internal::Ticker ticker_;
};

Awaitable<void> ServerImpl::stop(Deadline deadline) {
  state_->is_stopping = true;
  acceptor_->close();
  const auto connections = state_->connections;  // cutting one may change the list
  for (const auto& connection : connections) {
    if (connection->is_idle()) connection->cut();
  }
  co_await wait_empty(deadline);
  cut_all();
  co_await wait_empty(after(kCutTime));
}

Awaitable<void> ServerImpl::wait_empty(Deadline deadline) {
  bool in_time = true;
  while (in_time && !state_->connections.empty())
    in_time = co_await state_->connection_closed.wait_until(deadline);
}

void ServerImpl::cut_all() {
  state_->is_stopping = true;
  const auto connections = state_->connections;
  for (const auto& connection : connections) connection->cut();
}

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(Executor executor, ServerConfig config,
                                               Handler handler) {
  GB_TRY(const auto address, internal::parse_address(config.listen));
  GB_TRY(auto socket, internal::ListenSocket::open(address, config.unix_mode));
  auto state = std::make_shared<ServerState>();
  state->executor = std::move(executor);
  if (!config.tls_cert.empty()) {
    GB_TRY(state->tls, internal::TlsIdentity::load(config.tls_cert, config.tls_key));
  }
  state->config = std::move(config);
  state->handler = std::move(handler);
  return std::make_unique<ServerImpl>(std::move(state), std::move(socket));
}

}  // namespace glovebox::http
