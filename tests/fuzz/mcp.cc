// SPDX-License-Identifier: Apache-2.0
// What MCP clients send: messages, event ids, arguments of tools; and the events that `glovebox mcp` reads. The first byte chooses.
#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/mcp/dispatch.h"
#include "api/mcp/message.h"
#include "api/mcp/stream.h"
#include "api/mcp/tool.h"
#include "http/json.h"
#include "programs/glovebox/sse_reader.h"
#include "sandbox/testing/world.h"

namespace {

using namespace glovebox;
using namespace glovebox::api::mcp;
namespace bj = boost::json;

void messages(std::string_view text) {
  const auto incoming = parse_incoming(text);
  if (!incoming) {
    if (!json::parse(error_text(incoming.error()))) std::abort();
    return;
  }
  if (incoming->messages.empty() || incoming->messages.size() > kMaxBatch) std::abort();
  for (const Message& message : incoming->messages) {
    (void)negotiate(message.params);
    if (message.kind != Message::Kind::kRequest) continue;
    // Its answer carries the same id.
    const auto answer = json::parse_object(response_text(message.id, {}));
    if (!answer || answer->at("id") != message.id) std::abort();
  }
}

// The same events whatever pieces they come in, and never more than came.
std::vector<std::string> events_of(std::string_view bytes, size_t piece) {
  cli::SseReader reader(1 << 20);
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.feed(bytes.substr(at, piece));
    while (true) {
      auto event = reader.next();
      if (!event) return out;
      if (!*event) break;
      out.push_back((*event)->id + "|" + (*event)->data);
    }
  }
  return out;
}

void events(std::string_view bytes) {
  if (const auto place = parse_event_id(bytes)) {
    const Stream stream(place->stream, 1);
    const auto again = parse_event_id(event_id(stream, place->number));
    if (!again || again->stream != place->stream || again->number != place->number) std::abort();
  }
  if (events_of(bytes, bytes.size() + 1) != events_of(bytes, 3)) std::abort();
}

// A tool is given anything at all; there is no sandbox for it to use.
void tools(const Tool& tool, std::string_view text) {
  auto arguments = json::parse_object(text);
  if (!arguments) return;
  arguments->as_object()["sandbox_id"] = "sb-none";
  static sandbox::testing::World world([] {
    sandbox::Config config;
    config.max_sandboxes = 0;
    return config;
  }());
  static code::Interpreter interpreter(world.manager());
  static const Settings settings;
  world.run([&]() -> Awaitable<void> {
    auto session = std::make_shared<Session>("s", world.caller, kNewestVersion, world.manager(), settings, "m");
    ToolCall call{world.manager(), interpreter, world.manager().snapshots(), nullptr, session, world.caller, {}, std::make_shared<Running>(), *arguments, {}};
    const auto result = co_await tool.run(call);
    if (result && tool.name != "list_sandboxes") std::abort();
    if (!result && !error_result(result.error()).contains("content")) std::abort();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t kind = data[0] % 16;
  if (kind == 0) {
    messages(text);
  } else if (kind == 1) {
    events(text);
  } else {
    tools(all_tools()[(kind - 2) % all_tools().size()], text);
  }
  return 0;
}
