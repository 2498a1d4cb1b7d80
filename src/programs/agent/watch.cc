// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "programs/agent/directories.h"
#include "programs/agent/file_writer.h"
#include "programs/agent/operations.h"

namespace glovebox::agent {
namespace {

constexpr uint32_t kEvents = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                             IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
constexpr size_t kMaxDirectories = 8192;  // of one request
constexpr size_t kReadBytes = 64 * 1024;
constexpr size_t kBatchBytes = 32 * 1024;
constexpr int kSecondHalfMs = 100;  // of a rename: it is in the queue, or about to be

tl::unexpected<Error> cancelled() {
  return fail(Code::kCancelled, "the daemon gave the watch up");
}

tl::unexpected<Error> too_many() {
  return fail(Code::kCapacity, "more than 8192 directories, or than the kernel watches for a user");
}

std::string below(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

std::string_view type_of(uint32_t mask) {
  if ((mask & (IN_CREATE | IN_MOVED_TO)) != 0) return "create";
  if ((mask & IN_MODIFY) != 0) return "write";
  if ((mask & IN_DELETE) != 0) return "remove";
  if ((mask & IN_MOVED_FROM) != 0) return "rename";
  return (mask & IN_ATTRIB) != 0 ? "chmod" : std::string_view();
}

std::vector<uint32_t> cookies(const std::unordered_map<uint32_t, std::string>& moved) {
  std::vector<uint32_t> out;
  for (const auto& [cookie, path] : moved) out.push_back(cookie);
  return out;
}

// The kernel asks for this itself; gVisor (20240729) does not.
Result<void> check_readable(const std::string& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC));
  return fd ? Result<void>() : fail_errno(directory);
}

bool is_directory(int at, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat st;
  return ::fstatat(at, entry.d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

// The request rings this bell as long as it lives.
class CancelBell {
 public:
  CancelBell(Request& request, int fd) : request_(request) { request_.ring_when_cancelled(fd); }
  ~CancelBell() { request_.ring_when_cancelled(-1); }
  CancelBell(const CancelBell&) = delete;
  CancelBell& operator=(const CancelBell&) = delete;

 private:
  Request& request_;
};

}  // namespace

Result<void> Watch::start() {
  inotify_.reset(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!inotify_) return fail(Code::kCapacity, "inotify: " + errno_text(errno));
  cancelled_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!cancelled_) return fail(Code::kOpenFileLimit, "eventfd: " + errno_text(errno));
  GB_TRYV(check_readable(root_));
  root_watch_ = ::inotify_add_watch(inotify_.get(), root_.c_str(), kEvents);
  if (root_watch_ < 0) {
    if (errno == ENOSPC || errno == ENOMEM) return too_many();
    return fail_errno(root_);
  }
  directories_[root_watch_] = "";
  return recursive_ ? add_tree("", false) : Result<void>();
}

// False when it cannot be watched: it is gone again, or the user may not read it.
Result<bool> Watch::add(const std::string& directory) {
  if (directory.empty()) return true;
  if (directories_.size() >= kMaxDirectories) return too_many();
  const std::string path = root_ + "/" + directory;
  if (!open_directory(AT_FDCWD, path.c_str())) return false;
  const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), kEvents | IN_DONT_FOLLOW);
  if (watch < 0 && (errno == ENOSPC || errno == ENOMEM)) return too_many();
  if (watch >= 0 && watch != root_watch_) directories_[watch] = directory;
  return watch >= 0;
}

Result<void> Watch::add_tree(const std::string& top, bool announce) {
  std::vector<std::string> waiting{top};
  while (!waiting.empty()) {
    if (request_.is_cancelled()) return cancelled();
    const std::string directory = std::move(waiting.back());
    waiting.pop_back();
    GB_TRY(const bool is_watched, add(directory));
    if (is_watched) GB_TRYV(add_below(directory, announce, waiting));
  }
  return {};
}

