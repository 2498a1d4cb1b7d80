// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/operations.h"

#include <climits>

namespace glovebox::agent {
namespace {

constexpr OperationKind kOperations[] = {
    {"stat", &op_stat, true},
    {"list", &op_list, true},
    {"mkdir", &op_mkdir, true},
    {"remove", &op_remove, true},
    {"move", &op_move, true},
    {"chmod", &op_chmod, true},
    {"read", &op_read, true},
    {"write", &op_write, true},

    {"tar_out", &op_tar_out, true},
    {"tar_in", &op_tar_in, true},
    {"watch", &op_watch, true, true},
    {"processes", &op_processes, false},
    {"signal", &op_signal, false},
    {"stats", &op_stats, false},
    {"sync", &op_sync, false},
};

}  // namespace

const OperationKind* find_operation(std::string_view name) {
  for (const OperationKind& kind : kOperations) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

Result<std::string> path_field(const Operation& op, std::string_view name) {
  auto path = text_field(op.fields, name);
  if (!path) return fail(Code::kInvalidPath, path.error().message);
  if (path->empty()) return fail(Code::kInvalidPath, std::string(name) + ": is missing or empty");
  if (path->size() >= PATH_MAX)
    return fail(Code::kInvalidPath, std::string(name) + ": is too long");
  if ((*path)[0] == '/') return path;
  return op.user.home + "/" + *path;
}

}  // namespace glovebox::agent
