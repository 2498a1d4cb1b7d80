// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>

#include "api/mcp/image_type.h"
#include "api/mcp/tool.h"
#include "base/text.h"

namespace glovebox::api::mcp {
namespace bj = boost::json;
namespace {

constexpr int64_t kDefaultReadBytes = 64 << 10;
constexpr int64_t kMaxReadBytes = 1 << 20;
constexpr size_t kMaxImageBytes = 4 << 20;
constexpr size_t kMaxEditBytes = 4 << 20;
constexpr size_t kPieceBytes = 256 << 10;

// What every file tool is told.
struct FileTarget {
  std::string sandbox_id, path, user;
};
Result<FileTarget> read_target(json::Reader& r, bool needs_path = true) {
  FileTarget out;
  GB_TRY(out.sandbox_id, read_sandbox_id(r));
  GB_TRY(const auto path, r.string("path", 1, 4095).optional());
  if (!path && needs_path) return fail(r.error("path", "is required"));
  out.path = path.value_or("");
  GB_TRY(out.user, r.string("user", 1, 64).or_default(""));
  return out;
}

// At most max_bytes of what the source has.
Async<std::string> take(sandbox::ByteSource& source, size_t max_bytes) {
  std::string out;
  while (out.size() < max_bytes) {
    GB_CO_TRY(const std::string piece, co_await source.read());
    if (piece.empty()) break;
    out.append(piece, 0, max_bytes - out.size());
  }
  co_return out;
}

Async<sandbox::FileEntry> put(ToolCall& call, std::string id, FileTarget target, std::string content,
                              sandbox::WriteOptions options) {
  GB_CO_TRY(auto sink, co_await call.service.write_file(call.caller, id, target.user, target.path, options));
  for (size_t at = 0; at < content.size(); at += kPieceBytes) {
    if (call.running->is_cancelled()) co_return fail(Code::kCancelled, "the call was cancelled");  // nothing is left behind
    GB_CO_TRYV(co_await sink->write(content.substr(at, kPieceBytes)));
  }
  GB_CO_TRY(auto entry, co_await sink->finish());
  if (!entry) co_return fail(Code::kAgentProtocol, "the agent did not describe the file it wrote");
  co_return std::move(*entry);
}

std::string mode_text(uint32_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777);
  return text;
}

bj::object describe_entry(const sandbox::FileEntry& entry) {
  bj::object out{{"name", utf8_lossy(entry.name)},
                 {"path", utf8_lossy(entry.path)},
                 {"type", utf8_lossy(entry.type)},
                 {"size_bytes", entry.size},
                 {"mode", mode_text(entry.mode)}};
  if (entry.target) out["target"] = utf8_lossy(*entry.target);
  return out;
}

ToolResult said(std::string text, bj::object structured, const std::string& note) {
  ToolResult result;
  result.content.push_back(text_content(text));
  result.structured = std::move(structured);
  add_note(result, note);
  return result;
}

struct ReadRequest {
  FileTarget target;
  uint64_t offset = 0;
  size_t max_bytes = kDefaultReadBytes;
  std::string as;  // auto, text, base64
};
Result<ReadRequest> parse_read(const bj::value& arguments) {
  json::Reader r(arguments);
  ReadRequest out;
  GB_TRY(out.target, read_target(r));
  GB_TRY(const int64_t offset, r.integer("offset", 0).or_default(0));
  GB_TRY(const int64_t most, r.integer("max_bytes", 1, kMaxReadBytes).or_default(kDefaultReadBytes));
  GB_TRY(out.as, r.one_of("as", {"auto", "text", "base64"}).or_default("auto"));
  GB_TRYV(r.done());
  out.offset = static_cast<uint64_t>(offset);
  out.max_bytes = static_cast<size_t>(most);
  return out;
}

bool is_binary(std::string_view bytes) {
  return bytes.find('\0') != bytes.npos;
}

// The bytes as they are shown, cut so that no character is torn where more follows.
ToolResult show_bytes(const ReadRequest& request, std::string bytes, uint64_t size) {
  const uint64_t read_to = request.offset + bytes.size();
  if (request.as != "base64" && read_to < size) {
    if (const size_t whole = utf8_complete_prefix(bytes); whole > 0) bytes.resize(whole);
  }
  const uint64_t next = request.offset + bytes.size();
  ToolResult result;
  result.structured = {{"path", utf8_lossy(request.target.path)}, {"size_bytes", size},       {"offset", request.offset},
                       {"returned_bytes", bytes.size()},          {"truncated", next < size}, {"next_offset", next}};
  if (request.as == "auto" && is_binary(bytes)) {
    result.structured["kind"] = "binary";
    result.structured["returned_bytes"] = 0;
    result.structured["truncated"] = size > 0;
    result.structured["next_offset"] = request.offset;
    result.content.push_back(text_content("[" + utf8_lossy(request.target.path) + " is a binary file of " + std::to_string(size) +
                                          " bytes; read it with as: base64, or look at it with exec]"));
    return result;
  }
  result.structured["kind"] = request.as == "base64" ? "base64" : "text";
  result.content.push_back(text_content(request.as == "base64" ? base64_encode(bytes) : bytes));
  if (next < size) {
    result.content.push_back(text_content("[" + std::to_string(size - next) + " of " + std::to_string(size) +
                                          " bytes follow; go on with offset " + std::to_string(next) + "]"));
  }
  return result;
}

Result<ToolResult> show_image(const ReadRequest& request, const std::string& bytes, uint64_t size, std::string_view type) {
  if (size > kMaxImageBytes) {
    return fail(
        Code::kPayloadTooLarge,
        "the image has " + std::to_string(size) + " bytes; scale it down in the sandbox first, or read it with as: base64",
        {{"limit", "image_bytes"}, {"size", std::to_string(kMaxImageBytes)}});
  }
  ToolResult result;
  result.content.push_back(image_content(bytes, type));
  result.structured = {
      {"path", utf8_lossy(request.target.path)}, {"size_bytes", size}, {"kind", "image"},    {"mime_type", type}, {"offset", 0},
      {"returned_bytes", bytes.size()},          {"truncated", false}, {"next_offset", size}};
  return result;
}

Async<ToolResult> read_file(ToolCall& call) {
  GB_CO_TRY(const auto request, parse_read(call.arguments));
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, request.target.sandbox_id));
  GB_CO_TRY(auto source, co_await call.service.read_file(call.caller, place.id, request.target.user, request.target.path,
                                                         request.offset, std::nullopt));
  GB_CO_TRY(std::string bytes, co_await take(*source, request.max_bytes));
  const uint64_t rest = source->length.value_or(bytes.size());
  const uint64_t size = source->entry ? std::max(source->entry->size, request.offset + bytes.size())
                                      : request.offset + std::max<uint64_t>(rest, bytes.size());
  const auto type = request.as == "auto" && request.offset == 0 ? image_type(bytes) : std::string_view();
  if (type.empty()) {
    auto result = show_bytes(request, std::move(bytes), size);
    add_note(result, place.note);
    co_return result;
  }
  if (size <= kMaxImageBytes && bytes.size() < size) {
    // The pieces that follow those taken: a fresh source, since a piece may have been cut.
    GB_CO_TRY(source,
              co_await call.service.read_file(call.caller, place.id, request.target.user, request.target.path, 0, std::nullopt));
    GB_CO_TRY(bytes, co_await take(*source, kMaxImageBytes));
  }
  GB_CO_TRY(auto result, show_image(request, bytes, std::max<uint64_t>(size, bytes.size()), type));
  add_note(result, place.note);
  co_return result;
}

