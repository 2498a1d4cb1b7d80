// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/exit_codes.h"

#include <gtest/gtest.h>
#include <boost/json/parse.hpp>

#include "programs/glovebox/api_client.h"

namespace glovebox::cli {
namespace {

TEST(ExitCodes, FollowTheOutcome) {
  const std::pair<const char*, int> cases[] = {
      {R"({"type":"exited","exit_code":0})", 0},
      {R"({"type":"exited","exit_code":7})", 7},
      {R"({"type":"exited","exit_code":255})", 255},
      {R"({"type":"signalled","signal":15})", 143},
      {R"({"type":"timed_out","signal":9})", 124},
      {R"({"type":"oom_killed","signal":9})", 137},
      {R"({"type":"killed_by_caller"})", 137},
      {R"({"type":"sandbox_ended"})", 121},
      {R"({"type":"interrupted"})", 122},
      {R"({"type":"something_new"})", 122},
      {"null", 122},
  };
  for (const auto& [outcome, status] : cases) {
    const auto execution = boost::json::parse(std::string(R"({"outcome":)") + outcome + "}");
    EXPECT_EQ(exit_code_of_execution(execution), status) << outcome;
  }
}

TEST(ExitCodes, NeverClaimSuccessWithoutAnOutcome) {
  EXPECT_EQ(exit_code_of_execution(boost::json::parse("{}")), 122);
}

TEST(ExitCodes, OfErrorsAreThoseOfAShellWhereItHasOne) {
  EXPECT_EQ(exit_code({Code::kCommandNotFound, "", {}}), 127);
  EXPECT_EQ(exit_code({Code::kCommandNotExecutable, "", {}}), 126);
  EXPECT_EQ(exit_code({Code::kSandboxNotFound, "", {}}), 121);
  EXPECT_EQ(exit_code({Code::kTimeout, "", {}}), 125);
  for (const CodeInfo* info = begin_codes(); info != end_codes(); ++info) {
    EXPECT_GE(exit_code({info->code, "", {}}), 120) << info->name;
  }
}

TEST(Answers, BecomeTypedErrors) {
  const auto error = error_of_answer(
      404,
      R"({"error":{"code":"sandbox_not_found","message":"no sandbox x","hint":"","retryable":false,"fault":"caller","details":{"id":"x"}}})",
      "req-1");
  EXPECT_EQ(error.code, Code::kSandboxNotFound);
  EXPECT_EQ(error.message, "no sandbox x");
  EXPECT_EQ(error.details,
            (std::map<std::string, std::string>{{"id", "x"}, {"request_id", "req-1"}}));
}

TEST(Answers, OfSomethingElseAreToldApart) {
  EXPECT_EQ(error_of_answer(404, "<html>", "").code, Code::kRouteNotFound);
  EXPECT_EQ(error_of_answer(401, "", "").code, Code::kUnauthenticated);
  EXPECT_EQ(error_of_answer(502, "{}", "").code, Code::kUnavailable);
  EXPECT_EQ(error_of_answer(500, "[]", "").code, Code::kInternal);
}

}  // namespace
}  // namespace glovebox::cli
