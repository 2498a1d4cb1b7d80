// SPDX-License-Identifier: Apache-2.0
#include "code/events.h"

#include <algorithm>
#include <array>

#include "channel/json_shape.h"
#include "http/json.h"

namespace glovebox::code {
namespace {

namespace bj = boost::json;
constexpr size_t kMaxName = 256, kMaxPath = 4096, kMaxMessage = 4096, kMaxRepresentations = 64,
                 kMaxContexts = 1000;

tl::unexpected<Error> nonsense(const std::string& what) {
  return fail(Code::kSandboxIo,
              "the code runner in the sandbox answered something else than it should: " + what);
}

// The errors of the runner's that are part of its protocol.
Error error_of(const bj::object& line) {
  constexpr std::pair<std::string_view, Code> kCodes[] = {
      {"invalid_argument", Code::kInvalidArgument},
      {"not_found", Code::kNotFound},
      {"capacity", Code::kCapacity},
      {"missing", Code::kUnsupported}};
  const auto* code = line.if_contains("code");
  const auto* message = line.if_contains("message");
  Error error{Code::kSandboxIo, "the code runner failed", {}};
  if (message != nullptr && message->is_string())
    error.message = std::string(message->get_string()).substr(0, kMaxMessage);
  for (const auto& [name, ours] : kCodes) {
    if (code != nullptr && code->is_string() && code->get_string() == name) error.code = ours;
  }
  return error;
}

// An object with a known `event`; "failed" is its error.
Result<bj::object> open(std::string_view line) {
  if (line.size() > kMaxLine) return nonsense("a line that is too long");
  if (!channel::check_json_shape(line)) return nonsense("JSON of an unreasonable shape");
  auto value = json::parse_object(line);
  if (!value) return nonsense(value.error().message);
  bj::object object = std::move(value->as_object());
  const auto* event = object.if_contains("event");
  if (event == nullptr || !event->is_string()) return nonsense("a line without an event");
  if (event->get_string() == "failed") return fail(error_of(object));
  return object;
}

std::string_view name_of(const bj::object& line) {
  return line.at("event").get_string();
}

// A string field of at most `max` bytes; absent reads as empty.
Result<std::string> text(const bj::object& line, std::string_view name, size_t max) {
  const auto* value = line.if_contains(name);
  if (value == nullptr) return std::string();
  if (!value->is_string() || value->get_string().size() > max)
    return nonsense("the field " + std::string(name));
  return std::string(value->get_string());
}

Result<int64_t> number(const bj::object& line, std::string_view name, int64_t min, int64_t max) {
  const auto* value = line.if_contains(name);
  if (value == nullptr) return 0;
  if (!value->is_int64() || value->get_int64() < min || value->get_int64() > max)
    return nonsense("the field " + std::string(name));
  return value->get_int64();
}

Result<bool> flag(const bj::object& line, std::string_view name) {
  const auto* value = line.if_contains(name);
  if (value == nullptr) return false;
  if (!value->is_bool()) return nonsense("the field " + std::string(name));
  return value->get_bool();
}

bool is_representation_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName &&
         std::ranges::all_of(name, [](char c) { return c > 0x20 && c < 0x7f; });
}

Result<Event> decode_result(bj::object& line, Event event) {
  auto* data = line.if_contains("data");
  if (data == nullptr || !data->is_object() || data->get_object().size() > kMaxRepresentations)
    return nonsense("the field data");
  for (const auto& [name, value] : data->get_object()) {
    if (!is_representation_name(name)) return nonsense("the name of a representation");
  }
  event.data = std::move(data->get_object());
  if (const auto* dropped = line.if_contains("dropped")) {
    if (!dropped->is_array() || dropped->get_array().size() > kMaxRepresentations)
      return nonsense("the field dropped");
    for (const auto& name : dropped->get_array()) {
      if (!name.is_string() || !is_representation_name(name.get_string()))
        return nonsense("the field dropped");
      event.dropped.emplace_back(name.get_string());
    }
  }
  GB_TRY(event.is_main, flag(line, "main"));
  return event;
}

Result<Event> decode_error(const bj::object& line, Event event) {
  GB_TRY(event.name, text(line, "name", kMaxName));
  GB_TRY(event.value, text(line, "value", kMaxLine));
  GB_TRY(event.traceback, text(line, "traceback", kMaxLine));
  GB_TRY(event.problem, text(line, "kind", kMaxName));
  constexpr std::array<std::string_view, 5> kProblems = {"exception", "timeout", "interrupted",
                                                         "died", "exit"};
  if (std::ranges::find(kProblems, event.problem) == kProblems.end()) event.problem = "exception";
  GB_TRY(const int64_t signal, number(line, "signal", 0, 64));
  if (signal != 0) event.signal = static_cast<int>(signal);
  return event;
}

Result<Context> context_of(const bj::object& line) {
  Context context;
  GB_TRY(context.id, text(line, "id", kMaxName));
  GB_TRY(context.language, text(line, "language", kMaxName));
  GB_TRY(context.cwd, text(line, "cwd", kMaxPath));
  GB_TRY(context.is_running, flag(line, "running"));
  if (context.id.empty()) return nonsense("a context without an id");
  return context;
}

}  // namespace

