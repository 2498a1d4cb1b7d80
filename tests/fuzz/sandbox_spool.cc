// SPDX-License-Identifier: Apache-2.0
// Kept output as a daemon may find it: a blob of the store's, or two files. Whatever they hold, reading it gives an error or bytes
// in order, each once.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "sandbox/spool.h"

namespace {

using namespace glovebox::sandbox;

void check(const std::vector<Chunk>& chunks, uint64_t cursor, size_t expected) {
  size_t total = 0;
  for (const Chunk& chunk : chunks) {
    if (chunk.data.empty() || chunk.cursor != cursor + total) __builtin_trap();
    total += chunk.data.size();
  }
  if (total != expected) __builtin_trap();
}

void write_file(const std::string& path, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::write(fd, bytes.data(), bytes.size()) < 0) __builtin_trap();
  ::close(fd);
}

}  // namespace

// Of the process, and gone with it.
struct Directory {
  Directory() {
    if (::mkdtemp(path.data()) == nullptr) __builtin_trap();
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path = "/tmp/glovebox-fuzz-spool-XXXXXX";
};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  const std::string path = directory.path + "/x";
  FuzzedDataProvider in(data, size);
  const uint64_t cursor = in.ConsumeIntegral<uint16_t>();
  const size_t most = in.ConsumeIntegralInRange<size_t>(1, 70'000);
  if (in.ConsumeBool()) {
    Spool spool("");
    const std::string blob = in.ConsumeRemainingBytesAsString();
    if (!spool.from_blob(blob)) return 0;
    check(spool.read_memory(cursor, most), cursor, cursor < spool.end() ? std::min<uint64_t>(most, spool.end() - cursor) : 0);
    return 0;
  }
  write_file(path + ".idx", in.ConsumeRandomLengthString(200));
  write_file(path + ".out", in.ConsumeRemainingBytesAsString());
  Spool spool(path);
  if (!spool.open_existing()) return 0;
  if (spool.stream_end(Stream::kStdout) + spool.stream_end(Stream::kStderr) != spool.end()) __builtin_trap();
  if (cursor >= spool.end()) return 0;
  const auto plan = spool.plan_file_read(cursor, most);
  const auto bytes = Spool::read_file(path, plan);
  if (!bytes) __builtin_trap();
  check(spool.cut(cursor, *bytes), cursor, plan.bytes);
  return 0;
}
