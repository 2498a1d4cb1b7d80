// SPDX-License-Identifier: Apache-2.0
#include "image/recipe.h"

#include <gtest/gtest.h>

namespace glovebox::image {
namespace {

TEST(Recipe, InheritsAndAddsToTheBase) {
  const std::map<std::string, std::string> texts = {
      {"base", "suite trixie\npackages python3 git\nenv A 1\nuser user\nworkdir /workspace\n"},
      {"more",
       "# comment\ninherit base\npackages git python3-numpy\nenv A two words\nfile /etc/x.conf "
       "0600 0 1000\nline\n\n# kept\nend\nremove /etc/y\nrun echo  'a b' > /x\n"}};
  const auto recipe = parse_recipe("more", texts);
  ASSERT_TRUE(recipe) << recipe.error().message;
  EXPECT_EQ(recipe->packages, (std::vector<std::string>{"python3", "git", "python3-numpy"}));
  EXPECT_EQ(recipe->config.env.at("A"), "two words");
  EXPECT_EQ(recipe->config.workdir, "/workspace");
  ASSERT_EQ(recipe->nodes.size(), 1u);
  EXPECT_EQ(recipe->nodes[0].content, "line\n\n# kept\n");
  EXPECT_EQ(recipe->nodes[0].mode, 0600u);
  EXPECT_EQ(recipe->nodes[0].gid, 1000u);
  EXPECT_EQ(recipe->remove, std::vector<std::string>{"/etc/y"});
  EXPECT_EQ(recipe->run, std::vector<std::string>{"echo  'a b' > /x"});
  EXPECT_NE(recipe->text.find("packages python3 git"), std::string::npos)
      << "a change of the base must change the digest";
}

TEST(Recipe, RefusesWhatItDoesNotUnderstand) {
  for (const char* text :
       {"suite trixie\nfrobnicate x\n", "packages python3\n", "suite trixie\npackages --force\n",
        "suite trixie\npackages a;b\n", "suite trixie\nfile /x 0644 0 0\nno end\n",
        "suite trixie\nfile /x 99 0 0\nend\n", "suite trixie\ndirectory /a/../b 0755 0 0\n",
        "suite trixie\nremove /\n", "suite trixie\nworkdir x\n", "suite trixie\ninherit base\n",
        "inherit r\nsuite x\n", "suite\n", "suite a b\n",
        "suite trixie\nrun\n"}) {
    const auto recipe = parse_recipe("r", {{"r", text}, {"base", "suite trixie\n"}});
    ASSERT_FALSE(recipe) << text;
    EXPECT_EQ(recipe.error().code, Code::kInvalidArgument) << text;
  }
  EXPECT_EQ(parse_recipe("r", {{"r", "inherit nowhere\n"}}).error().code, Code::kTemplateNotFound);
}

TEST(Recipe, TheOnesCompiledInAreSound) {
  ASSERT_TRUE(embedded_recipes().contains("base"));
  for (const auto& [name, text] : embedded_recipes()) {
    const auto recipe = load_recipe(name);
    ASSERT_TRUE(recipe) << name << ": " << recipe.error().message;
    EXPECT_TRUE(is_template_name(name));
  }
}

}  // namespace
}  // namespace glovebox::image
