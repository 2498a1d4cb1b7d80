// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/attack.h"

#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <map>

#include "base/text.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/own_daemon.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;

// The tiers to attack: those that work, or the one that was asked for.
Result<std::vector<std::string>> choose_tiers(const bj::value& findings,
                                              const std::string& wanted) {
  std::vector<std::string> tiers;
  for (const auto& tier : items(findings, "runtimes")) {
    const std::string name = text(tier, "runtime");
    if (!wanted.empty() && name != wanted) continue;
    if (flag(tier, "usable"))
      tiers.push_back(name);
    else if (!wanted.empty())
      return fail(Code::kRuntimeUnavailable, wanted + ": " + text(tier, "problem"));
  }
  if (tiers.empty())
    return fail(Code::kRuntimeUnavailable,
                "no runtime works here, so there is nothing to attack; see `glovebox doctor`");
  return tiers;
}

std::string mark(const Attempt& attempt, bool colours) {
  const bool is_failure = attempt.is_failure();
  const Colour colour = is_failure                           ? Colour::kRed
                        : attempt.result == "not_applicable" ? Colour::kYellow
                                                             : Colour::kGreen;
  std::string word = attempt.result;
  word.resize(15, ' ');
  return coloured(word, colour, colours);
}

std::string render(const std::vector<Attempt>& attempts) {
  const bool colours = colours_on(STDOUT_FILENO);
  std::string out, section;
  std::map<std::string, int> counts;
  for (const auto& attempt : attempts) {
    const std::string here =
        attempt.runtime + (attempt.user == "-" ? ", the host afterwards" : ", as " + attempt.user);
    if (here != section) out += coloured(here, Colour::kBold, colours) + "\n";
    section = here;
    std::string name = attempt.name;
    name.resize(std::max<size_t>(name.size(), 33), ' ');
    out += "  " + printable(attempt.id) + "  " + printable(name) + " " + mark(attempt, colours) +
           printable(attempt.evidence) + "\n";
    ++counts[attempt.result];
  }
  const int failures = counts["GOT_THROUGH"] + counts["undecided"];
  out += std::to_string(attempts.size()) + " attempts: " + std::to_string(counts["refused"]) +
         " refused, " + std::to_string(counts["harmless"]) + " harmless, " +
         std::to_string(counts["not_applicable"]) + " not applicable, " +
         std::to_string(counts["undecided"]) + " undecided, " +
         std::to_string(counts["GOT_THROUGH"]) + " GOT THROUGH\n";
  return failures == 0 ? out
                       : out +
                             "Do not run untrusted code on a runtime that something got through. "
                             "SECURITY.md says how to report it.\n";
}

bj::value as_json(const std::vector<Attempt>& attempts) {
  bj::array all;
  int64_t failures = 0;
  for (const auto& a : attempts) {
    all.push_back({{"runtime", a.runtime},
                   {"user", a.user},
                   {"id", a.id},
                   {"attempt", a.name},
                   {"result", a.result},
                   {"evidence", utf8_lossy(a.evidence)}});
    failures += a.is_failure() ? 1 : 0;
  }
  return {{"attempts", std::move(all)}, {"failures", failures}};
}

Async<std::vector<Attempt>> attack_tiers(Loop& loop, const ApiClient& api, const Settings& settings,
                                         const AttackOptions& options) {
  GB_CO_TRY(const auto findings, co_await api.call("GET", "/v1/runtimes"));
  GB_CO_TRY(const auto tiers, choose_tiers(findings, options.runtime));
  std::vector<Attempt> all;
  for (const auto& tier : tiers) {
    // A watch of its own for each: what changed is then this tier's doing.
    GB_CO_TRY(const auto watch, HostWatch::start(plan_for_host(settings.data_dir)));
    GB_CO_TRY(auto attempts,
              co_await besiege(loop, api, tier, options.template_name, *watch,
                               {settings.data_dir}));
    for (auto& attempt : attempts) all.push_back(std::move(attempt));
  }
  co_return all;
}

Async<int> attack(Loop& loop, const Settings& settings, const AttackOptions& options) {
  GB_CO_TRY(auto lease, co_await DaemonLease::acquire(settings));
  GB_CO_TRY(const auto api, ApiClient::make(lease->target().url, lease->target().key));
  auto attempts = co_await attack_tiers(loop, api, settings, options);
  auto released = co_await lease->release();
  if (!attempts) co_return fail(std::move(attempts).error());
  settings.json ? print_json(as_json(*attempts)) : print(render(*attempts));
  if (!released) co_return fail(std::move(released).error());
  for (const auto& attempt : *attempts) {
    if (attempt.is_failure()) co_return kFailedCheck;
  }
  co_return kOk;
}

}  // namespace

int command_attack(const Settings& settings, const AttackOptions& options) {
  if (::geteuid() != 0 || (!settings.url.empty() && !is_local_url(settings.url))) {
    return conclude(settings, fail(Code::kForbidden,
                                   "`doctor --attack` looks at the host that the sandboxes run on: "
                                   "start it there, as root"));
  }
  return conclude(settings, run_loop([&](Loop& loop) { return attack(loop, settings, options); }));
}

}  // namespace glovebox::cli
