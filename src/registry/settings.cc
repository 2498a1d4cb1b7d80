// SPDX-License-Identifier: Apache-2.0
#include "registry/settings.h"

#include "http/json.h"
#include "registry/url.h"

namespace glovebox::registry {
namespace {

constexpr int64_t kMinCacheBytes = 1 << 20;

Result<std::string> read_upstream(json::Reader& upstreams, std::string_view name) {
  GB_TRY(std::string url, upstreams.string(name, 0, 2048).or_default(""));
  while (url.ends_with('/')) url.pop_back();
  if (!url.empty() && !parse_url(url)) return fail(upstreams.error(name, "must be a http or https URL"));
  return url;
}

}  // namespace

Result<Settings> parse_settings(const boost::json::value& operation) {
  json::Reader reader(operation);
  GB_TRYV(reader.one_of("op", {"config"}).required());
  Settings settings;
  GB_TRY(auto upstreams, reader.object("upstreams"));
  GB_TRY(settings.pypi, read_upstream(upstreams, "pypi"));
  GB_TRY(settings.npm, read_upstream(upstreams, "npm"));
  GB_TRY(settings.debian, read_upstream(upstreams, "debian"));
  GB_TRY(settings.debian_security, read_upstream(upstreams, "debian_security"));
  GB_TRYV(upstreams.done());
  if (settings.debian_security.empty() && settings.debian.ends_with("/debian")) settings.debian_security = settings.debian + "-security";
  GB_TRY(const int64_t cache_bytes, reader.integer("cache_bytes", kMinCacheBytes, int64_t{1} << 50).or_default(int64_t{4} << 30));
  settings.cache_bytes = static_cast<uint64_t>(cache_bytes);
  GB_TRY(settings.file_hosts, reader.strings("file_hosts", 256).or_default({}));
  reader.any("seq");
  GB_TRYV(reader.done());
  return settings;
}

}  // namespace glovebox::registry
