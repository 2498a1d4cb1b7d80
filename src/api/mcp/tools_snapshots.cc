// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "api/mcp/tool.h"
#include "api/v1/views.h"
#include "sandbox/snapshots.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

constexpr int64_t kMaxForks = 16;

std::string summary(const sandbox::SnapshotInfo& info) {
  return info.id + (info.name.empty() || info.name == info.id ? "" : " (" + info.name + ")") + ", " + info.state + ", " +
         std::string(runtime::kept_name(info.kept)) + ", of sandbox " + info.source_sandbox;
}

Async<ToolResult> snapshot(ToolCall& call) {
  json::Reader r(call.arguments);
  sandbox::SnapshotSpec spec;
  GB_CO_TRY(auto id, read_sandbox_id(r));
  GB_CO_TRY(spec.name, r.string("name", 1, 128).or_default(""));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, std::move(id)));
  GB_CO_TRY(const auto info, co_await call.snapshots.snapshot(call.caller, place.id, std::move(spec)));
  ToolResult result;
  std::string text = "Made snapshot " + summary(info) + ".";
  if (info.kept == runtime::Kept::kFiles) text += " It holds files, not memory: processes are not in it.";
  result.content.push_back(text_content(text));
  result.structured = v1::view(info);
  add_note(result, place.note);
  co_return result;
}

Async<ToolResult> list(ToolCall& call) {
  json::Reader r(call.arguments);
  sandbox::SnapshotFilter filter;
  GB_CO_TRY(filter.source_sandbox, read_sandbox_id(r));
  GB_CO_TRY(const int64_t limit, r.integer("limit", 1, 100).or_default(50));
  GB_CO_TRY(filter.cursor, r.string("cursor", 0, 512).or_default(""));
  GB_CO_TRYV(r.done());
  filter.limit = static_cast<size_t>(limit);
  GB_CO_TRY(const auto page, call.snapshots.list_snapshots(call.caller, filter));
  std::string text;
  bj::array items;
  for (const auto& info : page.items) {
    text += summary(info) + ", " + iso_time(info.created_at) + "\n";
    items.push_back(v1::view(info));
  }
  if (text.empty()) text = "No snapshots.\n";
  if (!page.next_cursor.empty()) text += "[more; go on with cursor " + page.next_cursor + "]\n";
  ToolResult result;
  result.content.push_back(text_content(text));
  result.structured = {{"snapshots", std::move(items)}, {"next_cursor", v1::page_cursor(page.next_cursor)}};
  co_return result;
}

Async<ToolResult> remove(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto id, r.string("snapshot_id", 1, 64).required());
  GB_CO_TRYV(r.done());
  GB_CO_TRYV(co_await call.snapshots.delete_snapshot(call.caller, id));
  ToolResult result;
  result.content.push_back(text_content("Removed snapshot " + id + "."));
  result.structured = {{"id", id}};
  co_return result;
}

Async<ToolResult> reset(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(auto id, read_sandbox_id(r));
  GB_CO_TRY(const auto snapshot_id, r.string("snapshot_id", 1, 64).or_default(""));
  GB_CO_TRYV(r.done());
  if (id.empty()) id = call.session->conversation.own();
  if (id.empty()) co_return fail(Code::kSandboxNotFound, "this session has no sandbox of its own yet; name one in sandbox_id");
  GB_CO_TRY(const auto info, co_await call.snapshots.reset(call.caller, id, snapshot_id));
  ToolResult result;
  result.content.push_back(text_content("Sandbox " + id + " is back at snapshot " + info.snapshot_id + "."));
  result.structured = v1::view(info);
  co_return result;
}

Async<ToolResult> fork(ToolCall& call) {
  json::Reader r(call.arguments);
  sandbox::ForkSpec spec;
  GB_CO_TRY(auto id, read_sandbox_id(r));
  GB_CO_TRY(const int64_t count, r.integer("count", 1, kMaxForks).or_default(1));
  GB_CO_TRYV(r.done());
  spec.count = static_cast<size_t>(count);
  auto& conversation = call.session->conversation;
  GB_CO_TRY(const auto place, co_await conversation.place(call.caller, std::move(id)));
  GB_CO_TRY(const auto children, co_await call.snapshots.fork(call.caller, place.id, std::move(spec)));
  // They are this session's, so they end with it; those of a call that was cancelled at once, since nobody knows them.
  GB_CO_TRYV(co_await conversation.adopt(call.caller, children, call.running->is_cancelled()));
  ToolResult result;
  std::string text = "Forked sandbox " + place.id + " into:\n";
  bj::array items;
  for (const auto& child : children) {
    text += child.id + "\n";
    items.push_back(v1::view(child));
  }
  result.content.push_back(text_content(text));
  result.structured = {{"sandboxes", std::move(items)}};
  add_note(result, place.note);
  co_return result;
}

