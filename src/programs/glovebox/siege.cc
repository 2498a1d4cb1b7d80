// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <filesystem>
#include <functional>

#include "base/random.h"
#include "base/text.h"
#include "http/json.h"
#include "http/message.h"
#include "programs/glovebox/assets.h"
#include "programs/glovebox/attack.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/tar_entry.h"

namespace glovebox::cli {
namespace {

namespace bj = boost::json;
using std::chrono::milliseconds;

constexpr char kProgram[] = "/glovebox-attack";
constexpr int64_t kProcesses = 64, kMemoryMb = 128, kDiskMb = 64, kOpenFiles = 256;
constexpr milliseconds kRunTime{180'000};
constexpr milliseconds kBombTime{120'000};
constexpr milliseconds kLongestLook = 2 * kMostPatience;
constexpr milliseconds kSilence{6'000};  // of a sandbox whose agent is attacked
constexpr milliseconds kKillTime{60'000};
constexpr milliseconds kBoxLifetime{1'800'000};

milliseconds since(Clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}
std::string in_ms(milliseconds time) {
  return std::to_string(time.count()) + " ms";
}

// A sandbox of the siege. What the API answers about it is not trusted to be what the sandbox says:
// outputs are text to look at.
class Box {
 public:
  static Async<Box> create(const ApiClient& api, const std::string& runtime,
                           const std::string& template_name) {
    bj::value body{{"template", template_name},
                   {"runtime", runtime},
                   {"lifetime_ms", kBoxLifetime.count()},
                   {"metadata", {{"purpose", "doctor --attack"}}},
                   {"limits",
                    {{"cpus", 1},
                     {"memory_mb", kMemoryMb},
                     {"disk_mb", kDiskMb},
                     {"processes", kProcesses},
                     {"open_files", kOpenFiles}}}};
    GB_CO_TRY(const auto created, co_await api.call("POST", "/v1/sandboxes", std::move(body)));
    Box box(api, "/v1/sandboxes/" + http::percent_encode(text(created, "id")));
    auto uploaded =
        co_await box.put("files", kProgram, std::string(embedded_attack()), "&mode=0755&user=root");
    if (uploaded) co_return box;
    (void)co_await box.end();
    co_return fail(std::move(uploaded).error());
  }

  Async<void> put(std::string what, std::string path, std::string content,
                  std::string query) const {
    GB_CO_TRYV(co_await exchange("PUT",
                                 path_ + "/" + what + "?path=" + http::percent_encode(path) + query,
                                 std::move(content)));
    co_return Result<void>();
  }
  Async<std::string> get(std::string path, std::string query) const {
    co_return co_await exchange("GET", path_ + "/files?path=" + http::percent_encode(path) + query,
                                {});
  }

  // Runs to the end, or until the daemon is silent about it for `patience`.
  Async<bj::value> run(std::vector<std::string> argv, bj::object more,
                       milliseconds patience = kRunTime) const {
    bj::array words;
    for (const auto& word : argv) words.emplace_back(word);
    if (!argv.empty()) more["argv"] = std::move(words);
    co_return co_await api_.call("POST", path_ + "/executions?wait=true", std::move(more),
                                 patience);
  }
  Async<bj::value> start(std::vector<std::string> argv, bj::object more) const {
    bj::array words;
    for (const auto& word : argv) words.emplace_back(word);
    more["argv"] = std::move(words);
    co_return co_await api_.call("POST", path_ + "/executions", std::move(more));
  }
  Async<milliseconds> end() const {
    const auto began = Clock::now();
    GB_CO_TRYV(co_await api_.call("DELETE", path_, {}, kKillTime));
    co_return since(began);
  }
  const std::string& path() const { return path_; }

 private:
  Box(const ApiClient& api, std::string path) : api_(api), path_(std::move(path)) {}

  Async<std::string> exchange(std::string method, std::string path, std::string content) const {
    GB_CO_TRY(auto connection, co_await api_.connect(kRunTime));
    const std::string target = api_.target(path);
    GB_CO_TRY(auto answer,
              co_await connection->request(method, target, api_.headers(), std::move(content)));
    if (answer.head.status >= 200 && answer.head.status < 300) co_return std::move(answer.body);
    co_return fail(error_of_answer(answer.head.status, answer.body, ""));
  }

  ApiClient api_;
  std::string path_;
};

// Asks neighbour and daemon again and again until told to stop.
class Observer {
 public:
  Observer(Loop& loop, const ApiClient& api, const Box& neighbour)
      : loop_(loop), api_(api), neighbour_(neighbour) {}

  void begin() {
    state_ = std::make_shared<State>();
    spawn(loop_.executor, "neighbourhood", watch(state_, api_, neighbour_));
  }
  Awaitable<Neighbourhood> finish() {
    state_->stop = true;
    while (!state_->is_over) co_await sleep_for(milliseconds(5));
    co_return state_->seen;
  }

 private:
  struct State {
    bool stop = false, is_over = false;
    Neighbourhood seen;
  };

  // No answer within the longest look is seen in the time.
  static void note(Neighbourhood& seen, const Result<bj::value>& answer, bool is_right,
                   const char* who, milliseconds took) {
    ++seen.asked;
    const bool is_late = !answer && answer.error().code == Code::kTimeout && took > kMostPatience;
    if (is_late || (answer && is_right)) return;
    ++seen.failed;
    if (seen.first_failure.empty())
      seen.first_failure =
          std::string(who) + ": " + (answer ? "a wrong answer" : answer.error().message);
  }
  static Awaitable<void> watch(std::shared_ptr<State> state, ApiClient api, Box neighbour) {
    while (true) {
      auto began = Clock::now();
      const auto health = co_await api.call("GET", "/healthz", {}, kLongestLook);
      milliseconds took = since(began);
      state->seen.slowest_daemon = std::max(state->seen.slowest_daemon, took);
      note(state->seen, health, health && text(*health, "status") == "ok", "the daemon", took);
      began = Clock::now();
      const auto answer =
          co_await neighbour.run({kProgram, "whoami"}, {{"user", "root"}}, kLongestLook);
      took = since(began);
      state->seen.slowest_neighbour = std::max(state->seen.slowest_neighbour, took);
      note(state->seen, answer, answer && text(*answer, "stdout").starts_with("uid=0 "),
           "the neighbour", took);
      if (state->stop) break;
      co_await sleep_for(milliseconds(50));
    }
    state->is_over = true;
  }

  Loop& loop_;
  const ApiClient& api_;
  const Box& neighbour_;
  std::shared_ptr<State> state_;
};

class Siege {
 public:
  Siege(Loop& loop, const ApiClient& api, std::string runtime, std::string template_name,
        HostWatch& watch, std::string words)
      : loop_(loop),
        api_(api),
        runtime_(std::move(runtime)),
        template_(std::move(template_name)),
        watch_(watch),
        words_(std::move(words)) {}

  Async<std::vector<Attempt>> run() {
    GB_CO_TRY(const auto neighbour, co_await Box::create(api_, runtime_, template_));
    auto done = co_await all(neighbour);
    auto ended = co_await neighbour.end();
    if (!done) co_return fail(std::move(done).error());
    if (!ended) co_return fail(std::move(ended).error());
    for (const auto& finding : watch_.look()) {
      add({runtime_, "-", "host", finding.what, finding.is_unharmed ? "refused" : "GOT_THROUGH",
           finding.evidence});
    }
    co_return std::move(attempts_);
  }

 private:
  void add(Attempt attempt) {
    attempt.runtime = runtime_;
    // Whatever a sandbox says, the canary must not be in it.
    if (attempt.evidence.find(watch_.secret()) != std::string::npos) attempt.result = "GOT_THROUGH";
    attempts_.push_back(std::move(attempt));
  }
  void add(const char* id, const char* name, const std::string& user, bool got_through,
           std::string evidence) {
    add({runtime_, user, id, name, got_through ? "GOT_THROUGH" : "refused", std::move(evidence)});
  }

  Async<void> all(const Box& neighbour) {
    GB_CO_TRYV(co_await occupy(neighbour));
    GB_CO_TRY(const auto box, co_await Box::create(api_, runtime_, template_));
    auto done = co_await in_one_box(box);
    auto ended = co_await box.end();
    if (!done) co_return fail(std::move(done).error());
    if (!ended) co_return fail(std::move(ended).error());
    for (const std::string user : {"user", "root"}) GB_CO_TRYV(co_await bombs(user, neighbour));
    for (const std::string user : {"user", "root"})
      GB_CO_TRYV(co_await replacements(user, neighbour));
    co_return Result<void>();
  }

  // The neighbour listens on names and ports that the attacker then tries.
  Async<void> occupy(const Box& neighbour) {
    const std::string name = "glovebox-neighbour-" + random_name(8);
    constexpr char kPort[] = "47113";
    GB_CO_TRYV(co_await begin(neighbour, {kProgram, "hold", name, kPort}, "root"));
    neighbour_facts_ = std::string("tcp=127.0.0.1:") + kPort + "\nunix=@" + name + "\n";
    co_return Result<void>();
  }

  // Starts a helper that goes on by itself, and waits until it says that it has begun.
  Async<void> begin(const Box& box, std::vector<std::string> argv, std::string user) {
    const std::string what = argv[1];
    GB_CO_TRY(const auto started, co_await box.start(std::move(argv), {{"user", user}}));
    const std::string output = box.path() + "/executions/" +
                               http::percent_encode(text(started, "id")) +
                               "/output?format=json&wait_ms=60000";
    GB_CO_TRY(const auto page, co_await api_.call("GET", output, {}, kRunTime));
    if (items(page, "chunks").empty())
      co_return fail(Code::kTimeout, "a helper of the attack does not begin: " + what);
    co_return Result<void>();
  }

  std::string facts() const {
    return watch_.facts() + neighbour_facts_ + words_ +
           "limit_processes=" + std::to_string(kProcesses) +
           "\nlimit_memory_mb=" + std::to_string(kMemoryMb) +
           "\nlimit_disk_mb=" + std::to_string(kDiskMb) +
           "\nlimit_open_files=" + std::to_string(kOpenFiles) + "\n";
  }
  bj::object as(const std::string& user) const {
    return {{"user", user}, {"stdin_text", facts()}, {"timeout_ms", kBombTime.count()}};
  }

  Async<void> in_one_box(const Box& box) {
    for (const std::string user : {"user", "root"}) {
      GB_CO_TRY(const auto ran, co_await box.run({kProgram, "run"}, as(user)));
      for (auto& attempt : parse_attempts(text(ran, "stdout"))) {
        attempt.user = user;
        add(std::move(attempt));
      }
      const bool is_complete =
          text(ran, "outcome.type") == "exited" && number(ran, "exit_code") == 0;
      if (!is_complete)
        add({runtime_, user, "-", "run", "undecided",
             "the attempts broke off: " + text(ran, "outcome.type") + " " +
                 text(ran, "outcome.message")});
      GB_CO_TRYV(co_await working_directories(box, user));
    }
    GB_CO_TRYV(co_await links(box));
    GB_CO_TRYV(co_await swapped_links(box));
    GB_CO_TRYV(co_await setuid_from_archive(box));
    co_return co_await self_script_as_shell(box);
  }

  // CVE-2024-21626, through the API.
  Async<void> working_directories(const Box& box, std::string user) {
    std::string through;
    int refused = 0, inside = 0;
    for (int fd = 3; fd <= 64; ++fd) {
      bj::object how{{"user", user}, {"cwd", "/proc/self/fd/" + std::to_string(fd)}};
      const auto ran = co_await box.run({kProgram, "where", watch_.canary_path(), watch_.secret()},
                                        std::move(how));
      if (!ran && ran.error().code == Code::kUnavailable) co_return fail(ran.error());
      if (!ran) ++refused;
      if (ran && number(*ran, "exit_code") == 0) ++inside;
      if (ran && number(*ran, "exit_code") != 0)
        through = "descriptor " + std::to_string(fd) + " is " + text(*ran, "stdout");
    }
    add("B01", "execute_in_descriptor", user, !through.empty(),
        !through.empty() ? through
                         : std::to_string(refused) + " refused, " + std::to_string(inside) +
                               " inside the sandbox");
    co_return Result<void>();
  }

  // Reading files through links that point at the host's names.
  Async<void> links(const Box& box) {
    const std::string script = "/tmp/glovebox-link";
    GB_CO_TRY(const auto made, co_await box.run({kProgram, "link", watch_.canary_path(), script},
                                                {{"user", "user"}}));
    const auto read = co_await box.get(script, "&user=root");
    const auto direct = co_await box.get("/proc/1/root" + watch_.canary_path(), "&user=root");
    const bool got = (read && read->find(watch_.secret()) != std::string::npos) ||
                     (direct && direct->find(watch_.secret()) != std::string::npos);
    add("B08", "read_link_by_api", "root", got,
        got    ? "the host's file came back"
        : read ? "another file came back"
               : read.error().message);
    if (number(made, "exit_code") != 0) attempts_.back().result = "undecided";
    co_return Result<void>();
  }

  // The same while the link changes under the reader, and writing.
  Async<void> swapped_links(const Box& box) {
    constexpr int kRounds = 60;
    GB_CO_TRYV(co_await begin(box, {kProgram, "swap", "/tmp/race", watch_.canary_directory(), "10"},
                              "user"));
    int read = 0, written = 0;
    bool got = false;
    for (int round = 0; round < kRounds; ++round) {
      const auto answer = co_await box.get("/tmp/race/place/canary.txt", "&user=root");
      read += answer ? 1 : 0;
      got = got || (answer && answer->find(watch_.secret()) != std::string::npos);
      written +=
          co_await box.put("files", "/tmp/race/place/planted", "planted", "&user=root&parents=true")
              ? 1
              : 0;
    }
    const bool planted = std::filesystem::exists(watch_.canary_directory() + "/planted");
    add("B08", "race_links_by_api", "root", got || planted,
        got       ? "the host's file came back"
        : planted ? "a file was written to the host"
                  : std::to_string(read) + " reads and " + std::to_string(written) + " writes of " +
                        std::to_string(kRounds) + " went to files of the sandbox");
    co_return Result<void>();
  }

  Async<void> setuid_from_archive(const Box& box) {
    const std::string archive = tar_with_file({"marked", 06755, 0, 0}, embedded_attack());
    const auto unpacked =
        co_await box.put("archive", "/opt/glovebox-marked", archive, "&user=root");
    if (!unpacked) {
      add("B08", "setuid_from_archive", "user", false, unpacked.error().message);
      co_return Result<void>();
    }
    GB_CO_TRY(const auto ran, co_await box.run({"/opt/glovebox-marked/marked", "whoami", "judge"},
                                               {{"user", "user"}}));
    const int64_t status = number(ran, "exit_code");
    add("B08", "setuid_from_archive", "user", status == 10,
        status == 10 ? "a program from an archive made an ordinary user root"
                     : "the program ran with the user's own rights");
    if (status != 10 && status != 0) attempts_.back().result = "undecided";
    co_return Result<void>();
  }

  // CVE-2019-5736: what starts /bin/sh then starts itself, while another process waits for its
  // program file.
  Async<void> self_script_as_shell(const Box& box) {
    GB_CO_TRYV(co_await box.put("files", "/bin/sh", "#!/proc/self/exe\n",
                                "&mode=0755&user=root&parents=true"));
    int started = 0;
    bool got = false;
    std::string evidence;
    for (int round = 0; round < 5; ++round) {
      (void)co_await box.start({"/bin/sh"}, {{"user", "root"}});
      const auto shell =
          co_await box.run({}, {{"user", "root"}, {"command", "true"}, {"timeout_ms", 2000}});
      started += shell ? 1 : 0;
      GB_CO_TRY(const auto ran, co_await box.run({kProgram, "run", "write_program_files",
                                                  "write_program_by_path_descriptor"},
                                                 as("root")));
      for (const auto& attempt : parse_attempts(text(ran, "stdout"))) {
        got = got || attempt.is_failure();
        evidence = attempt.evidence;
      }
    }
    add("B02", "self_script_as_shell", "root", got,
        std::to_string(started) + " of 5 shells ran; program files: " + evidence);
    co_return Result<void>();
  }

  // What one attempt says in a sandbox of its own, or how that sandbox ended under it.
  Async<Attempt> single(const Box& box, const std::string& user, const std::string& id,
                        const std::string& name, milliseconds patience) {
    Attempt attempt{runtime_, user, id, name, "undecided", ""};
    const auto ran = co_await box.run({kProgram, "run", name}, as(user), patience);
    if (!ran) {
      const bool is_over =
          ran.error().code == Code::kSandboxEnded || ran.error().code == Code::kSandboxNotReady;
      const bool is_silent = ran.error().code == Code::kTimeout;
      if (is_over || is_silent) attempt.result = "harmless";
      attempt.evidence = is_silent ? "its own sandbox no longer answers" : ran.error().message;
      co_return attempt;
    }
    const auto said = parse_attempts(text(*ran, "stdout"));
    const std::string outcome = text(*ran, "outcome.type");
    // Among what an attempt may have written to our own pipe.
    const auto own = std::find_if(said.begin(), said.end(),
                                  [&](const Attempt& one) { return one.name == name; });
    if (own != said.end()) {
      attempt.result = own->result;
      attempt.evidence = own->evidence;
    } else if (outcome == "sandbox_ended" || outcome == "oom_killed" || outcome == "signalled") {
      attempt.result = "refused";
      attempt.evidence = outcome + ": " +
                         (text(*ran, "outcome.message").empty() ? "the attempt was killed"
                                                                : text(*ran, "outcome.message"));
    } else {
      attempt.evidence = outcome + " without a report";
    }
    co_return attempt;
  }

  // A host that stands still for a while looks like a neighbour that suffers. What an attempt does
  // to others it does each time.
  Async<void> disturb(const Box& neighbour, std::string user, std::string id, std::string name,
                      milliseconds patience) {
    constexpr int kTimes = 3;
    for (int time = 1;; ++time) {
      GB_CO_TRY(auto judged, co_await disturb_once(neighbour, user, id, name, patience));
      if (judged.was_only_slow && time < kTimes) continue;
      add(std::move(judged.attempt));
      co_return Result<void>();
    }
  }

  // One attempt in a new sandbox while neighbour and daemon are watched, and that sandbox's end.
  Async<Judgement> disturb_once(const Box& neighbour, std::string user, std::string id,
                                std::string name, milliseconds patience) {
    GB_CO_TRY(const auto box, co_await Box::create(api_, runtime_, template_));
    Observer observer(loop_, api_, neighbour);
    observer.begin();
    auto attempt = co_await single(box, user, id, name, patience);
    const auto ended = co_await box.end();
    const auto around = co_await observer.finish();
    if (!attempt) co_return fail(std::move(attempt).error());
    co_return judge_disturbance(*attempt, around, ended ? std::optional(*ended) : std::nullopt);
  }

  Async<void> bombs(std::string user, const Box& neighbour) {
    for (const char* name : {"fork_bomb", "thread_bomb", "exhaust_descriptors", "exhaust_inotify",
                             "fill_disk", "fill_inodes", "fill_shared_memory", "memory_hog"}) {
      GB_CO_TRYV(co_await disturb(neighbour, user, "B11", name, kBombTime));
    }
    co_return Result<void>();
  }

  Async<void> replacements(std::string user, const Box& neighbour) {
    for (const char* name : {"overwrite_agent", "garbage_on_channel", "rewrite_agent_memory",
                             "stop_agent", "kill_agent"}) {
      GB_CO_TRYV(co_await disturb(neighbour, user, "B12", name, kSilence));
    }
    co_return Result<void>();
  }

  Loop& loop_;
  const ApiClient& api_;
  std::string runtime_, template_;
  HostWatch& watch_;
  std::string words_, neighbour_facts_;
  std::vector<Attempt> attempts_;
};

}  // namespace

std::vector<Attempt> parse_attempts(const std::string& output) {
  std::vector<Attempt> all;
  for (const std::string& line : split(output, '\n')) {
    if (line.empty()) continue;
    const auto value = json::parse(line);
    Attempt attempt;
    if (value)
      attempt = {"",
                 "",
                 text(*value, "id"),
                 text(*value, "attempt"),
                 text(*value, "result"),
                 text(*value, "evidence")};
    const bool is_known = attempt.result == "refused" || attempt.result == "harmless" ||
                          attempt.result == "not_applicable" || attempt.result == "GOT_THROUGH";
    if (!is_known)
      attempt = {"",
                 "",
                 attempt.id.empty() ? "-" : attempt.id,
                 attempt.name.empty() ? "output" : attempt.name,
                 "undecided",
                 attempt.evidence.empty() ? line.substr(0, 200) : attempt.evidence};
    all.push_back(std::move(attempt));
  }
  return all;
}

Judgement judge_disturbance(Attempt attempt, const Neighbourhood& around,
                            std::optional<milliseconds> ended) {
  const bool was_only_slow = around.failed == 0 && ended && !attempt.is_failure();
  const auto fails = [&](const std::string& why, bool is_slowness) {
    attempt.result = "GOT_THROUGH";
    attempt.evidence = why + " (" + attempt.evidence + ")";
    return Judgement{attempt, is_slowness && was_only_slow};
  };
  if (around.failed > 0) return fails(around.first_failure, false);
  if (around.slowest_daemon > kMostPatience)
    return fails("the daemon answered only after " + in_ms(around.slowest_daemon), true);
  if (around.slowest_neighbour > kMostPatience)
    return fails("the neighbour answered only after " + in_ms(around.slowest_neighbour), true);
  if (!ended) return fails("the sandbox could not be ended", false);
  if (around.asked == 0) attempt.result = "undecided";
  attempt.evidence += "; neighbour within " + in_ms(around.slowest_neighbour) + ", daemon " +
                      in_ms(around.slowest_daemon) + ", ended in " + in_ms(*ended);
  return {std::move(attempt), false};
}

Async<std::vector<Attempt>> besiege(Loop& loop, const ApiClient& api, const std::string& runtime,
                                    const std::string& template_name, HostWatch& watch,
                                    const std::vector<std::string>& words) {
  std::string facts;
  for (const auto& word : words) facts += "word=" + word + "\n";
  Siege siege(loop, api, runtime, template_name, watch, std::move(facts));
  co_return co_await siege.run();
}

}  // namespace glovebox::cli