Async<ToolResult> write_file(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto target, read_target(r));
  GB_CO_TRY(std::string content, r.content("content").required());
  GB_CO_TRY(const auto encoding, r.one_of("encoding", {"text", "base64"}).or_default("text"));
  sandbox::WriteOptions options;
  GB_CO_TRY(options.append, r.boolean("append").or_default(false));
  GB_CO_TRY(options.exclusive, r.boolean("exclusive").or_default(false));
  GB_CO_TRY(const bool is_executable, r.boolean("executable").or_default(false));
  GB_CO_TRYV(r.done());
  if (is_executable) options.mode = 0755;
  if (encoding == "base64") {
    auto bytes = base64_decode(content);
    if (!bytes) co_return fail(r.error("content", "is not base64"));
    content = std::move(*bytes);
  }
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, target.sandbox_id));
  const size_t count = content.size();
  GB_CO_TRY(const auto entry, co_await put(call, place.id, target, std::move(content), options));
  auto structured = describe_entry(entry);
  structured["written_bytes"] = count;
  co_return said("Wrote " + std::to_string(count) + " bytes to " + utf8_lossy(entry.path) + ".", std::move(structured),
                 place.note);
}

struct Edited {
  std::string text;
  size_t count = 0;
};
Edited replace_all(const std::string& text, const std::string& before, const std::string& instead) {
  Edited out;
  size_t from = 0;
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, from)) {
    out.text.append(text, from, at - from).append(instead);
    from = at + before.size();
    ++out.count;
  }
  out.text.append(text, from);
  return out;
}

