// SPDX-License-Identifier: Apache-2.0
#include "registry/fetcher.h"

#include <curl/curl.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/text.h"
#include "registry/reach.h"

namespace glovebox::registry {
namespace {

constexpr int kMaxRedirects = 5;
constexpr long kConnectSeconds = 15;
constexpr long kSlowBytesPerSecond = 512, kSlowSeconds = 30;
constexpr long kMaxConnections = 32, kMaxPerHost = 8;
constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr int kPollMs = 1000;

// One fetch with its redirects.
struct Transfer {
  Fetch fetch;
  std::shared_ptr<Sink> sink;
  Url url;
  int redirects = 0;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  FetchHead head;
  size_t header_bytes = 0;
  bool has_head = false;         // the sink has seen it
  std::string location;
  std::optional<Error> refused;  // why a callback ended the transfer
  Reach* reach = nullptr;

  ~Transfer() {
    if (easy) curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
  }
  bool refuse(Error error) {
    if (!refused) refused = std::move(error);
    return false;
  }
  bool is_redirect() const { return head.status >= 300 && head.status < 400 && head.status != 304 && !location.empty(); }
  bool show_head();
  bool take_header(std::string_view line);
};

bool Transfer::show_head() {
  if (has_head) return true;
  has_head = true;
  curl_off_t length = -1;
  if (!fetch.is_compressible) curl_easy_getinfo(easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
  if (length >= 0) head.length = static_cast<uint64_t>(length);
  head.url = url.text;
  const auto taken = sink->on_head(head);
  return taken ? true : refuse(taken.error());
}

bool Transfer::take_header(std::string_view line) {
  header_bytes += line.size();
  if (header_bytes > kMaxHeaderBytes) return refuse({Code::kCorrupt, "the upstream's header is too large", {}});
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // of this answer, or of a 1xx before it
    head.headers.clear();
    location.clear();
    const size_t space = line.find(' ');
    head.status = space == line.npos ? 0 : static_cast<int>(parse_int(line.substr(space + 1, 3)).value_or(0));
    return true;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return true;
  std::string_view value = line.substr(colon + 1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  if (http::same_name(line.substr(0, colon), "Location")) location = value;
  head.headers.emplace_back(line.substr(0, colon), value);
  return true;
}

size_t on_header(char* data, size_t size, size_t count, void* context) {
  return static_cast<Transfer*>(context)->take_header({data, size * count}) ? size * count : 0;
}

size_t on_body(char* data, size_t size, size_t count, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  if (transfer.is_redirect()) return size * count;
  if (!transfer.show_head()) return 0;
  const auto taken = transfer.sink->on_data({data, size * count});
  return taken || transfer.refuse(taken.error()) ? size * count : 0;
}

curl_socket_t open_socket(void* context, curlsocktype, curl_sockaddr* address) {
  auto& transfer = *static_cast<Transfer*>(context);
  const std::string range = transfer.reach->refuse_address(transfer.url.origin, &address->addr);
  if (!range.empty()) {
    transfer.refuse({Code::kForbidden, transfer.url.origin.host + ": leads to a special address (" + range + ")", {{"rule", range}}});
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

Error error_of(CURLcode status, const Transfer& transfer) {
  const std::string what = transfer.url.origin.host + ": " + curl_easy_strerror(status);
  if (status == CURLE_OPERATION_TIMEDOUT) return {Code::kTimeout, what, {}};
  if (status == CURLE_BAD_CONTENT_ENCODING) return {Code::kCorrupt, what, {}};
  return {Code::kUnavailable, what, {}};
}

class FetcherImpl final : public Fetcher {
 public:
  explicit FetcherImpl(std::string ca_bundle)
      : ca_bundle_(std::move(ca_bundle)), multi_(curl_multi_init()), reach_(std::make_shared<Reach>(Settings())) {
    curl_multi_setopt(multi_, CURLMOPT_MAX_TOTAL_CONNECTIONS, kMaxConnections);
    curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, kMaxPerHost);
    curl_multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
    thread_ = std::thread([this] { run(); });
  }
  ~FetcherImpl() override {
    is_ending_ = true;
    curl_multi_wakeup(multi_);
    thread_.join();
    curl_multi_cleanup(multi_);
  }
  void configure(const Settings& settings) override {
    const std::lock_guard lock(mutex_);
    next_reach_ = std::make_shared<Reach>(settings);
  }
  void get(Fetch fetch, std::shared_ptr<Sink> sink) override {
    auto transfer = std::make_unique<Transfer>();
    transfer->fetch = std::move(fetch);
    transfer->sink = std::move(sink);
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(transfer));
    }
    curl_multi_wakeup(multi_);
  }

 private:
  void run();
  void start_waiting();
  void start(std::unique_ptr<Transfer> transfer, std::string_view url);
  void set_options(Transfer& transfer);
  void finish_ready();
  void finish(std::unique_ptr<Transfer> transfer, CURLcode status);

  const std::string ca_bundle_;
  CURLM* multi_;
  std::atomic<bool> is_ending_{false};
  std::mutex mutex_;  // of the next two
  std::vector<std::unique_ptr<Transfer>> waiting_;
  std::shared_ptr<Reach> next_reach_;
  // The fetching thread's.
  std::shared_ptr<Reach> reach_;
  std::vector<std::shared_ptr<Reach>> old_reaches_;  // transfers under way may point to them
  std::unordered_map<CURL*, std::unique_ptr<Transfer>> running_;
  std::thread thread_;
};

void FetcherImpl::run() {
  while (!is_ending_) {
    start_waiting();
    int count = 0;
    curl_multi_perform(multi_, &count);
    finish_ready();
    if (running_.empty()) old_reaches_.clear();
    curl_multi_poll(multi_, nullptr, 0, kPollMs, nullptr);
  }
  for (auto& [easy, transfer] : running_) {
    curl_multi_remove_handle(multi_, easy);
    transfer->sink->on_done(fail(Code::kCancelled, "the registry proxy is stopping"));
  }
  running_.clear();
}

void FetcherImpl::start_waiting() {
  std::vector<std::unique_ptr<Transfer>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    if (next_reach_) {
      old_reaches_.push_back(std::move(reach_));
      reach_ = std::move(next_reach_);
      next_reach_.reset();
    }
  }
  for (auto& transfer : waiting) {
    const std::string url = transfer->fetch.url;
    start(std::move(transfer), url);
  }
}

void FetcherImpl::start(std::unique_ptr<Transfer> transfer, std::string_view text) {
  auto url = transfer->url.text.empty() ? parse_url(text) : resolve_url(transfer->url, text);
  auto allowed = url ? reach_->check(*url, transfer->fetch.is_named_by_index) : Result<void>(fail(Code::kForbidden, url.error().message));
  if (!allowed) return transfer->sink->on_done(std::move(allowed));
  transfer->url = std::move(*url);
  transfer->reach = reach_.get();
  transfer->head = {};
  transfer->location.clear();
  transfer->header_bytes = 0;
  if (!transfer->easy) transfer->easy = curl_easy_init();
  GB_ASSERT(transfer->easy);
  set_options(*transfer);
  CURL* const easy = transfer->easy;
  running_.emplace(easy, std::move(transfer));
  curl_multi_add_handle(multi_, easy);
}

void FetcherImpl::set_options(Transfer& transfer) {
  CURL* easy = transfer.easy;
  curl_easy_reset(easy);
  curl_slist_free_all(transfer.headers);
  transfer.headers = nullptr;
  for (const std::string& header : transfer.fetch.headers) transfer.headers = curl_slist_append(transfer.headers, header.c_str());
  curl_easy_setopt(easy, CURLOPT_URL, transfer.url.text.c_str());
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "glovebox-registry");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);  // every hop is checked first, see finish()
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, kSlowBytesPerSecond);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 256L << 10);
  if (transfer.fetch.is_compressible) curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "gzip");
  if (!ca_bundle_.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, ca_bundle_.c_str());
  if (const std::string secret = transfer.reach->credentials(transfer.url.origin); !secret.empty()) {
    curl_easy_setopt(easy, CURLOPT_USERPWD, secret.c_str());
  }
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &on_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, &transfer);
}

