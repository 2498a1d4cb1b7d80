// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>

#include "api/e2b/e2b.h"

// Sandboxes as this protocol shows them.
namespace glovebox::api::e2b {

// Clients switch their features by it: what comes with 0.6.2 (file metadata) and later is not there.
inline constexpr std::string_view kDaemonVersion = "0.6.1";

boost::json::object sandbox_object(const sandbox::SandboxInfo& info, const Parts& parts);  // answer of create and connect
boost::json::object listed_object(const sandbox::SandboxInfo& info);
boost::json::object detail_object(const sandbox::SandboxInfo& info, const Parts& parts);
// Two readings of the usage, 100 ms apart, as one point of the metrics.
struct UsageSample {
  sandbox::SandboxInfo info;
  runtime::Usage usage;
  double cpu_percent = 0;  // of all its CPUs: 100 is one of them
};
Async<UsageSample> sample_usage(sandbox::SandboxService& service, const sandbox::Caller& caller, const std::string& id);
boost::json::object metric_object(const UsageSample& sample);

}  // namespace glovebox::api::e2b
