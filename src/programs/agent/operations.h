// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "programs/agent/request.h"
#include "programs/agent/users.h"

// The operations of REQUEST, each run by a worker. They answer through the request; an error that
// they return is sent for them.
namespace glovebox::agent {

// Process id of each running execution's supervisor → the execution.
using ExecutionRoots = std::vector<std::pair<pid_t, std::string>>;

struct Operation {
  Request& request;
  const json::object& fields;
  Users& users;
  User user;               // whose rights count
  std::vector<pid_t> own;  // the agent's own processes, not to be shown or signalled
  ExecutionRoots roots;
};

struct OperationKind {
  std::string_view name;
  Result<void> (*run)(Operation&);
  bool as_user;                // run with the rights of Operation::user
  bool is_open_ended = false;  // until the daemon gives it up, and counted apart
};

const OperationKind* find_operation(std::string_view name);

// A path of the request as bytes, absolute; kInvalidPath when it is empty, too long or holds NUL.
Result<std::string> path_field(const Operation& op, std::string_view name);

// files.cc
Result<void> op_stat(Operation& op);
Result<void> op_list(Operation& op);
Result<void> op_mkdir(Operation& op);
Result<void> op_chmod(Operation& op);
// remove.cc, move.cc
Result<void> op_remove(Operation& op);
Result<void> op_move(Operation& op);
// content.cc
Result<void> op_read(Operation& op);
Result<void> op_write(Operation& op);
// tar_out.cc, tar_in.cc
Result<void> op_tar_out(Operation& op);
Result<void> op_tar_in(Operation& op);
// watch.cc
Result<void> op_watch(Operation& op);
// processes.cc
Result<void> op_processes(Operation& op);
Result<void> op_signal(Operation& op);
Result<void> op_stats(Operation& op);
Result<void> op_sync(Operation& op);

}  // namespace glovebox::agent
