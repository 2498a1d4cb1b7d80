// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/agent/directories.h"
#include "programs/agent/operations.h"
#include "programs/agent/tar_format.h"

namespace glovebox::agent {
namespace {

constexpr size_t kMaxLateDirectories = 65536;

using Parts = std::vector<std::string>;

// The components of a name inside the archive. Absolute names and ".." are refused, not bent into
// something else.
Result<Parts> parts_of(const std::string& path) {
  if (path.starts_with('/')) return fail(Code::kInvalidPath, path + ": is absolute");
  Parts parts;
  for (std::string& part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == "..") return fail(Code::kInvalidPath, path + ": holds ..");
    parts.push_back(std::move(part));
  }
  return parts;
}

// Pulls exact amounts out of the request's data.
class Input {
 public:
  explicit Input(Request& request) : request_(request) {}

  // The next bytes, at most `limit` of them; empty at the end.
  Result<std::string_view> some(uint64_t limit) {
    if (at_ == piece_.size()) {
      GB_TRY(auto next, request_.receive());
      if (!next) return std::string_view();
      piece_ = *std::move(next);
      at_ = 0;
    }
    const size_t n = std::min<uint64_t>(limit, piece_.size() - at_);
    at_ += n;
    return std::string_view(piece_).substr(at_ - n, n);
  }

  // Exactly `n` bytes; empty when the data ends before the first of them.
  Result<std::string> exactly(size_t n) {
    std::string out;
    while (out.size() < n) {
      GB_TRY(const auto bytes, some(n - out.size()));
      if (bytes.empty() && out.empty()) return out;
      if (bytes.empty()) return fail(Code::kInvalidArgument, "the archive is cut off");
      out.append(bytes);
    }
    return out;
  }

  Result<void> skip(uint64_t n) {
    while (n > 0) {
      GB_TRY(const auto bytes, some(n));
      if (bytes.empty()) return fail(Code::kInvalidArgument, "the archive is cut off");
      n -= bytes.size();
    }
    return {};
  }

 private:
  Request& request_;
  std::string piece_;
  size_t at_ = 0;
};

class TarIn {
 public:
  TarIn(Operation& op, UniqueFd base)
      : user_(op.user), input_(op.request), base_(std::move(base)) {}

  Result<void> run() {
    for (;;) {
      GB_TRY(const std::string block, input_.exactly(kTarBlock));
      if (block.empty()) break;  // without the two empty blocks: other programs accept it too
      TarEntry entry;
      size_t content = 0;
      GB_TRY(const auto kind, reader_.take_header(block, &entry, &content));
      if (kind == TarReader::Kind::kEnd) break;
      if (kind == TarReader::Kind::kNeedsContent) {
        GB_TRY(const std::string text, input_.exactly(content));
        if (text.size() != content) return fail(Code::kInvalidArgument, "the archive is cut off");
        GB_TRYV(input_.skip(tar_padding(content)));
        GB_TRYV(reader_.take_content(text));
        continue;
      }
      GB_TRYV(extract(entry));
    }
    finish_directories();
    for (;;) {  // what follows the end of the archive is padding
      GB_TRY(const auto rest, input_.some(UINT64_MAX));
      if (rest.empty()) return {};
    }
  }

  uint64_t entries = 0, skipped = 0;

 private:
  struct LateDirectory {
    Parts parts;
    TarEntry entry;
  };

  Result<void> extract(const TarEntry& entry) {
    GB_TRY(const Parts parts, parts_of(entry.path));
    switch (entry.type) {
      case '0':
        if (parts.empty()) return fail(Code::kInvalidPath, "a file without a name");
        GB_TRYV(extract_file(entry, parts));
        break;
      case '1':
      case '2':
        if (parts.empty()) return fail(Code::kInvalidPath, "a link without a name");
        GB_TRYV(entry.type == '1' ? extract_hard_link(entry, parts) : extract_link(entry, parts));
        break;
      case '5':
        GB_TRYV(extract_directory(entry, parts));
        break;
      default:  // devices, FIFOs and what we do not know
        ++skipped;
        return input_.skip(entry.size + tar_padding(entry.size));
    }
    ++entries;
    return {};
  }

  // The directory of `parts` without the last one, made where it is missing. No component may be a
  // link: this, and not a look at the text, is what keeps the archive below the base.
  Result<int> enter(const Parts& parts, size_t count) {
    const Parts wanted(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(count));
    if (here_ && wanted == here_parts_) return here_.get();
    UniqueFd fd(::fcntl(base_.get(), F_DUPFD_CLOEXEC, 3));
    for (const std::string& part : wanted) {
      UniqueFd next = open_directory(fd.get(), part.c_str());
      if (!next && errno == ENOENT && ::mkdirat(fd.get(), part.c_str(), 0755) == 0) {
        next = open_directory(fd.get(), part.c_str());
      }
      if (!next && errno == ENOTDIR) {
        return fail(Code::kInvalidPath,
                    part + ": is a link or file where the archive needs a directory");
      }
      if (!next) return fail_errno(part);
      fd = std::move(next);
    }
    here_ = std::move(fd);
    here_parts_ = wanted;
    return here_.get();
  }

