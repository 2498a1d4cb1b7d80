// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "base/unique_fd.h"
#include "tier_bench.h"

// Files in and out. Without a file API one pipes through `exec … cat`, so that is the peer.
namespace glovebox::bench {
namespace {

constexpr const char* kPeerBox = "glovebox-bench-box";
constexpr const char* kPath = "bench.bin";  // in the working directory
constexpr const char* kTheirPath = "/root/bench.bin";
constexpr size_t kPiece = 256 << 10;
constexpr size_t kLarge = 256 << 20;

// Every 256 KiB are the same, and within them no two neighbouring blocks are.
std::string make_piece() {
  std::string piece(kPiece, '\0');
  uint32_t state = 1;
  for (char& c : piece) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return piece;
}

Result<UniqueFd> file_in_memory(std::string_view piece, size_t bytes) {
  UniqueFd fd(::memfd_create("bench-source", MFD_CLOEXEC));
  if (!fd) return fail_errno("memfd");
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::write(fd.get(), piece.data(), std::min(piece.size(), bytes - done));
    if (n < 0) return fail_errno("memfd");
    done += static_cast<size_t>(n);
  }
  return fd;
}

double rate(size_t bytes, double ms) {
  return static_cast<double>(bytes) / 1e6 / (ms / 1000);
}

}  // namespace

Result<void> TierBench::their_upload(int source_fd) const {
  if (::lseek(source_fd, 0, SEEK_SET) < 0) return fail_errno("seek");
  return peer_->commands().run(
      peer_->exec_command(kPeerBox, {"sh", "-c", std::string("cat >") + kTheirPath}), source_fd);
}

Result<void> TierBench::their_download(size_t bytes) const {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) < 0) return fail_errno("pipe");
  UniqueFd out(ends[0]), in(ends[1]);
  const Words argv = peer_->exec_command(kPeerBox, {"cat", kTheirPath});
  GB_TRY(const pid_t pid, peer_->commands().start(argv, -1, in.get()));
  in.reset();
  std::string buffer(kPiece, '\0');
  size_t got = 0;
  ssize_t n = 0;
  while ((n = ::read(out.get(), buffer.data(), buffer.size())) > 0) got += static_cast<size_t>(n);
  GB_TRYV(peer_->commands().finish(pid, argv));
  if (n < 0 || got != bytes)
    return fail(Code::kCorrupt, "the peer's download has " + std::to_string(got) + " bytes");
  return {};
}

Async<void> TierBench::transfer(std::string id, size_t bytes, size_t count) {
  const std::string piece = make_piece().substr(0, bytes);
  GB_CO_TRY(const auto source, file_in_memory(piece, bytes));
  const bool is_large = bytes >= kLarge;
  const auto value = [&](Clock::time_point start) {
    return is_large ? rate(bytes, ms_since(start)) : ms_since(start);
  };
  Samples up, down, their_up, their_down;
  for (size_t i = 0; i < count; ++i) {
    auto start = Clock::now();
    GB_CO_TRYV(co_await api_->upload(id, kPath, piece, bytes));
    up.push_back(value(start));
    start = Clock::now();
    GB_CO_TRYV(co_await api_->download(id, kPath, piece, bytes));
    down.push_back(value(start));
    if (peer_ == nullptr || (!is_large && i % 4 != 0)) continue;
    peer_->go_on(kPeerBox);
    start = Clock::now();
    GB_CO_TRYV(their_upload(source.get()));
    their_up.push_back(value(start));
    start = Clock::now();
    GB_CO_TRYV(their_download(bytes));
    their_down.push_back(value(start));
    peer_->pause(kPeerBox);
  }
  const std::string size = is_large ? "256 MiB" : "1 KiB", unit = is_large ? "MB/s" : "ms";
  report("upload of " + size, unit, up, peer_words("exec sh -c 'cat >file'"), their_up);
  report("download of " + size, unit, down, peer_words("exec cat file"), their_down);
  co_return Result<void>();
}

Async<void> TierBench::transfers(std::string id) {
  GB_CO_TRYV(co_await transfer(id, 1 << 10, rounds_.small_files));
  GB_CO_TRYV(co_await transfer(id, kLarge, rounds_.large_files));
  co_return Result<void>();
}

}  // namespace glovebox::bench
