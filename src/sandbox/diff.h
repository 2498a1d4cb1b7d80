// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "sandbox/snapshots.h"

// Finds out what is different between two trees of files without reading all of either.
//
// Both trees come from one image, and what is written in a sandbox goes to a layer above it. So a
// file that was never touched has the image's time of last status change (ctime), which no program
// can set; and a directory that has it was never copied to the upper layer, which happens to every
// parent of a changed file: nothing below it is different. Only directories that were touched are
// listed.
namespace glovebox::sandbox::diff {

// One of the trees. Directories are absolute paths.
class Tree {
 public:
  virtual ~Tree() = default;
  // Entries in byte order of their names, from the first one above `after` on; next_cursor is not
  // used, `more` is. Nothing when there is no such directory.
  struct Listing {
    std::vector<FileEntry> entries;
    bool more = false;
  };
  virtual Async<Listing> list(const std::string& directory, const std::string& after) = 0;
  // Nothing when it is not there.
  virtual Async<std::optional<FileEntry>> find(const std::string& path) = 0;
};

// A directory of this host that nobody changes: a template's root. Symbolic links are never
// followed.
std::unique_ptr<Tree> directory_tree(UniqueFd root, BlockingPool& pool);

struct Options {
  std::set<std::string> left_out;  // paths that are not looked at, nor is what lies below them
  std::set<std::string>
      not_itself;      // directories that somebody else makes: what lies below them counts
  size_t limit = 100;  // items of a page
  std::string cursor;  // of the page before
  int most_listings =
      2000;  // after that many directory pages, or at the deadline, a page ends early
  Deadline deadline = Deadline::max();
};

// In order of paths, component by component. A page may hold fewer items than the limit, also none,
// and not be the last. A directory that is gone is one item; of one that is new, everything is.
// kInvalidArgument for a cursor that is not one of ours.
Async<Page<FileChange>> compare(Tree& before, Tree& now, const Options& options);

}  // namespace glovebox::sandbox::diff
