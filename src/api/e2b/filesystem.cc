// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "api/e2b/errors.h"
#include "api/e2b/rpc.h"
#include "api/e2b/watch.h"
#include "base/text.h"
#include "http/json.h"

// filesystem.Filesystem: everything about files but their contents.
namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using sandbox::FileEntry;

constexpr size_t kPage = 1000;
constexpr size_t kMaxEntries = 100'000;  // of one listing
constexpr int64_t kMaxDepth = 64;

std::string permission_text(uint32_t mode, const std::string& type) {
  std::string out(1, type == "directory" ? 'd' : type == "symlink" ? 'L' : '-');
  for (int shift = 8; shift >= 0; --shift) out += (mode >> shift & 1) != 0 ? "rwx"[(8 - shift) % 3] : '-';
  return out;
}

std::string_view type_name(const std::string& type) {
  if (type == "file") return "FILE_TYPE_FILE";
  return type == "directory" ? "FILE_TYPE_DIRECTORY" : "FILE_TYPE_UNSPECIFIED";
}

bj::object entry_object(const FileEntry& entry) {
  return {{"name", utf8_lossy(entry.name)},
          {"type", type_name(entry.type)},
          {"path", utf8_lossy(entry.path)},
          {"size", std::to_string(entry.size)},
          {"mode", entry.mode},
          {"permissions", permission_text(entry.mode, entry.type)},
          {"owner", utf8_lossy(entry.user.empty() ? std::to_string(entry.uid) : entry.user)},
          {"group", utf8_lossy(entry.group.empty() ? std::to_string(entry.gid) : entry.group)},
          {"modifiedTime", iso_time(from_unix_millis(entry.mtime_ms))}};
}

// A link shows what it leads to, under its own name; one that leads nowhere has no type.
Async<bj::object> resolved(DaemonCall& call, const FileEntry& entry) {
  if (entry.type != "symlink") co_return entry_object(entry);
  bj::object out = entry_object(entry);
  auto target = co_await call.parts.service.stat(call.caller, call.info.id, call.user, entry.path, true);
  if (target) {
    target->name = entry.name;
    const std::string leads_to = entry.target.value_or(target->path);
    target->path = entry.path;
    out = entry_object(*target);
    out["symlinkTarget"] = utf8_lossy(leads_to);
  } else if (entry.target) {
    out["symlinkTarget"] = utf8_lossy(*entry.target);
  }
  co_return out;
}

}  // namespace

Async<bj::value> entry_at(DaemonCall& call, const std::string& path) {
  GB_CO_TRY(const auto entry, co_await call.parts.service.stat(call.caller, call.info.id, call.user, path, false));
  GB_CO_TRY(auto object, co_await resolved(call, entry));
  co_return bj::object{{"entry", std::move(object)}};
}

namespace {

Async<std::string> path_field(DaemonCall& call, const Message& request, std::string_view name) {
  GB_CO_TRY(const auto text, request.text(name));
  co_return call.path(text);
}

Async<bj::value> stat(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto path, co_await path_field(call, request, "path"));
  co_return co_await entry_at(call, path);
}

Async<std::vector<FileEntry>> entries_of(DaemonCall& call, const std::string& path) {
  std::vector<FileEntry> all;
  std::string after;
  do {
    GB_CO_TRY(auto page, co_await call.parts.service.list_files(call.caller, call.info.id, call.user, path, after, kPage));
    std::ranges::move(page.items, std::back_inserter(all));
    after = page.next_cursor;
    if (all.size() > kMaxEntries) co_return fail(rpc_error("resource_exhausted", path + ": has more than 100000 entries"));
  } while (!after.empty());
  co_return all;
}

// Depth first, by name; links are shown and not followed.
Async<void> list_below(DaemonCall& call, const std::string& path, int64_t depth, bj::array& out) {
  GB_CO_TRY(const auto entries, co_await entries_of(call, path));
  for (const FileEntry& entry : entries) {
    if (out.size() >= kMaxEntries) co_return fail(rpc_error("resource_exhausted", "the listing has more than 100000 entries"));
    GB_CO_TRY(auto object, co_await resolved(call, entry));
    out.push_back(std::move(object));
    if (entry.type == "directory" && depth > 1) GB_CO_TRYV(co_await list_below(call, entry.path, depth - 1, out));
  }
  co_return Result<void>();
}

Async<bj::value> list_dir(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto path, co_await path_field(call, request, "path"));
  GB_CO_TRY(const auto depth, request.integer("depth"));
  bj::array entries;
  GB_CO_TRYV(co_await list_below(call, path, std::clamp<int64_t>(depth.value_or(1), 1, kMaxDepth), entries));
  co_return bj::object{{"entries", std::move(entries)}};
}

Async<bj::value> make_dir(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto path, co_await path_field(call, request, "path"));
  auto created = co_await call.parts.service.make_directory(call.caller, call.info.id, call.user, path, true, 0755);
  if (!created && (created.error().code == Code::kFileExists || created.error().code == Code::kNotADirectory)) {
    co_return fail(rpc_error("invalid_argument", "path already exists but it is not a directory: " + path));
  }
  if (!created) co_return fail(std::move(created).error());
  if (!*created) co_return fail(rpc_error("already_exists", "directory already exists: " + path));
  co_return co_await entry_at(call, path);
}

Async<bj::value> move(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto source, co_await path_field(call, request, "source"));
  GB_CO_TRY(const auto destination, co_await path_field(call, request, "destination"));
  GB_CO_TRYV(co_await call.parts.service.move(call.caller, call.info.id, call.user, source, destination, true, true));
  co_return co_await entry_at(call, destination);
}

Async<bj::value> remove(DaemonCall& call, const Message& request) {
  GB_CO_TRY(const auto path, co_await path_field(call, request, "path"));
  auto removed = co_await call.parts.service.remove(call.caller, call.info.id, call.user, path, true);
  if (!removed && removed.error().code != Code::kFileNotFound) co_return fail(std::move(removed).error());
  co_return bj::object();
}

}  // namespace

const std::vector<Method>& filesystem_methods() {
  static const std::vector<Method> methods{
      {"/filesystem.Filesystem/Stat", stat, nullptr},
      {"/filesystem.Filesystem/ListDir", list_dir, nullptr},
      {"/filesystem.Filesystem/MakeDir", make_dir, nullptr},
      {"/filesystem.Filesystem/Move", move, nullptr},
      {"/filesystem.Filesystem/Remove", remove, nullptr},
      {"/filesystem.Filesystem/WatchDir", nullptr, watch_dir},
      {"/filesystem.Filesystem/CreateWatcher", create_watcher, nullptr},
      {"/filesystem.Filesystem/GetWatcherEvents", get_watcher_events, nullptr},
      {"/filesystem.Filesystem/RemoveWatcher", remove_watcher, nullptr},
  };
  return methods;
}

}  // namespace glovebox::api::e2b