  Result<int> make_way(const Parts& parts) {
    GB_TRY(const int at, enter(parts, parts.size() - 1));
    if (::unlinkat(at, parts.back().c_str(), 0) != 0 && errno != ENOENT) {
      if (errno == EISDIR) return fail(Code::kIsADirectory, parts.back() + ": is a directory");
      return fail_errno(parts.back());
    }
    return at;
  }

  Result<void> extract_file(const TarEntry& entry, const Parts& parts) {
    GB_TRY(const int at, make_way(parts));
    const char* name = parts.back().c_str();
    UniqueFd fd(::openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return fail_errno(entry.path);
    auto written = copy_content(entry, fd.get());
    if (!written) {
      ::unlinkat(at, name, 0);  // half a file is worse than none
      return written;
    }
    set_attributes(fd.get(), entry);
    return input_.skip(tar_padding(entry.size));
  }

  Result<void> copy_content(const TarEntry& entry, int fd) {
    for (uint64_t left = entry.size; left > 0;) {
      GB_TRY(auto bytes, input_.some(left));
      if (bytes.empty()) return fail(Code::kInvalidArgument, entry.path + ": the archive is cut off");
      left -= bytes.size();
      while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(entry.path);
        bytes.remove_prefix(static_cast<size_t>(n));
      }
    }
    return {};
  }

  void set_attributes(int fd, const TarEntry& entry) {
    const bool root = user_.uid == 0;
    if (root) {
      [[maybe_unused]] const int owned = ::fchown(fd, entry.uid, entry.gid);
    }
    ::fchmod(fd, entry.mode & (root ? 07777u : 0777u));
    const timespec times[2] = {{0, UTIME_OMIT}, {entry.mtime, 0}};
    ::futimens(fd, times);
  }

  Result<void> extract_link(const TarEntry& entry, const Parts& parts) {
    GB_TRY(const int at, make_way(parts));
    const char* name = parts.back().c_str();
    if (::symlinkat(entry.target.c_str(), at, name) != 0) return fail_errno(entry.path);
    if (user_.uid == 0) {
      [[maybe_unused]] const int owned =
          ::fchownat(at, name, entry.uid, entry.gid, AT_SYMLINK_NOFOLLOW);
    }
    const timespec times[2] = {{0, UTIME_OMIT}, {entry.mtime, 0}};
    ::utimensat(at, name, times, AT_SYMLINK_NOFOLLOW);
    return {};
  }

  Result<void> extract_hard_link(const TarEntry& entry, const Parts& parts) {
    GB_TRY(const Parts source, parts_of(entry.target));
    if (source.empty()) return fail(Code::kInvalidPath, entry.path + ": links to nothing");
    GB_TRY(const int from, enter(source, source.size() - 1));
    UniqueFd from_fd(::fcntl(from, F_DUPFD_CLOEXEC, 3));  // make_way() moves on
    if (source == parts) return {};
    GB_TRY(const int at, make_way(parts));
    if (::linkat(from_fd.get(), source.back().c_str(), at, parts.back().c_str(), 0) != 0) {
      return fail_errno(entry.path);
    }
    return {};
  }

  // Modes and times come at the end: a directory may be meant to be read-only, and filling it
  // changes its time.
  Result<void> extract_directory(const TarEntry& entry, const Parts& parts) {
    GB_TRY(const int at, enter(parts, parts.size()));
    if (parts.empty()) return {};  // the base itself keeps its own
    if (late_.size() < kMaxLateDirectories) {
      late_.push_back({parts, entry});
    } else {
      set_attributes(at, entry);
    }
    return {};
  }

  void finish_directories() {
    for (auto late = late_.rbegin(); late != late_.rend(); ++late) {
      const auto at = enter(late->parts, late->parts.size());
      if (at) set_attributes(*at, late->entry);
    }
  }

  const User& user_;
  Input input_;
  UniqueFd base_;
  TarReader reader_;
  UniqueFd here_;  // the directory of here_parts_: the next entry is often in the same one
  Parts here_parts_;
  std::vector<LateDirectory> late_;
};

}  // namespace

Result<void> op_tar_in(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY([[maybe_unused]] const bool made, make_directories(path, 0755));
  UniqueFd base(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base) return fail_errno(path);
  GB_TRYV(op.request.respond({}));
  TarIn tar(op, std::move(base));
  GB_TRYV(tar.run());
  return op.request.respond({{"entries", tar.entries}, {"skipped", tar.skipped}});
}

}  // namespace glovebox::agent
