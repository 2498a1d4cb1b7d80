// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// What works inside a sandbox (cmake/embed.cmake).
namespace glovebox {

std::string_view embedded_code_server_py();
std::string_view embedded_code_kernels_py();
std::string_view embedded_code_python_kernel_py();
std::string_view embedded_code_charts_py();
std::string_view embedded_code_node_kernel_js();

}  // namespace glovebox
