// SPDX-License-Identifier: Apache-2.0
#include "registry/downloads.h"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <mutex>

#include "base/log.h"

namespace glovebox::registry {
namespace {

constexpr size_t kReadBytes = 256 << 10;
// Withheld until the hash is known. More than the end record of a zip archive or of a gzip stream: without it neither opens.
constexpr uint64_t kWithheldBytes = 64 << 10;

// How a file is found: by its content when the index names that, else by where it is.
std::string name_of(const FileSpec& spec) { return spec.integrity.is_given() ? spec.integrity.text() : "url:" + spec.url; }
// A record with the SHA-256 of files that are not known by it.
std::string pointer_key(const FileSpec& spec) { return "file " + name_of(spec); }
bool is_known_by_sha256(const FileSpec& spec) { return spec.integrity.is_given() && spec.integrity.kind == DigestKind::kSha256; }

}  // namespace

class Downloads::Running final : public Download, public Sink, public std::enable_shared_from_this<Running> {
 public:
  Running(Downloads& owner, FileSpec spec, std::unique_ptr<Cache::Writer> writer)
      : executor_(owner.executor_), cache_(owner.cache_), spec_(std::move(spec)), writer_(std::move(writer)),
        fd_(::dup(writer_->fd())) {}

  Result<void> on_head(const FetchHead& head) override;
  Result<void> on_data(std::string_view bytes) override;
  void on_done(Result<void> result) override;

  Async<std::string> read(uint64_t offset) override;
  Async<std::optional<uint64_t>> length() override;
  Async<Cache::File> complete() override;

 private:
  struct State {
    bool has_head = false, is_done = false;
    std::optional<uint64_t> length;
    uint64_t written = 0;
    std::optional<Error> error;
    std::string sha256;
  };
  State state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  void tell();  // from the fetching thread: wakes readers on the loop
  Result<std::string> commit(Result<void> fetched);

  Executor executor_;
  Cache& cache_;
  const FileSpec spec_;
  std::unique_ptr<Cache::Writer> writer_;  // the fetching thread's
  const UniqueFd fd_;                      // the same file, for readers
  mutable std::mutex mutex_;
  State state_;
  bool is_told_ = false;  // a wake-up is on its way
  Notifier changed_;      // the loop's
};

Result<void> Downloads::Running::on_head(const FetchHead& head) {
  if (head.status == 404 || head.status == 410) return fail(Code::kNotFound, "the upstream does not have this file");
  if (head.status != 200) return fail(Code::kUnavailable, "the upstream answered " + std::to_string(head.status));
  if (head.length && spec_.size && *head.length != *spec_.size) return fail(Code::kCorrupt, "the file has another size than the index says");
  {
    const std::lock_guard lock(mutex_);
    state_.has_head = true;
    state_.length = head.length ? head.length : spec_.size;
  }
  tell();
  return {};
}

Result<void> Downloads::Running::on_data(std::string_view bytes) {
  if (spec_.size && bytes.size() > *spec_.size - std::min(*spec_.size, writer_->size())) {
    return fail(Code::kCorrupt, "the file is longer than the index says");
  }
  if (bytes.size() > spec_.max_bytes - std::min(spec_.max_bytes, writer_->size())) {
    return fail(Code::kPayloadTooLarge, "the file is larger than " + std::to_string(spec_.max_bytes) + " bytes");
  }
  GB_TRYV(writer_->write(bytes));
  {
    const std::lock_guard lock(mutex_);
    state_.written += bytes.size();
  }
  tell();
  return {};
}

Result<std::string> Downloads::Running::commit(Result<void> fetched) {
  GB_TRYV(fetched);
  if (spec_.size && writer_->size() != *spec_.size) return fail(Code::kCorrupt, "the file has another size than the index says");
  GB_TRY(auto sha256, writer_->commit());
  if (!is_known_by_sha256(spec_)) {
    const auto noted = cache_.write_record(pointer_key(spec_), sha256);
    if (!noted) log::warn("registry.file_not_noted", {{"message", noted.error().message}});
  }
  return sha256;
}

void Downloads::Running::on_done(Result<void> result) {
  auto committed = commit(std::move(result));
  writer_.reset();  // what was not committed is removed
  {
    const std::lock_guard lock(mutex_);
    state_.is_done = state_.has_head = true;
    if (committed) {
      state_.sha256 = *committed;
      state_.length = state_.written;
    } else {
      state_.error = committed.error();
    }
  }
  tell();
}

void Downloads::Running::tell() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_told_, true)) return;
  }
  boost::asio::post(executor_, [self = shared_from_this()] {
    {
      const std::lock_guard lock(self->mutex_);
      self->is_told_ = false;
    }
    self->changed_.notify();
  });
}

