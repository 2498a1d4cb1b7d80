// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdio>

#include "base/text.h"
#include "http/message.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;

// A snapshot of gigabytes, and what has to be read of it.
constexpr std::chrono::minutes kPatience{30};

std::string snapshot_path(const std::string& id) {
  return "/v1/snapshots/" + http::percent_encode(id);
}
std::string sandbox_path(const std::string& id, const char* rest) {
  return "/v1/sandboxes/" + http::percent_encode(id) + rest;
}

std::string size_of(const bj::value& snapshot, std::string_view path) {
  return human_bytes(static_cast<uint64_t>(number(snapshot, path)));
}

std::string human_ms(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", ms);
  return text;
}

std::string pairs_of(const bj::value& value, std::string_view name) {
  std::string out;
  const auto* pairs = field(value, name);
  if (pairs == nullptr || !pairs->is_object()) return out;
  for (const auto& entry : pairs->get_object()) {
    out += (out.empty() ? "" : ", ") + std::string(entry.key()) + "=" + text(*pairs, entry.key());
  }
  return out;
}

std::string render_list(const bj::array& snapshots) {
  Table table({"ID", "NAME", "STATE", "RUNTIME", "KEPT", "TEMPLATE", "SIZE", "AGE"});
  const WallTime now = std::chrono::system_clock::now();
  for (const bj::value& s : snapshots) {
    table.add({text(s, "id"), text(s, "name"), text(s, "state"), text(s, "runtime"),
               text(s, "kept"), text(s, "template"), size_of(s, "bytes"),
               human_age(text(s, "created_at"), now)});
  }
  return table.render(colours_on(STDOUT_FILENO));
}

std::string render_one(const bj::value& s) {
  const std::string message = text(s, "message"), parent = text(s, "parent");
  std::vector<std::pair<std::string, std::string>> rows = {
      {"id", text(s, "id")},
      {"name", text(s, "name")},
      {"state", text(s, "state") + (message.empty() ? "" : ": " + message)},
      {"kept", text(s, "kept")},
      {"runtime", text(s, "runtime")},
      {"template", text(s, "template") + "@" + text(s, "template_version").substr(0, 12)},
      {"sandbox", text(s, "source_sandbox")},
      {"parent", parent.empty() ? "none" : parent},
      {"created", text(s, "created_at") + " (the sandbox stood still for " +
                      human_ms(real(s, "stall_ms")) + ")"},
      {"needs", std::to_string(number(s, "min_memory_mb")) + " MiB memory, " +
                    std::to_string(number(s, "min_disk_mb")) + " MiB disk"},
      {"size", size_of(s, "bytes")}};
  if (const std::string labels = pairs_of(s, "labels"); !labels.empty())
    rows.emplace_back("labels", labels);
  for (const bj::value& part : items(s, "parts")) {
    rows.emplace_back("part", text(part, "name") + ", " + size_of(part, "bytes") + ", sha256 " +
                                  text(part, "sha256"));
  }
  return render_fields(rows, colours_on(STDOUT_FILENO));
}

bj::object labels_of(const std::vector<std::string>& pairs) {
  bj::object out;
  const StringMap labels = parse_pairs(pairs, false).value();
  for (const auto& [name, value] : labels) out[name] = value;
  return out;
}

void show(const Settings& settings, const bj::value& answer, const std::string& line) {
  settings.json ? print_json(answer) : print(line + "\n");
}

}  // namespace

int command_snapshot_create(const Settings& settings, const SnapshotOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::object body;
    if (!options.name.empty()) body["name"] = options.name;
    if (!options.labels.empty()) body["labels"] = labels_of(options.labels);
    if (!options.require.empty()) body["require"] = options.require;
    GB_CO_TRY(const auto made, co_await api.call("POST", sandbox_path(options.id, "/snapshots"),
                                                 std::move(body), kPatience));
    show(settings, made, text(made, "id"));
    co_return kOk;
  });
}

