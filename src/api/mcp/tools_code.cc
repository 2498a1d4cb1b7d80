// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "api/mcp/output.h"
#include "api/mcp/tool.h"
#include "base/text.h"
#include "code/interpreter.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
using code::Event;
namespace {

constexpr double kDefaultTimeout = 55;  // seconds: the official clients give a call up after 60
constexpr double kMaxTimeout = 3600;
constexpr size_t kMaxCode = 4 << 20;
constexpr size_t kMaxImages = 8 << 20;  // base64, of one call
constexpr std::chrono::seconds kProgressInterval{2};

struct Request {
  std::string sandbox_id;
  code::RunSpec spec;
  size_t max_output = kDefaultOutputBytes;
};
Result<Request> read_request(const bj::value& arguments) {
  json::Reader r(arguments);
  Request out;
  GB_TRY(out.sandbox_id, read_sandbox_id(r));
  GB_TRY(out.spec.code, r.content("code", kMaxCode).required());
  GB_TRY(out.spec.language, r.one_of("language", {"python", "javascript", "bash"}).or_default("python"));
  GB_TRY(const double timeout, r.number("timeout_s", 0.1, kMaxTimeout).or_default(kDefaultTimeout));
  GB_TRY(const int64_t most, r.integer("max_output_bytes", 1024, kMaxOutputBytes).or_default(kDefaultOutputBytes));
  GB_TRYV(r.done());
  out.spec.timeout = sandbox::Millis(static_cast<int64_t>(std::llround(timeout * 1000)));
  out.max_output = static_cast<size_t>(most);
  return out;
}

std::string shortened(const std::string& text, size_t max_bytes, bool* is_truncated) {
  if (text.size() <= max_bytes) return text;
  *is_truncated = true;
  const std::string head = text.substr(0, utf8_complete_prefix(std::string_view(text).substr(0, max_bytes / 2)));
  const std::string tail = text.substr(text.size() - max_bytes / 2);
  return head + "\n[… " + std::to_string(text.size() - head.size() - tail.size()) + " bytes left out …]\n" + tail;
}

// Everything that a cell did, as a model and a program get it.
class Summary {
 public:
  explicit Summary(size_t max_output) : max_output_(max_output) {}

  void take(Event& event) {
    switch (event.kind) {
      case Event::Kind::kStart:
        context_ = event.context;
        language_ = event.language;
        break;
      case Event::Kind::kStdout:
        append(stdout_, event.text);
        break;
      case Event::Kind::kStderr:
        append(stderr_, event.text);
        break;
      case Event::Kind::kResult:
        take_result(event);
        break;
      case Event::Kind::kError:
        take_error(event);
        break;
      case Event::Kind::kEnd:
        count_ = event.count;
        break;
      case Event::Kind::kKeepalive:
        break;
    }
  }

  std::string last_line() const {
    const std::string_view text = std::string_view(text_).substr(0, text_.find_last_not_of('\n') + 1);
    const size_t begin = text.rfind('\n');
    return utf8_lossy(text.substr(begin == text.npos ? 0 : begin + 1).substr(0, 160));
  }

  ToolResult result(const std::string& sandbox_id) {
    ToolResult out;
    std::string text = shortened(text_, max_output_, &is_truncated_);
    if (text.empty() && images_.empty()) text = "[no output]";
    out.structured = {{"sandbox_id", sandbox_id},       {"context", context_},
                      {"language", language_},          {"execution_count", count_},
                      {"results", std::move(results_)}, {"error", std::move(error_)}};
    out.structured["stdout"] = utf8_lossy(shortened(stdout_, max_output_, &is_truncated_));
    out.structured["stderr"] = utf8_lossy(shortened(stderr_, max_output_, &is_truncated_));
    out.structured["truncated"] = is_truncated_;
    if (!text.empty()) out.content.push_back(text_content(text));
    for (auto& image : images_) out.content.push_back(std::move(image));
    return out;
  }

 private:
  void append(std::string& stream, const std::string& text) {
    keep(stream, text);
    keep(text_, text);
  }
  // What is far behind the beginning and far before the end is not shown in any case.
  void keep(std::string& held, const std::string& text) {
    held += text;
    if (held.size() <= 4 * max_output_) return;
    held.erase(max_output_, held.size() - 2 * max_output_);
    is_truncated_ = true;
  }

