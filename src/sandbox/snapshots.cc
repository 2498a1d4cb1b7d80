// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshots_impl.h"

namespace glovebox::sandbox {
namespace {

tl::unexpected<Error> not_here(const std::string& what) { return fail(Code::kUnsupported, what + ": this version cannot do it"); }

}  // namespace

Async<SnapshotInfo> SnapshotsImpl::snapshot(const Caller& caller, const std::string& sandbox, SnapshotSpec) {
  GB_CO_TRYV(host_.find(caller, sandbox));
  co_return not_here("snapshots");
}

Result<SnapshotInfo> SnapshotsImpl::get_snapshot(const Caller&, const std::string&) const { return not_here("snapshots"); }

Result<Page<SnapshotInfo>> SnapshotsImpl::list_snapshots(const Caller&, const SnapshotFilter&) const { return not_here("snapshots"); }

Async<SnapshotInfo> SnapshotsImpl::update_snapshot(const Caller&, const std::string&, std::optional<std::string>, std::optional<StringMap>) {
  co_return not_here("snapshots");
}

Async<void> SnapshotsImpl::delete_snapshot(const Caller&, const std::string&) { co_return not_here("snapshots"); }

Async<void> SnapshotsImpl::verify_snapshot(const Caller&, const std::string&) { co_return not_here("snapshots"); }

Async<std::vector<SandboxInfo>> SnapshotsImpl::fork(const Caller& caller, const std::string& sandbox, ForkSpec) {
  GB_CO_TRYV(host_.find(caller, sandbox));
  co_return not_here("fork");
}

Async<SandboxInfo> SnapshotsImpl::reset(const Caller& caller, const std::string& sandbox, const std::string&) {
  GB_CO_TRYV(host_.find(caller, sandbox));
  co_return not_here("reset");
}

Async<SandboxInfo> SnapshotsImpl::hibernate(const Caller& caller, const std::string& sandbox, std::optional<runtime::Kept>) {
  GB_CO_TRYV(host_.find(caller, sandbox));
  co_return not_here("hibernate");
}

}  // namespace glovebox::sandbox
