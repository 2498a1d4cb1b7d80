// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/preview/gateway.h"
#include "http/router.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "sandbox/volumes.h"
#include "tenant/keys.h"

// The Lizard dialect: what the unmodified npm client @lizard-build/sdk speaks, below /api. docs/lizard.md says what is there.
namespace glovebox::api::lizard {

// All but the router itself outlive the router.
void add_lizard_routes(http::Router& router, sandbox::SandboxService& service, sandbox::Snapshots& snapshots, sandbox::Volumes& volumes, tenant::Keys& keys,
                       preview::Gateway& previews);

}  // namespace glovebox::api::lizard
