// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/tool.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/text.h"
#include "http/message.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

bj::value parsed(std::string_view text) {
  auto value = json::parse(text);
  GB_ASSERT(value);
  return std::move(*value);
}

std::string error_line(const Error& error) {
  std::string out = "Error " + std::string(info(error.code).name) + ": " + error.message;
  for (const auto& [name, value] : error.details) {
    if (error.message.find(value) == std::string::npos) out += "\n" + name + ": " + value;
  }
  return out + "\n" + std::string(info(error.code).advice);
}

}  // namespace

bj::object text_content(std::string_view bytes) {
  return {{"type", "text"}, {"text", utf8_lossy(bytes)}};
}

bj::object image_content(std::string_view bytes, std::string_view mime_type) {
  return {{"type", "image"}, {"data", base64_encode(bytes)}, {"mimeType", mime_type}};
}

bj::object error_result(const Error& error) {
  bj::object out{{"content", bj::array{text_content(error_line(error))}}, {"isError", true}};
  if (auto body = json::parse_object(http::error_body(error)))
    out["_meta"] = {{"glovebox/error", std::move(body->as_object()["error"])}};
  return out;
}

const std::vector<Tool>& all_tools() {
  static const auto table = [] {
    std::vector<Tool> tools;
    add_execution_tools(tools);
    add_code_tools(tools);
    add_file_tools(tools);
    add_sandbox_tools(tools);
    add_port_tools(tools);
    add_snapshot_tools(tools);
    return tools;
  }();
  return table;
}

const Tool* find_tool(std::string_view name) {
  const auto& tools = all_tools();
  const auto found = std::ranges::find_if(tools, [&](const Tool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

bj::object describe(const Tool& tool, Version version) {
  bj::object input{{"type", "object"}, {"properties", parsed(tool.input_properties)}, {"additionalProperties", false}};
  if (auto required = parsed(tool.required); !required.as_array().empty()) input["required"] = std::move(required);
  bj::object out{{"name", tool.name},
                 {"description", tool.description},
                 {"inputSchema", std::move(input)},
                 {"annotations",
                  {{"title", tool.title},
                   {"readOnlyHint", tool.is_read_only},
                   {"destructiveHint", tool.is_destructive},
                   {"idempotentHint", tool.is_idempotent},
                   {"openWorldHint", tool.is_open_world}}}};
  if (version < Version::k2025_06_18) return out;
  out["title"] = tool.title;
  if (!tool.output_schema.empty()) out["outputSchema"] = parsed(tool.output_schema);
  return out;
}

Result<std::string> read_sandbox_id(json::Reader& r) {
  return r.string("sandbox_id", 1, 64).or_default("");
}

void add_note(ToolResult& result, const std::string& note) {
  if (!note.empty()) result.content.push_back(text_content("Note: " + note));
}

}  // namespace glovebox::api::mcp
