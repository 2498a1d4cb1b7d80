// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"

// What survives the daemon. One database per data directory; SQLite now, behind this interface.
namespace glovebox::store {

// `document` is the owner's JSON; the other columns are what queries need.
struct SandboxRow {
  std::string id;
  std::string tenant;
  std::string state;
  int64_t created_ms = 0;
  std::string document;
};

struct ExecutionRow {
  std::string id;
  std::string sandbox_id;
  int64_t started_ms = 0;
  std::string document;
  std::string output;  // small outputs, bytes as channel chunks; large ones are in the spool file
};

struct KeyRow {
  std::string id;
  std::string name;
  std::string tenant;
  std::string role;
  std::string hash;      // of the secret; the secret itself is never stored
  std::string document;
  int64_t created_ms = 0;
};

// A tenant's choice that is not of one sandbox.
struct SettingRow {
  std::string tenant;
  std::string name;
  std::string document;
};

// A thing of a tenant's that lives on its own, beside sandboxes.
struct ObjectRow {
  std::string kind;  // "snapshot", "volume"
  std::string id;
  std::string tenant;
  int64_t created_ms = 0;
  std::string document;
};

// Changes are queued in call order and committed in groups by one thread; an awaited change is committed when the await returns.
// Commits survive the death of the process (WAL, synchronous=NORMAL); a power cut may lose the last ones, and takes the
// sandboxes with it.
class Store {
 public:
  virtual ~Store() = default;

  virtual Async<void> put_sandbox(SandboxRow row) = 0;
  virtual Async<void> delete_sandbox(std::string id) = 0;  // and its executions
  virtual Async<void> put_execution(ExecutionRow row) = 0;
  virtual Async<void> delete_execution(std::string sandbox_id, std::string id) = 0;
  virtual Async<std::optional<ExecutionRow>> get_execution(std::string sandbox_id, std::string id) = 0;
  virtual Async<void> put_key(KeyRow row) = 0;
  virtual Async<void> delete_key(std::string id) = 0;
  virtual Async<void> put_setting(SettingRow row) = 0;
  virtual Async<void> delete_setting(std::string tenant, std::string name) = 0;
  virtual Async<void> put_object(ObjectRow row) = 0;
  virtual Async<void> delete_object(std::string kind, std::string id) = 0;

  // Blocking; for start-up, before the loop runs.
  virtual Result<std::vector<SandboxRow>> load_sandboxes() = 0;
  virtual Result<std::vector<ExecutionRow>> load_executions(const std::string& sandbox_id) = 0;  // without `output`
  virtual Result<std::vector<KeyRow>> load_keys() = 0;
  virtual Result<std::vector<SettingRow>> load_settings() = 0;
  virtual Result<std::vector<ObjectRow>> load_objects(const std::string& kind) = 0;  // oldest first
};

// Opens or makes <path>; migrates older schemas. kConflict when a newer version made it.
Result<std::unique_ptr<Store>> open_sqlite(const std::string& path);

}  // namespace glovebox::store
