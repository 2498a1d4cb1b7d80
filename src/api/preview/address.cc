// SPDX-License-Identifier: Apache-2.0
#include "api/preview/address.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::api::preview {
namespace {

constexpr std::string_view kPathRoot = "/p/";
constexpr std::string_view kIdPrefix = "sb-";
constexpr size_t kMaxIdBytes = 58;  // a label has at most 63

bool is_id(std::string_view text) {
  return text.size() > kIdPrefix.size() && text.size() <= kMaxIdBytes && text.starts_with(kIdPrefix) &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

// "3000-sb-abc" or "sb-abc-3000": an id begins with a letter, a port does not, so there is one reading.
bool read_label(std::string_view label, Address& out) {
  const bool port_first = !label.starts_with(kIdPrefix);
  const size_t dash = port_first ? label.find('-') : label.rfind('-');
  if (dash == label.npos) return false;
  const std::string_view before = label.substr(0, dash), behind = label.substr(dash + 1);
  const auto port = parse_port(port_first ? before : behind);
  const std::string_view id = port_first ? behind : before;
  if (!port || !is_id(id)) return false;
  out.id = id;
  out.port = *port;
  return true;
}

std::optional<std::string_view> label_below(std::string_view host, std::string_view parent) {
  if (parent.empty() || host.size() < parent.size() + 2 || !host.ends_with(parent)) return std::nullopt;
  const std::string_view label = host.substr(0, host.size() - parent.size() - 1);
  if (host[label.size()] != '.') return std::nullopt;
  return label;
}

std::optional<Address> path_address(const std::string& path) {
  if (!path.starts_with(kPathRoot)) return std::nullopt;
  const size_t slash = path.find('/', kPathRoot.size());
  const size_t end = slash == path.npos ? path.npos : path.find('/', slash + 1);
  Address out;
  out.form = Address::Form::kPath;
  out.id = path.substr(kPathRoot.size(), slash - kPathRoot.size());
  const auto port = slash == path.npos ? std::nullopt : parse_port(std::string_view(path).substr(slash + 1, end - slash - 1));
  out.port = is_id(out.id) ? port.value_or(0) : 0;
  out.prefix = path.substr(0, end);
  if (end != path.npos) out.path = path.substr(end);
  return out;
}

}  // namespace

std::optional<uint16_t> parse_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text[0] == '0' || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  const auto number = parse_int(text);
  if (!number || *number < 1 || *number > 65535) return std::nullopt;
  return static_cast<uint16_t>(*number);
}

std::string host_name(std::string_view host_header) {
  const size_t bracket = host_header.starts_with('[') ? host_header.find(']') : 0;
  const size_t colon = bracket == host_header.npos ? bracket : host_header.find(':', bracket);
  std::string name(host_header.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.ends_with('.')) name.pop_back();
  return name;
}

std::optional<Address> address_of(const http::Request& request, std::string_view domain) {
  const std::string host = host_name(request.header("Host").value_or(""));
  Address out;
  out.path = request.path;
  if (const auto label = label_below(host, domain)) {
    if (!read_label(*label, out)) out.port = 0;
    return out;
  }
  if (const auto label = label_below(host, "localhost"); label && read_label(*label, out)) return out;
  return path_address(request.path);
}

}  // namespace glovebox::api::preview
