// SPDX-License-Identifier: Apache-2.0
#include "sys/ext4.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "sys/command.h"
#include "sys/files.h"
#include "sys/loop.h"
#include "sys/mounts.h"

namespace glovebox::sys {
namespace {

// Little endian, 1024 bytes into the disk (Documentation/filesystems/ext4/super.rst).
struct Superblock {
  static constexpr size_t kBlocksLow = 0x4, kFreeLow = 0xc, kLogBlockSize = 0x18, kMagic = 0x38,
                          kIncompatible = 0x60, kBlocksHigh = 0x150, kFreeHigh = 0x158,
                          kOverhead = 0x248;
  static constexpr uint32_t kNeedsRecovery = 0x4, kHas64Bit = 0x80;
  std::array<unsigned char, 1024> bytes{};

  uint64_t field(size_t at) const {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
  uint64_t long_field(size_t low, size_t high) const {
    return field(low) | (has(kHas64Bit) ? field(high) << 32 : 0);
  }
  bool has(uint32_t feature) const { return (field(kIncompatible) & feature) != 0; }
};

Result<Superblock> read_superblock(const std::string& image) {
  GB_TRY(const auto fd, open_fd(image, O_RDONLY));
  Superblock block;
  const ssize_t n = ::pread(fd.get(), block.bytes.data(), block.bytes.size(), 1024);
  const bool is_ext4 = n == static_cast<ssize_t>(block.bytes.size()) &&
                       (block.field(Superblock::kMagic) & 0xffff) == 0xef53;
  if (is_ext4 && block.field(Superblock::kLogBlockSize) <= 6) return block;
  return fail(Code::kCorrupt, image + " holds no ext4 file system");
}

}  // namespace

// noload: a journal is not looked at, let alone written.
Result<UniqueFd> mount_ext4(const std::string& image, bool read_only) {
  constexpr unsigned kAttributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME;
  GB_TRY(auto loop, attach_loop(image, read_only));
  if (read_only)
    return new_mount("ext4", loop.path, {{"ro", ""}, {"noload", ""}},
                     kAttributes | MOUNT_ATTR_RDONLY);
  return new_mount("ext4", loop.path, {{"errors", "remount-ro"}, {"noinit_itable", ""}},
                   kAttributes);
}

Result<void> wait_unmounted(const std::string& image) {
  using namespace std::chrono_literals;
  const auto end = std::chrono::steady_clock::now() + 60s;  // it writes back first
  for (auto pause = 200us;; pause = std::min(pause * 2, std::chrono::microseconds(20ms))) {
    const auto loops = loops_below(image.substr(0, image.rfind('/')));
    const auto found = std::find_if(loops.begin(), loops.end(),
                                    [&](const LoopUse& use) { return use.backing_file == image; });
    if (found == loops.end()) return {};
    if (std::chrono::steady_clock::now() > end)
      return fail(Code::kTimeout, found->device + " is still attached to " + image);
    std::this_thread::sleep_for(pause);
  }
}

Result<void> recover_ext4(const std::string& image) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  GB_TRY(auto block, read_superblock(image));
  if (!block.has(Superblock::kNeedsRecovery)) return {};
  auto checked = run_command({"e2fsck", "-p", image},
                             std::chrono::minutes(10));  // fails also when it repaired something
  GB_TRY(block, read_superblock(image));
  if (!block.has(Superblock::kNeedsRecovery)) return {};
  return fail(Code::kCorrupt, "the file system in " + image + " cannot be recovered: " +
                                  (checked ? "" : checked.error().message));
}

std::optional<uint64_t> ext4_use(const std::string& image) {
  const auto block = read_superblock(image);
  if (!block) return std::nullopt;
  const uint64_t blocks = block->long_field(Superblock::kBlocksLow, Superblock::kBlocksHigh);
  const uint64_t unused = block->long_field(Superblock::kFreeLow, Superblock::kFreeHigh);
  const uint64_t own = block->field(Superblock::kOverhead);  // the file system's
  if (unused + own > blocks) return 0;
  return (blocks - unused - own) << (10 + block->field(Superblock::kLogBlockSize));
}

}  // namespace glovebox::sys
