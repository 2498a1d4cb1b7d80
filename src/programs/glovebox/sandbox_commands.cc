// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdio>

#include "base/text.h"
#include "http/json.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/copy.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace bj = boost::json;

bj::object to_object(const StringMap& map) {
  bj::object out;
  for (const auto& [name, value] : map) out[name] = value;
  return out;
}

namespace {

std::string path_of(const std::string& sandbox) {
  return "/v1/sandboxes/" + http::percent_encode(sandbox);
}

std::string human_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string human_mb(int64_t mb) {
  return human_bytes(static_cast<uint64_t>(mb) << 20);
}

std::string expiry(const bj::value& sandbox, WallTime now) {
  const std::string at = text(sandbox, "expires_at");
  return at.empty() ? "never" : human_age(at, now);
}

std::string render_list(const bj::array& sandboxes) {
  Table table(
      {"ID", "STATE", "RUNTIME", "TEMPLATE", "CPUS", "MEMORY", "RUNNING", "AGE", "EXPIRES"});
  const WallTime now = std::chrono::system_clock::now();
  for (const bj::value& s : sandboxes) {
    const std::string ended = text(s, "ended.reason");
    table.add({text(s, "id"), text(s, "state") + (ended.empty() ? "" : " (" + ended + ")"),
               text(s, "runtime"), text(s, "template.name"), human_number(real(s, "limits.cpus")),
               human_mb(number(s, "limits.memory_mb")),
               std::to_string(number(s, "running_executions")),
               human_age(text(s, "created_at"), now), ended.empty() ? expiry(s, now) : "-"});
  }
  return table.render(colours_on(STDOUT_FILENO));
}

std::string pairs_text(const bj::value& object) {
  std::string out;
  if (!object.is_object()) return out;
  for (const auto& entry : object.get_object()) {
    out += (out.empty() ? "" : ", ") + std::string(entry.key()) + "=" + text(object, entry.key());
  }
  return out;
}

std::string network_text(const bj::value& sandbox) {
  const std::string address = text(sandbox, "network.address");
  const std::string egress = "egress " + text(sandbox, "network.egress");
  return address.empty() ? egress + ", no link" : egress + ", address " + address;
}

std::string state_text(const bj::value& sandbox) {
  if (field(sandbox, "paused") == nullptr) return text(sandbox, "state") + (flag(sandbox, "frozen") ? " (the next call wakes it)" : "");
  const char* how = flag(sandbox, "paused.hibernated") ? " (hibernated by " : " (by ";
  return text(sandbox, "state") + how + text(sandbox, "paused.cause") + ", kept: " + text(sandbox, "paused.kept") + ")";
}

std::string render_info(const bj::value& s, const bj::value& stats) {
  const WallTime now = std::chrono::system_clock::now();
  std::vector<std::pair<std::string, std::string>> rows = {
      {"id", text(s, "id")},
      {"state", state_text(s)},
      {"runtime", text(s, "runtime")},
      {"template", text(s, "template.name") + "@" + text(s, "template.version").substr(0, 12)},
      {"created", text(s, "created_at") + " (" + human_age(text(s, "created_at"), now) +
                      " ago, ready after " +
                      human_duration(std::chrono::milliseconds(number(s, "ready_ms"))) + ")"},
      {"expires", expiry(s, now)},
      {"limits", human_number(real(s, "limits.cpus")) + " CPUs, " +
                     human_mb(number(s, "limits.memory_mb")) + " memory, " +
                     human_mb(number(s, "limits.disk_mb")) + " disk, " +
                     std::to_string(number(s, "limits.processes")) + " processes"},
      {"user", text(s, "user")},
      {"workdir", text(s, "workdir")},
      {"network", network_text(s)},
      {"running", std::to_string(number(s, "running_executions"))}};
  if (const std::string from = text(s, "snapshot_id"); !from.empty()) rows.emplace_back("snapshot", from);
  std::string volumes;
  for (const bj::value& v : items(s, "volumes")) {
    volumes += (volumes.empty() ? "" : ", ") + text(v, "volume") + " at " + text(v, "path") + (flag(v, "read_only") ? " (read-only)" : "");
  }
  if (!volumes.empty()) rows.emplace_back("volumes", volumes);
  const auto* metadata = field(s, "metadata");
  if (metadata != nullptr && !pairs_text(*metadata).empty())
    rows.emplace_back("metadata", pairs_text(*metadata));
  if (field(s, "ended") != nullptr) {
    rows.emplace_back("ended", text(s, "ended.at") + ": " + text(s, "ended.reason") + ". " +
                                   text(s, "ended.message"));
  }
  if (stats.is_object()) {
    rows.emplace_back(
        "usage", human_duration(std::chrono::milliseconds(number(stats, "cpu_ms"))) + " CPU, " +
                     human_bytes(static_cast<uint64_t>(number(stats, "memory_bytes"))) +
                     " memory, " + human_bytes(static_cast<uint64_t>(number(stats, "disk_bytes"))) +
                     " disk, " + std::to_string(number(stats, "processes")) + " processes");
  }
  return render_fields(rows, colours_on(STDOUT_FILENO));
}

// Ends one; false when that failed, which has been reported.
Async<bool> kill_one(const ApiClient& api, const Settings& settings, std::string id,
                     bj::array& killed) {
  auto ended = co_await api.call("DELETE", path_of(id));
  if (!ended) {
    print_error(ended.error(), settings.json);
    co_return false;
  }
  if (!settings.json)
    print(printable(id) + (flag(*ended, "already_ended") ? " (had ended already)" : "") + "\n");
  killed.push_back(std::move(*ended));
  co_return true;
}

// POSTs to each of them; one that fails is reported, and the others go on.
int change_each(const Settings& settings, const PauseOptions& options, const std::string& change) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::array changed;
    bool all_well = true;
    for (const std::string& id : options.sandboxes) {
      auto sandbox = co_await api.call("POST", path_of(id) + "/" + change);
      all_well = all_well && sandbox;
      if (!sandbox) {
        print_error(sandbox.error(), settings.json);
        continue;
      }
      if (!settings.json) print(printable(id) + " " + text(*sandbox, "state") + "\n");
      changed.push_back(std::move(*sandbox));
    }
    if (settings.json) print_json(bj::object{{"sandboxes", std::move(changed)}});
    co_return all_well ? kOk : kGlovebox;
  });
}

}  // namespace

