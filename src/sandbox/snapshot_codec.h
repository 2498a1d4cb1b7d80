// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sandbox/json_reader.h"
#include "sandbox/snapshots.h"

// Snapshots in the store.
namespace glovebox::sandbox::codec {

struct SnapshotDocument {
  SnapshotInfo info;
  runtime::Rootfs rootfs;
  std::vector<ExecInfo> executions;  // that ran in the source, and may go on in a copy
};
std::string encode(const SnapshotDocument& document);
Result<SnapshotDocument> decode_snapshot(std::string_view text);

json::array to_json(const std::vector<runtime::SnapshotPart>& parts);
Result<std::vector<runtime::SnapshotPart>> read_parts(const json::object& document);

}  // namespace glovebox::sandbox::codec
