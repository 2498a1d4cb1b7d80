// SPDX-License-Identifier: Apache-2.0
#include "sys/loop.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>

#include "sys/files.h"

namespace glovebox::sys {
namespace {

constexpr int kAttempts = 256;  // each lost race means that another one got a device

// On hosts without udev the node of a new device may be missing.
Result<UniqueFd> open_loop_node(int number, bool read_only) {
  std::string path = "/dev/loop" + std::to_string(number);
  auto fd = open_fd(path, read_only ? O_RDONLY : O_RDWR);
  if (fd || fd.error().code != Code::kFileNotFound) return fd;
  if (::mknod(path.c_str(), S_IFBLK | 0600, makedev(7, static_cast<unsigned>(number))) < 0 &&
      errno != EEXIST) {
    return fail_errno("mknod " + path);
  }
  return open_fd(path, read_only ? O_RDONLY : O_RDWR);
}

}  // namespace

Result<LoopDevice> attach_loop(const std::string& file, bool read_only) {
  GB_TRY(auto backing, open_fd(file, read_only ? O_RDONLY : O_RDWR));
  GB_TRY(auto control, open_fd("/dev/loop-control", O_RDWR));
  loop_config config{};
  config.fd = static_cast<uint32_t>(backing.get());
  config.block_size = 0;
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno("LOOP_CTL_GET_FREE");
    auto device = open_loop_node(number, read_only);
    if (!device) continue;  // it went away again
    if (::ioctl(device->get(), LOOP_CONFIGURE, &config) == 0) {
      return LoopDevice{std::move(*device), "/dev/loop" + std::to_string(number)};
    }
    if (errno != EBUSY && errno != ENXIO) return fail_errno("LOOP_CONFIGURE " + file);
  }
  return fail(Code::kCapacity, "no free loop device", {{"limit", "loop devices"}});
}

std::vector<LoopUse> loops_below(const std::string& directory) {
  std::vector<LoopUse> found;
  for (const auto& name : list_directory("/sys/block")) {
    if (name.rfind("loop", 0) != 0) continue;
    auto backing = read_file("/sys/block/" + name + "/loop/backing_file");
    if (!backing) continue;
    while (!backing->empty() && backing->back() == '\n') backing->pop_back();
    if (backing->rfind(directory + "/", 0) == 0) found.push_back({"/dev/" + name, *backing});
  }
  return found;
}

Result<void> release_loop(const std::string& device) {
  GB_TRY(auto fd, open_fd(device, O_RDONLY));
  if (::ioctl(fd.get(), LOOP_CLR_FD) < 0 && errno != ENXIO)
    return fail_errno("LOOP_CLR_FD " + device);
  return {};
}

}  // namespace glovebox::sys
