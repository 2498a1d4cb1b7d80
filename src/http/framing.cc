// SPDX-License-Identifier: Apache-2.0
#include "http/framing.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include "base/text.h"

namespace glovebox::http {
namespace beast = boost::beast;
namespace {

using beast::error_code;
using beast::string_view;

// A chunk's size line with its extensions, or the trailer, may be this long.
constexpr size_t kMaxChunkHeaderBytes = 16 << 10;
// The shortest chunked body.
constexpr std::string_view kLastChunk = "0\r\n\r\n";

std::string str(string_view s) {
  return std::string(s.data(), s.size());
}

struct StartLine {
  std::string method, target;
  int status = 0;
  int version = 11;
};

// Beast's parser hands over the parts of a message as it finds them; nothing is stored twice.
template <bool IsRequest>
class Decoder final : public beast::http::basic_parser<IsRequest>, public BodyDecoder {
 public:
  Decoder() {
    this->eager(true);
    this->body_limit(boost::none);  // the reader of the body sets the limit
    this->header_limit(std::numeric_limits<std::uint32_t>::max());  // HeadScanner has checked
  }

  // Reads a whole head. `ec` stays clear when it is one.
  void parse_head(std::string_view head, StartLine& line, Headers& headers, error_code& ec) {
    line_ = &line;
    headers_ = &headers;
    const size_t used = this->put(boost::asio::const_buffer(head.data(), head.size()), ec);
    if (ec == beast::http::error::need_more && this->is_header_done()) ec = {};
    if (!ec && (used != head.size() || !this->is_header_done())) ec = beast::http::error::bad_field;
    line_ = nullptr;
    headers_ = nullptr;
  }

  Result<size_t> decode(std::string_view in, std::string& out, size_t room) override {
    if (this->is_done()) return 0;
    // Beast 1.81 takes for granted that a last chunk it saw before comes back with the bytes after
    // its line, and aborts otherwise. No chunked body has fewer than these bytes left here.
    if (is_before_chunks_ && this->chunked() && in.size() < kLastChunk.size()) return 0;
    out_ = &out;
    room_ = room;
    size_t used = 0;
    Result<bool> goes_on = true;
    while (goes_on && *goes_on && used < in.size()) goes_on = decode_some(in.substr(used), &used);
    out_ = nullptr;
    if (!goes_on) return fail(goes_on.error());
    return used;
  }

  Result<void> end_of_stream() override {
    if (this->is_done()) return {};
    error_code ec;
    this->put_eof(ec);
    if (ec) return fail(Code::kInvalidArgument, "the body ended before its end: " + ec.message());
    return {};
  }
  bool is_done() const override { return beast::http::basic_parser<IsRequest>::is_done(); }
  bool keep_alive() const override { return beast::http::basic_parser<IsRequest>::keep_alive(); }

 private:
  // Adds what was consumed to *used; false when nothing more can be done with `in` now.
  Result<bool> decode_some(std::string_view in, size_t* used) {
    // A window, so that what is refused does not depend on how much has arrived.
    if (this->chunked()) in = in.substr(0, kMaxChunkHeaderBytes);
    error_code ec;
    const size_t n = this->put(boost::asio::const_buffer(in.data(), in.size()), ec);
    *used += n;
    if (ec == beast::http::error::need_buffer) return false;
    if (ec && ec != beast::http::error::need_more)
      return fail(Code::kInvalidArgument, "broken body: " + ec.message());
    if (n == 0 && in.size() == kMaxChunkHeaderBytes)
      return fail(Code::kInvalidArgument, "broken body: a chunk header or trailer is too long");
    return n > 0 && !this->is_done();
  }

