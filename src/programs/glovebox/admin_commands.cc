// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/text.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;

std::string render_keys(const bj::array& keys) {
  Table table({"ID", "NAME", "TENANT", "ROLE", "AGE"});
  const WallTime now = std::chrono::system_clock::now();
  for (const bj::value& key : keys) {
    table.add({text(key, "id"), text(key, "name"), text(key, "tenant"), text(key, "role"),
               human_age(text(key, "created_at"), now)});
  }
  return table.render(colours_on(STDOUT_FILENO));
}

}  // namespace

int command_key_create(const Settings& settings, const KeyOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::object body{{"name", options.name}, {"role", options.role}};
    if (options.tenant) body["tenant"] = *options.tenant;
    if (options.default_runtime) body["default_runtime"] = *options.default_runtime;
    GB_CO_TRY(const auto key, co_await api.call("POST", "/v1/keys", bj::value(std::move(body))));
    if (settings.json) {
      print_json(key);
    } else {
      print_note("key " + text(key, "id") + " of tenant " + text(key, "tenant") +
                 "; it is shown only now:");
      print(text(key, "key") + "\n");
    }
    co_return kOk;
  });
}

int command_key_list(const Settings& settings) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto answer, co_await api.call("GET", "/v1/keys"));
    settings.json ? print_json(answer) : print(render_keys(items(answer, "keys")));
    co_return kOk;
  });
}

int command_key_remove(const Settings& settings, const std::string& id) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto answer,
              co_await api.call("DELETE", "/v1/keys/" + http::percent_encode(id)));
    settings.json ? print_json(answer) : print(printable(id) + "\n");
    co_return kOk;
  });
}

int command_version(const Settings& settings) {
  // The daemon's version is a courtesy: no daemon, no error.
  std::string daemon;
  const auto target = find_target(settings);
  const auto api =
      target ? ApiClient::make(target->url, "") : Result<ApiClient>(fail(target.error()));
  if (api) {
    (void)run_loop([&](Loop&) -> Async<int> {
      GB_CO_TRY(const auto answer,
                co_await api->call("GET", "/version", {}, std::chrono::seconds(2)));
      daemon = text(answer, "version");
      co_return kOk;
    });
  }
  if (settings.json) {
    print_json({{"version", GLOVEBOX_VERSION},
                {"daemon", daemon.empty() ? bj::value() : bj::value(daemon)}});
  } else {
    print("glovebox " GLOVEBOX_VERSION "\n" +
          (daemon.empty() ? "no daemon reached\n" : "daemon " + printable(daemon) + "\n"));
  }
  return kOk;
}

}  // namespace glovebox::cli
