// SPDX-License-Identifier: Apache-2.0
// What upstream registries answer, and the paths that sandboxes ask for. The first byte chooses. What was read is rendered and must
// read back as the same files.
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "registry/names.h"
#include "registry/npm_packument.h"
#include "registry/pypi_index.h"

using namespace glovebox::registry;

namespace {

const Url& base() {
  static const Url url = *parse_url("https://index.example/simple/six/");
  return url;
}

void check_index(const glovebox::Result<Index>& index) {
  if (!index) return;
  for (const bool is_json : {true, false}) {
    const std::string text = is_json ? render_index_json(*index) : render_index_html(*index);
    const auto again = is_json ? parse_index_json(text, base(), "six") : parse_index_html(text, base(), "six");
    GB_ASSERT(again && again->files.size() == index->files.size());
    for (size_t i = 0; i < again->files.size(); ++i) {
      GB_ASSERT(again->files[i].filename == index->files[i].filename && again->files[i].sha256 == index->files[i].sha256);
      GB_ASSERT(again->files[i].yanked.has_value() == index->files[i].yanked.has_value());
    }
  }
}

void check_packument(std::string_view body) {
  const auto packument = Packument::parse(body, "six");
  if (!packument) return;
  Packument::View view;
  view.base_url = "http://h/npm";
  for (const auto& [version, known] : packument->versions()) {
    if (view.refused.size() < packument->versions().size() / 2) view.refused[version] = {false, "r", "why"};
  }
  for (int mode = 0; mode < 4; ++mode) {
    view.is_abbreviated = mode & 1;
    view.without_scripts = mode & 2;
    const auto again = Packument::parse(packument->render(view), "six");
    GB_ASSERT(again && again->versions().size() == packument->versions().size() - view.refused.size());
  }
}

void check_names(std::string_view text) {
  const auto segments = path_segments(text);
  if (segments) {
    for (const auto& segment : *segments) GB_ASSERT(!segment.empty() && segment != ".." && segment.find('/') == segment.npos);
  }
  (void)read_pypi_file(text, "six");
  (void)npm_file_version(text, "six");
  (void)read_debian_file(text);
  (void)parse_time(text);
  GB_ASSERT(!semver_less(text, text));
  const auto url = resolve_url(base(), text);
  if (url) GB_ASSERT(parse_url(url->text) && parse_url(url->text)->origin == url->origin);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: check_index(parse_index_json(rest, base(), "six")); break;
    case 1: check_index(parse_index_html(rest, base(), "six")); break;
    case 2: check_packument(rest); break;
    case 3: (void)without_install_scripts(rest, size % 2); break;
    default: check_names(rest);
  }
  return 0;
}
