// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

// How often daemons have followed each other on a data directory, in its file `starts`.
namespace glovebox {

struct Restarts {
  uint64_t after_stop = 0;   // the one before had been told to stop
  uint64_t after_death = 0;  // it was killed, crashed, or the host did
};

// This start included. A file that is missing or makes no sense is a first start.
Result<Restarts> note_start(const std::string& data_dir);
// At the end of a graceful stop.
Result<void> note_stop(const std::string& data_dir);

}  // namespace glovebox
