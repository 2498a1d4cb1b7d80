// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "base/text.h"
#include "http/json.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/network_options.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
constexpr std::chrono::milliseconds kLookAgain{500};
constexpr int kBrokenPipe = kSignalBase + SIGPIPE;

std::string path_of(const std::string& sandbox, const char* rest) {
  return "/v1/sandboxes/" + http::percent_encode(sandbox) + rest;
}

std::string bytes_text(const bj::value& value, std::string_view path) {
  return human_bytes(static_cast<uint64_t>(number(value, path)));
}

// One policy -----------------------------------------------------------------------------------

std::string words(const bj::value& rule, std::string_view name) {
  std::string out;
  for (const bj::value& item : items(rule, name)) {
    out += out.empty() ? "" : ",";
    out += item.is_string() ? std::string(item.get_string()) : json::to_text(item);
  }
  return out;
}

std::string rule_text(const bj::value& rule) {
  std::string out = text(rule, "host") + text(rule, "cidr");
  if (const std::string ports = words(rule, "ports"); !ports.empty()) out += ":" + ports;
  for (const char* list : {"protocols", "methods", "paths"}) {
    if (const std::string all = words(rule, list); !all.empty()) out += " " + all;
  }
  return out + "  (" + text(rule, "name") + ")";
}

std::string limit_text(const bj::value& effective) {
  const auto limit = [&](const char* name) { return number(effective, name); };
  std::string out = std::to_string(limit("limits.connections")) + " connections";
  if (limit("limits.bandwidth") > 0) out += ", " + bytes_text(effective, "limits.bandwidth") + "/s";
  if (limit("limits.bytes") > 0) out += ", " + bytes_text(effective, "limits.bytes") + " in all";
  return out;
}

std::string render_network(const bj::value& state) {
  const auto* effective = field(state, "effective");
  const bj::value none = bj::object();
  const bj::value& e = effective == nullptr ? none : *effective;
  const bool has_link = flag(state, "link");
  std::vector<std::pair<std::string, std::string>> rows = {
      {"egress", text(e, "egress")}, {"address", has_link ? text(state, "address") : "no link"}};
  if (const auto* policy = field(state, "policy"); policy && !items(*policy, "presets").empty())
    rows.emplace_back("presets", words(*policy, "presets"));
  for (const char* list : {"allow", "deny"}) {
    for (const bj::value& rule : items(e, list)) rows.emplace_back(list, rule_text(rule));
  }
  for (const bj::value& service : items(e, "internal"))
    rows.emplace_back("internal", text(service, "host") + ":" + words(service, "ports"));
  if (const auto* packages = field(e, "packages"))
    rows.emplace_back("packages", json::to_text(*packages));
  if (has_link) {
    rows.emplace_back("limits", limit_text(e));
    rows.emplace_back("usage", bytes_text(state, "usage.bytes_in") + " in, " +
                                   bytes_text(state, "usage.bytes_out") + " out, " +
                                   std::to_string(number(state, "usage.open_connections")) +
                                   " open connections");
  }
  return render_fields(rows, colours_on(STDOUT_FILENO));
}

// Logs -----------------------------------------------------------------------------------------

std::string time_text(const bj::value& entry) {
  const int64_t ms = number(entry, "time_ms");
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  char out[48] = "?", when[32];
  if (::gmtime_r(&seconds, &parts) == nullptr) return out;
  std::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(out, sizeof out, "%s.%03dZ", when, static_cast<int>(ms % 1000));
  return out;
}

std::string padded(std::string text, size_t width) {
  const size_t taken = display_width(text);
  if (taken < width) text.append(width - taken, ' ');
  return text;
}

Colour colour_of(const std::string& verdict) {
  if (verdict == "denied") return Colour::kRed;
  if (verdict == "failed") return Colour::kYellow;
  return Colour::kGreen;
}

std::string head_of_line(const bj::value& entry, const char* verdict_name) {
  const std::string verdict = printable(text(entry, verdict_name));
  return time_text(entry) + "  " +
         coloured(padded(verdict, 7), colour_of(verdict), colours_on(STDOUT_FILENO)) + "  ";
}

// The rule, and why when it was not granted.
std::string ground(const bj::value& entry) {
  std::string out = text(entry, "rule");
  for (const char* name : {"reason", "how_to_allow"}) {
    const std::string sentence = text(entry, name);
    if (sentence.empty()) continue;
    if (!out.empty())
      out += out.ends_with('.') ? " " : name == std::string_view("reason") ? ": " : ". ";
    out += sentence;
  }
  return out;
}

