// SPDX-License-Identifier: Apache-2.0
#include "api/lizard/exec_request.h"

#include <algorithm>
#include <csignal>

#include "http/json.h"

namespace glovebox::api::lizard {
namespace {

constexpr double kDefaultTimeoutMs = 60'000;
constexpr double kMaxTimeoutMs = 24 * 3600 * 1000.0;
constexpr int kTimedOut = 124;  // as timeout(1)
constexpr int kSignalled = 128;

Result<void> read_command(json::Reader& r, sandbox::ExecSpec& spec) {
  const auto* cmd = r.any("cmd");
  if (cmd != nullptr && cmd->is_array()) {
    GB_TRY(spec.argv, r.strings("cmd").required());
    if (spec.argv.empty()) return fail(r.error("cmd", "must not be empty"));
    return {};
  }
  GB_TRY(spec.command, r.string("cmd", 1).required());
  return {};
}

}  // namespace

Result<ExecRequest> parse_exec(const boost::json::value& body) {
  json::Reader r(body);
  ExecRequest request;
  sandbox::ExecSpec& spec = request.spec;
  GB_TRYV(read_command(r, spec));
  GB_TRY(spec.env, r.string_map("envs").or_default({}));
  GB_TRY(spec.user, r.string("user").or_default(""));
  GB_TRY(spec.cwd, r.string("workdir").or_default(""));
  GB_TRY(const double timeout, r.number("timeoutMs").or_default(kDefaultTimeoutMs));
  spec.timeout = sandbox::Millis(static_cast<int64_t>(std::clamp(timeout, 1.0, kMaxTimeoutMs)));
  GB_TRY(request.pid_event, r.boolean("pidEvent").or_default(false));
  GB_TRYV(r.done());
  return request;
}

std::optional<int> exit_code(const sandbox::Outcome& outcome, const std::optional<sandbox::Ended>& ended) {
  if (outcome.type == "exited") return outcome.exit_code;
  if (outcome.type == "timed_out") return kTimedOut;
  if (outcome.type == "signalled" && outcome.signal) return kSignalled + *outcome.signal;
  if (outcome.type == "oom_killed" || outcome.type == "killed_by_caller") return kSignalled + SIGKILL;
  const bool was_ended_on_purpose =
      ended && (ended->reason == "killed" || ended->reason == "lifetime" || ended->reason == "idle" || ended->reason == "oom");
  if (outcome.type == "sandbox_ended" && was_ended_on_purpose) return kSignalled + SIGKILL;
  return std::nullopt;
}

std::optional<int> start_failure_code(const Error& error) {
  if (error.code == Code::kCommandNotFound) return 127;
  if (error.code == Code::kCommandNotExecutable) return 126;
  return std::nullopt;
}

std::optional<int> signal_number(std::string_view name) {
  constexpr std::pair<std::string_view, int> kKnown[] = {{"SIGTERM", SIGTERM}, {"SIGKILL", SIGKILL}, {"SIGINT", SIGINT},
                                                         {"SIGHUP", SIGHUP},   {"SIGQUIT", SIGQUIT}, {"SIGUSR1", SIGUSR1},
                                                         {"SIGUSR2", SIGUSR2}};
  for (const auto& [known, number] : kKnown) {
    if (known == name) return number;
  }
  return std::nullopt;
}

}  // namespace glovebox::api::lizard
