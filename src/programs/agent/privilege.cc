// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/privilege.h"

#include <linux/capability.h>
#include <linux/prctl.h>

#include <cstdint>

#include "programs/agent/rawcall.h"

namespace glovebox::agent {
namespace {

constexpr uint32_t kAdmin = 1u << CAP_SYS_ADMIN;  // in the first of the two words
// What the agent of a machine of its own has beside it.
constexpr int kOwn[] = {CAP_SYS_ADMIN, CAP_SYS_TIME, CAP_NET_ADMIN};
constexpr uint32_t kOwnBits = kAdmin | 1u << CAP_SYS_TIME | 1u << CAP_NET_ADMIN;

struct Sets {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  bool read() { return raw(SYS_capget, raw_arg(&header), raw_arg(data)) == 0; }
  void write() { raw(SYS_capset, raw_arg(&header), raw_arg(data)); }
};

}  // namespace

void lay_down_privilege() {
  Sets sets;
  if (!sets.read() || (sets.data[0].effective & kAdmin) == 0) return;
  sets.data[0].effective &= ~kAdmin;
  sets.write();
}

void give_up_privilege() {
  Sets sets;
  if (!sets.read() || (sets.data[0].permitted & kOwnBits) == 0) return;
  for (const int capability : kOwn) raw(SYS_prctl, PR_CAPBSET_DROP, capability, 0, 0, 0);
  sets.data[0].effective &= ~kOwnBits;
  sets.data[0].permitted &= ~kOwnBits;
  sets.data[0].inheritable &= ~kOwnBits;
  sets.write();
}

Privileged::Privileged() {
  Sets sets;
  if (!sets.read() || (sets.data[0].permitted & kAdmin) == 0) return;
  sets.data[0].effective |= kAdmin;
  sets.write();
}

}  // namespace glovebox::agent