  void on_request_impl(beast::http::verb, string_view method, string_view target, int version,
                       error_code&) override {
    line_->method = str(method);
    line_->target = str(target);
    line_->version = version;
  }
  void on_response_impl(int status, string_view, int version, error_code&) override {
    line_->status = status;
    line_->version = version;
  }
  void on_field_impl(beast::http::field, string_view name, string_view value,
                     error_code&) override {
    if (headers_)
      headers_->emplace_back(str(name), str(value));  // null: a trailer, which nobody reads
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(string_view data, error_code& ec) override { return take(data, ec); }
  void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {
    is_before_chunks_ = false;
  }
  std::size_t on_chunk_body_impl(std::uint64_t, string_view data, error_code& ec) override {
    return take(data, ec);
  }
  void on_finish_impl(error_code&) override {}

  std::size_t take(string_view data, error_code& ec) {
    const size_t n = out_ ? std::min(room_, data.size()) : 0;
    if (n > 0) out_->append(data.data(), n);
    room_ -= n;
    if (n < data.size()) ec = beast::http::error::need_buffer;
    return n;
  }

  StartLine* line_ = nullptr;
  Headers* headers_ = nullptr;
  std::string* out_ = nullptr;
  size_t room_ = 0;
  bool is_before_chunks_ = true;
};

tl::unexpected<Refusal> refuse(int status, Code code, std::string message) {
  return tl::unexpected<Refusal>(Refusal{status, Error{code, std::move(message)}});
}
tl::unexpected<Refusal> malformed(std::string message) {
  return refuse(400, Code::kInvalidArgument, std::move(message));
}

// "GET / HTTP/2.0": well formed, of a version that is not spoken here.
bool is_other_version(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\r'));
  const size_t at = line.rfind(" HTTP/");
  if (at == line.npos || line.size() != at + 9 || std::count(line.begin(), line.end(), ' ') != 2)
    return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return is_digit(line[at + 6]) && line[at + 7] == '.' && is_digit(line[at + 8]);
}

size_t count(const Headers& headers, std::string_view name) {
  return static_cast<size_t>(std::count_if(
      headers.begin(), headers.end(), [&](const auto& h) { return same_name(h.first, name); }));
}

// What decides where a message ends must have exactly one reading (RFC 9112, 6.3 and 11.2).
Parsed<void> check_framing(const Request& request) {
  const size_t codings = count(request.headers, "Transfer-Encoding");
  const size_t lengths = count(request.headers, "Content-Length");
  if (codings > 0 && lengths > 0) return malformed("both Content-Length and Transfer-Encoding");
  if (lengths > 1) return malformed("more than one Content-Length");
  if (lengths == 1) {
    const std::string value = *request.header("Content-Length");
    const bool is_number = !value.empty() && value.find_first_not_of("0123456789") == value.npos;
    if (!is_number) return malformed("Content-Length is not a number");
  }
  if (codings == 0) return {};
  if (request.is_http10) return malformed("Transfer-Encoding in HTTP/1.0");
  if (codings > 1 || !same_name(*request.header("Transfer-Encoding"), "chunked")) {
    return refuse(501, Code::kUnsupported, "only the transfer coding \"chunked\" is supported");
  }
  return {};
}

Parsed<void> check_host(const Request& request) {
  const size_t hosts = count(request.headers, "Host");
  if (hosts > 1) return malformed("more than one Host header");
  if (hosts == 0 && !request.is_http10) return malformed("the Host header is missing");
  if (hosts == 1 && request.header("Host")->find_first_of(" \t/?#@,\\") != std::string::npos) {
    return malformed("the Host header is malformed");
  }
  return {};
}

// Fills path and query from the four forms of a target (RFC 9112, 3.2).
Parsed<void> split_target(Request& request) {
  std::string_view rest = request.target;
  const bool is_printable = std::all_of(rest.begin(), rest.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte > 0x20 && byte != 0x7F;
  });
  if (!is_printable || rest.find('#') != rest.npos)
    return malformed("the request target is malformed");
  if (request.method == "CONNECT" || (request.method == "OPTIONS" && rest == "*")) {
    request.path = rest;
    return {};
  }
  if (rest.empty() || rest[0] != '/') {
    const size_t scheme = rest.find("://");
    const bool is_absolute = scheme != rest.npos && (same_name(rest.substr(0, scheme), "http") ||
                                                     same_name(rest.substr(0, scheme), "https"));
    if (!is_absolute) return malformed("the request target is malformed");
    rest.remove_prefix(scheme + 3);
    rest.remove_prefix(std::min(rest.find_first_of("/?"), rest.size()));
  }
  const size_t mark = rest.find('?');
  request.path = rest.substr(0, mark);
  if (request.path.empty()) request.path = "/";
  if (mark != rest.npos) {
    request.raw_query = rest.substr(mark + 1);
    request.query = parse_query(request.raw_query);
  }
  return {};
}

Parsed<void> complete_request(Request& request) {
  for (const auto& check : {check_framing(request), check_host(request), split_target(request)}) {
    if (!check) return check;
  }
  if (const auto length = request.header("Content-Length")) {
    const auto number = parse_int(*length);
    if (!number) return malformed("Content-Length is too large");
    request.content_length = static_cast<uint64_t>(*number);
  }
  request.has_body =
      request.content_length.value_or(0) > 0 || request.header("Transfer-Encoding").has_value();
  return {};
}

}  // namespace

Parsed<std::unique_ptr<BodyDecoder>> parse_request_head(std::string_view head, Request& out) {
  auto decoder = std::make_unique<Decoder<true>>();
  StartLine line;
  error_code ec;
  decoder->parse_head(head, line, out.headers, ec);
  out.method = std::move(line.method);
  out.target = std::move(line.target);
  out.is_http10 = line.version == 10;
  if (ec == beast::http::error::bad_version && is_other_version(head)) {
    return refuse(505, Code::kUnsupported, "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  if (ec) return malformed("malformed request: " + ec.message());
  if (auto checked = complete_request(out); !checked)
    return tl::unexpected<Refusal>(checked.error());
  return decoder;
}

Result<std::unique_ptr<BodyDecoder>> parse_response_head(std::string_view head, bool is_bodiless,
                                                         ResponseHead& out) {
  auto decoder = std::make_unique<Decoder<false>>();
  decoder->skip(is_bodiless);
  StartLine line;
  error_code ec;
  decoder->parse_head(head, line, out.headers, ec);
  if (ec) return fail(Code::kCorrupt, "malformed response: " + ec.message());
  if (count(out.headers, "Transfer-Encoding") > 0 &&
      !same_name(*find_header(out.headers, "Transfer-Encoding"), "chunked")) {
    return fail(Code::kCorrupt, "the response has an unknown transfer coding");
  }
  out.status = line.status;
  if (const auto length = find_header(out.headers, "Content-Length")) {
    const auto number = parse_int(*length);
    if (number && *number >= 0) out.content_length = static_cast<uint64_t>(*number);
  }
  return decoder;
}

}  // namespace glovebox::http
