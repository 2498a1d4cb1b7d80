// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/network.h"

#include <algorithm>

#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

namespace bj = boost::json;
using policy::Cidr;

constexpr size_t kMaxEntries = 256;

struct Wanted {
  std::vector<Cidr> allow, deny;
  std::vector<std::string> hosts;
  bool denies_all = false, allows_all = false;
};

bool covers(const Cidr& outer, const Cidr& inner) { return outer.prefix <= inner.prefix && outer.contains(inner.base); }
bool is_everything(const Cidr& block) { return block.prefix == 0; }

// The half of `block` with this value in the next bit.
Cidr half(const Cidr& block, bool upper) {
  Cidr out = block;
  if (upper) out.base.bytes[static_cast<size_t>(block.prefix) / 8] |= static_cast<uint8_t>(0x80 >> (block.prefix % 8));
  ++out.prefix;
  return out;
}

// `block` without what `hole` covers, as blocks.
void subtract(const Cidr& block, const Cidr& hole, std::vector<Cidr>& out) {
  if (covers(hole, block)) return;
  if (!covers(block, hole)) return out.push_back(block);
  subtract(half(block, false), hole, out);
  subtract(half(block, true), hole, out);
}

std::vector<Cidr> without(std::vector<Cidr> blocks, const std::vector<Cidr>& holes) {
  for (const Cidr& hole : holes) {
    std::vector<Cidr> rest;
    for (const Cidr& block : blocks) subtract(block, hole, rest);
    blocks = std::move(rest);
  }
  return blocks;
}

Result<void> read_lists(json::Reader& r, Wanted& wanted) {
  GB_TRY(const auto allow, r.strings("allowOut", kMaxEntries).or_default({}));
  GB_TRY(const auto deny, r.strings("denyOut", kMaxEntries).or_default({}));
  for (const std::string& text : deny) {
    const auto block = policy::parse_cidr(text);
    if (!block) return fail(r.error("denyOut", "'" + text + "' is no address or block; names can only be allowed"));
    wanted.denies_all |= is_everything(*block) && !block->base.is_v6;
    wanted.deny.push_back(*block);
  }
  for (const std::string& text : allow) {
    if (const auto block = policy::parse_cidr(text)) {
      wanted.allows_all |= is_everything(*block) && !block->base.is_v6;
      wanted.allow.push_back(*block);
    } else {
      wanted.hosts.push_back(text);
    }
  }
  return {};
}

Result<void> refuse_what_is_missing(json::Reader& r) {
  for (const char* field : {"rules", "egressProxy", "httpsPorts", "maskRequestHost"}) {
    const bj::value* value = r.any(field);
    const bool is_empty = value == nullptr || value->is_null() || (value->is_object() && value->get_object().empty()) ||
                          (value->is_array() && value->get_array().empty());
    if (!is_empty) return fail(Code::kUnsupported, "this server does not have network." + std::string(field));
  }
  return {};
}

bj::object block_rule(const Cidr& block) {
  return {{"cidr", block.text()}, {"ports", bj::array{"1-65535"}}, {"protocols", bj::array{"tcp"}}};
}

bj::value policy_json(const Wanted& wanted) {
  if (wanted.denies_all && !wanted.allows_all) {
    bj::array allow;
    for (const std::string& host : wanted.hosts) allow.push_back(bj::object{{"host", host}});
    for (const Cidr& block : wanted.allow) allow.push_back(block_rule(block));
    if (allow.empty()) return bj::object{{"egress", "none"}};
    return bj::object{{"egress", "allowlist"}, {"allow", std::move(allow)}};
  }
  bj::array deny;
  for (const Cidr& block : without(wanted.deny, wanted.allow)) deny.push_back(bj::object{{"cidr", block.text()}});
  bj::object out{{"egress", "open"}};
  if (!deny.empty()) out["deny"] = std::move(deny);
  return out;
}

}  // namespace

Result<std::optional<policy::NetworkPolicy>> network_policy(std::optional<bool> allow_internet_access, const bj::value* network) {
  Wanted wanted;
  if (network != nullptr && !network->is_null()) {
    json::Reader r(*network, "network");
    GB_TRYV(refuse_what_is_missing(r));
    GB_TRYV(read_lists(r, wanted));
  }
  if (allow_internet_access == false) {
    wanted.denies_all = true;
    wanted.deny.push_back(*policy::parse_cidr("0.0.0.0/0"));
  }
  if (!wanted.hosts.empty() && !wanted.denies_all) {
    return fail(Code::kInvalidArgument, "network.allowOut: a name there needs '0.0.0.0/0' in denyOut", {{"field", "network.allowOut"}});
  }
  const bool chooses = allow_internet_access || !wanted.allow.empty() || !wanted.deny.empty() || !wanted.hosts.empty();
  if (!chooses) return std::nullopt;
  return policy::parse_network_policy(policy_json(wanted));
}

}  // namespace glovebox::api::e2b
