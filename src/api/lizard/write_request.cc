// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/write_request.h"

#include <boost/json/basic_parser_impl.hpp>

#include "base/text.h"

namespace glovebox::api::lizard {
namespace {

namespace bj = boost::json;
using sys_error = boost::system::error_code;
constexpr size_t kBase64Piece = 256 << 10;  // a multiple of four

// The events of the parser. Returning false stops it; `problem` says why.
struct Events {
  static constexpr size_t max_object_size = 8;
  static constexpr size_t max_array_size = 0;
  static constexpr size_t max_key_size = 64;
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  WriteRequest request;
  std::string key, problem;
  std::string* target = nullptr;
  unsigned seen = 0;
  int depth = 0;

  bool refuse(std::string what) {
    problem = std::move(what);
    return false;
  }
  bool choose(std::string_view name) {
    std::pair<std::string_view, std::string*> fields[] = {{"path", &request.path}, {"content", &request.content},
                                                          {"encoding", &request.encoding}, {"user", &request.user}};
    for (unsigned n = 0; n < 4; ++n) {
      if (fields[n].first != name) continue;
      target = fields[n].second;
      if ((seen & 1u << n) != 0) return refuse(std::string(name) + ": is given twice");
      seen |= 1u << n;
      return true;
    }
    return refuse(utf8_lossy(name) + ": is not a known field");
  }

  bool on_document_begin(sys_error&) { return true; }
  bool on_document_end(sys_error&) { return true; }
  bool on_object_begin(sys_error&) { return ++depth == 1 || refuse(key + ": must be a string"); }
  bool on_object_end(size_t, sys_error&) { return --depth, true; }
  bool on_array_begin(sys_error&) { return refuse(key + ": must be a string"); }
  bool on_array_end(size_t, sys_error&) { return false; }
  bool on_key_part(bj::string_view part, size_t, sys_error&) { return key.append(part), true; }
  bool on_key(bj::string_view part, size_t, sys_error&) {
    key.append(part);
    return choose(std::exchange(key, {}));
  }
  bool on_string_part(bj::string_view part, size_t, sys_error&) {
    if (depth != 1) return refuse("the body must be a JSON object");
    return target->append(part), true;
  }
  bool on_string(bj::string_view part, size_t total, sys_error& error) { return on_string_part(part, total, error); }
  bool on_number_part(bj::string_view, sys_error&) { return refuse("all fields must be strings"); }
  bool on_int64(int64_t, bj::string_view, sys_error&) { return refuse("all fields must be strings"); }
  bool on_uint64(uint64_t, bj::string_view, sys_error&) { return refuse("all fields must be strings"); }
  bool on_double(double, bj::string_view, sys_error&) { return refuse("all fields must be strings"); }
  bool on_bool(bool, sys_error&) { return refuse("all fields must be strings"); }
  bool on_null(sys_error&) { return refuse("all fields must be strings"); }
  bool on_comment_part(bj::string_view, sys_error&) { return false; }
  bool on_comment(bj::string_view, sys_error&) { return false; }
};

}  // namespace

struct WriteParser::Impl {
  bj::basic_parser<Events> parser{bj::parse_options{}};

  Result<void> feed(bool more, std::string_view piece) {
    sys_error error;
    const size_t used = parser.write_some(more, piece.data(), piece.size(), error);
    if (!parser.handler().problem.empty()) return fail(Code::kInvalidArgument, parser.handler().problem);
    if (error) return fail(Code::kInvalidArgument, "the body is not JSON: " + error.message());
    if (piece.find_first_not_of(" \t\r\n", used) != std::string_view::npos) {
      return fail(Code::kInvalidArgument, "the body goes on after its JSON object");
    }
    return {};
  }
};

WriteParser::WriteParser() : impl_(std::make_unique<Impl>()) {}
WriteParser::~WriteParser() = default;

Result<void> WriteParser::take(std::string_view piece) { return impl_->feed(true, piece); }

Result<WriteRequest> WriteParser::finish() {
  GB_TRYV(impl_->feed(false, ""));
  Events& events = impl_->parser.handler();
  for (unsigned field : {0u, 1u}) {
    if ((events.seen & 1u << field) == 0) return fail(Code::kInvalidArgument, field == 0 ? "path: is required" : "content: is required");
  }
  if (!events.request.encoding.empty() && events.request.encoding != "base64" && events.request.encoding != "utf8" &&
      events.request.encoding != "utf-8") {
    return fail(Code::kInvalidArgument, "encoding: must be base64 or utf8");
  }
  return std::move(events.request);
}

size_t WriteParser::buffered() const { return impl_->parser.handler().request.content.size(); }

Result<std::string> Base64Reader::read() {
  const std::string_view piece = rest_.substr(0, kBase64Piece);
  rest_.remove_prefix(piece.size());
  auto bytes = base64_decode(piece);
  const bool is_padded_inside = !rest_.empty() && piece.ends_with('=');
  if (!bytes || is_padded_inside) return fail(Code::kInvalidArgument, "content: is not base64");
  return std::move(*bytes);
}

}  // namespace glovebox::api::lizard
