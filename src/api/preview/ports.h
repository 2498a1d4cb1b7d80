// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>

#include "api/preview/gateway.h"
#include "http/router.h"

namespace glovebox::api::preview {

boost::json::object view_object(const Gateway::View& view);

// GET, POST and DELETE /v1/sandboxes/{id}/ports/{port}. `keys` and `gateway` outlive the router.
void add_port_routes(http::Router& router, const tenant::Keys& keys, Gateway* gateway);

}  // namespace glovebox::api::preview
