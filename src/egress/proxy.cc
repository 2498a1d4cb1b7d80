// SPDX-License-Identifier: Apache-2.0
#include "egress/proxy.h"

#include "base/log.h"

namespace glovebox::egress {

int run_egress_proxy(const EgressOptions&) {
  log::error("egress.unavailable");
  return 1;
}

}  // namespace glovebox::egress
