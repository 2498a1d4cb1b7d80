// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "programs/glovebox/api_client.h"
#include "programs/glovebox/attack_watch.h"
#include "programs/glovebox/loop.h"

// `doctor --attack`: tries to break out of a sandbox of each tier, as user and as root, and says
// what stopped it. docs/attack.md.
namespace glovebox::cli {

// What became of one attempt: "refused", "harmless", "not_applicable", or a failure: "GOT_THROUGH",
// "undecided".
struct Attempt {
  std::string runtime, user, id, name, result, evidence;
  bool is_failure() const {
    return result != "refused" && result != "harmless" && result != "not_applicable";
  }
};

// The attacker's lines of output. What is no such line is an "undecided" attempt: nothing may be
// overlooked.
std::vector<Attempt> parse_attempts(const std::string& output);

// How neighbour and daemon fared while something went on.
struct Neighbourhood {
  int asked = 0, failed = 0;
  std::chrono::milliseconds slowest_neighbour{0}, slowest_daemon{0};
  std::string first_failure;
};
inline constexpr std::chrono::milliseconds kMostPatience{5000};

struct Judgement {
  Attempt attempt;
  bool was_only_slow;  // it got through for no other reason than the time that others waited
};

// A bomb's own report, and what others felt of it: got through when the neighbourhood suffered or
// the sandbox could not be ended. `ended` is the time that ending the sandbox took, absent when
// that failed.
Judgement judge_disturbance(Attempt attempt, const Neighbourhood& around,
                            std::optional<std::chrono::milliseconds> ended);

// Everything on one tier.
Async<std::vector<Attempt>> besiege(Loop& loop, const ApiClient& api, const std::string& runtime,
                                    const std::string& template_name, HostWatch& watch,
                                    const std::vector<std::string>& words);

}  // namespace glovebox::cli