int command_snapshot_list(const Settings& settings, const SnapshotOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    std::string path = "/v1/snapshots?limit=1000";
    if (!options.sandbox.empty()) path += "&sandbox=" + http::percent_encode(options.sandbox);
    if (!options.name.empty()) path += "&name=" + http::percent_encode(options.name);
    GB_CO_TRY(const auto labels, parse_pairs(options.labels, false));
    for (const auto& [name, value] : labels)
      path += "&label." + http::percent_encode(name) + "=" + http::percent_encode(value);
    GB_CO_TRY(auto snapshots, co_await all_items(api, path, "snapshots"));
    if (settings.json) {
      print_json(bj::object{{"snapshots", std::move(snapshots)}});
    } else {
      print(render_list(snapshots));
    }
    co_return kOk;
  });
}

int command_snapshot_show(const Settings& settings, const SnapshotOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto found, co_await api.call("GET", snapshot_path(options.id)));
    settings.json ? print_json(found) : print(render_one(found));
    co_return kOk;
  });
}

int command_snapshot_rename(const Settings& settings, const SnapshotOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::value body{{"name", options.name}};
    GB_CO_TRY(const auto renamed,
              co_await api.call("PATCH", snapshot_path(options.id), std::move(body)));
    show(settings, renamed, printable(options.id) + " " + printable(options.name));
    co_return kOk;
  });
}

int command_snapshot_remove(const Settings& settings, const SnapshotOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto removed, co_await api.call("DELETE", snapshot_path(options.id)));
    show(settings, removed, printable(options.id));
    co_return kOk;
  });
}

int command_snapshot_verify(const Settings& settings, const SnapshotOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto verified,
              co_await api.call("POST", snapshot_path(options.id) + "/verify", {}, kPatience));
    show(settings, verified, printable(options.id) + " is as it was written");
    co_return kOk;
  });
}

int command_fork(const Settings& settings, const ForkOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    // What create and fork have in common is written by one function.
    GB_CO_TRY(auto body, create_body(options.create));
    body.get_object()["count"] = options.count;
    if (!options.require.empty()) body.get_object()["require"] = options.require;
    if (options.inherit_secrets) body.get_object()["inherit_secrets"] = true;
    GB_CO_TRY(const auto made, co_await api.call("POST", sandbox_path(options.sandbox, "/fork"),
                                                 std::move(body), kPatience));
    if (settings.json) print_json(made);
    for (const bj::value& child : items(made, "sandboxes")) {
      if (!settings.json) print(text(child, "id") + "\n");
    }
    co_return kOk;
  });
}

int command_reset(const Settings& settings, const ResetOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::object body;
    if (!options.snapshot.empty()) body["snapshot"] = options.snapshot;
    GB_CO_TRY(const auto reset, co_await api.call("POST", sandbox_path(options.sandbox, "/reset"),
                                                  std::move(body), kPatience));
    show(settings, reset, printable(options.sandbox) + " " + text(reset, "snapshot_id"));
    co_return kOk;
  });
}

int command_hibernate(const Settings& settings, const HibernateOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::object body;
    if (!options.require.empty()) body["require"] = options.require;
    GB_CO_TRY(const auto paused,
              co_await api.call("POST", sandbox_path(options.sandbox, "/hibernate"),
                                std::move(body), kPatience));
    show(settings, paused,
         printable(options.sandbox) + " " + text(paused, "state") +
             ", kept: " + text(paused, "paused.kept"));
    co_return kOk;
  });
}

int command_diff(const Settings& settings, const DiffOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    std::string path = sandbox_path(options.sandbox, "/diff?limit=1000");
    if (!options.against.empty()) path += "&against=" + http::percent_encode(options.against);
    GB_CO_TRY(auto changes, co_await all_items(api, path, "items"));
    if (settings.json) {
      print_json(bj::object{{"items", std::move(changes)}});
      co_return kOk;
    }
    for (const bj::value& change : changes) {
      const std::string kind = text(change, "change");
      const char mark = kind == "added" ? 'A' : kind == "deleted" ? 'D' : 'C';
      const bool is_directory = text(change, "type") == "directory";
      print(std::string(1, mark) + " " + printable(bytes(change, "path")) + (is_directory ? "/" : "") + "\n");
    }
    co_return kOk;
  });
}

}  // namespace glovebox::cli
