// SPDX-License-Identifier: Apache-2.0
// docs/errors.md and the enum in spec/openapi.yaml say what the table in base/result.cc says.
// GLOVEBOX_UPDATE=1 writes the page.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/result.h"
#include "programs/glovebox/assets.h"

namespace glovebox {
namespace {

constexpr char kPage[] = GLOVEBOX_SOURCE_DIR "/docs/errors.md";

constexpr char kIntroduction[] =
    "# Errors\n"
    "\n"
    "<!-- Generated from src/base/result.cc: GLOVEBOX_UPDATE=1 cli_tests "
    "--gtest_filter='ErrorsPage.*' -->\n"
    "\n"
    "Every error that the native API, the command line and the log use. `code` never changes its "
    "meaning; `message` is for people and\n"
    "may. *Fault* tells who can do something about it: the caller, the code in the sandbox, or the "
    "operator of the platform.\n"
    "*Retry* means that the same call may succeed later. Other dialects map these codes to their "
    "own.\n"
    "\n"
    "| code | HTTP | fault | retry | what to do |\n"
    "|---|---|---|---|---|\n";

std::string render() {
  std::string page = kIntroduction;
  for (const CodeInfo* code = begin_codes(); code != end_codes(); ++code) {
    page += "| `" + std::string(code->name) + "` | " + std::to_string(code->http_status) + " | " +
            std::string(fault_name(code->fault)) + " | " + (code->retryable ? "yes" : "no") +
            " | " + std::string(code->advice) + " |\n";
  }
  return page;
}

std::string read_page() {
  std::ifstream file(kPage, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ErrorsPage, SaysWhatTheTableSays) {
  if (std::getenv("GLOVEBOX_UPDATE") != nullptr) std::ofstream(kPage, std::ios::binary) << render();
  EXPECT_EQ(read_page(), render()) << "run with GLOVEBOX_UPDATE=1 to write the page anew";
}

TEST(ErrorsPage, TheTableHoldsEveryCodeOnce) {
  std::vector<std::string_view> names;
  for (const CodeInfo* code = begin_codes(); code != end_codes(); ++code) {
    EXPECT_EQ(&info(code->code), code) << code->name;
    EXPECT_EQ(code_from_name(code->name), code->code);
    names.push_back(code->name);
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Code::kInternal) + 1);
}

TEST(OpenApi, ListsTheSameCodesInTheSameOrder) {
  const auto document = boost::json::parse(embedded_openapi_json());
  const auto& listed =
      document.at("components").at("schemas").at("ErrorCode").at("enum").as_array();
  std::vector<std::string> described, known;
  for (const auto& code : listed) described.emplace_back(code.as_string());
  for (const CodeInfo* code = begin_codes(); code != end_codes(); ++code)
    known.emplace_back(code->name);
  EXPECT_EQ(described, known);
}

}  // namespace
}  // namespace glovebox
