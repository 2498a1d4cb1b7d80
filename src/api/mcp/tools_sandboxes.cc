// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>

#include "api/mcp/tool.h"
#include "api/v1/views.h"
#include "policy/egress.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
using sandbox::Millis;
namespace {

constexpr int64_t kMaxSeconds = 30LL * 24 * 3600;

std::string summary(const sandbox::SandboxInfo& info) {
  std::string out = info.id + " " + std::string(sandbox::state_name(info.state)) + ", " +
                    std::string(runtime::tier_name(info.tier)) + ", template " + info.template_name;
  if (info.ended) out += ", ended: " + info.ended->reason;
  if (!info.ended && info.expires_at) out += ", expires " + iso_time(*info.expires_at);
  return out;
}

ToolResult show(const sandbox::SandboxInfo& info, std::string text) {
  ToolResult result;
  result.content.push_back(text_content(text));
  result.structured = v1::view(info);
  return result;
}

struct CreateRequest {
  sandbox::CreateSpec spec;
  bool stays = false, as_own = false;
};

Result<void> read_size(json::Reader& r, sandbox::CreateSpec* spec) {
  GB_TRY(spec->cpus, r.number("cpus", 0.05, 4096).optional());
  GB_TRY(const auto memory, r.integer("memory_mb", 16, 1LL << 40).optional());
  GB_TRY(const auto disk, r.integer("disk_mb", 16, 1LL << 40).optional());
  if (memory) spec->memory_bytes = static_cast<uint64_t>(*memory) << 20;
  if (disk) spec->disk_bytes = static_cast<uint64_t>(*disk) << 20;
  return {};
}

Result<CreateRequest> read_create(const bj::value& arguments) {
  json::Reader r(arguments);
  CreateRequest out;
  auto& spec = out.spec;
  GB_TRY(spec.template_name, r.string("template", 1, 200).or_default("base"));
  GB_TRY(spec.snapshot, r.string("snapshot_id", 1, 64).or_default(""));
  if (!spec.snapshot.empty() && r.has("template")) return fail(r.error("snapshot_id", "cannot be given together with template"));
  GB_TRY(const auto tier, r.one_of("runtime", {"auto", "microvm", "gvisor", "container"}).or_default("auto"));
  spec.tier = runtime::tier_from_name(tier);
  GB_TRYV(read_size(r, &spec));
  GB_TRY(spec.env, r.string_map("env", 1000).or_default({}));
  GB_TRY(spec.metadata, r.string_map("metadata", 63).or_default({}));
  GB_TRY(const auto lifetime, r.integer("lifetime_s", 1, kMaxSeconds).optional());
  GB_TRY(const auto idle, r.integer("idle_timeout_s", 1, kMaxSeconds).optional());
  GB_TRY(out.stays, r.boolean("stays").or_default(false));
  GB_TRY(out.as_own, r.boolean("make_default").or_default(false));
  if (const bj::value* network = r.any("network"); network != nullptr && !network->is_null()) {
    GB_TRY(auto policy, policy::parse_network_policy(*network));
    spec.network = std::make_shared<policy::NetworkPolicy>(std::move(policy));
  }
  GB_TRYV(r.done());
  spec.metadata.emplace("created_by", "mcp");
  if (lifetime) spec.lifetime = Millis(*lifetime * 1000);
  if (idle) spec.idle_timeout = Millis(*idle * 1000);
  if (!out.stays && !lifetime) spec.lifetime = Millis(0);  // its session ends it, or its idle timeout
  return out;
}

Async<ToolResult> create(ToolCall& call) {
  GB_CO_TRY(auto request, read_create(call.arguments));
  auto& conversation = call.session->conversation;
  sandbox::SandboxInfo info;
  if (request.stays) {
    GB_CO_TRY(const auto made, co_await call.service.create(call.caller, std::move(request.spec)));
    info = made.info;
  } else {
    GB_CO_TRY(info, co_await conversation.create(call.caller, std::move(request.spec), request.as_own));
  }
  if (call.running->is_cancelled()) {  // nobody would know its id
    (void)co_await call.service.kill(call.caller, info.id);
    conversation.forget(info.id);
    co_return fail(Code::kCancelled, "the call was cancelled");
  }
  if (request.stays && request.as_own) conversation.use_as_own(info.id);
  co_return show(info, "Started sandbox " + summary(info) + ".");
}

Async<ToolResult> list(ToolCall& call) {
  json::Reader r(call.arguments);
  sandbox::ListFilter filter;
  GB_CO_TRY(const int64_t limit, r.integer("limit", 1, 100).or_default(50));
  GB_CO_TRY(filter.cursor, r.string("cursor", 0, 512).or_default(""));
  GB_CO_TRY(const bool all, r.boolean("include_ended").or_default(false));
  GB_CO_TRYV(r.done());
  filter.limit = static_cast<size_t>(limit);
  using sandbox::State;
  if (all) filter.states = {State::kCreating, State::kReady, State::kPaused, State::kEnding, State::kEnded};
  GB_CO_TRY(const auto page, call.service.list(call.caller, filter));
  std::string text;
  bj::array items;
  for (const auto& info : page.items) {
    text += summary(info) + (info.id == call.session->conversation.own() ? " (this session's own)" : "") + "\n";
    items.push_back(v1::view(info));
  }
  if (text.empty()) text = "No sandboxes.\n";
  if (!page.next_cursor.empty()) text += "[more; go on with cursor " + page.next_cursor + "]\n";
  ToolResult result;
  result.content.push_back(text_content(text));
  result.structured = {{"sandboxes", std::move(items)}, {"next_cursor", v1::page_cursor(page.next_cursor)}};
  co_return result;
}

// For tools that must not start a sandbox.
Result<std::string> existing(const ToolCall& call, json::Reader& r) {
  GB_TRY(auto id, read_sandbox_id(r));
  if (id.empty()) id = call.session->conversation.own();
  if (id.empty()) return fail(Code::kSandboxNotFound, "this session has no sandbox of its own yet; name one in sandbox_id");
  return id;
}

Async<ToolResult> get(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto id, existing(call, r));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto info, call.service.get(call.caller, id));
  co_return show(info, summary(info) + "\n" + json::to_text(v1::view(info)));
}