// What is in it already: it may be older than the watch on it.
Result<void> Watch::add_below(const std::string& directory, bool announce,
                              std::vector<std::string>& waiting) {
  UniqueFd fd = open_directory(AT_FDCWD, below(root_, directory).c_str());
  if (directory.empty()) fd.reset(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return {};
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd.get()), &::closedir);
  if (!dir) return {};
  const int at = fd.release();  // the DIR owns it now
  while (const dirent* entry = ::readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || is_own_temporary(name)) continue;
    if (request_.is_cancelled()) return cancelled();
    std::string path = below(directory, name);
    if (announce) GB_TRYV(tell("create", path));
    if (!is_directory(at, *entry)) continue;
    if (directories_.size() + waiting.size() >= kMaxDirectories) return too_many();
    waiting.push_back(std::move(path));
  }
  return {};
}

void Watch::forget(const std::string& top) {
  std::erase_if(directories_, [&](const auto& entry) {
    const bool is_below = entry.second == top || entry.second.starts_with(top + "/");
    if (is_below) ::inotify_rm_watch(inotify_.get(), entry.first);
    return is_below;
  });
}

Result<void> Watch::run() {
  const CancelBell bell(request_, cancelled_.get());
  while (!is_over_) {
    GB_TRYV(wait());
    GB_TRYV(read_events());
    GB_TRYV(flush());
  }
  return request_.end_data();
}

Result<void> Watch::wait() {
  pollfd fds[] = {{inotify_.get(), POLLIN, 0}, {cancelled_.get(), POLLIN, 0}};
  while (::poll(fds, 2, -1) < 0) {
    if (errno != EINTR) return fail_errno("poll");
  }
  return request_.is_cancelled() ? cancelled() : Result<void>();
}

