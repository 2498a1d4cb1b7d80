// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sandbox/service.h"

// Named disks that outlive sandboxes. Loop thread only.
namespace glovebox::sandbox {

struct VolumeInfo {
  std::string id, tenant, name;          // names are unique in a tenant: [a-z0-9] with dashes between, at most 64
  uint64_t bytes = 0;                    // its size
  std::optional<uint64_t> used_bytes;    // when it can be known
  StringMap labels, attributes;
  WallTime created_at;
  std::string writer;                    // the sandbox that has it read-write
  std::vector<std::string> readers;      // those that have it read-only
};

struct VolumeSpec {
  std::string name;
  uint64_t bytes = 1ull << 30;
  StringMap labels, attributes;
};

class Volumes {
 public:
  virtual ~Volumes() = default;
  struct Made {
    VolumeInfo info;
    bool existed = false;
  };
  // kAlreadyExists when the name is taken, unless get_or_create.
  virtual Async<Made> create_volume(const Caller& caller, VolumeSpec spec, bool get_or_create) = 0;
  // By id or name everywhere. kVolumeNotFound.
  virtual Result<VolumeInfo> get_volume(const Caller& caller, const std::string& ref) const = 0;
  virtual Result<Page<VolumeInfo>> list_volumes(const Caller& caller, size_t limit, const std::string& cursor) const = 0;
  virtual Async<VolumeInfo> grow_volume(const Caller& caller, const std::string& ref, uint64_t bytes) = 0;  // kVolumeInUse, never smaller
  virtual Async<void> delete_volume(const Caller& caller, const std::string& ref) = 0;                      // kVolumeInUse
  // A tar of all of it; kVolumeInUse while somebody writes.
  virtual Async<std::unique_ptr<ByteSource>> export_volume(const Caller& caller, const std::string& ref) = 0;
  // Extracts a tar into it; kVolumeInUse while anybody has it.
  virtual Async<std::unique_ptr<ByteSink>> import_volume(const Caller& caller, const std::string& ref) = 0;
};

}  // namespace glovebox::sandbox
