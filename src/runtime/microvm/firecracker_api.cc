// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/firecracker_api.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/text.h"
#include "http/framing.h"
#include "http/json.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;
namespace bj = boost::json;

constexpr http::HeadLimits kHeadLimits{8 << 10, 1 << 10, 64};
constexpr size_t kMaxBody = 64 << 10;
constexpr size_t kMaxReason = 1 << 10;  // of a refusal, shown to people
constexpr int kSuccess = 200, kNoContent = 204;
constexpr FirecrackerVersion kOldest{1, 16, 1};
constexpr int64_t kMajor = 1;
constexpr int kGuestCid = 3;  // the same for every machine: each has a vsock of its own

// What is wanted of the guest's kernel on this machine: no devices that it has not got are looked
// for, the end of the guest ends the monitor, and the console says why.
constexpr std::string_view kMachineWords =
    "console=ttyS0 quiet loglevel=4 reboot=k panic=-1 8250.nr_uarts=1 i8042.noaux i8042.nomux "
    "i8042.dumbkbd random.trust_cpu=on";

Result<void> wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return fail(Code::kTimeout, "Firecracker does not answer");
    pollfd p{fd, events, 0};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return fail_errno("poll");
  }
}

Error gone(std::string_view while_what) {
  return {Code::kSandboxEnded, "Firecracker hung up " + std::string(while_what), {}};
}

// The reason in {"fault_message": "…"}; whatever else it says is not shown.
std::string reason_of(const std::string& body) {
  const auto value = json::parse_object(body);
  const auto* reason = value ? value->get_object().if_contains("fault_message") : nullptr;
  if (reason == nullptr || !reason->is_string()) return "without a reason";
  return utf8_lossy(std::string_view(reason->get_string()).substr(0, kMaxReason));
}

Result<UniqueFd> try_connect(int directory_fd, const std::string& name) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const UniqueFd file(
      static_cast<int>(::syscall(SYS_openat2, directory_fd, name.c_str(), &how, sizeof how)));
  if (!file) return fail_errno(name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("socket");
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) < 0)
    return fail_errno(name);
  return socket;
}

bj::value drive_body(const FirecrackerDrive& drive) {
  return bj::object{{"drive_id", drive.id},
                    {"path_on_host", drive.path},
                    {"is_root_device", false},
                    {"is_read_only", drive.read_only}};
}

}  // namespace

Result<FirecrackerVersion> firecracker_version(std::string_view text) {
  const auto parts = split(text.substr(0, text.find_first_not_of("0123456789.")), '.');
  FirecrackerVersion version{};
  bool is_version = parts.size() == version.size();
  for (size_t i = 0; is_version && i < version.size(); ++i) {
    const auto number = parse_int(parts[i]);
    is_version = number.has_value();
    version.at(i) = number.value_or(0);
  }
  const std::string shown = utf8_lossy(text.substr(0, 64));
  if (!is_version)
    return fail(Code::kRuntimeUnavailable, "\"" + shown + "\" is no version of Firecracker");
  if (version < kOldest || version[0] != kMajor) {
    return fail(Code::kRuntimeUnavailable,
                "Firecracker " + shown + " is not supported: 1.16.1 or a later 1.x is needed",
                {{"version", shown}});
  }
  return version;
}

Result<FirecrackerApi> FirecrackerApi::connect(int directory_fd, const std::string& name,
                                               Deadline deadline) {
  for (auto pause = 1ms; true; pause = std::min(pause * 2, 20ms)) {
    auto socket = try_connect(directory_fd, name);
    if (socket) return FirecrackerApi(std::move(*socket));
    // Not there yet, or bound and not listening yet (ECONNREFUSED): both pass.
    if (Clock::now() + pause >= deadline)
      return fail(Code::kTimeout,
                  "Firecracker's socket does not come up: " + socket.error().message);
    std::this_thread::sleep_for(pause);
  }
}

// ---- Calls ----

Result<FirecrackerVersion> FirecrackerApi::version(Deadline deadline) {
  GB_TRY(const auto body, get("/version", deadline));
  const auto* text = body.get_object().if_contains("firecracker_version");
  if (text == nullptr || !text->is_string())
    return fail(Code::kCorrupt, "Firecracker does not say its version");
  return firecracker_version(text->get_string());
}

Result<FirecrackerState> FirecrackerApi::state(Deadline deadline) {
  GB_TRY(const auto body, get("/", deadline));
  const auto* text = body.get_object().if_contains("state");
  if (text != nullptr && *text == "Not started") return FirecrackerState::kNotStarted;
  if (text != nullptr && *text == "Running") return FirecrackerState::kRunning;
  if (text != nullptr && *text == "Paused") return FirecrackerState::kPaused;
  return fail(Code::kCorrupt, "Firecracker does not say its state");
}

Result<void> FirecrackerApi::boot(const FirecrackerBoot& machine, Deadline deadline) {
  GB_TRYV(version(deadline));
  GB_TRYV(change("PUT", "/machine-config",
                 bj::object{{"vcpu_count", machine.vcpus},
                            {"mem_size_mib", machine.memory_megabytes},
                            {"smt", false},
                            {"track_dirty_pages", false}},
                 deadline));
  GB_TRYV(change("PUT", "/boot-source",
                 bj::object{{"kernel_image_path", machine.kernel},
                            {"initrd_path", machine.initramfs},
                            {"boot_args", std::string(kMachineWords) + " " + machine.command_line}},
                 deadline));
  for (const auto& drive : machine.drives)
    GB_TRYV(change("PUT", "/drives/" + drive.id, drive_body(drive), deadline));
  if (const auto& card = machine.network) {
    GB_TRYV(change(
        "PUT", "/network-interfaces/" + card->id,
        bj::object{{"iface_id", card->id}, {"host_dev_name", card->tap}, {"guest_mac", card->mac}},
        deadline));
  }
  GB_TRYV(change("PUT", "/vsock", bj::object{{"guest_cid", kGuestCid}, {"uds_path", machine.vsock}},
                 deadline));
  GB_TRYV(change("PUT", "/entropy", bj::object{}, deadline));
  return change("PUT", "/actions", bj::object{{"action_type", "InstanceStart"}}, deadline);
}