Result<Event> decode_event(std::string_view line) {
  using Kind = Event::Kind;
  constexpr std::pair<std::string_view, Kind> kKinds[] = {
      {"start", Kind::kStart},   {"stdout", Kind::kStdout}, {"stderr", Kind::kStderr},
      {"result", Kind::kResult}, {"error", Kind::kError},   {"keepalive", Kind::kKeepalive},
      {"end", Kind::kEnd}};
  GB_TRY(auto object, open(line));
  const auto* known =
      std::ranges::find(kKinds, name_of(object), [](const auto& pair) { return pair.first; });
  if (known == std::end(kKinds)) return nonsense("an event of an unknown name");
  Event event;
  event.kind = known->second;
  GB_TRY(event.count, number(object, "count", 0, INT64_MAX));
  if (event.kind == Kind::kResult) return decode_result(object, std::move(event));
  if (event.kind == Kind::kError) return decode_error(object, std::move(event));
  GB_TRY(event.text, text(object, "text", kMaxLine));
  GB_TRY(event.context, text(object, "context", kMaxName));
  GB_TRY(event.language, text(object, "language", kMaxName));
  return event;
}

Result<Context> decode_context(std::string_view line) {
  GB_TRY(const auto object, open(line));
  if (name_of(object) != "context") return nonsense("no context");
  return context_of(object);
}

Result<std::vector<Context>> decode_contexts(std::string_view line) {
  GB_TRY(const auto object, open(line));
  const auto* list = object.if_contains("contexts");
  if (name_of(object) != "contexts" || list == nullptr || !list->is_array() ||
      list->get_array().size() > kMaxContexts)
    return nonsense("no list of contexts");
  std::vector<Context> out;
  for (const auto& item : list->get_array()) {
    if (!item.is_object()) return nonsense("no list of contexts");
    GB_TRY(auto context, context_of(item.get_object()));
    out.push_back(std::move(context));
  }
  return out;
}

Result<bool> decode_ok(std::string_view line) {
  GB_TRY(const auto object, open(line));
  if (name_of(object) != "ok") return nonsense("no ok");
  return flag(object, "interrupted");
}

Result<void> decode_ready(std::string_view line) {
  GB_TRY(const auto object, open(line));
  if (name_of(object) != "ready") return nonsense("it is not ready");
  return {};
}

Wish decode_wish(std::string_view line) {
  constexpr size_t kLongest = 64;
  const auto object =
      line.size() <= kLongest ? open(line) : Result<bj::object>(nonsense("no wish"));
  if (!object) return Wish::kNone;
  constexpr std::pair<std::string_view, Wish> kWishes[] = {
      {"owner", Wish::kOwner}, {"again", Wish::kAgain}, {"met", Wish::kMet}};
  const auto* known =
      std::ranges::find(kWishes, name_of(*object), [](const auto& pair) { return pair.first; });
  return known == std::end(kWishes) ? Wish::kNone : known->second;
}

Async<Event> first_to_say(std::function<Async<Event>()> next, std::chrono::milliseconds patience) {
  const Deadline deadline = after(patience);
  auto event = co_await next();
  while (event && event->kind == Event::Kind::kKeepalive && Clock::now() < deadline)
    event = co_await next();
  co_return event;
}

}  // namespace glovebox::code
