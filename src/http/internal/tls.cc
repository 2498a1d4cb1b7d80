// SPDX-License-Identifier: Apache-2.0
// The only file that sees OpenSSL's server side. The plain bytes go through a socket pair, so that the rest of the server (which polls
// and writes its sockets directly) is the same with and without TLS.
#include "http/internal/tls.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/impl/src.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include "base/log.h"
#include "base/unique_fd.h"

namespace glovebox::http::internal {
namespace asio = boost::asio;
namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kPieceBytes = 32 << 10;
constexpr std::chrono::seconds kLookAgain{1};

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned int in_size, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, out_size, kOurs, sizeof kOurs - 1, in, in_size);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_ALERT_FATAL;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

Result<std::shared_ptr<asio::ssl::context>> make_context(const std::string& cert_file, const std::string& key_file) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  boost::system::error_code ec;
  SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context->native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_alpn_select_cb(context->native_handle(), choose_protocol, nullptr);
  SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  context->use_certificate_chain_file(cert_file, ec);
  if (ec) return fail(Code::kInvalidArgument, cert_file + ": is no usable certificate: " + ec.message());
  context->use_private_key_file(key_file, asio::ssl::context::pem, ec);
  if (ec) return fail(Code::kInvalidArgument, key_file + ": is no usable private key: " + ec.message());
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return fail(Code::kInvalidArgument, key_file + ": is not the key of " + cert_file);
  }
  return context;
}

// Tells one state of the files from another.
std::string stamp_of(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "missing";
  return std::to_string(info.st_ino) + "." + std::to_string(info.st_mtim.tv_sec) + "." + std::to_string(info.st_mtim.tv_nsec) + "." +
         std::to_string(info.st_size);
}

using TlsStream = asio::ssl::stream<Socket>;

// Lives until both directions have ended.
struct Session {
  Session(Socket socket, std::shared_ptr<asio::ssl::context> c, Socket p)
      : context(std::move(c)), stream(std::move(socket), *context), plain(std::move(p)) {}

  Awaitable<void> receive();  // from the client
  Awaitable<void> send();     // to the client
  void cut() {
    boost::system::error_code ignored;
    stream.lowest_layer().close(ignored);
    plain.close(ignored);
  }

  std::shared_ptr<asio::ssl::context> context;
  TlsStream stream;
  Socket plain;
  bool sent_all = false, received_all = false;
  Notifier changed;
};

Awaitable<void> Session::receive() {
  const auto buffer = std::make_unique_for_overwrite<char[]>(kPieceBytes);
  while (true) {
    auto [ec, n] = co_await stream.async_read_some(asio::buffer(buffer.get(), kPieceBytes), kTuple);
    if (ec) break;
    auto [failed, written] = co_await asio::async_write(plain, asio::buffer(buffer.get(), n), kTuple);
    if (failed) break;
  }
  boost::system::error_code ignored;
  plain.shutdown(Socket::shutdown_send, ignored);
  received_all = true;
  changed.notify();
}

Awaitable<void> Session::send() {
  const auto buffer = std::make_unique_for_overwrite<char[]>(kPieceBytes);
  while (true) {
    auto [ec, n] = co_await plain.async_read_some(asio::buffer(buffer.get(), kPieceBytes), kTuple);
    if (ec == asio::error::eof) {
      co_await stream.async_shutdown(kTuple);
      break;
    }
    if (ec) break;
    auto [failed, written] = co_await asio::async_write(stream, asio::buffer(buffer.get(), n), kTuple);
    if (failed) break;
  }
  boost::system::error_code ignored;
  plain.shutdown(Socket::shutdown_receive, ignored);
  sent_all = true;
  changed.notify();
}

class Identity final : public TlsIdentity {
 public:
  Identity(std::string cert_file, std::string key_file, std::shared_ptr<asio::ssl::context> context)
      : cert_file_(std::move(cert_file)), key_file_(std::move(key_file)), context_(std::move(context)), stamp_(stamp()) {}
  void refresh() override;
  Awaitable<void> terminate(Socket socket, Deadline deadline, std::chrono::milliseconds flush, Serve serve) override;

 private:
  std::string stamp() const { return stamp_of(cert_file_) + "/" + stamp_of(key_file_); }

  std::string cert_file_, key_file_;
  std::shared_ptr<asio::ssl::context> context_;
  std::string stamp_;
  Deadline looked_ = Clock::now();
};

void Identity::refresh() {
  if (Clock::now() < looked_ + kLookAgain) return;
  looked_ = Clock::now();
  const std::string now = stamp();
  if (now == stamp_) return;
  stamp_ = now;
  auto renewed = make_context(cert_file_, key_file_);
  if (renewed) {
    context_ = std::move(*renewed);
    log::info("tls.certificate_renewed", {{"file", cert_file_}});
  } else {
    log::warn("tls.certificate_not_renewed", {{"file", cert_file_}, {"message", renewed.error().message}});
  }
}

// Ends what hangs in a session when time is up.
Awaitable<void> cut_at(std::weak_ptr<Session> weak, Deadline deadline, std::function<bool(const Session&)> is_over) {
  while (true) {
    const auto session = weak.lock();
    if (!session || is_over(*session)) co_return;
    if (!co_await session->changed.wait_until(deadline)) {
      if (!is_over(*session)) session->cut();
      co_return;
    }
  }
}

Awaitable<void> Identity::terminate(Socket socket, Deadline deadline, std::chrono::milliseconds flush, Serve serve) {
  const Executor executor = co_await this_executor();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    log::warn("http.accept_failed", {{"error", errno_text(errno)}});
    co_return;
  }
  const asio::generic::stream_protocol unix_stream(AF_UNIX, 0);
  Socket inner(executor, unix_stream, ends[0]), plain(executor, unix_stream, ends[1]);
  const auto session = std::make_shared<Session>(std::move(socket), context_, std::move(inner));
  bool has_shaken = false;
  const auto shaken = std::make_shared<bool>(false);
  spawn(executor, "tls.handshake_watch", cut_at(session, deadline, [shaken](const Session&) { return *shaken; }));
  auto [ec] = co_await session->stream.async_handshake(asio::ssl::stream_base::server, kTuple);
  has_shaken = !ec;
  *shaken = true;
  session->changed.notify();
  if (!has_shaken) {
    log::debug("tls.handshake_failed", {{"error", ec.message()}});
    co_return;
  }
  const auto keep = [](std::shared_ptr<Session> s, bool sends) -> Awaitable<void> { co_await (sends ? s->send() : s->receive()); };
  spawn(executor, "tls.receive", keep(session, false));
  spawn(executor, "tls.send", keep(session, true));
  co_await serve(std::move(plain));
  const Deadline end = after(flush);
  while (!session->sent_all && Clock::now() < end) co_await session->changed.wait_until(end);
  session->cut();
  while (!session->sent_all || !session->received_all) co_await session->changed.wait();
}

}  // namespace

Result<std::unique_ptr<TlsIdentity>> TlsIdentity::load(const std::string& cert_file, const std::string& key_file) {
  GB_TRY(auto context, make_context(cert_file, key_file));
  return std::unique_ptr<TlsIdentity>(std::make_unique<Identity>(cert_file, key_file, std::move(context)));
}

}  // namespace glovebox::http::internal