Async<ToolResult> kill(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto id, existing(call, r));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto killed, co_await call.service.kill(call.caller, id));
  call.session->conversation.forget(id);
  auto result = show(killed.info, "Ended sandbox " + id + (killed.already_ended ? ", which had ended already." : "."));
  result.structured["already_ended"] = killed.already_ended;
  co_return result;
}

constexpr std::string_view kCreateProperties = R"({
  "template": {"type": "string", "minLength": 1, "maxLength": 200, "default": "base", "description": "Root file system: a name, or name@version"},
  "snapshot_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Start from this snapshot instead of a template"},
  "runtime": {"type": "string", "enum": ["auto", "microvm", "gvisor", "container"], "default": "auto", "description": "How it is isolated; auto: the strongest that works"},
  "cpus": {"type": "number", "minimum": 0.05, "maximum": 4096, "description": "CPUs; the operator's default and cap apply"},
  "memory_mb": {"type": "integer", "minimum": 16, "description": "Memory in MiB; the operator's default and cap apply"},
  "disk_mb": {"type": "integer", "minimum": 16, "description": "Private disk space in MiB; the operator's default and cap apply"},
  "env": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 1000, "description": "Environment of every command"},
  "metadata": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 63, "description": "Labels"},
  "lifetime_s": {"type": "integer", "minimum": 1, "maximum": 2592000, "description": "End it after so many seconds in any case"},
  "idle_timeout_s": {"type": "integer", "minimum": 1, "maximum": 2592000, "description": "End it when nothing was done in it for so many seconds. Default for sandboxes that end with the session: the session's own timeout"},
  "network": {"type": "object", "description": "What it may reach, for example {\"allow\": [{\"host\": \"example.com\"}]} or {\"presets\": [\"python-packages\"]}; default: the operator's, often nothing",
    "properties": {"egress": {"type": "string", "enum": ["none", "allowlist", "open"]}, "presets": {"type": "array", "items": {"type": "string"}},
      "allow": {"type": "array", "items": {"type": "object"}}, "deny": {"type": "array", "items": {"type": "object"}},
      "limits": {"type": "object"}, "packages": {"type": "object"}}, "additionalProperties": false},
  "stays": {"type": "boolean", "default": false, "description": "Let it live on when the session ends; it then has the operator's default lifetime"},
  "make_default": {"type": "boolean", "default": false, "description": "Calls without sandbox_id mean this one from now on"}})";

