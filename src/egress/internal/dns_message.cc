// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/dns_message.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "policy/egress.h"

namespace glovebox::egress::dns {
namespace {

constexpr uint16_t kClassIn = 1;
constexpr uint16_t kIsResponse = 0x8000, kOpcodeMask = 0x7800, kTruncated = 0x0200,
                   kWantsRecursion = 0x0100, kOffersRecursion = 0x0080;
constexpr uint16_t kOurUdpSize = 1232;  // fits every path, see dnsflagday.net/2020
constexpr size_t kMaxAddresses = 32, kMaxRecords = 2048, kMaxAliases = 8;
constexpr uint16_t kExtendedErrorOption = 15;

tl::unexpected<Error> malformed(const char* what) {
  return fail(Code::kInvalidArgument, std::string("DNS: ") + what);
}

void put16(std::string& out, size_t value) {
  out += static_cast<char>(value >> 8);
  out += static_cast<char>(value);
}
void put32(std::string& out, uint32_t value) {
  put16(out, value >> 16);
  put16(out, value & 0xFFFF);
}

void append_label(std::string& name, std::string_view label) {
  if (!name.empty()) name += '.';
  for (const char c : label) {
    const auto byte = static_cast<uint8_t>(c);
    if (c >= 'A' && c <= 'Z') {
      name += static_cast<char>(c - 'A' + 'a');
    } else if (byte > 0x20 && byte < 0x7F && c != '.' && c != '\\') {
      name += c;
    } else {
      name += {'\\', static_cast<char>('0' + byte / 100), static_cast<char>('0' + byte / 10 % 10),
               static_cast<char>('0' + byte % 10)};
    }
  }
}

class Reader {
 public:
  explicit Reader(std::string_view message) : message_(message) {}
  size_t position() const { return at_; }
  bool failed() const { return failed_; }
  uint16_t number16() { return static_cast<uint16_t>(number(2)); }
  uint32_t number32() { return static_cast<uint32_t>(number(4)); }
  std::string_view take(size_t n) {
    if (failed_ || n > message_.size() - at_) {
      failed_ = true;
      return {};
    }
    const auto out = message_.substr(at_, n);
    at_ += n;
    return out;
  }
  // A pointer must lead to before the name it is part of, so reading ends, and to a name: not into the header, which is another one
  // in the answer.
  std::string name() {
    std::string out;
    size_t at = at_, earliest = at_, wire = 1;
    bool jumped = false;
    while (!failed_ && at < message_.size()) {
      const auto length = static_cast<uint8_t>(message_[at]);
      if (length == 0) {
        if (!jumped) at_ = at + 1;
        return out;
      }
      if (length >= 0xC0) {
        if (at + 1 >= message_.size()) break;
        const size_t target =
            static_cast<size_t>(length & 0x3F) << 8 | static_cast<uint8_t>(message_[at + 1]);
        if (target >= earliest || target < kHeaderBytes) break;
        if (!jumped) at_ = at + 2;
        jumped = true;
        at = earliest = target;
        continue;
      }
      wire += 1U + length;
      if (length > 63 || wire > 255 || at + 1 + length > message_.size()) break;
      append_label(out, message_.substr(at + 1, length));
      at += 1U + length;
    }
    failed_ = true;
    return {};
  }

 private:
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    for (const char c : take(bytes)) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }

  std::string_view message_;
  size_t at_ = 0;
  bool failed_ = false;
};

struct Record {
  std::string owner;
  uint16_t type = 0, record_class = 0;
  uint32_t ttl = 0;
  std::string target;  // CNAME
  std::optional<policy::Address> address;
  uint32_t negative_ttl = 0;  // SOA
};

std::optional<Record> read_record(Reader& in, std::string_view message) {
  Record record;
  record.owner = in.name();
  record.type = in.number16();
  record.record_class = in.number16();
  record.ttl = in.number32();
  const size_t length = in.number16();
  const size_t begin = in.position();
  const std::string_view data = in.take(length);
  if (in.failed()) return std::nullopt;
  if (record.type == kA && length == 4) {
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(data[i]));
    };
    record.address = policy::address_v4(byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3));
  }
  // Names inside may point back into the message but must not run past their record.
  Reader inner(message.substr(0, begin + length));
  inner.take(begin);
  if (record.type == kCname) record.target = inner.name();
  if (record.type == kSoa) {
    inner.name();
    inner.name();
    inner.take(16);
    record.negative_ttl = std::min(inner.number32(), record.ttl);
  }
  if (inner.failed()) return std::nullopt;
  return record;
}

void append_opt(std::string& out, const Explanation& why) {
  out += '\0';
  put16(out, kOpt);
  put16(out, kOurUdpSize);
  put32(out, 0);
  if (why.code == 0) {
    put16(out, 0);
    return;
  }
  const std::string_view text = std::string_view(why.text).substr(0, 200);
  put16(out, text.size() + 6);
  put16(out, kExtendedErrorOption);
  put16(out, text.size() + 2);
  put16(out, why.code);
  out += text;
}

// Follows the aliases from `name` through the answer section.
void collect(const std::vector<Record>& records, std::string name, Response& out) {
  uint32_t ttl = std::numeric_limits<uint32_t>::max();
  for (size_t hop = 0; hop <= kMaxAliases; ++hop) {
    const Record* alias = nullptr;
    for (const auto& record : records) {
      if (record.owner != name) continue;
      if (record.type == kCname) alias = &record;
      if (!record.address || out.addresses.size() == kMaxAddresses) continue;
      out.addresses.push_back(*record.address);
      ttl = std::min(ttl, record.ttl);
    }
    if (!out.addresses.empty() || !alias) break;
    ttl = std::min(ttl, alias->ttl);
    name = alias->target;
    out.alias = name;
  }
  if (!out.addresses.empty()) out.alias.clear();
  if (ttl != std::numeric_limits<uint32_t>::max()) out.ttl = ttl;
}

}  // namespace

