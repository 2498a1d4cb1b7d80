// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/mcp/session.h"
#include "api/preview/gateway.h"
#include "code/interpreter.h"
#include "http/json.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"

// The tools: what each promises to a model, and how it is one or a few calls of SandboxService.
namespace glovebox::api::mcp {

// One call of a tool. Lives until the tool has returned.
struct ToolCall {
  sandbox::SandboxService& service;
  code::Interpreter& code;
  sandbox::Snapshots& snapshots;
  preview::Gateway* previews;  // null: there are none
  SessionPtr session;
  sandbox::Caller caller;
  preview::Outside outside;  // how the client reaches this daemon
  RunningPtr running;
  boost::json::value arguments;  // an object
  // Tells the client that this goes on; empty when it did not ask. `seconds` grows from call to call.
  std::function<void(double seconds, std::string message)> progress;
};

struct ToolResult {
  boost::json::array content;      // for the model
  boost::json::object structured;  // for programs; as the tool's output schema says
};

boost::json::object text_content(std::string_view bytes);  // what is not UTF-8 becomes U+FFFD
boost::json::object image_content(std::string_view bytes, std::string_view mime_type);
// The result of a call that failed: the error's code, message, details and advice.
boost::json::object error_result(const Error& error);

struct Tool {
  std::string_view name, title, description;
  std::string_view input_properties;  // JSON: the properties of the input schema
  std::string_view required;          // JSON array of their names
  std::string_view output_schema;     // JSON; empty: none
  // Hints for clients that ask a human before some calls.
  bool is_read_only = false, is_destructive = false, is_idempotent = false, is_open_world = false;
  Async<ToolResult> (*run)(ToolCall& call);
};
const std::vector<Tool>& all_tools();
const Tool* find_tool(std::string_view name);
// As tools/list shows it.
boost::json::object describe(const Tool& tool, Version version);

// Shared by the tools
// -----------------------------------------------------------------------------------------------------------------------

// The argument that most tools have, and the sandbox it means.
inline constexpr std::string_view kSandboxProperty =
    R"("sandbox_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The sandbox. Leave it out for the session's own sandbox, which is started when it is first needed."})";
Result<std::string> read_sandbox_id(json::Reader& r);

void add_note(ToolResult& result, const std::string& note);  // nothing for an empty one

void add_sandbox_tools(std::vector<Tool>& tools);
void add_code_tools(std::vector<Tool>& tools);
void add_execution_tools(std::vector<Tool>& tools);
void add_file_tools(std::vector<Tool>& tools);
void add_port_tools(std::vector<Tool>& tools);
void add_snapshot_tools(std::vector<Tool>& tools);

}  // namespace glovebox::api::mcp
