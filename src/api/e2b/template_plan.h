// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sandbox/service.h"

// What a client asks to be built into a template.
namespace glovebox::api::e2b {

struct BuildStep {
  enum class Kind { kCopy, kRun, kWorkdir, kUser, kEnv };
  Kind kind = Kind::kRun;
  std::vector<std::string> args;  // of kCopy: source, destination, owner, mode; of kEnv: pairs
  std::string files_hash;         // of kCopy: names the archive that was sent for it
  std::string text() const;       // one line for people
};

struct BuildPlan {
  std::string from;  // a template, or what an earlier build made
  std::vector<BuildStep> steps;
  std::string start_command, ready_command;
};

// kInvalidArgument; kUnsupported names the instruction that this server cannot carry out.
Result<BuildPlan> read_plan(const boost::json::value& body);

// `$NAME` and `${NAME}` replaced, by nothing where there is none; "\$" is a dollar.
std::string expand_variables(std::string_view text, const sandbox::StringMap& env);

// A template's name and its tags: of a reference "name:tag" and of `more`. Without any it is "default"; "latest" is the same.
struct BuildName {
  std::string name;
  std::vector<std::string> tags;
};
Result<BuildName> read_build_name(std::string_view reference, const std::vector<std::string>& more);

}  // namespace glovebox::api::e2b