Async<ToolResult> edit_file(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto target, read_target(r));
  GB_CO_TRY(const std::string before, r.content("old_text").required());
  GB_CO_TRY(const std::string instead, r.content("new_text").required());
  GB_CO_TRY(const bool all, r.boolean("replace_all").or_default(false));
  GB_CO_TRYV(r.done());
  if (before.empty()) co_return fail(r.error("old_text", "must not be empty; write_file makes new files"));
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, target.sandbox_id));
  GB_CO_TRY(auto source, co_await call.service.read_file(call.caller, place.id, target.user, target.path, 0, std::nullopt));
  GB_CO_TRY(const std::string text, co_await take(*source, kMaxEditBytes + 1));
  if (text.size() > kMaxEditBytes) {
    co_return fail(Code::kPayloadTooLarge, "the file is larger than edit_file can change; use exec",
                   {{"limit", "edit_bytes"}, {"size", std::to_string(kMaxEditBytes)}});
  }
  auto edited = replace_all(text, before, instead);
  if (edited.count == 0) co_return fail(r.error("old_text", "does not occur in the file"));
  if (edited.count > 1 && !all) {
    co_return fail(r.error(
        "old_text", "occurs " + std::to_string(edited.count) + " times; give more of its surroundings, or set replace_all"));
  }
  if (edited.text.size() > 2 * kMaxEditBytes)
    co_return fail(Code::kPayloadTooLarge, "the changed file would be too large for edit_file; use exec");
  GB_CO_TRY(const auto entry, co_await put(call, place.id, target, std::move(edited.text), {}));
  auto structured = describe_entry(entry);
  structured["replacements"] = edited.count;
  co_return said("Replaced " + std::to_string(edited.count) + (edited.count == 1 ? " occurrence in " : " occurrences in ") +
                     utf8_lossy(entry.path) + ".",
                 std::move(structured), place.note);
}

Async<ToolResult> list_files(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(auto target, read_target(r, false));
  GB_CO_TRY(const int64_t limit, r.integer("limit", 1, 1000).or_default(200));
  GB_CO_TRY(const auto cursor, r.string("cursor", 0, 512).or_default(""));
  GB_CO_TRYV(r.done());
  const auto after_name = base64_decode(cursor);
  if (!after_name) co_return fail(r.error("cursor", "is not one of ours"));
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, target.sandbox_id));
  if (target.path.empty()) target.path = ".";
  GB_CO_TRY(const auto page, co_await call.service.list_files(call.caller, place.id, target.user, target.path, *after_name,
                                                              static_cast<size_t>(limit)));
  std::string text;
  bj::array entries;
  for (const auto& entry : page.items) {
    const std::string what = entry.type == "directory" ? "/" : entry.target ? " -> " + *entry.target : "";
    text += mode_text(entry.mode) + " " + std::to_string(entry.size) + " " + entry.name + what + "\n";
    entries.push_back(describe_entry(entry));
  }
  if (text.empty()) text = "[empty]\n";
  if (!page.next_cursor.empty()) text += "[more entries; go on with cursor " + base64_encode(page.next_cursor) + "]\n";
  bj::object structured{{"path", utf8_lossy(target.path)}, {"entries", std::move(entries)}};
  structured["next_cursor"] = page.next_cursor.empty() ? bj::value(nullptr) : bj::value(base64_encode(page.next_cursor));
  co_return said(std::move(text), std::move(structured), place.note);
}

Async<ToolResult> remove_file(ToolCall& call) {
  json::Reader r(call.arguments);
  GB_CO_TRY(const auto target, read_target(r));
  GB_CO_TRY(const bool recursive, r.boolean("recursive").or_default(false));
  GB_CO_TRYV(r.done());
  GB_CO_TRY(const auto place, co_await call.session->conversation.place(call.caller, target.sandbox_id));
  GB_CO_TRYV(co_await call.service.remove(call.caller, place.id, target.user, target.path, recursive));
  co_return said("Removed " + utf8_lossy(target.path) + ".", {{"path", utf8_lossy(target.path)}}, place.note);
}

// The properties of a file tool: those that all have, and `own`.
std::string properties(std::string_view path, std::string_view own) {
  return "{" + std::string(kSandboxProperty) +
         R"(, "path": {"type": "string", "minLength": 1, "maxLength": 4095, "description": ")" + std::string(path) +
         R"("}, "user": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Whose rights apply; default: the sandbox's user"})" +
         (own.empty() ? "" : ", ") + std::string(own) + "}";
}

constexpr std::string_view kFilePath = "The file. A relative path begins at the sandbox's working directory.";

const std::string& read_properties() {
  static const std::string text = properties(kFilePath, R"(
    "offset": {"type": "integer", "minimum": 0, "default": 0, "description": "First byte to return"},
    "max_bytes": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 65536, "description": "Most bytes of text or base64 to return; images are whole, up to 4 MiB"},
    "as": {"type": "string", "enum": ["auto", "text", "base64"], "default": "auto", "description": "auto: PNG, JPEG, GIF and WebP files as images, other files as text, binary ones only described"})");
  return text;
}

