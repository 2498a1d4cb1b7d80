// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "programs/glovebox/transfer.h"
#include "programs/glovebox/units.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;

std::string path_of(const VolumeOptions& options) {
  return "/v1/volumes/" + http::percent_encode(options.name);
}

std::string size_of(const bj::value& volume) {
  return human_bytes(static_cast<uint64_t>(number(volume, "size_mb")) << 20);
}

std::string use_of(const bj::value& volume) {
  return field(volume, "used_bytes") == nullptr
             ? "-"
             : human_bytes(static_cast<uint64_t>(number(volume, "used_bytes")));
}

// Who has it: one that writes, or those that read.
std::string users_of(const bj::value& volume) {
  if (const std::string writer = text(volume, "writer"); !writer.empty()) return writer + " (rw)";
  std::string out;
  for (const bj::value& reader : items(volume, "readers")) {
    out += (out.empty() ? "" : ", ") +
           (reader.is_string() ? std::string(reader.get_string()) : "") + " (ro)";
  }
  return out.empty() ? "-" : out;
}

std::string render(const bj::value& volume) {
  const auto* labels = field(volume, "labels");
  std::string pairs;
  if (labels != nullptr && labels->is_object()) {
    for (const auto& label : labels->get_object())
      pairs +=
          (pairs.empty() ? "" : ", ") + std::string(label.key()) + "=" + text(*labels, label.key());
  }
  return render_fields({{"id", text(volume, "id")},
                        {"name", text(volume, "name")},
                        {"size", size_of(volume)},
                        {"used", use_of(volume)},
                        {"labels", pairs},
                        {"attached to", users_of(volume)},
                        {"created", text(volume, "created_at")}},
                       colours_on(STDOUT_FILENO));
}

int show(const Settings& settings, const bj::value& volume) {
  settings.json ? print_json(volume) : print(render(volume));
  return kOk;
}

}  // namespace

int command_volume_create(const Settings& settings, const VolumeOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::object body{{"name", options.name}, {"get_or_create", options.get_or_create}};
    if (options.size) body["size_mb"] = parse_size_mb(*options.size).value();
    GB_CO_TRY(const auto pairs, parse_pairs(options.labels, false));
    bj::object labels;
    for (const auto& [name, value] : pairs) labels[name] = value;
    body["labels"] = std::move(labels);
    GB_CO_TRY(const auto volume,
              co_await api.call("POST", "/v1/volumes", bj::value(std::move(body))));
    settings.json ? print_json(volume) : print(text(volume, "id") + "\n");
    co_return kOk;
  });
}

int command_volume_list(const Settings& settings, const VolumeOptions&) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(auto volumes, co_await all_items(api, "/v1/volumes?limit=1000", "volumes"));
    if (settings.json) {
      print_json(bj::object{{"volumes", std::move(volumes)}});
      co_return kOk;
    }
    Table table({"NAME", "ID", "SIZE", "USED", "ATTACHED TO", "AGE"});
    const WallTime now = std::chrono::system_clock::now();
    for (const bj::value& v : volumes) {
      table.add({text(v, "name"), text(v, "id"), size_of(v), use_of(v), users_of(v),
                 human_age(text(v, "created_at"), now)});
    }
    print(table.render(colours_on(STDOUT_FILENO)));
    co_return kOk;
  });
}

int command_volume_show(const Settings& settings, const VolumeOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto volume, co_await api.call("GET", path_of(options)));
    co_return show(settings, volume);
  });
}

int command_volume_grow(const Settings& settings, const VolumeOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    bj::object body{{"size_mb", parse_size_mb(*options.size).value()}};
    GB_CO_TRY(const auto volume,
              co_await api.call("PATCH", path_of(options), bj::value(std::move(body)),
                                std::chrono::minutes(30)));
    co_return show(settings, volume);
  });
}

int command_volume_remove(const Settings& settings, const VolumeOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    GB_CO_TRY(const auto answer, co_await api.call("DELETE", path_of(options)));
    settings.json ? print_json(answer) : print(printable(options.name) + "\n");
    co_return kOk;
  });
}

int command_volume_export(const Settings& settings, const VolumeOptions& options) {
  return with_api(settings, [&](Loop& loop, const ApiClient& api) -> Async<int> {
    if (options.file == "-" && ::isatty(STDOUT_FILENO) == 1) {
      co_return fail(
          Code::kInvalidArgument,
          "the archive would go to the terminal: name a file, or redirect standard output");
    }
    GB_CO_TRY(auto connection, co_await start_download(api, path_of(options) + "/archive"));
    uint64_t saved = 0;
    if (options.file == "-") {
      GB_CO_TRY(saved, co_await save_body(loop, *connection, STDOUT_FILENO));
    } else {
      GB_CO_TRY(saved, co_await save_file(loop, *connection, options.file, 0600));
      if (settings.json) print_json(bj::object{{"bytes", saved}});
    }
    co_return kOk;
  });
}

int command_volume_import(const Settings& settings, const VolumeOptions& options) {
  return with_api(settings, [&](Loop&, const ApiClient& api) -> Async<int> {
    UniqueFd file;
    struct stat info{};
    int64_t length = -1;
    if (options.file != "-") {
      file = UniqueFd(::open(options.file.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file || ::fstat(file.get(), &info) != 0) co_return fail_errno(options.file);
      if (S_ISREG(info.st_mode)) length = info.st_size;
    }
    GB_CO_TRYV(co_await upload(api, path_of(options) + "/archive", file ? file.get() : STDIN_FILENO,
                               length));
    GB_CO_TRY(const auto volume, co_await api.call("GET", path_of(options)));
    co_return show(settings, volume);
  });
}

}  // namespace glovebox::cli
