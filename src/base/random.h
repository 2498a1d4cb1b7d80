// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace glovebox {

std::string random_bytes(size_t n);  // from getrandom(2)
// `n` characters of [a-z0-9] without look-alikes (5 bits each): names that fit host names and URL paths.
std::string random_name(size_t n);
std::string random_uuid();  // version 4

}  // namespace glovebox
