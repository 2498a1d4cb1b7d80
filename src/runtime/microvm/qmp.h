// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace glovebox::runtime::microvm {

// One conversation with a QEMU monitor: line-wise JSON over a unix socket ("QEMU Machine Protocol",
// docs/interop/qmp-spec). The other side is confined and may have been taken over by a guest: what
// it says is bounded, and every wait has the deadline.
class Qmp {
 public:
  // `directory` is ours alone and holds the socket `name`. Takes the greeting and leaves the
  // negotiation mode.
  static Result<Qmp> connect(const std::string& directory, const std::string& name,
                             Deadline deadline);
  // A socket for a monitor to listen on, with that name.
  static Result<UniqueFd> listen(const std::string& directory, const std::string& name);

  // The answer's "return"; an "error" answer is kIo with QEMU's words. `fd` goes along as
  // SCM_RIGHTS.
  Result<boost::json::value> execute(const std::string& command, boost::json::object arguments,
                                     Deadline deadline, int fd = -1);
  // Goes on until the event came, or had come during an earlier call.
  Result<void> await_event(const std::string& name, Deadline deadline);

 private:
  explicit Qmp(UniqueFd socket) : socket_(std::move(socket)) {}
  Result<boost::json::value> next(Deadline deadline);
  Result<void> send(const std::string& line, Deadline deadline, int fd);

  UniqueFd socket_;
  std::string bytes_;
  std::vector<std::string> events_;
};

}  // namespace glovebox::runtime::microvm
