// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace glovebox::runtime::testing {

// Firecracker's control socket without Firecracker: as strict as the published description of its
// API (1.16). It refuses what it does not know, wrong types and ranges, missing fields and calls in
// the wrong state, with Firecracker's answers.
class FakeFirecracker {
 public:
  enum class Misbehaviour {
    kNone,
    kSilence,
    kHangUp,
    kTrickle,
    kFlood,
    kNonsense,
    kTwoAnswers,
    kRefusal
  };
  // Listens on `path`; on requests "METHOD /target" that equal `when` it misbehaves.
  explicit FakeFirecracker(std::string path, std::string version = "1.16.1",
                           Misbehaviour what = Misbehaviour::kNone, std::string when = "");
  ~FakeFirecracker();
  FakeFirecracker(const FakeFirecracker&) = delete;
  FakeFirecracker& operator=(const FakeFirecracker&) = delete;

  std::vector<std::string> requests() const;  // "PUT /vsock {…}", those that were refused included
  std::string state() const;                  // as GET / says it
  bool has_answered_start() const;            // the call after which it is "Running"

 private:
  void serve();
  void converse(int socket);
  bool misbehave(int socket) const;  // false: hang up
  // Status and body for one request; counts what the machine has.
  std::pair<int, std::string> answer(const std::string& method, const std::string& target,
                                     const std::string& body);

  std::string path_, version_;
  Misbehaviour what_;
  std::string when_;
  UniqueFd listener_, stop_;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::string state_ = "Not started";
  bool answered_start_ = false;
  std::vector<std::string> configured_;  // targets that were set
  std::thread thread_;
};

}  // namespace glovebox::runtime::testing