void FetcherImpl::finish_ready() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode status = message->data.result;
    const auto it = running_.find(message->easy_handle);
    auto transfer = std::move(it->second);
    running_.erase(it);
    curl_multi_remove_handle(multi_, transfer->easy);
    finish(std::move(transfer), status);
  }
}

void FetcherImpl::finish(std::unique_ptr<Transfer> transfer, CURLcode status) {
  if (status == CURLE_OK && !transfer->refused && transfer->is_redirect()) {
    if (++transfer->redirects > kMaxRedirects) {
      return transfer->sink->on_done(fail(Code::kUnavailable, transfer->url.origin.host + ": too many redirects"));
    }
    const std::string location = transfer->location;
    return start(std::move(transfer), location);
  }
  if (status == CURLE_OK && !transfer->refused) transfer->show_head();  // an empty body brought none
  if (transfer->refused) return transfer->sink->on_done(fail(*transfer->refused));
  if (status != CURLE_OK) return transfer->sink->on_done(fail(error_of(status, *transfer)));
  transfer->sink->on_done({});
}

}  // namespace

std::unique_ptr<Fetcher> Fetcher::start(std::string ca_bundle) { return std::make_unique<FetcherImpl>(std::move(ca_bundle)); }

}  // namespace glovebox::registry