int conclude(const Settings& settings, const Result<int>& result) {
  if (result) return *result;
  print_error(result.error(), settings.json);
  return exit_code(result.error());
}

int with_api(const Settings& settings,
             const std::function<Async<int>(Loop&, const ApiClient&)>& work) {
  const auto target = find_target(settings);
  if (!target) return conclude(settings, fail(target.error()));
  const auto api = ApiClient::make(target->url, target->key);
  if (!api) return conclude(settings, fail(api.error()));
  return conclude(settings, run_loop([&](Loop& loop) { return work(loop, *api); }));
}

Result<bj::value> create_body(const CreateOptions& options) {
  bj::object body, limits;
  const auto put = [](bj::object& object, const char* name, const auto& value) {
    if (value) object[name] = *value;
  };
  const auto put_ms = [&](const char* name, const std::optional<std::string>& value) {
    if (value) body[name] = parse_duration(*value).value().count();
  };
  put(body, "template", options.template_name);
  put(body, "snapshot", options.snapshot);
  put(body, "runtime", options.runtime);
  put(body, "user", options.user);
  put(body, "workdir", options.workdir);
  put_ms("lifetime_ms", options.lifetime);
  put_ms("idle_timeout_ms", options.idle_timeout);
  put(body, "on_timeout", options.on_timeout);
  put(limits, "cpus", options.cpus);
  put(limits, "processes", options.processes);
  put(limits, "open_files", options.open_files);
  if (options.memory) limits["memory_mb"] = parse_size_mb(*options.memory).value();
  if (options.disk) limits["disk_mb"] = parse_size_mb(*options.disk).value();
  if (!limits.empty()) body["limits"] = limits;
  if (!options.env.empty()) body["env"] = to_object(parse_pairs(options.env, true).value());
  if (!options.secrets.empty()) body["secrets"] = to_object(parse_pairs(options.secrets, true).value());
  if (!options.metadata.empty())
    body["metadata"] = to_object(parse_pairs(options.metadata, false).value());
  bj::array volumes;
  for (const std::string& written : options.volumes) {
    const Mount mount = parse_mount(written).value();
    volumes.push_back({{"volume", mount.volume}, {"path", mount.path}, {"read_only", mount.read_only}});
  }
  if (!volumes.empty()) body["volumes"] = std::move(volumes);
  GB_TRY(auto network, network_policy(options.network));
  if (network) body["network"] = std::move(*network);
  return bj::value(std::move(body));
}

