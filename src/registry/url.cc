// SPDX-License-Identifier: Apache-2.0
#include "registry/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "base/text.h"

namespace glovebox::registry {
namespace {

constexpr size_t kMaxBytes = 8 << 10;

using Handle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

tl::unexpected<Error> bad(std::string_view why) { return fail(Code::kInvalidArgument, "not an URL to fetch from: " + std::string(why)); }

std::string part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* value = nullptr;
  if (curl_url_get(url, which, &value, flags) != CURLUE_OK || !value) return "";
  std::string out = value;
  curl_free(value);
  return out;
}

std::string take(CURLU* url, CURLUPart which, unsigned flags = 0) {
  std::string out = part(url, which, flags);
  curl_url_set(url, which, nullptr, 0);
  return out;
}

Result<void> set(CURLU* url, std::string_view text) {
  if (text.empty() || text.size() > kMaxBytes) return bad("its length");
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F; })) {
    return bad("spaces or control characters in it");
  }
  const auto status = curl_url_set(url, CURLUPART_URL, std::string(text).c_str(), 0);
  if (status != CURLUE_OK) return bad(curl_url_strerror(status));
  return {};
}

Result<Url> read(CURLU* url) {
  Url out;
  out.origin.scheme = part(url, CURLUPART_SCHEME);
  if (out.origin.scheme != "http" && out.origin.scheme != "https") return bad("scheme '" + out.origin.scheme + "'");
  out.origin.host = part(url, CURLUPART_HOST);
  if (out.origin.host.empty()) return bad("no host");
  std::transform(out.origin.host.begin(), out.origin.host.end(), out.origin.host.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (curl_url_set(url, CURLUPART_HOST, out.origin.host.c_str(), 0) != CURLUE_OK) return bad("its host");
  out.origin.port = static_cast<uint16_t>(parse_int(part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT)).value_or(0));
  out.user = take(url, CURLUPART_USER, CURLU_URLDECODE);
  out.password = take(url, CURLUPART_PASSWORD, CURLU_URLDECODE);
  curl_url_set(url, CURLUPART_OPTIONS, nullptr, 0);
  out.fragment = take(url, CURLUPART_FRAGMENT);
  out.path = part(url, CURLUPART_PATH);
  out.text = part(url, CURLUPART_URL);
  if (out.text.empty()) return bad("nothing left of it");
  return out;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const Handle url(curl_url(), &curl_url_cleanup);
  GB_TRYV(set(url.get(), text));
  return read(url.get());
}

Result<Url> resolve_url(const Url& base, std::string_view reference) {
  const Handle url(curl_url(), &curl_url_cleanup);
  GB_TRYV(set(url.get(), base.text));
  GB_TRYV(set(url.get(), reference));
  return read(url.get());
}

}  // namespace glovebox::registry
