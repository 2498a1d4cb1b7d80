// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "programs/agent/users.h"

namespace glovebox::agent {

// Names that the agent gives to what is not there yet, or no more.
bool is_own_temporary(std::string_view name);
// Of a file that takes the place of another one.
bool replaces_a_file(std::string_view temporary);

// Writes one file so that it appears whole or not at all: into a temporary name beside it, renamed
// by commit(). Without commit() nothing is left. An existing file keeps its owner and mode. Runs
// inside an ActAs.
class FileWriter {
 public:
  FileWriter(std::string path, const User& user) : path_(std::move(path)), user_(user) {}
  ~FileWriter();

  // `mode` is that of a new file. `exclusive`: kFileExists when there is one.
  Result<void> open_new(mode_t mode, bool exclusive);
  // To the end of the file itself; without commit() it is cut back, if nobody else has written
  // meanwhile.
  Result<void> open_append(mode_t mode);
  Result<void> append(std::string_view bytes);
  Result<void> commit();

 private:
  Result<void> check_existing(bool exclusive);
  Result<void> set_attributes();
  Result<void> put_in_place();
  Result<void> replace_foreign();

  const std::string path_;
  const User& user_;
  UniqueFd directory_;
  UniqueFd file_;
  std::string temporary_;  // empty when appending
  bool exclusive_ = false, appending_ = false, committed_ = false, created_ = false;
  bool exists_ = false;
  struct stat existing_ = {};
  mode_t mode_ = 0644;
  uint64_t old_size_ = 0, written_ = 0;
};

}  // namespace glovebox::agent
