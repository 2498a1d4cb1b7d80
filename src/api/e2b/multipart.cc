// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/multipart.h"

#include <algorithm>

#include "http/message.h"

namespace glovebox::api::e2b {
namespace {

constexpr size_t kMaxHead = 16 << 10;
constexpr size_t kMaxParts = 10'000;
constexpr size_t kMaxBoundary = 200;  // RFC 2046 says 70

tl::unexpected<Error> broken(std::string what) { return fail(Code::kInvalidArgument, "multipart body: " + std::move(what)); }

// The value of a parameter such as filename="a\"b"; browsers and clients write '"', CR and LF as %22, %0D and %0A.
std::string parameter(std::string_view header, std::string_view name) {
  const std::string key = std::string(name) + "=";
  for (size_t at = 0; (at = header.find(';', at)) != header.npos;) {
    at = std::min(header.find_first_not_of("; \t", at), header.size());
    if (!http::same_name(header.substr(at, key.size()), key)) continue;
    std::string_view value = header.substr(at + key.size());
    if (!value.starts_with('"')) return std::string(value.substr(0, value.find(';')));
    return std::string(value.substr(1, value.find('"', 1) - 1));
  }
  return {};
}

std::string decode_file_name(std::string text) {
  constexpr std::pair<std::string_view, char> kEscapes[] = {{"%22", '"'}, {"%0D", '\r'}, {"%0A", '\n'}};
  for (const auto& [escape, c] : kEscapes) {
    for (size_t at = 0; (at = text.find(escape, at)) != text.npos; ++at) text.replace(at, escape.size(), 1, c);
  }
  return text;
}

}  // namespace

Result<Multipart> Multipart::create(std::string_view content_type) {
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > kMaxBoundary) return broken("the content type names no boundary");
  Multipart out;
  out.delimiter_ = "\r\n--" + boundary;
  return out;
}

Result<std::vector<Multipart::Event>> Multipart::take(std::string_view bytes) {
  buffer_ += bytes;
  std::vector<Event> events;
  for (;;) {
    GB_TRY(const bool went_on, step(events));
    if (!went_on) return events;
  }
}

Result<void> Multipart::finish() const {
  if (state_ != State::kEpilogue) return broken("it ends before its closing boundary");
  return {};
}

Result<bool> Multipart::step(std::vector<Event>& events) {
  switch (state_) {
    case State::kPreamble: {
      const size_t at = buffer_.find(delimiter_);
      if (at == buffer_.npos && buffer_.size() > kMaxHead) return broken("it does not begin with its boundary");
      if (at == buffer_.npos) return false;
      buffer_.erase(0, at + delimiter_.size());
      state_ = State::kAfterBoundary;
      return true;
    }
    case State::kAfterBoundary:
      return step_boundary();
    case State::kHead:
      return step_head(events);
    case State::kContent:
      return step_content(events);
    case State::kEpilogue:
      buffer_.clear();
      return false;
  }
  return false;
}

Result<bool> Multipart::step_boundary() {
  if (buffer_.size() < 2) return false;
  if (!buffer_.starts_with("--") && !buffer_.starts_with("\r\n")) return broken("a boundary does not end with its line");
  if (buffer_.starts_with("--")) {
    state_ = State::kEpilogue;
    return true;
  }
  if (++parts_ > kMaxParts) return broken("it has more than 10000 parts");
  state_ = State::kHead;
  return true;  // the CR LF stays: a head may be empty
}

Result<bool> Multipart::step_head(std::vector<Event>& events) {
  const size_t end = buffer_.find("\r\n\r\n");
  if (std::min(end, buffer_.size()) > kMaxHead) return broken("the head of a part is larger than 16 KiB");
  if (end == buffer_.npos) return false;
  Event begin{Event::Kind::kBegin, {}, {}, {}};
  const std::string head = buffer_.substr(0, end + 2);
  constexpr std::string_view kName = "content-disposition:";
  for (size_t at = 2; at < head.size();) {
    const size_t line_end = head.find("\r\n", at);
    const std::string_view line = std::string_view(head).substr(at, line_end - at);
    if (http::same_name(line.substr(0, kName.size()), kName)) {
      begin.name = parameter(line, "name");
      begin.file_name = decode_file_name(parameter(line, "filename"));
    }
    at = line_end + 2;
  }
  buffer_.erase(0, end + 4);
  events.push_back(std::move(begin));
  state_ = State::kContent;
  return true;
}

bool Multipart::step_content(std::vector<Event>& events) {
  const size_t at = buffer_.find(delimiter_);
  const bool is_whole = at != buffer_.npos;
  // Without the delimiter all but its possible beginning is content.
  const size_t size = is_whole ? at : buffer_.size() - std::min(buffer_.size(), delimiter_.size() - 1);
  if (size > 0) events.push_back({Event::Kind::kData, {}, {}, buffer_.substr(0, size)});
  buffer_.erase(0, is_whole ? at + delimiter_.size() : size);
  if (!is_whole) return false;
  events.push_back({Event::Kind::kEnd, {}, {}, {}});
  state_ = State::kAfterBoundary;
  return true;
}

}  // namespace glovebox::api::e2b
