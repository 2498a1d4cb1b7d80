// SPDX-License-Identifier: Apache-2.0
#include "tenant/keys.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/random.h"
#include "base/unique_fd.h"

namespace glovebox::tenant {
namespace {

constexpr std::string_view kPrefix = "gbx_";
constexpr size_t kSecretCharacters = 40;
constexpr std::string_view kAdminId = "key-admin";

// 200 random bits need no slow hash: BLAKE2b.
std::string hash_of(std::string_view secret) {
  unsigned char out[crypto_generichash_BYTES];
  crypto_generichash(out, sizeof out, reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), nullptr, 0);
  return hex(std::string_view(reinterpret_cast<const char*>(out), sizeof out));
}

std::string new_secret() { return std::string(kPrefix) + random_name(kSecretCharacters); }
std::string preview_of(std::string_view secret) { return std::string(secret.substr(0, kPrefix.size() + 4)) + "…"; }

std::string encode(const KeyInfo& key) {
  boost::json::object o{{"preview", key.preview}};
  if (key.default_runtime) o["default_runtime"] = runtime::tier_name(*key.default_runtime);
  return boost::json::serialize(o);
}

KeyInfo decode(const store::KeyRow& row) {
  KeyInfo key{row.id, row.name, row.tenant, row.role == "admin" ? sandbox::Role::kAdmin : sandbox::Role::kUser, {}, {},
              from_unix_millis(row.created_ms)};
  boost::system::error_code ec;
  const auto value = boost::json::parse(row.document, ec);
  if (ec || !value.is_object()) return key;
  const auto text = [&](const char* name) {
    const auto* v = value.get_object().if_contains(name);
    return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
  };
  key.preview = text("preview");
  key.default_runtime = runtime::tier_from_name(text("default_runtime"));
  return key;
}

store::KeyRow row_of(const KeyInfo& key, std::string hash) {
  return {key.id, key.name, key.tenant, std::string(role_name(key.role)), std::move(hash), encode(key), unix_millis(key.created_at)};
}

// Reads the file, or makes it with a new secret. It appears whole: written aside, then linked into place.
Result<std::string> read_or_make_secret(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno != ENOENT) return fail_errno(path);
  if (file) {
    char text[256];
    const ssize_t n = ::read(file.get(), text, sizeof text);
    if (n < 0) return fail_errno(path);
    std::string secret(text, static_cast<size_t>(n));
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == ' ')) secret.pop_back();
    if (secret.size() < 20) return fail(Code::kCorrupt, path + ": holds no key; remove the file to have a new one made");
    return secret;
  }
  const std::string secret = new_secret(), aside = path + ".new";
  UniqueFd out(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string line = secret + "\n";
  if (!out || ::fchmod(out.get(), 0600) != 0 || ::write(out.get(), line.data(), line.size()) < 0 || ::fsync(out.get()) != 0 ||
      ::rename(aside.c_str(), path.c_str()) != 0) {
    return fail_errno(path);
  }
  return secret;
}

}  // namespace

std::string_view role_name(sandbox::Role role) { return role == sandbox::Role::kAdmin ? "admin" : "user"; }

KeyInfo& Keys::remember(KeyInfo info, std::string hash) { return by_hash_[std::move(hash)] = std::move(info); }

Result<void> Keys::load(const std::string& admin_key_path) {
  if (::sodium_init() < 0) return fail(Code::kInternal, "libsodium does not initialise");
  GB_TRY(const auto rows, store_->load_keys());
  for (const store::KeyRow& row : rows) remember(decode(row), row.hash);
  GB_TRY(const std::string secret, read_or_make_secret(admin_key_path));
  // The file rules: whoever may read it is the admin. Its key is not in the store, so replacing the file replaces the key.
  KeyInfo admin{std::string(kAdminId), "admin key file", "default", sandbox::Role::kAdmin, {}, preview_of(secret), {}};
  remember(std::move(admin), hash_of(secret));
  return {};
}

Result<sandbox::Caller> Keys::authenticate(std::string_view secret) const {
  // The table is keyed by hash: what a lookup's time tells is about the hash of the guess, which helps nobody.
  const auto found = by_hash_.find(hash_of(secret));
  if (secret.empty() || found == by_hash_.end()) {
    return fail(Code::kUnauthenticated, secret.empty() ? "no key was sent" : "the key is not valid");
  }
  const KeyInfo& key = found->second;
  return sandbox::Caller{key.tenant, key.id, key.role, key.default_runtime, {}};
}

Async<Keys::Created> Keys::create(NewKey key) {
  const std::string secret = new_secret();
  KeyInfo info{"key-" + random_name(10), key.name, key.tenant, key.role, key.default_runtime, preview_of(secret),
               std::chrono::system_clock::now()};
  GB_CO_TRYV(co_await store_->put_key(row_of(info, hash_of(secret))));
  remember(info, hash_of(secret));
  co_return Created{std::move(info), secret};
}

std::vector<KeyInfo> Keys::list() const {
  std::vector<KeyInfo> out;
  for (const auto& [hash, key] : by_hash_) out.push_back(key);
  std::sort(out.begin(), out.end(), [](const KeyInfo& a, const KeyInfo& b) {
    return std::pair(a.created_at, a.id) < std::pair(b.created_at, b.id);
  });
  return out;
}

Async<void> Keys::remove(const std::string& id) {
  if (id == kAdminId) {
    co_return fail(Code::kConflict, "this is the key of the admin key file: replace the file and restart", {{"state", "in_file"}});
  }
  const auto found = std::find_if(by_hash_.begin(), by_hash_.end(), [&](const auto& k) { return k.second.id == id; });
  if (found == by_hash_.end()) co_return fail(Code::kNotFound, "no key '" + id + "'");
  by_hash_.erase(found);  // from now on it opens nothing, whatever the store says
  co_return co_await store_->delete_key(id);
}

}  // namespace glovebox::tenant
