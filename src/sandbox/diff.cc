// SPDX-License-Identifier: Apache-2.0
#include "sandbox/diff.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"

namespace glovebox::sandbox::diff {
namespace {

constexpr size_t kPageEntries = 1000;
constexpr size_t kMaxPathBytes = 4000;  // deeper ones cannot be asked for

std::string join(const std::string& directory, const std::string& name) { return (directory == "/" ? "" : directory) + "/" + name; }

// ---- A directory of this host ----

class DirectoryTree : public Tree {
 public:
  DirectoryTree(UniqueFd root, BlockingPool& pool) : root_(std::move(root)), pool_(pool) {}

  Async<Listing> list(const std::string& directory, const std::string& after) override {
    co_return co_await run_blocking(pool_, [this, directory, after] { return list_now(directory, after); });
  }
  Async<std::optional<FileEntry>> find(const std::string& path) override {
    co_return co_await run_blocking(pool_, [this, path]() -> Result<std::optional<FileEntry>> {
      const size_t slash = path.rfind('/');
      GB_TRY(const UniqueFd directory, open(path.substr(0, slash)));
      if (!directory) return std::optional<FileEntry>();
      return entry_at(directory.get(), path.substr(slash + 1));
    });
  }

 private:
  // No descriptor when it is not there, or not a directory.
  Result<UniqueFd> open(const std::string& path) const {
    open_how how{};
    how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    const std::string relative = "." + path;
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, root_.get(), relative.c_str(), &how, sizeof how)));
    if (fd || errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV) return fd;
    return fail_errno("template " + path);
  }

  static std::optional<FileEntry> entry_at(int directory, const std::string& name) {
    struct stat st;
    if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return std::nullopt;
    FileEntry out;
    out.name = name;
    out.type = type_of(st.st_mode);
    out.size = static_cast<uint64_t>(st.st_size);
    out.mode = st.st_mode & 07777;
    out.uid = st.st_uid;
    out.gid = st.st_gid;
    out.ctime_ns = st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec;
    return out;
  }

  static const char* type_of(mode_t mode) {
    switch (mode & S_IFMT) {
      case S_IFDIR: return "directory";
      case S_IFLNK: return "symlink";
      case S_IFIFO: return "fifo";
      case S_IFSOCK: return "socket";
      case S_IFCHR: return "char";
      case S_IFBLK: return "block";
      default: return "file";
    }
  }

  Result<Listing> list_now(const std::string& path, const std::string& after) const {
    GB_TRY(UniqueFd fd, open(path));
    Listing out;
    if (!fd) return out;
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd.get()), &::closedir);
    if (!dir) return fail_errno("template " + path);
    const int at = fd.release();  // the DIR owns it now
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(dir.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != ".." && name > after) names.push_back(name);
    }
    std::ranges::sort(names);
    out.more = names.size() > kPageEntries;
    names.resize(std::min(names.size(), kPageEntries));
    for (const std::string& name : names) {
      if (auto entry = entry_at(at, name)) out.entries.push_back(std::move(*entry));
    }
    return out;
  }

  UniqueFd root_;
  BlockingPool& pool_;
};

// ---- Comparing ----

// The entries of one tree in one directory, as far as they have been asked for.
struct Side {
  bool is_there = true;
  bool more = true;
  std::vector<FileEntry> entries;
  size_t at = 0;
  std::string after;

  const FileEntry* front() const { return at < entries.size() ? &entries[at] : nullptr; }
};

struct Level {
  std::string path;
  Side before, now;
};

class Comparison {
 public:
  Comparison(Tree& before, Tree& now, const Options& options) : before_(before), now_(now), options_(options) {}

  Async<Page<FileChange>> run() {
    GB_CO_TRYV(co_await start());
    while (!levels_.empty()) {
      const bool is_late = listings_ >= options_.most_listings || Clock::now() >= options_.deadline;
      if (page_.items.size() >= options_.limit || (is_late && has_moved_)) {
        page_.next_cursor = base64_encode(position_);
        break;
      }
      GB_CO_TRYV(co_await step());
    }
    co_return std::move(page_);
  }

 private:
  // Goes to where the page before ended: right behind the path of the cursor, which may be a directory that was not entered yet.
  Async<void> start() {
    levels_.push_back(Level{"/", {}, {}});
    if (options_.cursor.empty()) co_return Result<void>();
    GB_CO_TRY(const auto names, names_of(options_.cursor));
    std::string path = "/";
    for (const std::string& name : names) {
      levels_.back().before.after = levels_.back().now.after = name;
      path = join(path, name);
      GB_CO_TRY(const auto before, co_await before_.find(path));
      GB_CO_TRY(const auto now, co_await now_.find(path));
      if (!now || !enters(before, *now)) break;
      enter(path, before);
    }
    co_return Result<void>();
  }

