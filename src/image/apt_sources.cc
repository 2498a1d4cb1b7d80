// SPDX-License-Identifier: Apache-2.0
#include "image/apt_sources.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "base/text.h"
#include "image/files.h"

namespace glovebox::image {
namespace {

constexpr size_t kMaxFile = 1 << 20;

std::string trim(std::string_view s) {
  const size_t from = s.find_first_not_of(" \t\r");
  if (from == std::string_view::npos) return {};
  return std::string(s.substr(from, s.find_last_not_of(" \t\r") - from + 1));
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return s;
}

bool has(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Fields of one deb822 stanza, names in lower case, continuation lines joined.
std::map<std::string, std::string> stanza_fields(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> fields;
  std::string last;
  for (const auto& line : lines) {
    if (line[0] == ' ' || line[0] == '\t') {
      if (!last.empty()) fields[last] += "\n" + trim(line);
      continue;
    }
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    last = lower(trim(line.substr(0, colon)));
    fields[last] = trim(line.substr(colon + 1));
  }
  return fields;
}

AptSource source_of(std::map<std::string, std::string> fields) {
  AptSource source{words_of(fields["types"]),
                   words_of(fields["uris"]),
                   words_of(fields["suites"]),
                   words_of(fields["components"]),
                   {}};
  // A key may stand in the file itself instead of a path; mmdebstrap then finds the distribution's
  // keyring on its own.
  const std::string key = fields["signed-by"];
  if (!key.empty() && key[0] == '/' && key.find('\n') == std::string::npos)
    source.options = "signed-by=" + key;
  if (lower(fields["trusted"]) == "yes")
    source.options += (source.options.empty() ? "" : " ") + std::string("trusted=yes");
  if (lower(fields["enabled"]) == "no") source.types.clear();
  return source;
}

bool is_fetchable(const std::string& uri) {
  return uri.rfind("http://", 0) == 0 || uri.rfind("https://", 0) == 0 ||
         uri.rfind("file:/", 0) == 0;
}

// "-updates", "-security", "" for a suite of `codename` (also its alias words); nothing for another
// one.
bool suffix_of(const std::string& suite, const std::string& codename, std::string& suffix) {
  for (const std::string& base :
       {codename, std::string("stable"), std::string("oldstable"), std::string("testing")}) {
    if (base.empty() || suite.rfind(base, 0) != 0) continue;
    suffix = suite.substr(base.size());
    if (suffix.empty() || suffix == "-updates" || suffix == "-security") return true;
  }
  return false;
}

std::string os_release_value(const std::string& key) {
  const auto text = read_file("/etc/os-release", kMaxFile);
  for (const auto& line : split(text ? *text : std::string(), '\n')) {
    if (line.rfind(key + "=", 0) != 0) continue;
    std::string value = line.substr(key.size() + 1);
    value.erase(std::remove(value.begin(), value.end(), '"'), value.end());
    return value;
  }
  return {};
}

bool ends_with(const std::string& s, std::string_view end) {
  return s.size() > end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0;
}

std::vector<AptSource> read_machine_sources() {
  std::vector<AptSource> all;
  const auto add = [&all](std::vector<AptSource> more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  if (auto text = read_file("/etc/apt/sources.list", kMaxFile)) add(parse_one_line_sources(*text));
  const std::string parts = "/etc/apt/sources.list.d";
  const auto names = directory_names(parts);
  for (const auto& name : names ? *names : std::vector<std::string>()) {
    auto text = read_file(parts + "/" + name, kMaxFile);
    if (!text) continue;
    if (ends_with(name, ".list")) add(parse_one_line_sources(*text));
    if (ends_with(name, ".sources")) add(parse_deb822_sources(*text));
  }
  return all;
}

}  // namespace

std::vector<AptSource> parse_one_line_sources(std::string_view text) {
  std::vector<AptSource> out;
  for (std::string line : split(text, '\n')) {
    line = trim(line.substr(0, line.find('#')));
    if (line.rfind("deb ", 0) != 0 && line.rfind("deb\t", 0) != 0) continue;
    line = trim(line.substr(4));
    AptSource source{{"deb"}, {}, {}, {}, {}};
    if (!line.empty() && line[0] == '[') {
      const size_t close = line.find(']');
      if (close == std::string::npos) continue;
      for (const auto& option : words_of(line.substr(1, close - 1))) {
        // arch= and lang= speak about the machine, not about the template.
        if (option.rfind("signed-by=/", 0) == 0 || option == "trusted=yes" ||
            option.rfind("check-", 0) == 0) {
          source.options += (source.options.empty() ? "" : " ") + option;
        }
      }
      line = trim(line.substr(close + 1));
    }
    auto words = words_of(line);
    if (words.size() < 3) continue;
    source.uris = {words[0]};
    source.suites = {words[1]};
    source.components.assign(words.begin() + 2, words.end());
    out.push_back(std::move(source));
  }
  return out;
}

std::vector<AptSource> parse_deb822_sources(std::string_view text) {
  std::vector<AptSource> out;
  std::vector<std::string> stanza;
  const auto finish = [&] {
    if (!stanza.empty()) out.push_back(source_of(stanza_fields(stanza)));
    stanza.clear();
  };
  for (const auto& line : split(text, '\n')) {
    if (trim(line).empty()) {
      finish();
    } else if (line[0] != '#') {
      stanza.push_back(line);
    }
  }
  finish();
  return out;
}

Result<std::vector<std::string>> sources_for_suite(const std::vector<AptSource>& machine,
                                                   const std::string& machine_codename,
                                                   const std::string& suite) {
  std::vector<std::string> lines;
  std::string refused;
  bool has_main_suite = false;
  for (const auto& source : machine) {
    if (!has(source.types, "deb") || !has(source.components, "main")) continue;
    for (const auto& machine_suite : source.suites) {
      std::string suffix;
      if (!suffix_of(machine_suite, machine_codename, suffix)) continue;
      for (const auto& uri : source.uris) {
        if (!is_fetchable(uri)) {
          refused = uri.substr(0, uri.find(':') + 1);
          continue;
        }
        const std::string options = source.options.empty() ? "" : "[" + source.options + "] ";
        const std::string line = "deb " + options + uri + " " + suite + suffix + " main";
        if (!has(lines, line)) lines.push_back(line);
        has_main_suite = has_main_suite || suffix.empty();
      }
    }
  }
  if (has_main_suite) return lines;
  const std::string why =
      refused.empty()
          ? "apt on this machine has no source for Debian's main archive"
          : "apt on this machine uses \"" + refused + "\" sources, which a build cannot take over";
  return fail(
      Code::kUnavailable,
      why + "; give the archive to build from with --mirror URL and, if needed, --suite NAME",
      {{"option", "--mirror"}});
}

Result<std::vector<std::string>> machine_sources(const std::string& mirror,
                                                 const std::string& suite) {
  if (mirror.empty()) {
    if (os_release_value("ID") != "debian") {
      return fail(Code::kUnavailable,
                  "this machine does not run Debian, so its apt sources do not lead to " + suite +
                      "; give a Debian archive with --mirror URL",
                  {{"option", "--mirror"}});
    }
    return sources_for_suite(read_machine_sources(), os_release_value("VERSION_CODENAME"), suite);
  }
  if (!is_fetchable(mirror) || mirror.find_first_of(" \t\n[]") != std::string::npos) {
    return fail(Code::kInvalidArgument,
                "--mirror must be an http:, https: or file: URL of a Debian archive");
  }
  return std::vector<std::string>{"deb " + mirror + " " + suite + " main"};
}

std::vector<std::string> acquire_options(std::string_view apt_config_dump) {
  std::vector<std::string> out;
  for (const auto& line : split(apt_config_dump, '\n')) {
    const std::string key = lower(line.substr(0, line.find(' ')));
    const bool wanted = key.rfind("acquire::http::", 0) == 0 ||
                        key.rfind("acquire::https::", 0) == 0 ||
                        key == "acquire::check-valid-until" || key == "acquire::check-date" ||
                        key == "acquire::retries" || key == "acquire::forceipv4";
    // A script on this machine that finds the proxy cannot run where apt's configuration is
    // replaced.
    if (wanted && line.find("\"\"") == std::string::npos &&
        key.find("proxy-auto-detect") == std::string::npos) {
      out.push_back(line);
    }
  }
  return out;
}

}  // namespace glovebox::image