Async<std::string> Downloads::Running::read(uint64_t offset) {
  const auto self = shared_from_this();
  for (;;) {
    const State now = state();
    if (now.error) co_return fail(*now.error);
    const uint64_t readable = now.is_done ? now.written : now.written - std::min(now.written, kWithheldBytes);
    if (readable > offset) {
      std::string bytes(std::min<uint64_t>(kReadBytes, readable - offset), '\0');
      const ssize_t n = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n <= 0) co_return fail_errno("read from the cache");
      bytes.resize(static_cast<size_t>(n));
      co_return bytes;
    }
    if (now.is_done) co_return std::string();
    co_await changed_.wait();
  }
}

Async<std::optional<uint64_t>> Downloads::Running::length() {
  const auto self = shared_from_this();
  for (;;) {
    const State now = state();
    if (now.error) co_return fail(*now.error);
    if (now.has_head) co_return now.length;
    co_await changed_.wait();
  }
}

Async<Cache::File> Downloads::Running::complete() {
  const auto self = shared_from_this();
  for (;;) {
    const State now = state();
    if (now.error) co_return fail(*now.error);
    if (now.is_done) co_return Cache::File{UniqueFd(::dup(fd_.get())), now.written, now.sha256};
    co_await changed_.wait();
  }
}

Downloads::Downloads(Executor executor, BlockingPool& pool, Cache& cache, Fetcher& fetcher)
    : executor_(std::move(executor)), pool_(pool), cache_(cache), fetcher_(fetcher) {}

bool Downloads::is_cached(const FileSpec& spec) const {
  return is_known_by_sha256(spec) ? cache_.contains(spec.integrity.hex) : cache_.has_record(pointer_key(spec));
}

Async<Cache::File> Downloads::find(const FileSpec& spec) {
  auto work = [this, &spec]() -> std::optional<Cache::File> {
    if (is_known_by_sha256(spec)) return cache_.find(spec.integrity.hex);
    const auto sha256 = cache_.read_record(pointer_key(spec));
    return sha256 ? cache_.find(*sha256) : std::nullopt;
  };
  auto file = co_await run_blocking(pool_, work);
  if (!file) co_return fail(Code::kNotFound, "not in the cache");
  co_return std::move(*file);
}

Async<Source> Downloads::get(FileSpec spec, bool only_cached) {
  auto file = co_await find(spec);
  if (file) co_return Source{std::move(*file), nullptr};
  if (only_cached) co_return fail(file.error());
  // The URL, too: two that claim the same content are two, and only one of them may be lying.
  const std::string name = name_of(spec) + " " + spec.url;
  auto running = running_[name].lock();
  if (!running) {
    GB_CO_TRY(auto writer, cache_.begin(spec.integrity));
    running = std::make_shared<Running>(*this, spec, std::move(writer));
    running_[name] = running;
    fetcher_.get({spec.url, {}, spec.is_named_by_index, false}, running);
  }
  std::erase_if(running_, [](const auto& entry) { return entry.second.expired(); });
  co_return Source{std::nullopt, running};
}

}  // namespace glovebox::registry
