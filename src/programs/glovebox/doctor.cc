// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "network/network.h"
#include "programs/glovebox/assets.h"
#include "programs/glovebox/commands.h"
#include "programs/glovebox/exit_codes.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/loop.h"
#include "programs/glovebox/report.h"
#include "programs/glovebox/table.h"
#include "runtime/runtime.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;

// A directory for the probes' sandboxes, below the data directory so that it is the same file
// system; removed at the end.
class ProbeDirectory {
 public:
  static Result<ProbeDirectory> make(const std::string& data_dir) {
    std::string path = data_dir + "/doctor-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return fail_errno(path);
    return ProbeDirectory(std::move(path));
  }
  ProbeDirectory(ProbeDirectory&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ProbeDirectory& operator=(ProbeDirectory&&) = delete;
  ~ProbeDirectory() {
    std::error_code ec;
    if (!path_.empty()) fs::remove_all(path_, ec);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ProbeDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Result<std::string> extract_agent(const std::string& directory) {
  const std::string path = directory + "/agent";
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755));
  if (!file) return fail_errno(path);
  GB_TRYV(write_fully(file.get(), embedded_agent()));
  return path;
}

bj::value describe(runtime::Tier tier, const runtime::Capability& found) {
  bj::object facts;
  for (const auto& [name, value] : found.facts) facts[name] = value;
  return {{"runtime", runtime::tier_name(tier)},
          {"usable", found.usable},
          {"engine", found.engine},
          {"problem", found.problem},
          {"remedy", found.remedy},
          {"facts", std::move(facts)}};
}

// A router, a link and both proxies, as a daemon has them. Signals wait until all is taken away
// again.
Result<bj::value> probe_network(const std::string& directory) {
  log::set_level(log::Level::kError);
  bj::value found;
  GB_TRYV(run_loop([&](Loop& loop) -> Async<int> {
    loop.on_signal = [](int) {};
    network::Config config;
    config.directory = directory;
    config.program = "/proc/self/exe";
    config.ready_links = 0;
    const auto network = network::Network::create(config, loop.executor, loop.pool);
    const auto probed = co_await network->probe();
    found = network::describe(network->status(), probed);
    co_await network->stop();
    co_return kOk;
  }));
  return found;
}

// The same probes that the daemon makes.
Result<bj::value> probe_here(const std::string& data_dir, const std::string& runsc, bool allow_emulation) {
  if (::geteuid() != 0) {
    return fail(
        Code::kForbidden,
        "no daemon runs, and only root can find out what works here: run `sudo glovebox doctor`");
  }
  GB_TRY(const auto directory, ProbeDirectory::make(data_dir));
  GB_TRY(auto agent, extract_agent(directory.path()));
  GB_TRYV(runtime::enter_private_namespace());
  runtime::HostConfig host;
  host.data_dir = directory.path();
  host.instance = hex(random_bytes(4));
  host.agent_path = std::move(agent);
  host.runsc_path = runsc;
  host.microvm.allow_emulation = allow_emulation;
  (void)::symlink((data_dir + "/kernels").c_str(), (host.data_dir + "/kernels").c_str());  // what is built there is what a daemon boots
  GB_TRY(const auto rootfs, runtime::make_probe_rootfs(host));
  bj::array found;
  bj::value strongest;
  for (const auto& make : {runtime::make_microvm_runtime, runtime::make_gvisor_runtime, runtime::make_container_runtime}) {
    const auto tier = make(host);
    const auto capability = tier->probe(rootfs);
    tier->forget(rootfs);
    found.push_back(describe(tier->tier(), capability));
    if (capability.usable && !capability.only_by_name && strongest.is_null())
      strongest = bj::string(runtime::tier_name(tier->tier()));
  }
  GB_TRY(auto network, probe_network(directory.path() + "/network"));
  return bj::value{{"runtimes", std::move(found)},
                   {"auto", std::move(strongest)},
                   {"network", std::move(network)}};
}

// "works", "missing" or "off", the thing, and what to do when it is missing.
std::string render_head(const std::string& mark, Colour colour, const std::string& name,
                        const std::string& detail) {
  const bool colours = colours_on(STDOUT_FILENO);
  std::string padded = mark;
  padded.resize(8, ' ');
  return coloured(padded, colour, colours) + " " +
         coloured(printable(name), Colour::kBold, colours) + "  " + printable(detail) + "\n";
}

std::string render_problem(const bj::value& finding) {
  std::string out = "           " + printable(text(finding, "problem")) + "\n";
  if (!text(finding, "remedy").empty())
    out += "           to get it: " + printable(text(finding, "remedy")) + "\n";
  return out;
}

std::string render_network(const bj::value& findings) {
  const auto* network = field(findings, "network");
  if (network == nullptr) return "";  // an older daemon, or a key that may not ask
  if (!flag(*network, "enabled"))
    return render_head("off", Colour::kYellow, "network", "setting network.enabled");
  if (flag(*network, "works"))
    return render_head("works", Colour::kGreen, "network", "links, packet filter and both proxies");
  return render_head("missing", Colour::kRed, "network", "") + render_problem(*network);
}

std::string render(const bj::value& findings, const std::string& who) {
  std::string out;
  for (const bj::value& tier : items(findings, "runtimes")) {
    const bool usable = flag(tier, "usable");
    out += render_head(usable ? "works" : "missing", usable ? Colour::kGreen : Colour::kRed,
                       text(tier, "runtime"), text(tier, "engine"));
    if (!usable) out += render_problem(tier);
    const auto* facts = field(tier, "facts");
    if (facts == nullptr || !facts->is_object()) continue;
    for (const auto& fact : facts->get_object()) {
      out +=
          "           " + printable(fact.key()) + ": " + printable(text(*facts, fact.key())) + "\n";
    }
  }
  out += render_network(findings);
  const std::string strongest = text(findings, "auto");
  out += strongest.empty() ? "No tier works: sandboxes cannot be created.\n"
                           : "`--runtime auto` means " + strongest + ".\n";
  return out + "Found by " + who + ".\n";
}

// What the daemon finds of its network. A key of role user may not ask, an older daemon has no
// answer.
Awaitable<void> add_network(const ApiClient& api, bj::value& findings) {
  auto network = co_await api.call("GET", "/v1/network");
  if (network && findings.is_object()) findings.get_object()["network"] = std::move(*network);
}

}  // namespace

int command_doctor(const Settings& settings, const std::string& runsc, bool allow_emulation) {
  const auto conclude_findings = [&](const bj::value& findings, const std::string& who) {
    settings.json ? print_json(findings) : print(render(findings, who));
    return static_cast<int>(text(findings, "auto").empty() ? kFailedCheck : kOk);
  };
  std::optional<Error> unanswered;
  if (const auto target = find_target(settings); target) {
    const auto ask = [&](Loop&, const ApiClient& api) -> Async<int> {
      auto findings = co_await api.call("GET", "/v1/runtimes");
      if (!findings) unanswered = findings.error();
      if (findings) co_await add_network(api, *findings);
      co_return findings ? conclude_findings(*findings, "the daemon at " + api.url()) : kGlovebox;
    };
    const int status = with_api(settings, ask);
    if (!unanswered) return status;
    // Nobody there is no finding about this host, unless the user asked for that very daemon.
    if (unanswered->code != Code::kUnavailable || !settings.url.empty())
      return conclude(settings, fail(*unanswered));
  }
  const auto findings = probe_here(settings.data_dir, runsc, allow_emulation);
  if (!findings) return conclude(settings, fail(findings.error()));
  return conclude_findings(*findings, "starting a sandbox in each, just now");
}

}  // namespace glovebox::cli
