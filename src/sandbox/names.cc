// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <utility>

#include "sandbox/service.h"

namespace glovebox::sandbox {
namespace {
constexpr std::array<std::pair<State, std::string_view>, 5> kStates{{{State::kCreating, "creating"},
                                                                     {State::kReady, "ready"},
                                                                     {State::kPaused, "paused"},
                                                                     {State::kEnding, "ending"},
                                                                     {State::kEnded, "ended"}}};
}  // namespace

std::string_view on_timeout_name(OnTimeout action) {
  switch (action) {
    case OnTimeout::kKill: return "kill";
    case OnTimeout::kPause: return "pause";
    case OnTimeout::kHibernate: return "hibernate";
  }
  return "kill";
}

std::optional<OnTimeout> on_timeout_from_name(std::string_view name) {
  for (const OnTimeout action : {OnTimeout::kKill, OnTimeout::kPause, OnTimeout::kHibernate}) {
    if (name == on_timeout_name(action)) return action;
  }
  return std::nullopt;
}

std::string_view state_name(State state) {
  for (const auto& [known, name] : kStates) {
    if (known == state) return name;
  }
  return "";
}

std::optional<State> state_from_name(std::string_view name) {
  for (const auto& [state, known] : kStates) {
    if (known == name) return state;
  }
  return std::nullopt;
}

}  // namespace glovebox::sandbox
