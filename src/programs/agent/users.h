// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace glovebox::agent {

struct User {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
  std::string home = "/";
  std::string shell = "/bin/sh";
  std::vector<gid_t> groups;  // the primary one included
};

// The sandbox's /etc/passwd and /etc/group, read by hand: the agent is static and must not load the
// image's NSS modules. Read again when the files change. Any thread.
class Users {
 public:
  // A name or a number; kUserUnknown for a name that is not there. Numbers, and root, need no
  // entry.
  Result<User> find(std::string_view name_or_number);
  // The decimal number when there is no name.
  std::string user_name(uid_t uid);
  std::string group_name(gid_t gid);

 private:
  struct Version {
    uint64_t inode = 0;
    int64_t size = -1, mtime_ns = 0, ctime_ns = 0;
    bool operator==(const Version&) const = default;
  };
  struct Group {
    std::string name;
    gid_t gid = 0;
    std::vector<std::string> members;
  };
  void refresh_locked();
  void parse_users(const std::string& text);
  void parse_groups(const std::string& text);
  void add_groups(User& user) const;

  std::mutex mutex_;
  Version users_version_, groups_version_;
  std::vector<User> users_;
  std::vector<Group> groups_;
};

// Makes the calling thread act as `user` for file access until it goes out of scope. Per thread, by
// raw system calls (the C library's would change every thread); real and saved ids stay 0, which is
// the way back.
class ActAs {
 public:
  explicit ActAs(const User& user);
  ~ActAs();
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;
  bool failed() const { return failed_; }

 private:
  bool failed_ = false;
};

// Inside an ActAs: root again for the one thing the user is entitled to but cannot do itself
// (keeping a file's owner).
class AsRootForAMoment {
 public:
  AsRootForAMoment();
  ~AsRootForAMoment();

 private:
  uid_t uid_;
};

}  // namespace glovebox::agent