std::string connection_line(const bj::value& entry) {
  const bool is_dns = text(entry, "kind") == "dns";
  const std::string host = text(entry, "host"), address = text(entry, "address");
  std::string what = is_dns ? "dns" : text(entry, "protocol");
  std::string where = host.empty() ? address : host;
  if (number(entry, "port") > 0 && !is_dns) where += ":" + std::to_string(number(entry, "port"));
  if (!host.empty() && !address.empty()) where += " (" + address + ")";
  if (is_dns) where += " " + text(entry, "query_type");
  if (!text(entry, "method").empty())
    where += " " + text(entry, "method") + " " + text(entry, "path");
  if (text(entry, "phase") == "close") {
    what += " end";
    where +=
        " " + bytes_text(entry, "bytes_out") + " out, " + bytes_text(entry, "bytes_in") + " in";
  }
  if (number(entry, "folded") > 0)
    where +=
        " and " + std::to_string(number(entry, "folded")) + " more that were not noted one by one";
  return head_of_line(entry, "verdict") + padded(printable(what), 8) + "  " +
         padded(printable(where), 40) + "  " + printable(ground(entry)) + "\n";
}

std::string package_line(const bj::value& entry) {
  std::string what = text(entry, "registry") + " " + text(entry, "package");
  if (!text(entry, "version").empty()) what += " " + text(entry, "version");
  if (!text(entry, "file").empty()) what += " " + text(entry, "file");
  std::string detail = text(entry, "source");
  if (number(entry, "bytes") > 0) detail += " " + bytes_text(entry, "bytes");
  return head_of_line(entry, "outcome") + padded(printable(what), 40) + "  " +
         padded(printable(detail), 18) + "  " + printable(ground(entry)) + "\n";
}

struct LogView {
  const char* rest;  // of the path
  const char* name;  // of the entries
  std::string (*line)(const bj::value&);
};
constexpr LogView kConnections{"/network/connections", "connections", connection_line};
constexpr LogView kPackages{"/packages", "packages", package_line};

Async<bool> has_ended(const ApiClient& api, const std::string& sandbox) {
  GB_CO_TRY(const auto info, co_await api.call("GET", path_of(sandbox, "")));
  co_return text(info, "state") == "ended";
}

// Shows every entry so far; when following, until the sandbox has ended and all of it was shown.
Async<void> show_log(OutputQueue& output, const ApiClient& api, LogView view,
                     const NetworkLogOptions& options, bool as_json) {
  std::string cursor;
  bool is_last = !options.follow;
  while (true) {
    const std::string query =
        "?limit=1000" + (cursor.empty() ? "" : "&cursor=" + http::percent_encode(cursor));
    GB_CO_TRY(const auto page,
              co_await api.call("GET", path_of(options.sandbox, view.rest) + query));
    if (flag(page, "lost")) print_note("older entries are gone: the log is bounded");
    const auto& entries = items(page, view.name);
    for (const bj::value& entry : entries) {
      std::string line = as_json ? json::to_text(entry) + "\n" : view.line(entry);
      GB_CO_TRYV(co_await output.push(STDOUT_FILENO, std::move(line)));
    }
    cursor = text(page, "next_cursor");
    if (!entries.empty()) continue;
    if (is_last) break;
    GB_CO_TRY(is_last, co_await has_ended(api, options.sandbox));
    if (!is_last && !co_await sleep_for(kLookAgain)) co_return fail(Code::kCancelled, "stopped");
  }
  co_return co_await output.flush();
}

int command_log(const Settings& settings, const NetworkLogOptions& options, LogView view) {
  return with_api(settings, [&](Loop& loop, const ApiClient& api) -> Async<int> {
    OutputQueue output(loop);
    auto shown = co_await show_log(output, api, view, options, settings.json);
    if (!shown && shown.error().code == Code::kCancelled) co_return kBrokenPipe;
    if (!shown) co_return fail(std::move(shown).error());
    co_return kOk;
  });
}

}  // namespace

int command_network(const Settings& settings, const NetworkShowOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    const std::string path = path_of(options.sandbox, "/network");
    std::optional<bj::value> policy;
    if (options.file) {
      GB_CO_TRY(policy, read_policy(*options.file));
    }
    GB_CO_TRY(const auto state, co_await api.call(policy ? "PUT" : "GET", path, policy));
    settings.json ? print_json(state) : print(render_network(state));
    co_return kOk;
  });
}

int command_connections(const Settings& settings, const NetworkLogOptions& options) {
  return command_log(settings, options, kConnections);
}

int command_packages(const Settings& settings, const NetworkLogOptions& options) {
  return command_log(settings, options, kPackages);
}

int command_presets(const Settings& settings) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto found, co_await api.call("GET", "/v1/network/presets"));
    if (settings.json) {
      print_json(found);
      co_return kOk;
    }
    Table table({"NAME", "OPENS"});
    for (const bj::value& preset : items(found, "presets"))
      table.add({text(preset, "name"), text(preset, "description")});
    print(table.render(colours_on(STDOUT_FILENO)));
    co_return kOk;
  });
}

}  // namespace glovebox::cli
