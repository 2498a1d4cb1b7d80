// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/runtime.h"

// What snapshots of both tiers share.
namespace glovebox::runtime {

// The files of a snapshot's directory, by name.
std::vector<SnapshotPart> list_parts(const std::string& directory);

// Names a set of words, whatever their order was.
std::string word_digest(const std::set<std::string>& words);

// Names the processor's features: a program that runs on one processor may fail on another that lacks what it found.
std::string processor_features();

// kSnapshotMismatch for the first fact that is not the same here.
Result<void> compare_needs(const std::map<std::string, std::string>& needs, const std::map<std::string, std::string>& here);

// Makes an ext4 image that is not mounted larger. An image that is large enough already is left alone.
Result<void> grow_disk(const std::string& image, uint64_t bytes);

}  // namespace glovebox::runtime