Async<bj::array> all_items(const ApiClient& api, std::string path, std::string name) {
  bj::array out;
  std::string cursor;
  do {
    const std::string query = cursor.empty() ? "" : "&cursor=" + http::percent_encode(cursor);
    GB_CO_TRY(auto page, co_await api.call("GET", path + query));
    for (const bj::value& item : items(page, name)) out.push_back(item);
    cursor = text(page, "next_cursor");
  } while (!cursor.empty());
  co_return out;
}

int command_create(const Settings& settings, const CreateOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(auto body, create_body(options));
    GB_CO_TRY(const auto sandbox, co_await api.call("POST", "/v1/sandboxes", std::move(body)));
    if (settings.json) {
      print_json(sandbox);
    } else {
      print(text(sandbox, "id") + "\n");
    }
    co_return kOk;
  });
}

int command_list(const Settings& settings, const ListOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    std::string path = "/v1/sandboxes?limit=1000";
    if (options.all) path += "&state=creating&state=ready&state=paused&state=ending&state=ended";
    GB_CO_TRY(const auto wanted, parse_pairs(options.metadata, false));
    for (const auto& [name, value] : wanted) {
      path += "&metadata." + http::percent_encode(name) + "=" + http::percent_encode(value);
    }
    GB_CO_TRY(auto sandboxes, co_await all_items(api, path, "sandboxes"));
    if (settings.json) {
      print_json(bj::object{{"sandboxes", std::move(sandboxes)}});
    } else {
      print(render_list(sandboxes));
    }
    co_return kOk;
  });
}

int command_info(const Settings& settings, const std::string& sandbox) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(auto info, co_await api.call("GET", path_of(sandbox)));
    bj::value stats;
    if (text(info, "state") == "ready" || text(info, "state") == "paused") {
      auto usage = co_await api.call("GET", path_of(sandbox) + "/stats");
      if (usage) stats = std::move(*usage);  // it may have ended since
    }
    if (settings.json) {
      if (info.is_object()) info.get_object()["stats"] = stats;
      print_json(info);
    } else {
      print(render_info(info, stats));
    }
    co_return kOk;
  });
}

int command_kill(const Settings& settings, const KillOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    std::vector<std::string> ids = options.sandboxes;
    if (options.all) {
      GB_CO_TRY(const auto all, co_await all_items(api, "/v1/sandboxes?limit=1000", "sandboxes"));
      for (const bj::value& sandbox : all) ids.push_back(text(sandbox, "id"));
    }
    bj::array killed;
    bool all_well = true;
    for (const std::string& id : ids) {
      GB_CO_TRY(const bool well, co_await kill_one(api, settings, id, killed));
      all_well = all_well && well;
    }
    if (settings.json) print_json(bj::object{{"sandboxes", std::move(killed)}});
    co_return all_well ? kOk : kGlovebox;
  });
}

int command_pause(const Settings& settings, const PauseOptions& options) {
  return change_each(settings, options, "pause");
}

int command_resume(const Settings& settings, const PauseOptions& options) {
  return change_each(settings, options, "resume");
}

int command_copy(const Settings& settings, const CopyOptions& options) {
  return with_api(settings, [&](Loop& loop, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto done, co_await copy(loop, api, parse_place(options.from),
                                             parse_place(options.to), options.user));
    bj::array left_out;
    for (const std::string& entry : done.left_out) {
      if (settings.json) left_out.emplace_back(utf8_lossy(entry));
      if (!settings.json) print_note("left out: " + entry);
    }
    // With "-" as target standard output holds the file.
    if (settings.json && options.to != "-")
      print_json(bj::object{{"bytes", done.bytes}, {"left_out", std::move(left_out)}});
    co_return done.left_out.empty() ? kOk : kGlovebox;
  });
}

}  // namespace glovebox::cli
