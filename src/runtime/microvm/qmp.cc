// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/qmp.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "sys/files.h"

namespace glovebox::runtime::microvm {
namespace {

namespace bj = boost::json;
constexpr size_t kMaxLine = 1 << 20;
constexpr size_t kMaxEvents = 64;

tl::unexpected<Error> broken(const std::string& what) {
  return fail(Code::kIo, "QEMU's monitor: " + what);
}

// A socket's path is short; through its directory's descriptor every path is.
struct Address {
  UniqueFd directory;
  sockaddr_un address{};
};
Result<Address> address_of(const std::string& directory, const std::string& name) {
  Address out;
  GB_TRY(out.directory, sys::open_fd(directory, O_PATH | O_DIRECTORY));
  const std::string path = "/proc/self/fd/" + std::to_string(out.directory.get()) + "/" + name;
  out.address.sun_family = AF_UNIX;
  if (path.size() >= sizeof out.address.sun_path)
    return fail(Code::kInvalidArgument, "the socket's name is too long");
  std::memcpy(out.address.sun_path, path.data(), path.size());
  return out;
}

Result<UniqueFd> new_socket() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno("socket");
  return socket;
}

// False at the deadline.
bool await(int fd, short what, Deadline deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd one{fd, what, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

Result<UniqueFd> Qmp::listen(const std::string& directory, const std::string& name) {
  GB_TRY(const auto at, address_of(directory, name));
  GB_TRY(auto socket, new_socket());
  (void)::unlink((directory + "/" + name).c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) < 0)
    return fail_errno("bind " + name);
  if (::listen(socket.get(), 4) < 0) return fail_errno("listen " + name);
  return socket;
}

Result<Qmp> Qmp::connect(const std::string& directory, const std::string& name, Deadline deadline) {
  GB_TRY(const auto at, address_of(directory, name));
  GB_TRY(auto socket, new_socket());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), sizeof at.address) <
      0)
    return fail_errno("connect to QEMU's monitor");
  Qmp qmp(std::move(socket));
  GB_TRY(const auto greeting, qmp.next(deadline));
  if (!greeting.is_object() || !greeting.get_object().contains("QMP")) return broken("no greeting");
  GB_TRYV(qmp.execute("qmp_capabilities", {}, deadline));
  return qmp;
}

Result<void> Qmp::send(const std::string& line, Deadline deadline, int fd) {
  for (size_t sent = 0; sent < line.size();) {
    iovec bytes{const_cast<char*>(line.data()) + sent, line.size() - sent};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0 && sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    const ssize_t n = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_errno("QEMU's monitor");
    if (n < 0 && !await(socket_.get(), POLLOUT, deadline))
      return fail(Code::kTimeout, "QEMU's monitor takes no command");
  }
  return {};
}

Result<bj::value> Qmp::next(Deadline deadline) {
  size_t end = 0;
  while ((end = bytes_.find('\n')) == std::string::npos) {
    if (bytes_.size() > kMaxLine) return broken("a line without an end");
    if (!await(socket_.get(), POLLIN, deadline))
      return fail(Code::kTimeout, "QEMU's monitor does not answer");
    char buffer[16384];
    const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0) return broken("closed");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return fail_errno("QEMU's monitor");
    if (n > 0) bytes_.append(buffer, static_cast<size_t>(n));
  }
  boost::system::error_code ec;
  auto value = bj::parse(std::string_view(bytes_).substr(0, end), ec);
  bytes_.erase(0, end + 1);
  if (ec) return broken("not JSON");
  return value;
}

Result<bj::value> Qmp::execute(const std::string& command, bj::object arguments, Deadline deadline,
                               int fd) {
  bj::object request{{"execute", command}};
  if (!arguments.empty()) request["arguments"] = std::move(arguments);
  GB_TRYV(send(bj::serialize(request) + "\r\n", deadline, fd));
  while (true) {
    GB_TRY(auto answer, next(deadline));
    auto* fields = answer.if_object();
    if (fields == nullptr) return broken("an answer that is no object");
    if (auto* returned = fields->if_contains("return")) return std::move(*returned);
    if (const auto* error = fields->if_contains("error")) {
      const auto* text = error->is_object() ? error->get_object().if_contains("desc") : nullptr;
      return broken(command + ": " +
                    (text != nullptr && text->is_string()
                         ? utf8_lossy(std::string(text->get_string()))
                         : "failed"));
    }
    const auto* event = fields->if_contains("event");
    if (event != nullptr && event->is_string() && events_.size() < kMaxEvents)
      events_.emplace_back(event->get_string());
  }
}

Result<void> Qmp::await_event(const std::string& name, Deadline deadline) {
  while (std::find(events_.begin(), events_.end(), name) == events_.end()) {
    GB_TRY(const auto said, next(deadline));
    const auto* fields = said.if_object();
    const auto* event = fields != nullptr ? fields->if_contains("event") : nullptr;
    if (event != nullptr && event->is_string() && events_.size() < kMaxEvents)
      events_.emplace_back(event->get_string());
  }
  return {};
}

}  // namespace glovebox::runtime::microvm
