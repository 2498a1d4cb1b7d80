// SPDX-License-Identifier: Apache-2.0
#include "sandbox/diff_record.h"

#include <algorithm>
#include <map>

#include "base/text.h"

namespace glovebox::sandbox::diff {
namespace {

constexpr char kMarks[] = {'A', 'C', 'D'};  // by FileChange::Kind

std::pair<std::string, std::string> parted(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

FileEntry entry_of(const FileChange& change) {
  FileEntry out;
  out.name = parted(change.path).second;
  out.type = change.type;
  out.size = change.size;
  out.mode = change.mode;
  out.uid = change.uid;
  out.gid = change.gid;
  out.ctime_ns = change.ctime_ns;
  return out;
}

class ChangedTree : public Tree {
 public:
  ChangedTree(Tree& base, std::vector<FileChange> changes) : base_(base) {
    for (auto& change : changes) {
      auto [directory, name] = parted(change.path);
      by_directory_[std::move(directory)].emplace(std::move(name), std::move(change));
    }
  }

  // A page of the base, with what was changed between its first and last name. Of a page whose names are all gone the next one is taken:
  // an empty one would be the end.
  Async<Listing> list(const std::string& directory, const std::string& after) override {
    std::string from = after;
    while (true) {
      GB_CO_TRY(Listing page, co_await base_.list(directory, from));
      const std::string last = page.more && !page.entries.empty() ? page.entries.back().name : "";
      make_changes(directory, from, last, &page);
      if (!page.entries.empty() || last.empty()) co_return page;
      from = last;
    }
  }

  Async<std::optional<FileEntry>> find(const std::string& path) override {
    for (size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1)) {
      const FileChange* above = change_at(path.substr(0, slash));
      if (above != nullptr && above->type != "directory") co_return std::optional<FileEntry>();
      if (above != nullptr && above->kind == FileChange::Kind::kDeleted) co_return std::optional<FileEntry>();
    }
    const FileChange* change = change_at(path);
    if (change == nullptr) co_return co_await base_.find(path);
    if (change->kind == FileChange::Kind::kDeleted) co_return std::optional<FileEntry>();
    co_return std::optional<FileEntry>(entry_of(*change));
  }

 private:
  const FileChange* change_at(const std::string& path) const {
    const auto [directory, name] = parted(path);
    const auto all = by_directory_.find(directory);
    if (all == by_directory_.end()) return nullptr;
    const auto found = all->second.find(name);
    return found == all->second.end() ? nullptr : &found->second;
  }

  // In (from, last]; without `last` all that follow.
  void make_changes(const std::string& directory, const std::string& from, const std::string& last, Listing* page) const {
    const auto all = by_directory_.find(directory);
    if (all == by_directory_.end()) return;
    std::map<std::string, FileEntry> names;
    for (auto& entry : page->entries) names.emplace(entry.name, std::move(entry));
    for (auto it = all->second.upper_bound(from); it != all->second.end() && (last.empty() || it->first <= last); ++it) {
      if (it->second.kind == FileChange::Kind::kDeleted) names.erase(it->first);
      else names.insert_or_assign(it->first, entry_of(it->second));
    }
    page->entries.clear();
    for (auto& [name, entry] : names) page->entries.push_back(std::move(entry));
  }

  Tree& base_;
  std::map<std::string, std::map<std::string, FileChange>> by_directory_;
};

}  // namespace

std::string encode(const std::vector<FileChange>& changes) {
  std::string out;
  for (const FileChange& c : changes) {
    out += kMarks[static_cast<size_t>(c.kind)];
    out += " " + c.type + " " + std::to_string(c.size) + " " + std::to_string(c.mode) + " " + std::to_string(c.uid) + " " +
           std::to_string(c.gid) + " " + std::to_string(c.ctime_ns) + " " + base64_encode(c.path) + "\n";
  }
  return out;
}

Result<std::vector<FileChange>> decode(std::string_view text) {
  std::vector<FileChange> changes;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    const auto words = split(line, ' ');
    const auto mark = std::ranges::find(kMarks, line[0]);
    if (words.size() != 8 || words[0].size() != 1 || mark == std::end(kMarks)) return fail(Code::kCorrupt, "a recorded change is not one");
    const auto size = parse_int(words[2]), mode = parse_int(words[3]), uid = parse_int(words[4]), gid = parse_int(words[5]);
    const auto ctime = parse_int(words[6]);
    auto path = base64_decode(words[7]);
    if (!size || !mode || !uid || !gid || !ctime || !path || !path->starts_with('/')) return fail(Code::kCorrupt, "a recorded change is not one");
    changes.push_back({std::move(*path), static_cast<FileChange::Kind>(mark - kMarks), words[1], static_cast<uint64_t>(*size),
                       static_cast<uint32_t>(*mode), static_cast<uint32_t>(*uid), static_cast<uint32_t>(*gid), *ctime});
  }
  return changes;
}

std::unique_ptr<Tree> changed_tree(Tree& base, std::vector<FileChange> changes) {
  return std::make_unique<ChangedTree>(base, std::move(changes));
}

}  // namespace glovebox::sandbox::diff