Result<void> Watch::read_events() {
  const auto earlier = cookies(moved_);
  alignas(inotify_event) char buffer[kReadBytes];
  const ssize_t n = ::read(inotify_.get(), buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (n <= 0) return fail_errno("inotify");
  for (const char* at = buffer; at < buffer + n && !is_over_;) {
    const auto& event = *reinterpret_cast<const inotify_event*>(at);
    at += sizeof event + event.len;
    GB_TRYV(take(event));
  }
  forget_moved(earlier);
  pollfd more{inotify_.get(), POLLIN, 0};
  if (!moved_.empty() && ::poll(&more, 1, kSecondHalfMs) == 0) forget_moved(cookies(moved_));
  return take_held();
}

// What happened in a directory between the two halves of its move, now that it has a new path, or has left. Some may be held again.
Result<void> Watch::take_held() {
  for (const std::string& bytes : std::exchange(held_, {})) {
    alignas(inotify_event) char copy[sizeof(inotify_event) + NAME_MAX + 1];
    bytes.copy(copy, sizeof copy);
    GB_TRYV(take(*reinterpret_cast<const inotify_event*>(copy)));
  }
  return {};
}

bool Watch::is_on_the_move(const std::string& directory) const {
  return std::ranges::any_of(moved_, [&](const auto& half) {
    return directory == half.second || directory.starts_with(half.second + "/");
  });
}

// What has not come to another place of the tree has left it.
void Watch::forget_moved(const std::vector<uint32_t>& cookies) {
  for (const uint32_t cookie : cookies) {
    const auto found = moved_.find(cookie);
    if (found == moved_.end()) continue;
    forget(found->second);
    moved_.erase(found);
  }
}

// No directory comes to a place before the one that was there has come to its own: that one has left the tree.
void Watch::forget_predecessor(const std::string& path, uint32_t cookie) {
  std::vector<uint32_t> left;
  for (const auto& [other, from] : moved_) {
    if (other != cookie && from == path) left.push_back(other);
  }
  forget_moved(left);
}

// True when all that is watched in the directory is known by its new path now.
bool Watch::is_moved_here(const inotify_event& event, const std::string& path) {
  const auto found = moved_.find(event.cookie);
  if ((event.mask & IN_MOVED_TO) == 0 || found == moved_.end()) return false;
  const std::string from = found->second;
  moved_.erase(found);
  bool is_known = false;
  for (auto& [watch, directory] : directories_) {
    if (directory != from && !directory.starts_with(from + "/")) continue;
    is_known |= directory == from;
    directory.replace(0, from.size(), path);
  }
  return is_known;
}

Result<void> Watch::take(const inotify_event& event) {
  if ((event.mask & IN_Q_OVERFLOW) != 0) return on_overflow();
  const auto found = directories_.find(event.wd);
  if (found == directories_.end()) return {};
  if (is_on_the_move(found->second)) {
    held_.emplace_back(reinterpret_cast<const char*>(&event), sizeof event + event.len);
    return {};
  }
  if (event.len == 0 || event.name[0] == '\0') return take_self(event, event.wd);
  const std::string_view name = event.name;
  if (is_own_temporary(name)) return take_own(event, name);
  const std::string path = below(found->second, name);
  if ((event.mask & IN_MOVED_TO) != 0 && event.cookie != 0 && event.cookie == own_rename_) {
    own_rename_ = 0;
    if (!own_replaces_) GB_TRYV(tell("create", path));
    if ((event.mask & IN_ISDIR) == 0) return tell("write", path);
  } else if (const std::string_view type = type_of(event.mask); !type.empty()) {
    GB_TRYV(tell(type, path));
  }
  if (recursive_ && (event.mask & IN_ISDIR) != 0) return on_directory(event, path);
  return {};
}

Result<void> Watch::take_self(const inotify_event& event, int watch) {
  if (watch != root_watch_) {
    if ((event.mask & IN_IGNORED) != 0) directories_.erase(watch);
    return {};
  }
  if ((event.mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) == 0) return {};
  is_over_ = true;
  return tell((event.mask & IN_MOVE_SELF) != 0 ? "rename" : "remove", "");
}

Result<void> Watch::take_own(const inotify_event& event, std::string_view name) {
  if ((event.mask & IN_MOVED_FROM) == 0) return {};
  own_rename_ = event.cookie;
  own_replaces_ = replaces_a_file(name);
  return {};
}

Result<void> Watch::on_directory(const inotify_event& event, const std::string& path) {
  if ((event.mask & (IN_CREATE | IN_MOVED_TO)) != 0) forget_predecessor(path, event.cookie);
  if ((event.mask & IN_MOVED_FROM) != 0 && event.cookie != 0) {
    moved_[event.cookie] = path;
  } else if ((event.mask & IN_MOVED_FROM) != 0) {
    forget(path);
  }
  if (is_moved_here(event, path)) return {};
  if ((event.mask & (IN_CREATE | IN_MOVED_TO)) == 0) return {};
  auto added = add_tree(path, (event.mask & IN_CREATE) != 0);
  if (added || added.error().code != Code::kCapacity) return added;
  return tell("overflow", "");  // from now on something is not watched
}

// Directories that were made meanwhile are found again.
Result<void> Watch::on_overflow() {
  GB_TRYV(tell("overflow", ""));
  if (!recursive_) return {};
  auto added = add_tree("", false);
  return added || added.error().code == Code::kCapacity ? Result<void>() : added;
}

Result<void> Watch::tell(std::string_view type, const std::string& path) {
  lines_ += to_text({{"type", type}, {"path", json_bytes(path)}});
  lines_ += '\n';
  return lines_.size() < kBatchBytes ? Result<void>() : flush();
}

Result<void> Watch::flush() {
  return request_.send_data(std::exchange(lines_, {}));
}

Result<void> op_watch(Operation& op) {
  GB_TRY(const std::string path, path_field(op, "path"));
  GB_TRY(const bool recursive, bool_field(op.fields, "recursive", false));
  Watch watch(op.request, path, recursive);
  GB_TRYV(watch.start());
  GB_TRYV(op.request.respond({}));
  op.request.begin_data();
  return watch.run();
}

}  // namespace glovebox::agent