const std::string& snapshot_properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "name": {"type": "string", "minLength": 1, "maxLength": 128, "description": "A name for people; need not be unique"}})";
  return text;
}

const std::string& reset_properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "snapshot_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "A snapshot of this sandbox; default: the one that it was started from or reset to last"}})";
  return text;
}

const std::string& fork_properties() {
  static const std::string text = "{" + std::string(kSandboxProperty) + R"(,
    "count": {"type": "integer", "minimum": 1, "maximum": 16, "default": 1, "description": "How many copies"}})";
  return text;
}

constexpr std::string_view kListProperties = R"({
  "sandbox_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Only those of this sandbox"},
  "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
  "cursor": {"type": "string", "maxLength": 512, "description": "next_cursor of the result before"}})";

constexpr std::string_view kIdProperties = R"({
  "snapshot_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "From snapshot_sandbox or list_snapshots"}})";

constexpr std::string_view kSnapshotSchema = R"({"type": "object", "properties": {
  "id": {"type": "string"}, "name": {"type": "string"}, "state": {"type": "string"}, "kept": {"type": "string", "description": "memory+files or files"},
  "source_sandbox": {"type": "string"}, "runtime": {"type": "string"}, "bytes": {"type": "integer"}, "created_at": {"type": "string"}},
  "required": ["id", "state", "kept"]})";

const std::string& snapshots_schema() {
  static const std::string text = R"({"type": "object", "properties": {"snapshots": {"type": "array", "items": )" +
                                  std::string(kSnapshotSchema) +
                                  R"(}, "next_cursor": {"type": ["string", "null"]}}, "required": ["snapshots", "next_cursor"]})";
  return text;
}

}  // namespace

void add_snapshot_tools(std::vector<Tool>& tools) {
  tools.push_back({.name = "snapshot_sandbox",
                   .title = "Take a snapshot",
                   .description = "Keeps a sandbox as it is now, to come back to with reset_sandbox or to start others from with create_sandbox. The sandbox "
                                  "goes on running. Depending on the runtime it holds memory and files, or files only; the result says which.",
                   .input_properties = snapshot_properties(),
                   .required = "[]",
                   .output_schema = kSnapshotSchema,
                   .run = snapshot});
  tools.push_back({.name = "reset_sandbox",
                   .title = "Go back to a snapshot",
                   .description = "Brings a sandbox back to one of its snapshots, in place: what has happened in it since then is gone.",
                   .input_properties = reset_properties(),
                   .required = "[]",
                   .output_schema = R"({"type": "object", "properties": {"id": {"type": "string"}, "state": {"type": "string"}}, "required": ["id", "state"]})",
                   .is_destructive = true,
                   .run = reset});
  tools.push_back({.name = "fork_sandbox",
                   .title = "Copy a running sandbox",
                   .description = "Makes independent copies of a sandbox as it is now, to try several ways at once. They end with the session.",
                   .input_properties = fork_properties(),
                   .required = "[]",
                   .output_schema = R"({"type": "object", "properties": {"sandboxes": {"type": "array", "items": {"type": "object"}}}, "required": ["sandboxes"]})",
                   .run = fork});
  tools.push_back({.name = "list_snapshots",
                   .title = "List snapshots",
                   .description = "Lists the snapshots that this key may use, the newest first. They outlive sessions and sandboxes.",
                   .input_properties = kListProperties,
                   .required = "[]",
                   .output_schema = snapshots_schema(),
                   .is_read_only = true,
                   .is_idempotent = true,
                   .run = list});
  tools.push_back({.name = "delete_snapshot",
                   .title = "Remove a snapshot",
                   .description = "Removes a snapshot for good. Sandboxes that were started from it go on.",
                   .input_properties = kIdProperties,
                   .required = R"(["snapshot_id"])",
                   .output_schema = R"({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]})",
                   .is_destructive = true,
                   .run = remove});
}

}  // namespace glovebox::api::mcp