  static Result<std::vector<std::string>> names_of(const std::string& cursor) {
    const auto path = base64_decode(cursor);
    const auto names = path ? split(std::string_view(*path).substr(std::min<size_t>(1, path->size())), '/') : std::vector<std::string>();
    const bool is_path = path && path->starts_with('/') && path->size() <= kMaxPathBytes && path->find('\0') == path->npos;
    const bool is_plain = std::ranges::none_of(names, [](const std::string& n) { return n.empty() || n == "." || n == ".."; });
    if (!is_path || !is_plain) return fail(Code::kInvalidArgument, "cursor: is not one of ours", {{"field", "cursor"}});
    return names;
  }

  // Whether something below `now` can be different.
  static bool enters(const std::optional<FileEntry>& before, const FileEntry& now) {
    if (now.type != "directory") return false;
    return !before || before->type != "directory" || before->ctime_ns != now.ctime_ns;
  }

  void enter(const std::string& path, const std::optional<FileEntry>& before) {
    if (path.size() > kMaxPathBytes) return;
    Level level{path, {}, {}};
    level.before.is_there = before && before->type == "directory";
    levels_.push_back(std::move(level));
  }

  // True when the side has an entry to look at.
  Async<bool> fill(Tree& tree, const std::string& directory, Side& side) {
    while (side.front() == nullptr && side.is_there && side.more) {
      ++listings_;
      GB_CO_TRY(auto listing, co_await tree.list(directory, side.after));
      side.entries = std::move(listing.entries);
      side.at = 0;
      side.more = listing.more && !side.entries.empty();
      if (!side.entries.empty()) side.after = side.entries.back().name;
    }
    co_return side.front() != nullptr;
  }

  static std::optional<FileEntry> take(Side& side, const std::string& name) {
    if (side.front() == nullptr || side.front()->name != name) return std::nullopt;
    return std::move(side.entries[side.at++]);
  }

  // The next name of the innermost directory.
  Async<void> step() {
    const std::string directory = levels_.back().path;
    GB_CO_TRY(const bool is_before, co_await fill(before_, directory, levels_.back().before));
    GB_CO_TRY(const bool is_now, co_await fill(now_, directory, levels_.back().now));
    if (!is_before && !is_now) {
      levels_.pop_back();
      co_return Result<void>();
    }
    Level& level = levels_.back();
    std::string name = is_before ? level.before.front()->name : level.now.front()->name;
    if (is_before && is_now) name = std::min(name, level.now.front()->name);
    const auto before = take(level.before, name), now = take(level.now, name);
    visit(join(directory, name), before, now);
    co_return Result<void>();
  }

  void visit(const std::string& path, const std::optional<FileEntry>& before, const std::optional<FileEntry>& now) {
    position_ = path;
    has_moved_ = true;
    if (options_.left_out.contains(path)) return;
    using Kind = FileChange::Kind;
    if (!now) return note(path, Kind::kDeleted, *before);
    if (!before) note(path, Kind::kAdded, *now);
    if (before && is_changed(*before, *now)) note(path, Kind::kChanged, *now);
    if (enters(before, *now)) enter(path, before);
  }

  // A directory is touched by whatever happens in it; what counts is its own.
  static bool is_changed(const FileEntry& before, const FileEntry& now) {
    if (before.type != now.type) return true;
    if (now.type != "directory") return before.ctime_ns != now.ctime_ns;
    return before.mode != now.mode || before.uid != now.uid || before.gid != now.gid;
  }

  void note(const std::string& path, FileChange::Kind kind, const FileEntry& entry) {
    if (entry.type == "directory" && kind != FileChange::Kind::kDeleted && options_.not_itself.contains(path)) return;
    page_.items.push_back({path, kind, entry.type, entry.type == "directory" ? 0 : entry.size, entry.mode, entry.uid, entry.gid,
                           entry.ctime_ns});
  }

  Tree& before_;
  Tree& now_;
  const Options& options_;
  std::vector<Level> levels_;  // the outermost directory first
  std::string position_;       // the last path that was looked at
  bool has_moved_ = false;     // in this page: one that ends early ends elsewhere than the page before
  int listings_ = 0;
  Page<FileChange> page_;
};

}  // namespace

std::unique_ptr<Tree> directory_tree(UniqueFd root, BlockingPool& pool) {
  return std::make_unique<DirectoryTree>(std::move(root), pool);
}

Async<Page<FileChange>> compare(Tree& before, Tree& now, const Options& options) {
  Comparison comparison(before, now, options);
  co_return co_await comparison.run();
}

}  // namespace glovebox::sandbox::diff
