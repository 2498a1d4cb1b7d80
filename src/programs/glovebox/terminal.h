// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <termios.h>

namespace glovebox::cli {

struct WindowSize {
  int cols = 80, rows = 24;
};
// Of the terminal behind `fd`; 80 x 24 when it does not tell.
WindowSize window_size(int fd);

// Raw mode for its lifetime: every key, Ctrl-C too, is a byte for the other side. Restored by the
// destructor, and by the handlers of fatal signals and exit() as well.
class RawMode {
 public:
  explicit RawMode(int fd);  // does nothing when `fd` is no terminal
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  ~RawMode();
};

}  // namespace glovebox::cli
