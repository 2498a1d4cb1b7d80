// SPDX-License-Identifier: Apache-2.0
#include "registry/documents.h"

#include <utility>

#include "base/log.h"
#include "base/text.h"

namespace glovebox::registry {
namespace {

constexpr size_t kMaxMemoryBytes = 48 << 20;  // of bodies; what is made of them is several times as much
constexpr size_t kMaxHeaderValue = 1024;

int64_t now_ms() { return unix_millis(std::chrono::system_clock::now()); }

// The whole answer in memory, at most `limit` bytes.
class MemorySink final : public Sink {
 public:
  explicit MemorySink(size_t limit) : limit_(limit) {}
  Result<void> on_head(const FetchHead& head) override {
    head_ = head;
    if (head.length.value_or(0) > limit_) return too_large();
    return {};
  }
  Result<void> on_data(std::string_view bytes) override {
    if (bytes.size() > limit_ - body_.size()) return too_large();
    body_ += bytes;
    return {};
  }
  void on_done(Result<void> result) override {
    result_ = std::move(result);
    resume();
  }

  std::function<void()> resume;
  const FetchHead& head() const { return head_; }
  std::string take_body() { return std::move(body_); }
  const Result<void>& result() const { return result_; }

 private:
  Result<void> too_large() const {
    return fail(Code::kPayloadTooLarge, "the upstream's answer is larger than " + std::to_string(limit_) + " bytes");
  }
  const size_t limit_;
  FetchHead head_;
  std::string body_;
  Result<void> result_;
};

std::string header(const FetchHead& head, std::string_view name) {
  std::string value = http::find_header(head.headers, name).value_or("");
  if (value.size() > kMaxHeaderValue) value.clear();
  return value;
}

// On disk: lines of header, an empty line, the body.
std::string packed(const Document& d) {
  std::string out;
  for (const std::string* field : {&d.content_type, &d.etag, &d.last_modified, &d.url}) out += *field + "\n";
  return out + std::to_string(d.fetched_at_ms) + "\n\n" + d.body;
}

std::shared_ptr<Document> unpacked(std::string_view text) {
  auto d = std::make_shared<Document>();
  std::string time, empty;
  for (std::string* field : {&d->content_type, &d->etag, &d->last_modified, &d->url, &time, &empty}) {
    const size_t end = text.find('\n');
    if (end == text.npos) return nullptr;
    *field = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  d->fetched_at_ms = parse_int(time).value_or(0);
  d->body = text;
  return d;
}

// The upstream did not answer as it should, which says nothing about what it has.
bool is_outage(const Error& error) { return error.code == Code::kUnavailable || error.code == Code::kTimeout; }

}  // namespace

struct Documents::Pending {
  Notifier done;
  Result<DocumentPtr> result;
  bool is_done = false;
};

Documents::Documents(Executor executor, BlockingPool& pool, Cache& cache, Fetcher& fetcher)
    : executor_(std::move(executor)), pool_(pool), cache_(cache), fetcher_(fetcher) {}

Async<DocumentPtr> Documents::get(Request request) {
  const std::string key = request.key + (request.only_cached ? " cached" : "");
  auto& slot = pending_[key];
  auto pending = slot;
  if (!pending) {
    pending = slot = std::make_shared<Pending>();
    spawn(executor_, "registry.document", load(std::move(request), pending));
  }
  while (!pending->is_done) co_await pending->done.wait();
  co_return pending->result;
}

// In a task of its own: whoever asked first may leave without taking the others' answer along.
Awaitable<void> Documents::load(Request request, std::shared_ptr<Pending> pending) {
  const std::string key = request.key + (request.only_cached ? " cached" : "");
  pending->result = co_await find_or_fetch(request);
  pending->is_done = true;
  pending_.erase(key);
  pending->done.notify();
}

Async<DocumentPtr> Documents::find_or_fetch(const Request& request) {
  DocumentPtr old = recall(request.key);
  if (!old) {
    auto stored = co_await from_disk(request);
    if (stored) old = *stored;
  }
  const auto lifetime = std::chrono::duration_cast<std::chrono::milliseconds>(request.lifetime).count();
  const bool is_fresh = old && now_ms() - old->fetched_at_ms < lifetime;
  if (old && (is_fresh || request.only_cached)) co_return old;
  if (request.only_cached) co_return fail(Code::kNotFound, "not in the cache");
  auto fetched = co_await fetch(request, old);
  if (!fetched && old && is_outage(fetched.error())) {
    log::warn("registry.stale_metadata", {{"message", fetched.error().message}});
    co_return old;
  }
  co_return fetched;
}

Async<DocumentPtr> Documents::from_disk(const Request& request) {
  auto work = [this, &request] { return cache_.read_record(request.key); };
  const auto text = co_await run_blocking(pool_, work);
  auto document = text ? unpacked(*text) : nullptr;
  if (!document) co_return fail(Code::kNotFound, "not in the cache");
  GB_CO_TRYV(co_await parse(request, document));
  remember(request.key, document);
  co_return DocumentPtr(document);
}

Async<void> Documents::parse(const Request& request, std::shared_ptr<Document> document) {
  if (!request.parse) co_return Result<void>();
  auto work = [&request, document] { return request.parse(*document); };
  GB_CO_TRY(document->parsed, co_await run_blocking(pool_, work));
  co_return Result<void>();
}

Async<DocumentPtr> Documents::fetch(const Request& request, DocumentPtr old) {
  Fetch fetch{request.url, {}, false, request.is_compressible};
  if (!request.accept.empty()) fetch.headers.push_back("Accept: " + request.accept);
  if (old && !old->etag.empty()) fetch.headers.push_back("If-None-Match: " + old->etag);
  if (old && old->etag.empty() && !old->last_modified.empty()) fetch.headers.push_back("If-Modified-Since: " + old->last_modified);
  auto sink = std::make_shared<MemorySink>(request.max_bytes);
  std::function<void(std::function<void()>)> start = [this, &fetch, sink](std::function<void()> resume) {
    sink->resume = std::move(resume);
    fetcher_.get(fetch, sink);
  };
  co_await resume_from_thread(std::move(start));
  GB_CO_TRYV(sink->result());
  const FetchHead& head = sink->head();
  auto document = std::make_shared<Document>();
  if (head.status == 304 && old) {
    *document = *old;
  } else if (head.status == 404 || head.status == 410) {
    co_return fail(Code::kNotFound, "the upstream does not have it");
  } else if (head.status != 200) {
    co_return fail(Code::kUnavailable, "the upstream answered " + std::to_string(head.status));
  } else {
    *document = {sink->take_body(), header(head, "Content-Type"), header(head, "ETag"), header(head, "Last-Modified"), head.url, 0, {}};
    GB_CO_TRYV(co_await parse(request, document));
  }
  document->fetched_at_ms = now_ms();
  auto store = [this, &request, document] { return cache_.write_record(request.key, packed(*document)); };
  const auto stored = co_await run_blocking(pool_, store);
  if (!stored) log::warn("registry.metadata_not_stored", {{"message", stored.error().message}});
  remember(request.key, document);
  co_return DocumentPtr(document);
}

DocumentPtr Documents::recall(const std::string& key) {
  const auto it = in_memory_.find(key);
  if (it == in_memory_.end()) return nullptr;
  memory_.splice(memory_.end(), memory_, it->second);
  return it->second->second;
}

void Documents::remember(const std::string& key, DocumentPtr document) {
  if (const auto it = in_memory_.find(key); it != in_memory_.end()) {
    memory_bytes_ -= it->second->second->body.size();
    memory_.erase(it->second);
    in_memory_.erase(it);
  }
  memory_bytes_ += document->body.size();
  in_memory_[key] = memory_.insert(memory_.end(), {key, std::move(document)});
  while (memory_bytes_ > kMaxMemoryBytes && memory_.size() > 1) {
    memory_bytes_ -= memory_.front().second->body.size();
    in_memory_.erase(memory_.front().first);
    memory_.pop_front();
  }
}

void Documents::clear_memory() {
  memory_.clear();
  in_memory_.clear();
  memory_bytes_ = 0;
}

}  // namespace glovebox::registry
