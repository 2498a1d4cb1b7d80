// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// Files that are part of the program (cmake/embed.cmake).
namespace glovebox {

std::string_view embedded_agent();         // the static agent, an ELF file
std::string_view embedded_attack();        // the static glovebox-attack, an ELF file
std::string_view embedded_openapi_json();  // spec/openapi.yaml as JSON

}  // namespace glovebox
