// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace glovebox {

// Sanitizers make system calls and threads of their own, and reserve terabytes of address space.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace glovebox
