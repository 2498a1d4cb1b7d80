// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/async.h"
#include "sandbox/service.h"
#include "store/store.h"

// Who is asking: API keys. A key is "gbx_" and 40 characters of randomness (200 bits); only its hash is stored.
namespace glovebox::tenant {

struct KeyInfo {
  std::string id;
  std::string name;
  std::string tenant;
  sandbox::Role role = sandbox::Role::kUser;
  std::optional<runtime::Tier> default_runtime;
  std::string preview;  // "gbx_abcd…": enough to recognise it
  WallTime created_at;
};

struct NewKey {
  std::string name;
  std::string tenant = "default";
  sandbox::Role role = sandbox::Role::kUser;
  std::optional<runtime::Tier> default_runtime;
};

// Loop thread only, except load().
class Keys {
 public:
  explicit Keys(store::Store* store) : store_(store) {}

  // Blocking, before the loop runs: reads the store, and makes sure that the key in `admin_key_path` works; creates the file
  // (mode 0600) with a new admin key when it is missing.
  Result<void> load(const std::string& admin_key_path);

  // The caller behind a secret; kUnauthenticated. Takes the same time for any wrong secret.
  Result<sandbox::Caller> authenticate(std::string_view secret) const;

  struct Created {
    KeyInfo info;
    std::string secret;  // the only time it is seen
  };
  Async<Created> create(NewKey key);
  std::vector<KeyInfo> list() const;  // oldest first
  // kNotFound; kConflict for the key of the admin file.
  Async<void> remove(const std::string& id);

 private:
  KeyInfo& remember(KeyInfo info, std::string hash);

  store::Store* store_;
  std::map<std::string, KeyInfo, std::less<>> by_hash_;
};

std::string_view role_name(sandbox::Role role);

}  // namespace glovebox::tenant