Result<void> FirecrackerApi::restore(const FirecrackerRestore& machine, Deadline deadline) {
  GB_TRYV(version(deadline));
  // Without clock_realtime: it needs Linux 5.16 and a guest that uses kvm-clock, and the agent sets
  // the clock in any case.
  bj::object body{
      {"snapshot_path", machine.from.state},
      {"mem_backend", bj::object{{"backend_type", "File"}, {"backend_path", machine.from.memory}}},
      {"resume_vm", true}};
  if (machine.tap)
    body["network_overrides"] = bj::array{
        bj::object{{"iface_id", machine.tap->first}, {"host_dev_name", machine.tap->second}}};
  if (!machine.vsock.empty()) body["vsock_override"] = bj::object{{"uds_path", machine.vsock}};
  return change("PUT", "/snapshot/load", std::move(body), deadline);
}

Result<void> FirecrackerApi::pause(Deadline deadline) {
  return change("PATCH", "/vm", bj::object{{"state", "Paused"}}, deadline, Code::kInternal);
}
Result<void> FirecrackerApi::resume(Deadline deadline) {
  return change("PATCH", "/vm", bj::object{{"state", "Resumed"}}, deadline, Code::kInternal);
}

Result<void> FirecrackerApi::snapshot(const FirecrackerSnapshot& to, Deadline deadline) {
  return change(
      "PUT", "/snapshot/create",
      bj::object{
          {"snapshot_type", "Full"}, {"snapshot_path", to.state}, {"mem_file_path", to.memory}},
      deadline, Code::kInternal);
}

Result<bj::value> FirecrackerApi::get(std::string_view target, Deadline deadline) {
  GB_TRY(const auto answer, exchange("GET", target, "", deadline));
  if (answer.status != kSuccess) {
    return fail(Code::kInternal,
                "Firecracker refused GET " + std::string(target) + ": " + reason_of(answer.body),
                {{"status", std::to_string(answer.status)}});
  }
  auto value = json::parse_object(answer.body);
  if (!value)
    return fail(Code::kCorrupt, "Firecracker answered GET " + std::string(target) +
                                    " with no object: " + value.error().message);
  return value;
}

Result<void> FirecrackerApi::change(std::string_view method, std::string_view target,
                                    const bj::value& body, Deadline deadline, Code refused) {
  GB_TRY(const auto answer, exchange(method, target, json::to_text(body), deadline));
  if (answer.status == kNoContent) return {};
  return fail(refused,
              "Firecracker refused " + std::string(method) + " " + std::string(target) + ": " +
                  reason_of(answer.body),
              {{"status", std::to_string(answer.status)}});
}

// ---- The exchange ----

Result<FirecrackerApi::Answer> FirecrackerApi::exchange(std::string_view method,
                                                        std::string_view target,
                                                        std::string_view body, Deadline deadline) {
  if (!socket_) return fail(gone("earlier"));
  std::string request = std::string(method) + " " + std::string(target) +
                        " HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n";
  if (!body.empty())
    request +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  request += "\r\n";
  request += body;
  auto answer = send(request, deadline).and_then([&] { return read_answer(deadline); });
  if (!answer) socket_.reset();  // requests and answers are not in step any more
  return answer;
}

Result<void> FirecrackerApi::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      GB_TRYV(wait_for(socket_.get(), POLLOUT, deadline));
    } else if (errno != EINTR) {
      return fail(gone("before a request"));
    }
  }
  return {};
}

// At least one byte.
Result<std::string_view> FirecrackerApi::receive(Deadline deadline) {
  while (true) {
    GB_TRYV(wait_for(socket_.get(), POLLIN, deadline));
    const ssize_t n = ::recv(socket_.get(), buffer_.data(), buffer_.size(), 0);
    if (n > 0) return std::string_view(buffer_.data(), static_cast<size_t>(n));
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
      return fail(gone("before the end of its answer"));
  }
}

Result<FirecrackerApi::Answer> FirecrackerApi::read_answer(Deadline deadline) {
  http::HeadScanner scanner(kHeadLimits);
  std::string bytes;
  size_t head_size = 0;
  while (head_size == 0) {
    GB_TRY(const auto more, receive(deadline));
    bytes += more;
    const auto scanned = scanner.scan(bytes);
    if (!scanned)
      return fail(Code::kCorrupt, "Firecracker's answer: " + scanned.error().error.message);
    head_size = *scanned;
  }
  http::ResponseHead head;
  GB_TRY(const auto decoder,
         http::parse_response_head(std::string_view(bytes).substr(0, head_size), false, head));
  bytes.erase(0, head_size);
  Answer answer{head.status, {}};
  while (true) {
    auto used = decoder->decode(bytes, answer.body, kMaxBody + 1 - answer.body.size());
    if (!used) return fail(Code::kCorrupt, "Firecracker's answer: " + used.error().message);
    bytes.erase(0, *used);
    if (answer.body.size() > kMaxBody || bytes.size() > kMaxBody)
      return fail(Code::kCorrupt, "Firecracker's answer is too large");
    if (decoder->is_done()) break;
    GB_TRY(const auto more, receive(deadline));
    bytes += more;
  }
  if (!bytes.empty()) return fail(Code::kCorrupt, "Firecracker answered more than it was asked");
  return answer;
}

}  // namespace glovebox::runtime::microvm