std::string type_name(uint16_t type) {
  switch (type) {
    case kA:
      return "A";
    case kNs:
      return "NS";
    case kCname:
      return "CNAME";
    case kSoa:
      return "SOA";
    case kNull:
      return "NULL";
    case kPtr:
      return "PTR";
    case kMx:
      return "MX";
    case kTxt:
      return "TXT";
    case kAaaa:
      return "AAAA";
    case kSrv:
      return "SRV";
    case kSvcb:
      return "SVCB";
    case kHttps:
      return "HTTPS";
    case kAny:
      return "ANY";
    default:
      return "TYPE" + std::to_string(type);
  }
}

Result<Query> parse_query(std::string_view message) {
  Reader in(message);
  Query query;
  query.id = in.number16();
  const uint16_t flags = in.number16();
  const uint16_t questions = in.number16(), answers = in.number16(), authorities = in.number16(),
                 additionals = in.number16();
  if (in.failed() || (flags & (kIsResponse | kOpcodeMask)) != 0)
    return malformed("not a standard query");
  if (questions != 1 || answers != 0 || authorities != 0 || additionals > 8)
    return malformed("not one question");
  query.recursion_desired = (flags & kWantsRecursion) != 0;
  query.name = in.name();
  query.type = in.number16();
  const uint16_t query_class = in.number16();
  if (in.failed()) return malformed("truncated question");
  query.question = message.substr(kHeaderBytes, in.position() - kHeaderBytes);
  if (query_class != kClassIn) return malformed("not of class IN");
  for (uint16_t i = 0; i < additionals; ++i) {
    const auto record = read_record(in, message);
    if (!record) return malformed("truncated record");
    if (record->type != kOpt) continue;
    query.has_edns = true;
    query.udp_size = std::clamp<uint16_t>(record->record_class, 512, 4096);
  }
  return query;
}

std::string build_answer(const Query& query, Rcode rcode,
                         const std::vector<policy::Address>& addresses, uint32_t ttl,
                         const Explanation& why) {
  std::string out;
  put16(out, query.id);
  put16(out, static_cast<size_t>(kIsResponse | kOffersRecursion |
                                 (query.recursion_desired ? kWantsRecursion : 0) | rcode));
  put16(out, 1);
  put16(out, addresses.size());
  put16(out, 0);
  put16(out, query.has_edns ? 1 : 0);
  out += query.question;
  for (const auto& address : addresses) {
    put16(out, 0xC000 | kHeaderBytes);  // the name of the question
    put16(out, kA);
    put16(out, kClassIn);
    put32(out, ttl);
    put16(out, 4);
    put32(out, address.v4());
  }
  if (query.has_edns) append_opt(out, why);
  return out;
}

std::string fit(std::string answer, const Query& query, size_t limit) {
  if (answer.size() <= limit) return answer;
  Query bare = query;
  bare.has_edns = false;
  std::string cut = build_answer(bare, static_cast<Rcode>(answer[3] & 0x0F));
  cut[2] = static_cast<char>(cut[2] | kTruncated >> 8);
  return cut;
}

std::string build_format_error(std::string_view message) {
  if (message.size() < kHeaderBytes || (message[2] & 0x80) != 0) return {};
  std::string out(message.substr(0, 2));
  put16(out, static_cast<size_t>(kIsResponse | kFormErr));
  out.append(8, '\0');
  return out;
}

std::string build_query(uint16_t id, std::string_view name) {
  std::string out;
  put16(out, id);
  put16(out, kWantsRecursion);
  put16(out, 1);
  put16(out, 0);
  put16(out, 0);
  put16(out, 1);
  for (const auto& label : split(name, '.')) {
    out += static_cast<char>(label.size());
    out += label;
  }
  out += '\0';
  put16(out, kA);
  put16(out, kClassIn);
  append_opt(out, {});
  return out;
}

Result<Response> parse_response(std::string_view message, uint16_t id, std::string_view name) {
  Reader in(message);
  const bool is_ours = in.number16() == id;
  const uint16_t flags = in.number16(), questions = in.number16();
  const size_t answers = in.number16(), authorities = in.number16();
  in.number16();
  if (in.failed() || !is_ours || (flags & kIsResponse) == 0 || (flags & kOpcodeMask) != 0 ||
      questions != 1) {
    return malformed("not a response to this query");
  }
  const std::string asked = in.name();
  const uint16_t type = in.number16(), query_class = in.number16();
  if (in.failed() || asked != name || type != kA || query_class != kClassIn)
    return malformed("not a response to this question");

  Response out;
  out.rcode = static_cast<Rcode>(flags & 0x0F);
  out.is_truncated = (flags & kTruncated) != 0;
  if (out.is_truncated) return out;
  if (answers + authorities > kMaxRecords) return malformed("too many records");
  std::vector<Record> records;
  for (size_t i = 0; i < answers + authorities; ++i) {
    auto record = read_record(in, message);
    if (!record) return malformed("truncated record");
    if (record->type != kOpt && record->record_class != kClassIn) continue;
    if (i < answers) {
      records.push_back(*std::move(record));
    } else if (record->type == kSoa) {
      out.ttl = record->negative_ttl;
    }
  }
  collect(records, std::string(name), out);
  return out;
}

}  // namespace glovebox::egress::dns
