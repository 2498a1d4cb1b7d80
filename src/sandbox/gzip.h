// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sandbox/service.h"

// gzip at the daemon's side of an archive stream. Piece by piece on the blocking pool: memory stays bounded however well the
// other side's bytes compress, and the loop is not held up.
namespace glovebox::sandbox {

// What `source` gives, compressed.
std::unique_ptr<ByteSource> gzip_source(BlockingPool& pool, std::unique_ptr<ByteSource> source);

// Passes bytes to `sink`, decompressed when they start with gzip's magic number, else as they are. Broken or cut gzip data is
// kInvalidArgument.
std::unique_ptr<ByteSink> gunzip_sink(BlockingPool& pool, std::unique_ptr<ByteSink> sink);

}  // namespace glovebox::sandbox
