// SPDX-License-Identifier: Apache-2.0
#include "image/recipe.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/text.h"

namespace glovebox::image {
namespace {

constexpr int kMaxInherit = 8;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

bool is_plain_path(const std::string& path) {
  if (path.size() < 2 || path[0] != '/') return false;
  const auto parts = split(path.substr(1), '/');
  return std::none_of(parts.begin(), parts.end(),
                      [](const auto& p) { return p.empty() || p == "." || p == ".."; });
}

// No word may look like an option or start a shell or apt expression.
bool is_package_word(const std::string& w) {
  return !w.empty() && std::isalnum(static_cast<unsigned char>(w[0])) != 0 &&
         std::all_of(w.begin(), w.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                  std::string_view("+-._=<>~!").find(c) != std::string_view::npos;
         });
}

class Parser {
 public:
  Parser(Recipe& recipe, const std::map<std::string, std::string>& texts, int depth)
      : recipe_(recipe), texts_(texts), depth_(depth) {}

  Result<void> run(const std::string& name) {
    const auto text = texts_.find(name);
    if (text == texts_.end())
      return fail(Code::kTemplateNotFound, "there is no recipe \"" + name + "\"");
    if (depth_ > kMaxInherit)
      return fail(Code::kInvalidArgument, "recipe " + name + ": inherits in a circle");
    name_ = name;
    lines_ = split(text->second, '\n');
    for (at_ = 0; at_ < lines_.size(); ++at_) GB_TRYV(directive(lines_[at_]));
    recipe_.text += text->second;
    return {};
  }

 private:
  tl::unexpected<Error> bad(const std::string& why) const {
    return fail(Code::kInvalidArgument,
                "recipe " + name_ + " line " + std::to_string(at_ + 1) + ": " + why);
  }

  Result<void> directive(const std::string& line) {
    auto words = words_of(line);
    if (words.empty() || words[0][0] == '#') return {};
    const std::string verb = words[0];
    words.erase(words.begin());
    if (words.empty()) return bad(verb + " needs a value");
    const bool first = std::exchange(is_first_, false);
    if (verb == "inherit") {
      if (!first) return bad("inherit must come first");
      return Parser(recipe_, texts_, depth_ + 1).run(words[0]);
    }
    if (verb == "packages") return append(recipe_.packages, words, is_package_word);
    if (verb == "exclude") return append(recipe_.exclude, words, is_glob);
    if (verb == "keep") return append(recipe_.keep, words, is_glob);
    if (verb == "remove") return append(recipe_.remove, words, is_plain_path);
    if (verb == "directory" || verb == "file") return node(verb == "directory", words);
    if (verb == "env") return env(line, words);
    if (verb == "run") return run_later(line);
    return setting(verb, words);
  }

  static bool is_glob(const std::string& w) { return w.size() > 1 && w[0] == '/'; }

  Result<void> append(std::vector<std::string>& to, const std::vector<std::string>& words,
                      bool (*good)(const std::string&)) {
    for (const auto& w : words) {
      if (!good(w)) return bad("\"" + w + "\" is not allowed here");
      if (std::find(to.begin(), to.end(), w) == to.end()) to.push_back(w);
    }
    return {};
  }

  Result<void> node(bool is_directory, const std::vector<std::string>& words) {
    if (words.size() != 4) return bad("wants PATH MODE UID GID");
    RecipeNode node{.path = words[0], .is_directory = is_directory};
    if (!is_plain_path(node.path)) return bad("path must be absolute and without . or ..");
    char* end = nullptr;
    node.mode = static_cast<unsigned>(std::strtoul(words[1].c_str(), &end, 8));
    const auto uid = parse_int(words[2]), gid = parse_int(words[3]);
    if (*end != '\0' || node.mode > 07777 || !uid || !gid || *uid < 0 || *uid > 65534 || *gid < 0 ||
        *gid > 65534) {
      return bad("mode, uid or gid out of range");
    }
    node.uid = static_cast<unsigned>(*uid);
    node.gid = static_cast<unsigned>(*gid);
    if (!is_directory) {
      while (++at_ < lines_.size() && lines_[at_] != "end") node.content += lines_[at_] + "\n";
      if (at_ >= lines_.size()) return bad("file without \"end\"");
    }
    recipe_.nodes.push_back(std::move(node));
    return {};
  }

  Result<void> env(const std::string& line, const std::vector<std::string>& words) {
    const size_t name_at = line.find(words[0], line.find("env") + 3);
    const size_t value_at = line.find_first_not_of(" \t", name_at + words[0].size());
    recipe_.config.env[words[0]] = value_at == std::string::npos ? "" : line.substr(value_at);
    return {};
  }

  Result<void> run_later(const std::string& line) {
    recipe_.run.push_back(line.substr(line.find_first_not_of(" \t", line.find("run") + 3)));
    return {};
  }

  Result<void> setting(const std::string& verb, const std::vector<std::string>& words) {
    if (words.size() != 1) return bad(verb + " takes one value");
    if (verb == "suite") {
      if (!is_package_word(words[0])) return bad("not a suite name");
      recipe_.suite = words[0];
    } else if (verb == "user") {
      recipe_.config.user = words[0];
    } else if (verb == "workdir") {
      if (!is_plain_path(words[0])) return bad("not an absolute path");
      recipe_.config.workdir = words[0];
    } else {
      return bad("unknown directive \"" + verb + "\"");
    }
    return {};
  }

  Recipe& recipe_;
  const std::map<std::string, std::string>& texts_;
  int depth_;
  std::string name_;
  std::vector<std::string> lines_;
  size_t at_ = 0;
  bool is_first_ = true;
};

}  // namespace

Result<Recipe> parse_recipe(const std::string& name,
                            const std::map<std::string, std::string>& texts) {
  Recipe recipe;
  recipe.name = name;
  GB_TRYV(Parser(recipe, texts, 0).run(name));
  if (recipe.suite.empty()) return fail(Code::kInvalidArgument, "recipe " + name + ": no suite");
  return recipe;
}

Result<Recipe> load_recipe(const std::string& name) {
  return parse_recipe(name, embedded_recipes());
}

}  // namespace glovebox::image
