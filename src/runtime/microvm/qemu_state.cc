// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/qemu_state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/object.hpp>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/text.h"
#include "runtime/microvm/jail.h"
#include "sys/files.h"

namespace glovebox::runtime::microvm {
namespace {

namespace bj = boost::json;
using namespace std::chrono_literals;

constexpr uint64_t kDevicesBytes = 16 << 20;  // the stream without memory: some 100 KiB
constexpr int kPipeBytes = 1 << 20;
constexpr size_t kBlock = 1 << 20;
constexpr uint64_t kNoBandwidthLimit = 1ull << 40;
constexpr const char* kStream = "devices";  // the descriptor's name

Result<void> agree(Qmp& qmp, bool with_memory, Deadline deadline) {
  // The announcement would be of the source's address.
  GB_TRYV(qmp.execute("migrate-set-parameters", {{"max-bandwidth", kNoBandwidthLimit}, {"announce-rounds", 0}}, deadline));
  const bj::array capabilities{bj::object{{"capability", "x-ignore-shared"}, {"state", !with_memory}}};
  return qmp.execute("migrate-set-capabilities", {{"capabilities", capabilities}}, deadline).transform([](const auto&) {});
}

Result<void> await_end(Qmp& qmp, Deadline deadline) {
  while (true) {
    GB_TRY(const auto answer, qmp.execute("query-migrate", {}, deadline));
    const auto* status = answer.is_object() ? answer.get_object().if_contains("status") : nullptr;
    const std::string text = status != nullptr && status->is_string() ? std::string(status->get_string()) : "";
    if (text == "completed") return {};
    if (text == "failed" || text == "cancelled") return fail(Code::kIo, "QEMU could not move the machine's state");
    if (Clock::now() > deadline) return fail(Code::kTimeout, "QEMU moves the machine's state for too long");
    std::this_thread::sleep_for(500us);
  }
}

Result<void> write_all(int fd, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write the machine's state");
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return {};
}

// The monitor may be its guest's: it gets a pipe, not the file.
Result<void> receive(int from, const std::string& path, uint64_t most, Deadline deadline) {
  GB_TRY(const auto out, sys::open_fd(path, O_WRONLY | O_CREAT | O_TRUNC, 0600));
  std::string block(kBlock, '\0');
  for (uint64_t received = 0;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd one{from, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&one, 1, static_cast<int>(left.count()));
    if (ready == 0) return fail(Code::kTimeout, "QEMU writes the machine's state for too long");
    const ssize_t n = ready < 0 ? -1 : ::read(from, block.data(), block.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return fail_errno("read the machine's state");
    if (n == 0) return {};
    received += static_cast<uint64_t>(n);
    if (received > most) return fail(Code::kIo, "QEMU writes more than the machine's state can be");
    GB_TRYV(write_all(out.get(), block.data(), static_cast<size_t>(n)));
  }
}

}  // namespace

Result<void> save_devices(Qmp& qmp, const std::string& directory, bool with_memory, uint64_t memory_bytes, Deadline deadline) {
  GB_TRYV(agree(qmp, with_memory, deadline));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno("pipe");
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  (void)::fcntl(to.get(), F_SETPIPE_SZ, kPipeBytes);
  GB_TRYV(qmp.execute("getfd", {{"fdname", kStream}}, deadline, to.get()));
  to.reset();
  GB_TRYV(qmp.execute("migrate", {{"uri", std::string("fd:") + kStream}}, deadline));
  // A page that is one byte over and over takes a few bytes, any other its size and a little.
  const uint64_t most = kDevicesBytes + (with_memory ? memory_bytes + memory_bytes / 64 : 0);
  auto received = receive(from.get(), directory + "/" + kDevicesPart, most, deadline);
  if (!received) (void)qmp.execute("migrate_cancel", {}, after(1s));
  if (!received) return received;
  return await_end(qmp, deadline);
}

Result<void> load_devices(Qmp& qmp, const std::string& directory, bool with_memory, Deadline deadline) {
  GB_TRYV(agree(qmp, with_memory, deadline));
  GB_TRY(const auto stream, sys::open_fd(directory + "/" + kDevicesPart, O_RDONLY | O_NOFOLLOW));
  GB_TRYV(qmp.execute("getfd", {{"fdname", kStream}}, deadline, stream.get()));
  GB_TRYV(qmp.execute("migrate-incoming", {{"uri", std::string("fd:") + kStream}}, deadline));
  return await_end(qmp, deadline);
}

Result<void> copy_memory(const sys::ProcessId& monitor, uint64_t memory_bytes, const std::string& directory) {
  const std::string there = "/proc/" + std::to_string(monitor.pid) + "/root" + kJailMemory + "/ram", to = directory + "/" + kMemoryPart;
  GB_TRY(const auto memory, sys::open_fd(there, O_RDONLY | O_NOFOLLOW | O_NONBLOCK));  // whatever the monitor has put there
  struct stat st{};
  if (::fstat(memory.get(), &st) < 0) return fail_errno("the machine's memory");
  if (!S_ISREG(st.st_mode) || static_cast<uint64_t>(st.st_size) != memory_bytes || !sys::is_alive(monitor))
    return fail(Code::kIo, "the machine's memory is not where it was");
  GB_TRYV(sys::copy_sparse("/proc/self/fd/" + std::to_string(memory.get()), to));
  if (::chmod(to.c_str(), 0444) < 0) return fail_errno(to);
  return {};
}

}  // namespace glovebox::runtime::microvm
