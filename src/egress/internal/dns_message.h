// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "policy/address.h"

// DNS messages (RFC 1035, 6891, 8914) without I/O. Queries come from sandboxes, responses from name
// servers that an attacker may run: both are hostile.
namespace glovebox::egress::dns {

enum Type : uint16_t {
  kA = 1,
  kNs = 2,
  kCname = 5,
  kSoa = 6,
  kNull = 10,
  kPtr = 12,
  kMx = 15,
  kTxt = 16,
  kAaaa = 28,
  kSrv = 33,
  kOpt = 41,
  kSvcb = 64,
  kHttps = 65,
  kAny = 255
};
std::string type_name(uint16_t type);  // "A", "TXT", "TYPE1234"

enum Rcode : uint8_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5
};

constexpr size_t kHeaderBytes = 12, kMaxMessageBytes = 65535;

struct Query {
  uint16_t id = 0;
  bool recursion_desired = false;
  std::string
      name;  // lower case, without the trailing dot; bytes that no host name has are written \DDD
  uint16_t type = 0;
  std::string question;  // as it came, to be sent back byte for byte
  bool has_edns = false;
  uint16_t udp_size = 512;  // what the asker takes over UDP, 512 … 4096
};
// One question of class IN in a standard query. kInvalidArgument otherwise.
Result<Query> parse_query(std::string_view message);

// Why a name was refused, sent as an Extended DNS Error when the asker speaks EDNS.
struct Explanation {
  uint16_t code = 0;  // RFC 8914: 15 blocked, 18 prohibited
  std::string text;
};
std::string build_answer(const Query& query, Rcode rcode,
                         const std::vector<policy::Address>& addresses = {}, uint32_t ttl = 0,
                         const Explanation& why = {});
// The answer cut down to its header and question with the bit TC set when it is larger than
// `limit`.
std::string fit(std::string answer, const Query& query, size_t limit);
// FORMERR for a message that could not be read; empty when it has no header or is itself a
// response.
std::string build_format_error(std::string_view message);

// A query of type A with EDNS. `name` is a normal host name.
std::string build_query(uint16_t id, std::string_view name);

struct Response {
  Rcode rcode = kNoError;
  bool is_truncated = false;
  std::vector<policy::Address> addresses;  // at most 32
  uint32_t ttl = 0;   // the least of the records used; for a negative answer what the SOA says
  std::string alias;  // where the chain of CNAMEs ended when it led to no address here
};
// kInvalidArgument when it is malformed, or is no response to this query: another id, name or type.
Result<Response> parse_response(std::string_view message, uint16_t id, std::string_view name);

}  // namespace glovebox::egress::dns
