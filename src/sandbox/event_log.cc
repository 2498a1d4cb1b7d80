// SPDX-License-Identifier: Apache-2.0
#include "sandbox/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace glovebox::sandbox {
namespace {

constexpr size_t kMaxPending = 8 << 20;
constexpr size_t kReadBytes = 512 << 10;

Result<std::string> read_at(int fd, uint64_t offset, size_t size) {
  std::string out(size, '\0');
  const ssize_t got = ::pread(fd, out.data(), size, static_cast<off_t>(offset));
  if (got < 0) return fail_errno("read event log");
  out.resize(static_cast<size_t>(got));
  return out;
}

}  // namespace

// The segments: files named by the place of their first byte in the whole log.
struct EventLog::Files {
  std::string directory, name;
  uint64_t segment_bytes;
  std::vector<uint64_t> begins;
  uint64_t end = 0;
  UniqueFd last;  // open for appending
  bool is_open = false;

  std::string path(uint64_t begin) const { return directory + "/" + name + "." + std::to_string(begin) + ".jsonl"; }

  Result<void> open() {
    if (is_open) return {};
    std::error_code ec;
    std::filesystem::create_directories(directory, ec);
    for (const auto& entry : std::filesystem::directory_iterator(directory, ec)) {
      const auto words = split(entry.path().filename().string(), '.');
      const auto begin = words.size() == 3 && words[0] == name && words[2] == "jsonl" ? parse_int(words[1]) : std::nullopt;
      if (begin) begins.push_back(static_cast<uint64_t>(*begin));
    }
    std::sort(begins.begin(), begins.end());
    if (begins.empty()) begins.push_back(0);
    GB_TRYV(open_last());
    struct stat st{};
    if (::fstat(last.get(), &st) != 0) return fail_errno("event log");
    end = begins.back() + static_cast<uint64_t>(st.st_size);
    is_open = true;
    if (st.st_size == 0) return {};
    // A daemon that was killed may have left half a line.
    GB_TRY(const std::string byte, read_at(last.get(), static_cast<uint64_t>(st.st_size) - 1, 1));
    return byte == "\n" ? Result<void>() : write("\n");
  }

  Result<void> open_last() {
    last = UniqueFd(::open(path(begins.back()).c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!last) return fail_errno(path(begins.back()));
    return {};
  }

  Result<void> write(std::string_view bytes) {
    GB_TRYV(open());
    while (!bytes.empty()) {
      const ssize_t n = ::write(last.get(), bytes.data(), bytes.size());
      if (n < 0) return fail_errno("write event log");
      bytes.remove_prefix(static_cast<size_t>(n));
      end += static_cast<uint64_t>(n);
    }
    if (end - begins.back() < segment_bytes) return {};
    begins.push_back(end);
    while (begins.size() > 2) {
      (void)::unlink(path(begins.front()).c_str());
      begins.erase(begins.begin());
    }
    return open_last();
  }

  Result<Page> read(uint64_t cursor, size_t limit) {
    GB_TRYV(open());
    Page page;
    page.lost = cursor < begins.front();
    page.next = std::max(cursor, begins.front());
    for (size_t i = 0; i < begins.size() && page.entries.size() < limit; ++i) {
      const uint64_t segment_end = i + 1 < begins.size() ? begins[i + 1] : end;
      if (page.next >= segment_end) continue;
      GB_TRYV(read_segment(begins[i], segment_end, limit, &page));
    }
    return page;
  }

  // A cursor that does not follow a line feed leads into the middle of a line; that rest is passed over.
  Result<void> read_segment(uint64_t begin, uint64_t segment_end, size_t limit, Page* page) {
    const UniqueFd fd(::open(path(begin).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd) return fail_errno(path(begin));
    bool skips = false;
    if (page->next > begin) {
      GB_TRY(const std::string before, read_at(fd.get(), page->next - begin - 1, 1));
      skips = before != "\n";
    }
    while (page->next < segment_end && page->entries.size() < limit) {
      GB_TRY(const std::string bytes, read_at(fd.get(), page->next - begin, kReadBytes));
      const size_t whole = bytes.rfind('\n');
      if (whole == std::string::npos) break;
      size_t at = 0;
      while (at <= whole && page->entries.size() < limit) {
        const size_t line_end = bytes.find('\n', at);
        page->next += line_end + 1 - at;
        if (!skips && line_end > at) page->entries.push_back({bytes.substr(at, line_end - at), page->next});
        skips = false;
        at = line_end + 1;
      }
    }
    return {};
  }
};

EventLog::EventLog(std::string directory, std::string name, Executor executor, BlockingPool* pool, uint64_t segment_bytes)
    : executor_(std::move(executor)), pool_(pool), files_(std::make_shared<Files>()) {
  files_->directory = std::move(directory);
  files_->name = std::move(name);
  files_->segment_bytes = segment_bytes;
}
EventLog::~EventLog() = default;

Awaitable<void> EventLog::enter() {
  while (is_busy_) co_await changed_.wait();
  is_busy_ = true;
}
void EventLog::leave() {
  is_busy_ = false;
  changed_.notify();
}

void EventLog::append(std::string_view line) {
  if (pending_.size() + line.size() > kMaxPending) return;  // the disk does not keep up; the proxies fold floods before this
  pending_ += line;
  pending_ += '\n';
  if (is_flushing_) return;
  is_flushing_ = true;
  spawn(executor_, "event_log.flush", flush());
}

Awaitable<void> EventLog::flush() {
  const auto self = shared_from_this();
  co_await enter();
  while (!pending_.empty()) {
    auto written = co_await run_blocking(*pool_, [files = files_, bytes = std::exchange(pending_, {})] { return files->write(bytes); });
    if (!written) log::error("event_log.not_written", {{"log", files_->name}, {"message", written.error().message}});
  }
  is_flushing_ = false;
  leave();
}

Async<EventLog::Page> EventLog::read(uint64_t cursor, size_t limit) {
  const auto self = shared_from_this();
  co_await enter();
  auto page = co_await run_blocking(*pool_, [files = files_, bytes = std::exchange(pending_, {}), cursor, limit]() -> Result<Page> {
    if (!bytes.empty()) GB_TRYV(files->write(bytes));
    return files->read(cursor, limit);
  });
  leave();
  co_return page;
}

}  // namespace glovebox::sandbox
