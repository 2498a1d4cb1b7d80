// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "image/templates.h"

namespace glovebox::image {

// A file with its whole content, or a directory (content unused) that a recipe adds after the
// packages are in.
struct RecipeNode {
  std::string path;  // absolute
  bool is_directory = false;
  unsigned mode = 0644;
  unsigned uid = 0, gid = 0;
  std::string content;
};

// templates/<name>/recipe, one directive a line, '#' starts a comment line:
//   inherit NAME              everything of that recipe first; must come first
//   suite NAME                Debian suite
//   packages NAME…            added to what is there
//   exclude GLOB…             paths that dpkg does not unpack
//   keep GLOB…                exceptions from exclude
//   remove PATH…              files or directories removed at the end
//   directory PATH MODE UID GID
//   file PATH MODE UID GID    content: the lines that follow, up to a line "end"
//   env NAME VALUE…           rest of the line
//   run COMMAND…              rest of the line, by sh -e as root inside, when the packages are in
//                             and before directories and files are added
//   user NAME / workdir PATH
struct Recipe {
  std::string name;
  std::string suite;
  std::vector<std::string> packages, exclude, keep, remove, run;
  std::vector<RecipeNode> nodes;
  TemplateConfig config;
  std::string text;  // of itself and all it inherits; equal text, equal recipe
};

// kTemplateNotFound when there is no recipe of that name in this program.
Result<Recipe> load_recipe(const std::string& name);
// `texts`: recipes by name, for inherit. kInvalidArgument names the line.
Result<Recipe> parse_recipe(const std::string& name,
                            const std::map<std::string, std::string>& texts);
const std::map<std::string, std::string>& embedded_recipes();

}  // namespace glovebox::image
