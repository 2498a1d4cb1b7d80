// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/dispatch.h"

#include <boost/json.hpp>

#include "api/mcp/tool.h"
#include "base/log.h"
#include "metrics/metrics.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

using Answer = tl::expected<bj::object, RpcError>;

constexpr std::string_view kInstructions =
    "Glovebox gives you isolated Linux machines (sandboxes). Work in the session's own sandbox: leave sandbox_id out, it is "
    "started when it is first "
    "needed and ends with the session. Use exec for commands, read_file, write_file and edit_file for files, and get_preview_url "
    "to show a web server "
    "to a human. For servers and jobs of more than a minute use exec with background: true, then exec_output.";

tl::unexpected<RpcError> invalid_params(std::string message) {
  return tl::unexpected(RpcError{RpcError::kInvalidParams, std::move(message), nullptr, nullptr});
}

Answer list_tools(const Session& session, const bj::object& params) {
  // There is one page.
  if (const auto* cursor = params.if_contains("cursor"); cursor != nullptr && !cursor->is_null())
    return invalid_params("cursor: is not one of ours");
  bj::array tools;
  for (const Tool& tool : all_tools()) tools.push_back(describe(tool, session.version()));
  return bj::object{{"tools", std::move(tools)}};
}

// Where progress of a request goes; nothing when its sender did not ask.
std::function<void(double, std::string)> progress_to(const bj::object& params, const StreamPtr& stream) {
  const auto* meta = params.if_contains("_meta");
  const auto* token = meta != nullptr && meta->is_object() ? meta->get_object().if_contains("progressToken") : nullptr;
  const bool is_token = token != nullptr && (token->is_int64() || (token->is_string() && token->get_string().size() <= 256));
  if (!is_token) return {};
  return [stream, token = *token](double seconds, std::string message) {
    bj::object body{{"progressToken", token}, {"progress", seconds}};
    if (!message.empty()) body["message"] = std::move(message);
    stream->notify(notification_text("notifications/progress", std::move(body)));
  };
}

void count(const Tool& tool, std::string_view result) {
  metrics::registry()
      .counter("glovebox_mcp_calls_total", "Calls of MCP tools.",
               {{"tool", std::string(tool.name)}, {"result", std::string(result)}})
      .add();
}

bj::object shown(ToolResult result, const Tool& tool, Version version) {
  bj::object out{{"content", std::move(result.content)}, {"isError", false}};
  if (version >= Version::k2025_06_18 && !tool.output_schema.empty()) out["structuredContent"] = std::move(result.structured);
  return out;
}

struct ToolRequest {
  const Tool* tool = nullptr;
  bj::value arguments = bj::object();
};
tl::expected<ToolRequest, RpcError> read_tool_request(const bj::object& params) {
  ToolRequest out;
  const auto *name = params.if_contains("name"), *arguments = params.if_contains("arguments");
  if (name == nullptr || !name->is_string()) return invalid_params("name: must be a string");
  out.tool = find_tool(std::string_view(name->get_string()));
  if (out.tool == nullptr) return invalid_params("Unknown tool: " + std::string(name->get_string().subview(0, 100)));
  if (arguments != nullptr && !arguments->is_object() && !arguments->is_null())
    return invalid_params("arguments: must be an object");
  if (arguments != nullptr && arguments->is_object()) out.arguments = *arguments;
  return out;
}

Awaitable<Answer> call_tool(const Parts& parts, SessionPtr session, sandbox::Caller caller, preview::Outside outside,
                            bj::object params, RunningPtr running, StreamPtr stream) {
  auto request = read_tool_request(params);
  if (!request) co_return tl::unexpected(std::move(request).error());
  const Tool& tool = *request->tool;
  const std::string request_id = caller.request_id;
  ToolCall call{parts.service,
                parts.code,
                parts.snapshots,
                parts.previews,
                session,
                std::move(caller),
                std::move(outside),
                std::move(running),
                std::move(request->arguments),
                progress_to(params, stream)};
  Result<ToolResult> result = fail(Code::kInternal, "the tool broke off");
  try {
    result = co_await tool.run(call);
  } catch (const std::exception& broken) {  // a client must not wait for a request that nobody answers
    log::error("mcp.tool_broke", {{"request", request_id}, {"tool", tool.name}, {"what", broken.what()}});
  }
  if (result) {
    count(tool, "ok");
    co_return shown(std::move(*result), tool, session->version());
  }
  count(tool, call.running->is_cancelled() ? "cancelled" : "error");
  if (info(result.error().code).fault == Fault::kPlatform) {
    log::warn("mcp.call_failed", {{"request", request_id},
                                  {"tool", tool.name},
                                  {"code", info(result.error().code).name},
                                  {"message", result.error().message}});
  }
  co_return error_result(result.error());
}

}  // namespace

Version negotiate(const bj::object& params) {
  const auto* wanted = params.if_contains("protocolVersion");
  if (wanted == nullptr || !wanted->is_string()) return kNewestVersion;
  return version_from_name(std::string_view(wanted->get_string())).value_or(kNewestVersion);
}

bj::object initialize_result(const Parts& parts, Version version) {
  bj::object server{{"name", "glovebox"}, {"version", parts.version}};
  if (version >= Version::k2025_06_18) server["title"] = "Glovebox sandboxes";
  return {{"protocolVersion", version_name(version)},
          {"capabilities", {{"tools", {{"listChanged", false}}}}},
          {"serverInfo", std::move(server)},
          {"instructions", kInstructions}};
}

Awaitable<void> run_request(const Parts& parts, SessionPtr session, sandbox::Caller caller, preview::Outside outside,
                            Message message, RunningPtr running, StreamPtr stream) {
  Answer answer = tl::unexpected(RpcError{RpcError::kMethodNotFound, "there is no method " + message.method, nullptr, nullptr});
  if (message.method == "ping") answer = bj::object();
  if (message.method == "initialize")
    answer = tl::unexpected(RpcError{RpcError::kInvalidRequest, "this session is initialized", nullptr, nullptr});
  if (message.method == "tools/list") answer = list_tools(*session, message.params);
  if (message.method == "tools/call") {
    answer =
        co_await call_tool(parts, session, std::move(caller), std::move(outside), std::move(message.params), running, stream);
  }
  session->end_request(message.id);
  if (running->is_cancelled()) {
    stream->drop_response();
  } else if (answer) {
    stream->respond(response_text(message.id, std::move(*answer)));
  } else {
    answer.error().id = message.id;
    stream->respond(error_text(answer.error()));
  }
}

void take_notification(Session& session, const Message& message) {
  if (message.method != "notifications/cancelled") return;
  const auto* id = message.params.if_contains("requestId");
  if (id != nullptr && (id->is_int64() || (id->is_string() && id->get_string().size() <= 256))) session.cancel(*id);
}

}  // namespace glovebox::api::mcp
