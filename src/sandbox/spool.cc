// SPDX-License-Identifier: Apache-2.0
#include "sandbox/spool.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "channel/frame.h"

namespace glovebox::sandbox {
namespace {

constexpr size_t kIndexEntryBytes = 16;  // u64 offset, u64 stream

Result<void> write_all(int fd, std::string_view bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("write an execution's output");
    bytes.remove_prefix(static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  return {};
}

Result<std::string> read_at(int fd, size_t bytes, uint64_t at) {
  std::string out(bytes, '\0');
  size_t have = 0;
  while (have < bytes) {
    const ssize_t n = ::pread(fd, out.data() + have, bytes - have, static_cast<off_t>(at + have));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read an execution's output");
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  out.resize(have);
  return out;
}

}  // namespace

void Spool::append(Stream stream, std::string_view bytes) {
  if (bytes.empty()) return;
  if (switches_.empty() || switches_.back().stream != stream) switches_.push_back({end(), stream});
  memory_ += bytes;
  stream_ends_[stream == Stream::kStderr] += bytes.size();
}

Spool::Batch Spool::take_batch() {
  Batch batch{memory_, written_, {stream_ends_[0], stream_ends_[1]}, {}, switches_written_ * kIndexEntryBytes};
  for (size_t i = switches_written_; i < switches_.size(); ++i) {
    channel::append_u64(batch.index, switches_[i].offset);
    channel::append_u64(batch.index, static_cast<uint64_t>(switches_[i].stream));
  }
  in_flight_ = memory_.size();
  return batch;
}

Result<void> Spool::write(const Batch& batch) {
  if (!file_) {
    const std::string directory = path_.substr(0, path_.rfind('/'));
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return fail_errno(directory);
    UniqueFd file(::open((path_ + ".out").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) return fail_errno(path_ + ".out");
    UniqueFd index(::open((path_ + ".idx").c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!index) return fail_errno(path_ + ".idx");
    file_ = std::move(file);
    index_file_ = std::move(index);
  }
  // Index first: a daemon that dies in between leaves entries behind the end of the file, which the next one drops. Bytes without
  // an entry would be taken for the other stream's.
  GB_TRYV(write_all(index_file_.get(), batch.index, batch.index_at));
  return write_all(file_.get(), batch.bytes, batch.at);
}

void Spool::batch_written(const Batch& batch) {
  memory_.erase(0, in_flight_);
  in_flight_ = 0;
  written_ += batch.bytes.size();
  switches_written_ += batch.index.size() / kIndexEntryBytes;
}

std::vector<Chunk> Spool::read_memory(uint64_t cursor, size_t max_bytes) const {
  if (cursor >= end()) return {};
  return cut(cursor, memory_.substr(cursor - written_, max_bytes));
}

Spool::FileRead Spool::plan_file_read(uint64_t cursor, size_t max_bytes) const {
  return {cursor, static_cast<size_t>(std::min<uint64_t>(max_bytes, written_ - cursor))};
}

Result<std::string> Spool::read_file(const std::string& path, FileRead what) {
  UniqueFd file(::open((path + ".out").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return fail_errno(path + ".out");
  GB_TRY(std::string bytes, read_at(file.get(), what.bytes, what.cursor));
  if (bytes.size() < what.bytes) return fail(Code::kCorrupt, path + ".out is shorter than its record says");
  return bytes;
}

std::vector<Chunk> Spool::cut(uint64_t cursor, std::string bytes) const {
  std::vector<Chunk> chunks;
  const auto after = std::upper_bound(switches_.begin(), switches_.end(), cursor,
                                      [](uint64_t at, const Switch& s) { return at < s.offset; });
  GB_ASSERT(after != switches_.begin());
  std::string_view rest = bytes;
  for (auto run = after - 1; !rest.empty() && run != switches_.end(); ++run) {
    const bool last = run + 1 == switches_.end();
    const uint64_t run_end = last ? UINT64_MAX : (run + 1)->offset;
    const std::string_view part = rest.substr(0, static_cast<size_t>(std::min<uint64_t>(rest.size(), run_end - cursor)));
    chunks.push_back({run->stream, cursor, std::string(part)});
    cursor += part.size();
    rest.remove_prefix(part.size());
  }
  return chunks;
}

std::string Spool::to_blob() const {
  std::string blob;
  channel::append_u64(blob, switches_.size());
  for (const Switch& s : switches_) {
    channel::append_u64(blob, s.offset);
    channel::append_u64(blob, static_cast<uint64_t>(s.stream));
  }
  return blob + memory_;
}

// Entries in rising order, the first at 0; those at or behind `end` are dropped.
Result<std::vector<Spool::Switch>> Spool::parse_switches(std::string_view entries, uint64_t end) {
  std::vector<Switch> out;
  for (; entries.size() >= kIndexEntryBytes; entries.remove_prefix(kIndexEntryBytes)) {
    const uint64_t offset = channel::get_u64(entries.data());
    if (offset >= end) break;
    const bool in_order = out.empty() ? offset == 0 : offset > out.back().offset;
    if (!in_order) return fail(Code::kCorrupt, "an execution's output: its index is not in order");
    const uint64_t stream = channel::get_u64(entries.data() + 8);
    out.push_back({offset, stream == 2 ? Stream::kStderr : Stream::kStdout});
  }
  if (out.empty() && end > 0) return fail(Code::kCorrupt, "an execution's output has no index");
  return out;
}

Result<void> Spool::from_blob(std::string_view blob) {
  if (blob.empty()) return {};
  const uint64_t count = blob.size() < 8 ? UINT64_MAX : channel::get_u64(blob.data());
  if (blob.size() < 8 || count > (blob.size() - 8) / kIndexEntryBytes) {
    return fail(Code::kCorrupt, "an execution's stored output is cut");
  }
  const std::string_view entries = blob.substr(8, count * kIndexEntryBytes);
  const std::string_view bytes = blob.substr(8 + count * kIndexEntryBytes);
  GB_TRY(switches_, parse_switches(entries, bytes.size()));
  memory_ = bytes;
  return {};
}

Result<bool> Spool::open_existing() {
  UniqueFd file(::open((path_ + ".out").c_str(), O_RDWR | O_CLOEXEC));
  if (!file && errno == ENOENT) return false;
  UniqueFd index(::open((path_ + ".idx").c_str(), O_RDWR | O_CLOEXEC));
  if (!file || !index) return fail_errno(path_);
  struct stat file_stat, index_stat;
  if (::fstat(file.get(), &file_stat) != 0 || ::fstat(index.get(), &index_stat) != 0) return fail_errno(path_);
  constexpr auto kMaxIndexBytes = static_cast<off_t>((kMaxSwitches + 1) * kIndexEntryBytes);
  GB_TRY(const std::string entries, read_at(index.get(), static_cast<size_t>(std::min(index_stat.st_size, kMaxIndexBytes)), 0));
  GB_TRY(switches_, parse_switches(entries, static_cast<uint64_t>(file_stat.st_size)));
  // Dropped entries must not come back when the file has grown over them.
  if (::ftruncate(index.get(), static_cast<off_t>(switches_.size() * kIndexEntryBytes)) != 0) return fail_errno(path_ + ".idx");
  written_ = static_cast<uint64_t>(file_stat.st_size);
  switches_written_ = switches_.size();
  stream_ends_[0] = stream_ends_[1] = 0;
  for (size_t i = 0; i < switches_.size(); ++i) {
    const uint64_t run_end = i + 1 < switches_.size() ? switches_[i + 1].offset : written_;
    stream_ends_[switches_[i].stream == Stream::kStderr] += run_end - switches_[i].offset;
  }
  file_ = std::move(file);
  index_file_ = std::move(index);
  return true;
}

}  // namespace glovebox::sandbox
