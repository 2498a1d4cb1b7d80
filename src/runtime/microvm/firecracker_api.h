// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/async.h"
#include "base/result.h"
#include "base/unique_fd.h"

// Firecracker's control socket: HTTP/1.1 with JSON bodies over a unix socket, one request after the
// other. What answers is a process that a hostile guest may have taken over, so its answers are
// bounded in time and size and parsed strictly.
namespace glovebox::runtime::microvm {

// All paths are the monitor's own: inside its jail.
struct FirecrackerDrive {
  std::string id, path;
  bool read_only = false;
};
struct FirecrackerCard {
  std::string id, tap, mac;
};
struct FirecrackerBoot {
  unsigned vcpus = 1;  // 1 … 32
  uint64_t memory_megabytes = 0;
  std::string kernel;  // uncompressed ELF
  std::string initramfs, command_line;
  std::vector<FirecrackerDrive>
      drives;  // /dev/vda, vdb, … in this order; none is a "root device": the initramfs mounts
  std::optional<FirecrackerCard> network;
  std::string vsock;  // a guest's connection to port P arrives at the host's socket "<vsock>_P"
};
struct FirecrackerSnapshot {
  std::string state, memory;
};
struct FirecrackerRestore {
  FirecrackerSnapshot
      from;  // the memory is mapped privately: the file must not change while the machine lives
  std::optional<std::pair<std::string, std::string>> tap;  // of this card (its id): this tap
  std::string vsock;                                       // empty: as in the snapshot
};

enum class FirecrackerState { kNotStarted, kRunning, kPaused };

// "1.16.1"; what follows the three numbers ("-dev") does not count. kRuntimeUnavailable when it is
// none, or one that we do not drive: before 1.16.1 restored guests can lose their vsock for ever,
// and 2 may mean anything.
using FirecrackerVersion = std::array<int64_t, 3>;
Result<FirecrackerVersion> firecracker_version(std::string_view text);

// Errors of every call: refused, with its reason and details.status (kStartFailed from boot() and
// restore(), else kInternal); kSandboxEnded (the process is gone or hung up), kTimeout, kCorrupt
// (no proper answer). After any but a refusal the connection is of no further use.
class FirecrackerApi {
 public:
  // Waits for the socket `name` below the directory to be there. No link is followed: what is in
  // that directory may be a hostile monitor's.
  static Result<FirecrackerApi> connect(int directory_fd, const std::string& name,
                                        Deadline deadline);

  Result<FirecrackerVersion> version(Deadline deadline);
  Result<FirecrackerState> state(Deadline deadline);
  // On a fresh process, once. After an error the process is good for nothing.
  Result<void> boot(const FirecrackerBoot& machine, Deadline deadline);
  // The same; the guest runs when this returns.
  Result<void> restore(const FirecrackerRestore& machine, Deadline deadline);
  Result<void> pause(Deadline deadline);
  Result<void> resume(Deadline deadline);
  // Of a paused machine: all of its memory and the state of its devices. Connections of its vsock
  // end.
  Result<void> snapshot(const FirecrackerSnapshot& to, Deadline deadline);

 private:
  struct Answer {
    int status = 0;
    std::string body;
  };
  explicit FirecrackerApi(UniqueFd socket) : socket_(std::move(socket)) {}
  Result<boost::json::value> get(std::string_view target, Deadline deadline);
  Result<void> change(std::string_view method, std::string_view target,
                      const boost::json::value& body, Deadline deadline,
                      Code refused = Code::kStartFailed);
  Result<Answer> exchange(std::string_view method, std::string_view target, std::string_view body,
                          Deadline deadline);
  Result<void> send(std::string_view bytes, Deadline deadline);
  Result<std::string_view> receive(Deadline deadline);
  Result<Answer> read_answer(Deadline deadline);

  UniqueFd socket_;  // gone after an exchange that did not end properly
  std::array<char, 4096> buffer_;
};

}  // namespace glovebox::runtime::microvm
