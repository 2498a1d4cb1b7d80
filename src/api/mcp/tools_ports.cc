// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/mcp/tool.h"
#include "api/preview/ports.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

Async<ToolResult> preview_url(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(auto id, read_sandbox_id(r));
  GB_CO_TRY(const int64_t port, r.integer("port", 1, 65535).required());
  GB_CO_TRY(const auto is_public, r.boolean("public").optional());
  GB_CO_TRYV(r.done());
  if (call.previews == nullptr) co_return fail(Code::kUnsupported, "this server has no previews");
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, std::move(id)));
  const auto number = static_cast<uint16_t>(port);
  if (is_public) GB_CO_TRYV(co_await call.previews->open(call.caller, place.id, number, *is_public));
  GB_CO_TRY(const auto view, co_await call.previews->view(call.caller, place.id, number, call.outside));
  ToolResult result;
  result.structured = preview::view_object(view);
  std::string text = view.state.is_revoked ? "The preview of this port was revoked."
                                           : "URL: " + std::string(result.structured.at("link").as_string());
  if (view.listening == false)
    text += "\nNothing listens on port " + std::to_string(port) + " yet. A server must listen there on localhost or 0.0.0.0.";
  if (!view.state.is_public && !view.state.is_revoked) text += "\nThe link holds a token: who has it can open the port.";
  result.content.push_back(text_content(text));
  add_note(result, place.note);
  co_return result;
}

const std::string& properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "A port that a server in the sandbox listens on"},
    "public": {"type": "boolean", "description": "true: everybody may open it, without a token; false: a new token, and links given out before end. Left out: as it is"}})";
  return text;
}

constexpr std::string_view kSchema = R"({"type": "object", "properties": {
  "sandbox_id": {"type": "string"}, "port": {"type": "integer"}, "listening": {"type": ["boolean", "null"]}, "public": {"type": "boolean"},
  "revoked": {"type": "boolean"}, "token": {"type": ["string", "null"]}, "urls": {"type": "object"}, "link": {"type": ["string", "null"]},
  "expires_at": {"type": ["string", "null"]}}, "required": ["sandbox_id", "port", "public", "link"]})";

}  // namespace

void add_port_tools(std::vector<Tool>& tools) {
  tools.push_back(
      {.name = "get_preview_url",
       .title = "URL of a port",
       .description = "Returns a URL under which a web server in a sandbox can be opened in a browser, for a human to look at.",
       .input_properties = properties(),
       .required = R"(["port"])",
       .output_schema = kSchema,
       .is_open_world = true,
       .run = preview_url});
}

}  // namespace glovebox::api::mcp
