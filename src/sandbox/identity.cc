// SPDX-License-Identifier: Apache-2.0
#include "sandbox/identity.h"

#include <algorithm>
#include <deque>
#include <set>

#include "base/random.h"
#include "sandbox/json_reader.h"

namespace glovebox::sandbox {
namespace {

using codec::Reader;

constexpr std::chrono::milliseconds kClockTolerance{100};
constexpr size_t kSampleDigits = 32;
constexpr size_t kSamplesKept = 16384;
constexpr size_t kMaxShown = 512;

// Random numbers that copies drew first thing. Two equal ones mean that a generator's state was copied with the sandbox.
class Witness {
 public:
  bool is_new(const std::string& sample) {
    if (!seen_.insert(sample).second) return false;
    order_.push_back(sample);
    if (order_.size() <= kSamplesKept) return true;
    seen_.erase(order_.front());
    order_.pop_front();
    return true;
  }

 private:
  std::set<std::string> seen_;
  std::deque<std::string> order_;
};

Witness& witness() {
  static Witness one;
  return one;
}

struct Confirmation {
  std::string hostname, machine_id, boot_id, entropy, sample, error, address, mac;
  int64_t unix_time_ns = 0;
};

tl::unexpected<Error> not_confirmed(const std::string& what, const std::string& cause) {
  return fail(Code::kStartFailed, "the copy is not safe to use: " + what, {{"cause", cause}});
}

Result<Confirmation> decode(std::string_view hello_ok) {
  GB_TRY(const auto object, codec::parse(hello_ok, Code::kAgentProtocol));
  Reader outer(object, Code::kAgentProtocol);
  const auto* resumed = outer.object("resumed");
  GB_TRYV(outer.done());
  if (resumed == nullptr) return not_confirmed("its agent does not know what a copy is", "agent");
  Confirmation c;
  Reader r(*resumed, Code::kAgentProtocol);
  r.text("hostname", &c.hostname).text("machine_id", &c.machine_id).text("boot_id", &c.boot_id).text("entropy", &c.entropy)
      .text("sample", &c.sample).text("error", &c.error).text("address", &c.address).text("mac", &c.mac).number("unix_time_ns", &c.unix_time_ns);
  GB_TRYV(r.done());
  return c;
}

Result<void> check_network(const Confirmation& c, const std::string& wanted) {
  if (wanted.empty()) return {};
  GB_TRY(const auto object, codec::parse(wanted, Code::kInternal));
  std::string address, mac;
  Reader r(object, Code::kInternal);
  r.text("address", &address).text("mac", &mac);
  GB_TRYV(r.done());
  if (c.address == address && c.mac == mac) return {};
  return not_confirmed("it has the network address of another one", "network");
}

Result<void> check_clock(int64_t unix_time_ns, WallTime sent, WallTime received) {
  const auto theirs = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(unix_time_ns));
  const auto first = std::chrono::duration_cast<std::chrono::milliseconds>(sent.time_since_epoch()) - kClockTolerance;
  const auto last = std::chrono::duration_cast<std::chrono::milliseconds>(received.time_since_epoch()) + kClockTolerance;
  if (theirs >= first && theirs <= last) return {};
  const auto off = theirs < first ? first - theirs : theirs - last;
  return not_confirmed("its clock is wrong by more than " + std::to_string(off.count()) + " ms", "clock");
}

}  // namespace

Identity new_identity(bool own_kernel) { return {hex(random_bytes(16)), own_kernel ? random_uuid() : ""}; }

Result<void> check_confirmation(std::string_view hello_ok, const Identity& identity, const std::string& hostname, WallTime sent,
                                WallTime received) {
  GB_TRY(const auto c, decode(hello_ok));
  if (!c.error.empty()) return not_confirmed("a step inside failed: " + utf8_lossy(c.error).substr(0, kMaxShown), "hook");
  if (c.hostname != hostname) return not_confirmed("it has another host name", "hostname");
  if (!identity.machine_id.empty() && c.machine_id != identity.machine_id) {
    return not_confirmed("/etc/machine-id cannot be replaced in it", "machine_id");
  }
  if (!identity.boot_id.empty() && c.boot_id != identity.boot_id) return not_confirmed("it has the boot id of another one", "boot_id");
  GB_TRYV(check_network(c, identity.network));
  if (c.entropy != "credited" && c.entropy != "mixed") return not_confirmed("it took no entropy", "entropy");
  const bool is_hex = std::all_of(c.sample.begin(), c.sample.end(), [](char d) { return (d >= '0' && d <= '9') || (d >= 'a' && d <= 'f'); });
  if (c.sample.size() != kSampleDigits || !is_hex || !witness().is_new(c.sample)) {
    return not_confirmed("its random numbers are those of another copy", "entropy");
  }
  return check_clock(c.unix_time_ns, sent, received);
}

}  // namespace glovebox::sandbox