constexpr std::string_view kListProperties = R"({
  "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 50},
  "cursor": {"type": "string", "maxLength": 512, "description": "next_cursor of the result before"},
  "include_ended": {"type": "boolean", "default": false, "description": "Also those that have ended lately"}})";

constexpr std::string_view kSandboxSchema = R"({"type": "object", "properties": {
  "id": {"type": "string"}, "state": {"type": "string", "enum": ["creating", "ready", "paused", "ending", "ended"]},
  "runtime": {"type": "string"}, "template": {"type": "object"}, "created_at": {"type": "string"}, "expires_at": {"type": ["string", "null"]},
  "limits": {"type": "object"}, "user": {"type": "string"}, "workdir": {"type": "string"}, "network": {"type": "object"},
  "metadata": {"type": "object"}, "ended": {"type": ["object", "null"]}, "already_ended": {"type": "boolean"}},
  "required": ["id", "state", "runtime"]})";

const std::string& list_schema() {
  static const std::string text = R"({"type": "object", "properties": {"sandboxes": {"type": "array", "items": )" +
                                  std::string(kSandboxSchema) +
                                  R"(}, "next_cursor": {"type": ["string", "null"]}}, "required": ["sandboxes", "next_cursor"]})";
  return text;
}

const std::string& id_properties() {
  static const std::string text =
      R"({"sandbox_id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Default: the session's own sandbox"}})";
  return text;
}

}  // namespace

void add_sandbox_tools(std::vector<Tool>& tools) {
  tools.push_back({.name = "create_sandbox",
                   .title = "Start a sandbox",
                   .description = "Starts another isolated Linux machine, with limits, a template or a network of its choice. "
                                  "Not needed for ordinary work: every session has a "
                                  "sandbox of its own. It ends with the session unless stays is true.",
                   .input_properties = kCreateProperties,
                   .required = "[]",
                   .output_schema = kSandboxSchema,
                   .run = create});
  tools.push_back({.name = "list_sandboxes",
                   .title = "List sandboxes",
                   .description = "Lists the sandboxes that this key may use, the newest first, also those of other sessions.",
                   .input_properties = kListProperties,
                   .required = "[]",
                   .output_schema = list_schema(),
                   .is_read_only = true,
                   .is_idempotent = true,
                   .run = list});
  tools.push_back({.name = "get_sandbox",
                   .title = "Describe a sandbox",
                   .description = "Returns a sandbox's state, limits, network and, when it has ended, why.",
                   .input_properties = id_properties(),
                   .required = "[]",
                   .output_schema = kSandboxSchema,
                   .is_read_only = true,
                   .is_idempotent = true,
                   .run = get});
  tools.push_back({.name = "kill_sandbox",
                   .title = "End a sandbox",
                   .description = "Ends a sandbox at once. Its files and processes are gone.",
                   .input_properties = id_properties(),
                   .required = "[]",
                   .output_schema = kSandboxSchema,
                   .is_destructive = true,
                   .is_idempotent = true,
                   .run = kill});
}

}  // namespace glovebox::api::mcp
