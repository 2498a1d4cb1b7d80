// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "policy/egress.h"

// What the proxy says to a sandbox over HTTP in its own name.
namespace glovebox::egress {

// {"error":{"code":"egress_denied","host","rule","message","how_to_allow"}, and the same keys again
// at the top}.
std::string denial_body(std::string_view host, const policy::Verdict& verdict);
// The same with "upstream_unreachable": allowed, but the network beyond failed.
std::string failure_body(std::string_view host, std::string_view reason);
// A whole response with a JSON body; without the body itself when it answers HEAD.
std::string answer_text(int status, std::string_view body, bool is_head, bool keeps_alive);
// `content` as one chunk.
std::string chunk(std::string_view content);

}  // namespace glovebox::egress
