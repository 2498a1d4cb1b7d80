// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/users.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "base/unique_fd.h"
#include "programs/agent/rawcall.h"

namespace glovebox::agent {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20;
constexpr size_t kMaxGroups = 1024;
constexpr int64_t kMaxId = 0xFFFFFFFE;  // -1 means "leave" to the kernel

// Empty when it is missing, not a regular file or unreasonably large.
std::string read_table(const char* path, struct stat* st) {
  std::string text;
  UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd || ::fstat(fd.get(), st) != 0 || !S_ISREG(st->st_mode)) return text;
  char buffer[16384];
  ssize_t n;
  while ((n = ::read(fd.get(), buffer, sizeof buffer)) > 0 && text.size() < kMaxFileBytes) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

std::optional<uint32_t> parse_id(std::string_view text) {
  const auto number = parse_int(text);
  if (!number || *number < 0 || *number > kMaxId) return std::nullopt;
  return static_cast<uint32_t>(*number);
}

}  // namespace

void Users::refresh_locked() {
  auto version = [](const char* path) {
    struct stat st;
    if (::stat(path, &st) != 0) return Version{};
    return Version{st.st_ino, st.st_size, st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                   st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec};
  };
  struct stat unused;
  const Version users = version("/etc/passwd");
  if (users != users_version_) {
    parse_users(read_table("/etc/passwd", &unused));
    users_version_ = users;
  }
  const Version groups = version("/etc/group");
  if (groups != groups_version_) {
    parse_groups(read_table("/etc/group", &unused));
    groups_version_ = groups;
  }
}

void Users::parse_users(const std::string& text) {
  users_.clear();
  for (const std::string& line : split(text, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 7 || fields[0].empty() || fields[0][0] == '#') continue;
    const auto uid = parse_id(fields[2]), gid = parse_id(fields[3]);
    if (!uid || !gid) continue;
    User user;
    user.name = fields[0];
    user.uid = *uid;
    user.gid = *gid;
    if (!fields[5].empty() && fields[5][0] == '/') user.home = fields[5];
    if (!fields[6].empty()) user.shell = fields[6];
    users_.push_back(std::move(user));
  }
}

void Users::parse_groups(const std::string& text) {
  groups_.clear();
  for (const std::string& line : split(text, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 4 || fields[0].empty()) continue;
    const auto gid = parse_id(fields[2]);
    if (!gid) continue;
    groups_.push_back(Group{fields[0], *gid, split(fields[3], ',')});
  }
}

void Users::add_groups(User& user) const {
  user.groups = {user.gid};
  for (const Group& group : groups_) {
    const bool member =
        std::find(group.members.begin(), group.members.end(), user.name) != group.members.end();
    if (member && group.gid != user.gid && user.groups.size() < kMaxGroups) {
      user.groups.push_back(group.gid);
    }
  }
}

Result<User> Users::find(std::string_view name_or_number) {
  std::lock_guard lock(mutex_);
  refresh_locked();
  const auto id = parse_id(name_or_number);
  User user;
  auto by_name = std::find_if(users_.begin(), users_.end(),
                              [&](const User& u) { return u.name == name_or_number; });
  auto by_id =
      id ? std::find_if(users_.begin(), users_.end(), [&](const User& u) { return u.uid == *id; })
         : users_.end();
  if (by_name != users_.end()) {
    user = *by_name;
  } else if (by_id != users_.end()) {
    user = *by_id;
  } else if (id) {
    user.uid = *id;
    user.gid = *id;
    user.name = *id == 0 ? "root" : std::string(name_or_number);
  } else if (name_or_number == "root") {
    user.name = "root";
  } else {
    return fail(Code::kUserUnknown, "no user " + std::string(name_or_number) + " in /etc/passwd");
  }
  if (user.uid == 0 && user.home == "/" && by_name == users_.end() && by_id == users_.end()) {
    user.home = "/root";
  }
  add_groups(user);
  return user;
}

std::string Users::user_name(uid_t uid) {
  std::lock_guard lock(mutex_);
  refresh_locked();
  for (const User& user : users_) {
    if (user.uid == uid) return user.name;
  }
  return uid == 0 ? "root" : std::to_string(uid);
}

std::string Users::group_name(gid_t gid) {
  std::lock_guard lock(mutex_);
  refresh_locked();
  for (const Group& group : groups_) {
    if (group.gid == gid) return group.name;
  }
  return gid == 0 ? "root" : std::to_string(gid);
}

ActAs::ActAs(const User& user) {
  failed_ =
      raw(SYS_setgroups, static_cast<long>(user.groups.size()), raw_arg(user.groups.data())) < 0 ||
      raw(SYS_setresgid, -1, user.gid, -1) < 0 || raw(SYS_setresuid, -1, user.uid, -1) < 0;
}

ActAs::~ActAs() {
  const bool back = raw(SYS_setresuid, -1, 0, -1) == 0 && raw(SYS_setresgid, -1, 0, -1) == 0 &&
                    (raw(SYS_setgroups, 0, 0) == 0 || failed_);
  GB_ASSERT(back);  // a thread that keeps a user's rights would answer the next request with them
}

AsRootForAMoment::AsRootForAMoment() : uid_(::geteuid()) {
  raw(SYS_setresuid, -1, 0, -1);
}
AsRootForAMoment::~AsRootForAMoment() {
  raw(SYS_setresuid, -1, uid_, -1);
}

}  // namespace glovebox::agent