  // The form that suits a model best; images beside the text.
  void take_result(Event& event) {
    bj::object shown{{"main", event.is_main}};
    for (const char* type : {"image/png", "image/jpeg"}) {
      const auto* data = event.data.if_contains(type);
      if (data == nullptr || !data->is_string()) continue;
      shown["image"] = type;
      if (image_bytes_ + data->get_string().size() > kMaxImages) {
        is_truncated_ = true;
        line("[an image is left out: it is too large]");
      } else {
        image_bytes_ += data->get_string().size();
        images_.push_back({{"type", "image"}, {"data", *data}, {"mimeType", type}});
      }
      break;
    }
    for (const char* type : {"text/markdown", "text/plain", "application/json", "text/html", "image/svg+xml"}) {
      const auto* data = event.data.if_contains(type);
      if (data == nullptr) continue;
      const std::string text = data->is_string() ? std::string(data->get_string()) : json::to_text(*data);
      shown[type] = utf8_lossy(shortened(text, max_output_, &is_truncated_));
      if (!shown.contains("image")) line(text);
      break;
    }
    results_.push_back(std::move(shown));
  }

  void take_error(const Event& event) {
    error_ = {{"kind", event.problem}, {"name", event.name}, {"value", event.value}, {"traceback", event.traceback}};
    line(event.traceback.empty() ? event.name + ": " + event.value : event.traceback);
    if (event.problem != "exception") line("[" + event.problem + ": " + event.value + "]");
  }

  void line(const std::string& text) {
    if (!text_.empty() && !text_.ends_with('\n')) text_ += '\n';
    keep(text_, text + "\n");
  }

  const size_t max_output_;
  std::string context_, language_, stdout_, stderr_, text_;
  int64_t count_ = 0;
  bj::array results_;
  std::vector<bj::object> images_;
  bj::value error_ = nullptr;
  size_t image_bytes_ = 0;
  bool is_truncated_ = false;
};

Async<ToolResult> run_code(ToolCall& call) {
  GB_CO_TRY(auto request, read_request(call.arguments));
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, request.sandbox_id));
  const auto run = call.code.run(call.caller, place.id, std::move(request.spec));
  call.running->on_cancel([weak = std::weak_ptr(run)] {
    if (const auto cell = weak.lock()) cell->stop();
  });
  const Clock::time_point started = Clock::now();
  Clock::time_point told = started;
  Summary summary(request.max_output);
  GB_CO_TRY(auto event, co_await run->next());
  while (event.kind != Event::Kind::kEnd) {
    summary.take(event);
    if (call.progress && Clock::now() - told > kProgressInterval) {
      told = Clock::now();
      call.progress(std::chrono::duration<double>(told - started).count(), summary.last_line());
    }
    GB_CO_TRY(event, co_await run->next());
  }
  summary.take(event);
  auto result = summary.result(place.id);
  add_note(result, place.note);
  co_return result;
}

const std::string& properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "code": {"type": "string", "maxLength": 4194304, "description": "The cell. In Python the value of its last expression is a result; matplotlib figures are returned as images."},
    "language": {"type": "string", "enum": ["python", "javascript", "bash"], "default": "python", "description": "Each has a context of its own"},
    "timeout_s": {"type": "number", "minimum": 0.1, "maximum": 3600, "default": 55, "description": "Interrupt the cell after this many seconds; variables are kept"},
    "max_output_bytes": {"type": "integer", "minimum": 1024, "maximum": 524288, "default": 65536, "description": "Of longer output the beginning and the end are returned."}})";
  return text;
}

constexpr std::string_view kSchema = R"({"type": "object", "properties": {
  "sandbox_id": {"type": "string"}, "context": {"type": "string"}, "language": {"type": "string"}, "execution_count": {"type": "integer"},
  "stdout": {"type": "string"}, "stderr": {"type": "string"},
  "results": {"type": "array", "items": {"type": "object"}, "description": "values by MIME type; image data is in the content"},
  "error": {"type": ["object", "null"], "description": "kind: exception, timeout, interrupted, died, exit or sandbox_ended; name, value, traceback"},
  "truncated": {"type": "boolean"}}, "required": ["sandbox_id", "context", "language", "stdout", "stderr", "results", "error", "truncated"]})";

}  // namespace

void add_code_tools(std::vector<Tool>& tools) {
  tools.push_back({.name = "run_code",
                   .title = "Run code",
                   .description = "Runs a cell of Python, JavaScript or bash in a sandbox and returns its output, the value of "
                                  "its last expression, and charts as images. "
                                  "Variables, imports and the directory stay for later cells of the language. An exception is a "
                                  "result. Needs a sandbox of the "
                                  "template interpreter.",
                   .input_properties = properties(),
                   .required = R"(["code"])",
                   .output_schema = kSchema,
                   .is_destructive = true,
                   .is_open_world = true,
                   .run = run_code});
}

}  // namespace glovebox::api::mcp
