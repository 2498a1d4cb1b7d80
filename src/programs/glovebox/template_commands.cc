// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/text.h"
#include "http/json.h"
#include "image/templates.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/progress_line.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;

// As the API describes it.
bj::value describe(const image::Template& t) {
  bj::object env;
  for (const auto& [name, value] : t.config.env) env[name] = value;
  return {{"name", t.name},
          {"version", t.version},
          {"kind", t.kind},
          {"image_sha256", t.image_sha256},
          {"image_bytes", t.image_bytes},
          {"created_at", iso_time(t.created_at)},
          {"user", t.config.user},
          {"workdir", t.config.workdir},
          {"env", std::move(env)},
          {"package_count", t.package_count}};
}

std::string short_version(const bj::value& t) {
  return text(t, "version").substr(0, 12);
}
std::string size_of(const bj::value& t) {
  return human_bytes(static_cast<uint64_t>(number(t, "image_bytes")));
}

std::string render_list(const bj::array& templates) {
  Table table({"NAME", "VERSION", "KIND", "SIZE", "PACKAGES", "AGE"});
  const WallTime now = std::chrono::system_clock::now();
  for (const bj::value& t : templates) {
    table.add({text(t, "name"), short_version(t), text(t, "kind"), size_of(t),
               std::to_string(number(t, "package_count")), human_age(text(t, "created_at"), now)});
  }
  return table.render(colours_on(STDOUT_FILENO));
}

std::string render_one(const bj::value& t) {
  std::string env;
  const auto* values = field(t, "env");
  if (values != nullptr && values->is_object()) {
    for (const auto& entry : values->get_object())
      env += (env.empty() ? "" : " ") + std::string(entry.key()) + "=" + text(*values, entry.key());
  }
  return render_fields({{"name", text(t, "name")},
                        {"version", text(t, "version")},
                        {"kind", text(t, "kind")},
                        {"image", size_of(t) + ", sha256 " + text(t, "image_sha256")},
                        {"created", text(t, "created_at")},
                        {"user", text(t, "user")},
                        {"workdir", text(t, "workdir")},
                        {"env", env},
                        {"packages", std::to_string(number(t, "package_count"))}},
                       colours_on(STDOUT_FILENO));
}

// Templates are files of this host: no daemon is needed to make or read them, unless the user
// points at one elsewhere.
bool asks_daemon(const Settings& settings) {
  return !settings.url.empty() || ::access((settings.data_dir + "/templates").c_str(), R_OK) != 0;
}

int report_made(const Settings& settings, const Result<image::Template>& made,
                ProgressLine& progress) {
  progress.finish();
  if (!made) return conclude(settings, fail(made.error()));
  const bj::value description = describe(*made);
  if (settings.json) {
    print_json(description);
  } else {
    print(text(description, "name") + "@" + short_version(description) + "  " +
          size_of(description) + "\n");
  }
  return kOk;
}

}  // namespace

int command_template_build(const Settings& settings, const TemplateOptions& options) {
  image::Templates templates(settings.data_dir);
  image::BuildOptions build;
  build.mirror = options.mirror;
  build.refresh = options.refresh;
  ProgressLine progress(STDERR_FILENO);
  const auto made =
      templates.build(options.name, build, [&](const image::Progress& p) { progress.show(p); });
  return report_made(settings, made, progress);
}

int command_template_import(const Settings& settings, const TemplateOptions& options) {
  image::Templates templates(settings.data_dir);
  ProgressLine progress(STDERR_FILENO);
  const auto made = templates.import_archive(options.name, options.file,
                                             [&](const image::Progress& p) { progress.show(p); });
  return report_made(settings, made, progress);
}

int command_template_list(const Settings& settings) {
  const auto show = [&](const bj::array& templates) {
    settings.json ? print_json(bj::object{{"templates", templates}})
                  : print(render_list(templates));
    return static_cast<int>(kOk);
  };
  if (asks_daemon(settings)) {
    return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
      GB_CO_TRY(const auto answer, co_await api.call("GET", "/v1/templates"));
      co_return show(items(answer, "templates"));
    });
  }
  const auto found = image::Templates(settings.data_dir).list();
  if (!found) return conclude(settings, fail(found.error()));
  bj::array templates;
  for (const image::Template& t : *found) templates.push_back(describe(t));
  return show(templates);
}

int command_template_info(const Settings& settings, const std::string& name) {
  const auto show = [&](const bj::value& t) {
    settings.json ? print_json(t) : print(render_one(t));
    return static_cast<int>(kOk);
  };
  if (asks_daemon(settings)) {
    return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
      GB_CO_TRY(const auto answer,
                co_await api.call("GET", "/v1/templates/" + http::percent_encode(name)));
      co_return show(answer);
    });
  }
  const auto found = image::Templates(settings.data_dir).find(name);
  if (!found) return conclude(settings, fail(found.error()));
  return show(describe(*found));
}

// Only the daemon knows which templates sandboxes use.
int command_template_remove(const Settings& settings, const std::string& name) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto answer,
              co_await api.call("DELETE", "/v1/templates/" + http::percent_encode(name)));
    settings.json ? print_json(answer) : print(printable(name) + "\n");
    co_return kOk;
  });
}

}  // namespace glovebox::cli
