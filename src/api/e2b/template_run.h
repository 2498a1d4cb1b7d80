// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "api/e2b/template_builds.h"

namespace glovebox::api::e2b {

// One build from its start to its end. What is given outlives it.
class TemplateRun {
 public:
  TemplateRun(const Parts& parts, TemplateFiles& files, Build& build, BuildPlan plan, const bool& is_stopping)
      : parts_(parts), files_(files), build_(build), plan_(std::move(plan)), is_stopping_(is_stopping) {}

  // Leaves a snapshot or nothing. Errors say what the user's instruction did wrong.
  Async<void> run();

 private:
  struct Command {
    std::vector<std::string> argv;
    std::string user, cwd;
    bool is_logged = true;
  };

  Async<void> build();
  Async<void> begin();
  Async<void> step(const BuildStep& step);
  Async<void> copy(const BuildStep& step);
  Async<void> enter(const std::string& path);
  Async<void> become(const std::string& user);
  void set_env(const BuildStep& step);
  Async<void> settle();
  Async<void> start();
  Async<void> wait_ready(const sandbox::ExecutionPtr& started);
  Async<void> keep();
  Awaitable<void> replace_older(const sandbox::SnapshotInfo& made);

  sandbox::CreateSpec create_spec() const;
  Async<sandbox::ExecutionPtr> launch(const Command& command);
  Async<sandbox::Outcome> execute(const Command& command);
  // execute(), and anything but exit status 0 is an error that names `what`.
  Async<void> demand(const Command& command, const std::string& what);
  Command shell(const std::string& line, const std::string& user) const;
  Result<void> may_go_on() const;

  const Parts& parts_;
  TemplateFiles& files_;
  Build& build_;
  const BuildPlan plan_;
  const bool& is_stopping_;
  Deadline deadline_;
  sandbox::SandboxInfo box_;  // empty id: none yet
  std::string user_, workdir_;
  sandbox::StringMap env_;      // all of it
  sandbox::StringMap set_env_;  // what the instructions have set
};

}  // namespace glovebox::api::e2b
