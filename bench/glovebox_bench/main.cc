// SPDX-License-Identifier: Apache-2.0
// glovebox_bench DATA-DIR IMAGE WORK-DIR NO-OP-PROGRAM [--quick] [PART]: prints one JSON line per row.
// bench/run starts it, when the daemon of that data directory listens.
#include <sys/prctl.h>

#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <csignal>
#include <fstream>
#include <iterator>

#include "http/json.h"
#include "tier_bench.h"

namespace glovebox::bench {
namespace {

struct Arguments {
  Target target;
  Peer::Options peers;
  std::string static_true;
  bool is_quick = false;
  std::string only;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Result<Target> read_target(const std::string& data_dir) {
  GB_TRY(const auto daemon, json::parse_object(read_all(data_dir + "/daemon.json")));
  json::Reader fields(daemon);
  Target target;
  GB_TRY(target.url, fields.string("url").required());
  GB_TRY(const int64_t pid, fields.integer("pid", 2, INT32_MAX).required());
  target.daemon = static_cast<pid_t>(pid);
  target.key = read_all(data_dir + "/admin.key");
  while (!target.key.empty() && target.key.back() == '\n') target.key.pop_back();
  return target;
}

Result<Arguments> read_arguments(int argc, char** argv) {
  if (argc < 5)
    return fail(Code::kInvalidArgument,
                "usage: glovebox_bench DATA-DIR IMAGE WORK-DIR NO-OP-PROGRAM [--quick] [PART]");
  GB_TRY(auto target, read_target(argv[1]));
  Arguments out{std::move(target), {argv[3], argv[2]}, read_all(argv[4])};
  for (int i = 5; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") out.is_quick = true;
    else out.only = word;
  }
  return out;
}

// What starting a process and asking the daemon cost at least here.
Async<void> measure_floor(Api& api, size_t count, const std::string& work_dir) {
  const Commands commands(work_dir + "/floor.log");
  Samples spawns, calls;
  for (size_t i = 0; i < count; ++i) {
    auto start = Clock::now();
    GB_CO_TRYV(commands.run({"/bin/true"}));
    spawns.push_back(ms_since(start));
    start = Clock::now();
    GB_CO_TRYV(co_await api.health());
    calls.push_back(ms_since(start));
  }
  print(Row{"host", "posix_spawn of `/bin/true` and waitpid", "ms", spawns, {}, {}, {}, {}});
  print(Row{"host", "`GET /healthz`", "ms", calls, {}, {}, {}, {}});
  co_return Result<void>();
}

Async<void> measure(const Arguments& arguments, Result<void> peers_ready) {
  Rounds rounds = arguments.is_quick ? kQuick : kFull;
  rounds.only = arguments.only;
  GB_CO_TRY(auto api, co_await Api::connect(arguments.target.url, arguments.target.key));
  GB_CO_TRYV(co_await measure_floor(*api, rounds.execs, arguments.peers.work_dir));
  GB_CO_TRY(const auto text, co_await api->get("/v1/runtimes"));
  GB_CO_TRY(const auto answer, json::parse_object(text));
  for (const auto& found : answer.at("runtimes").as_array()) {
    const std::string tier(found.at("runtime").as_string());
    if (!found.at("usable").as_bool()) {
      print(Row{
          tier, "everything", "ms", {}, {}, {}, std::string(found.at("problem").as_string()), {}});
      continue;
    }
    auto peer = peers_ready ? Peer::make(tier, arguments.peers) : fail(peers_ready.error());
    if (!peer) say(tier + ": no peer: " + peer.error().message);
    TierBench bench(arguments.target, tier, peer ? peer->get() : nullptr,
                    peer ? "" : peer.error().message, rounds, arguments.static_true);
    GB_CO_TRYV(co_await bench.run());
  }
  co_return Result<void>();
}

Awaitable<void> measure_into(const Arguments* arguments, Result<void> peers_ready,
                             Result<void>* result) {
  *result = co_await measure(*arguments, std::move(peers_ready));
}

int run(int argc, char** argv) {
  auto arguments = read_arguments(argc, argv);
  if (!arguments) return say(arguments.error().message), 2;
  std::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto peers_ready = Peer::prepare(arguments->peers);
  boost::asio::io_context loop(1);
  Result<void> result;
  spawn(loop.get_executor(), "bench", measure_into(&*arguments, std::move(peers_ready), &result));
  loop.run();
  if (result) return 0;
  return say("failed: " + result.error().message), 1;
}

}  // namespace
}  // namespace glovebox::bench

int main(int argc, char** argv) {
  return glovebox::bench::run(argc, argv);
}