const std::string& write_properties() {
  static const std::string text = properties(kFilePath, R"(
    "content": {"type": "string", "description": "The whole content. A call may have 8 MiB in all; larger files: several calls with append, or let the sandbox fetch them."},
    "encoding": {"type": "string", "enum": ["text", "base64"], "default": "text", "description": "base64: content is bytes in that form"},
    "append": {"type": "boolean", "default": false, "description": "Add to the end of the file"},
    "exclusive": {"type": "boolean", "default": false, "description": "Fail if the file exists"},
    "executable": {"type": "boolean", "default": false, "description": "Mode 0755. Otherwise a new file has 0644, and an existing one keeps its own."})");
  return text;
}

const std::string& edit_properties() {
  static const std::string text = properties(kFilePath, R"(
    "old_text": {"type": "string", "minLength": 1, "description": "Exactly what is in the file, white space included; must occur once unless replace_all is true"},
    "new_text": {"type": "string", "description": "What stands there afterwards"},
    "replace_all": {"type": "boolean", "default": false, "description": "Replace every occurrence"})");
  return text;
}

const std::string& list_properties() {
  static const std::string text = properties("The directory; default: the sandbox's working directory", R"(
    "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 200},
    "cursor": {"type": "string", "maxLength": 512, "description": "next_cursor of the result before"})");
  return text;
}

const std::string& remove_properties() {
  static const std::string text = properties("What to remove", R"(
    "recursive": {"type": "boolean", "default": false, "description": "Remove a directory with all that is in it"})");
  return text;
}

constexpr std::string_view kReadSchema = R"({"type": "object", "properties": {
  "path": {"type": "string"}, "size_bytes": {"type": "integer"},
  "kind": {"type": "string", "enum": ["text", "base64", "image", "binary"]}, "mime_type": {"type": "string"},
  "offset": {"type": "integer"}, "returned_bytes": {"type": "integer"},
  "truncated": {"type": "boolean", "description": "more of the file follows"}, "next_offset": {"type": "integer"}},
  "required": ["path", "size_bytes", "kind", "returned_bytes", "truncated", "next_offset"]})";

const std::string& entry_schema() {
  static const std::string text =
      R"({"type": "object", "properties": {"name": {"type": "string"}, "path": {"type": "string"}, "type": {"type": "string"},
    "size_bytes": {"type": "integer"}, "mode": {"type": "string"}, "target": {"type": "string"}, "written_bytes": {"type": "integer"},
    "replacements": {"type": "integer"}}, "required": ["name", "path", "type", "size_bytes", "mode"]})";
  return text;
}

const std::string& list_schema() {
  static const std::string text =
      R"({"type": "object", "properties": {"path": {"type": "string"}, "entries": {"type": "array", "items": )" + entry_schema() +
      R"(}, "next_cursor": {"type": ["string", "null"]}}, "required": ["path", "entries", "next_cursor"]})";
  return text;
}

}  // namespace

void add_file_tools(std::vector<Tool>& tools) {
  tools.push_back({.name = "read_file",
                   .title = "Read a file",
                   .description = "Returns a file of a sandbox: text as text, images as images. Long text comes in pieces: "
                                  "truncated and next_offset tell.",
                   .input_properties = read_properties(),
                   .required = R"(["path"])",
                   .output_schema = kReadSchema,
                   .is_read_only = true,
                   .is_idempotent = true,
                   .run = read_file});
  tools.push_back({.name = "write_file",
                   .title = "Write a file",
                   .description = "Writes a file in a sandbox, at once and whole: a reader sees the old content or the new one. "
                                  "Missing parent directories are made.",
                   .input_properties = write_properties(),
                   .required = R"(["path", "content"])",
                   .output_schema = entry_schema(),
                   .is_destructive = true,
                   .run = write_file});
  tools.push_back({.name = "edit_file",
                   .title = "Edit a file",
                   .description = "Replaces a piece of text in a file of a sandbox, up to 4 MiB. Fails without changing anything "
                                  "when the text is not there, or there more than once.",
                   .input_properties = edit_properties(),
                   .required = R"(["path", "old_text", "new_text"])",
                   .output_schema = entry_schema(),
                   .is_destructive = true,
                   .run = edit_file});
  tools.push_back({.name = "list_files",
                   .title = "List a directory",
                   .description = "Lists a directory of a sandbox: mode, size and name of each entry.",
                   .input_properties = list_properties(),
                   .required = "[]",
                   .output_schema = list_schema(),
                   .is_read_only = true,
                   .is_idempotent = true,
                   .run = list_files});
  tools.push_back({.name = "remove_file",
                   .title = "Remove a file or directory",
                   .description = "Removes a file, an empty directory, or with recursive a whole directory of a sandbox.",
                   .input_properties = remove_properties(),
                   .required = R"(["path"])",
                   .output_schema = R"({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]})",
                   .is_destructive = true,
                   .run = remove_file});
}

}  // namespace glovebox::api::mcp
