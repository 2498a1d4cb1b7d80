// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <string>

#include "image/templates.h"

namespace {

using glovebox::Result;
using glovebox::image::Progress;
using glovebox::image::Template;
using glovebox::image::Templates;

void show(const Progress& p) {
  std::fprintf(stderr, "%-10s %llu/%llu eta %lld s  %s\n", p.phase.c_str(),
               static_cast<unsigned long long>(p.done), static_cast<unsigned long long>(p.total),
               static_cast<long long>(p.eta.count() / 1000), p.message.c_str());
}

int finish(const Result<Template>& t) {
  if (!t) {
    std::fprintf(stderr, "%s: %s\n", std::string(info(t.error().code).name).c_str(),
                 t.error().message.c_str());
    return 1;
  }
  std::printf("%s %s %s %llu bytes, %zu packages\n%s\n", t->name.c_str(), t->version.c_str(),
              t->kind.c_str(), static_cast<unsigned long long>(t->image_bytes), t->package_count,
              t->image_path.c_str());
  return 0;
}

int usage() {
  std::fputs(
      "glovebox-template DATA_DIR build RECIPE [--refresh] [--mirror URL] [--suite NAME]\n"
      "glovebox-template DATA_DIR import NAME ARCHIVE\n"
      "glovebox-template DATA_DIR list\n",
      stderr);
  return 2;
}

int build(Templates& templates, int argc, char** argv) {
  glovebox::image::BuildOptions options;
  for (int i = 4; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--refresh") {
      options.refresh = true;
    } else if (word == "--mirror" && i + 1 < argc) {
      options.mirror = argv[++i];
    } else if (word == "--suite" && i + 1 < argc) {
      options.suite = argv[++i];
    } else {
      return usage();
    }
  }
  return finish(templates.build(argv[3], options, show));
}

int list(const Templates& templates) {
  const auto all = templates.list();
  if (!all) return finish(glovebox::fail(all.error()));
  for (const auto& t : *all) finish(t);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto status = glovebox::image::run_helper(argc, argv)) return *status;
  if (argc < 3) return usage();
  Templates templates(argv[1]);
  const std::string verb = argv[2];
  if (verb == "build" && argc >= 4) return build(templates, argc, argv);
  if (verb == "import" && argc == 5)
    return finish(templates.import_archive(argv[3], argv[4], show));
  if (verb == "list" && argc == 3) return list(templates);
  return usage();
}
