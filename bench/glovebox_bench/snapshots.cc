// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "http/json.h"
#include "tier_bench.h"

// What it costs to stop a sandbox, to copy it and to go back.
namespace glovebox::bench {
namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::seconds kPatience{20};
constexpr const char* kHeldMemory = "100 MiB touched";
constexpr const char* kHold = "b = b'x' * (100 << 20); open('/tmp/held', 'w').close(); import time; time.sleep(1e6)";
constexpr size_t kForks = 4;

Result<double> number_of(const std::string& text, std::string_view name) {
  GB_TRY(const auto answer, json::parse_object(text));
  return answer.at(name).to_number<double>();
}

Result<std::string> id_of(const std::string& text) {
  GB_TRY(const auto answer, json::parse_object(text));
  return std::string(answer.at("id").as_string());
}

std::string path_of(const std::string& sandbox, const char* rest) { return "/v1/sandboxes/" + sandbox + rest; }

}  // namespace

Async<void> TierBench::hold_memory(std::string id) {
  GB_CO_TRYV(co_await api_->start(id, {"python3", "-c", kHold}));
  const auto end = after(kPatience);
  while (Clock::now() < end) {
    if (co_await api_->get(path_of(id, "/files/stat?path=/tmp/held"))) co_return Result<void>();
    co_await sleep_for(kLook);
  }
  co_return fail(Code::kTimeout, "the memory is not touched");
}

Async<void> TierBench::pauses(std::string id) {
  Samples pause, resume;
  for (size_t i = 0; i < rounds_.idle_execs; ++i) {
    auto start = Clock::now();
    GB_CO_TRYV(co_await api_->post(path_of(id, "/pause"), "{}", 200));
    pause.push_back(ms_since(start));
    start = Clock::now();
    GB_CO_TRYV(co_await api_->post(path_of(id, "/resume"), "{}", 200));
    resume.push_back(ms_since(start));
  }
  report("pause", "ms", pause, "", {}, "≤ 2");
  report("resume", "ms", resume, "", {}, "≤ 2");
  co_return Result<void>();
}

// The engine's own, of a sandbox that only sleeps.
Result<void> TierBench::their_snapshots(Samples* checkpoint, Samples* restore) const {
  if (peer_ == nullptr || tier_ != "gvisor") return {};
  const std::string box = "glovebox-bench-source", copy = "glovebox-bench-copy";
  GB_TRYV(peer_->create(box));
  for (size_t i = 0; i < rounds_.lives / 2; ++i) {
    const std::string image = peer_->work_dir() + "/image-" + std::to_string(i);
    auto start = Clock::now();
    GB_TRYV(peer_->checkpoint(box, image));
    checkpoint->push_back(ms_since(start));
    start = Clock::now();
    GB_TRYV(peer_->restore(copy, image));
    restore->push_back(ms_since(start));
    GB_TRYV(peer_->remove(copy));
    std::filesystem::remove_all(image);
  }
  return peer_->remove(box);
}

Async<void> TierBench::copies(std::string id, std::string held) {
  Samples made, stall, restored, forked, forked_each, their_made, their_restored;
  for (size_t i = 0; i < rounds_.lives / 2; ++i) {
    auto start = Clock::now();
    GB_CO_TRY(const auto text, co_await api_->post(path_of(id, "/snapshots"), "{}", 201));
    made.push_back(ms_since(start));
    GB_CO_TRY(const double stall_ms, number_of(text, "stall_ms"));
    stall.push_back(stall_ms);
    GB_CO_TRY(const auto snapshot, id_of(text));
    if (held.empty()) {
      start = Clock::now();
      GB_CO_TRY(const auto copy_text, co_await api_->post("/v1/sandboxes", R"({"snapshot":")" + snapshot + R"("})", 201));
      restored.push_back(ms_since(start));
      GB_CO_TRY(const auto copy, id_of(copy_text));
      GB_CO_TRYV(co_await api_->kill(copy));
      start = Clock::now();
      GB_CO_TRY(const auto forks, co_await api_->post(path_of(id, "/fork"), R"({"count":)" + std::to_string(kForks) + "}", 201));
      forked.push_back(ms_since(start));
      forked_each.push_back(forked.back() / kForks);
      GB_CO_TRY(const auto answer, json::parse_object(forks));
      for (const auto& fork : answer.at("sandboxes").as_array()) GB_CO_TRYV(co_await api_->kill(std::string(fork.at("id").as_string())));
    }
    GB_CO_TRYV(co_await api_->remove("/v1/snapshots/" + snapshot));
  }
  const std::string suffix = held.empty() ? "" : ", " + held;
  if (!held.empty()) {
    report("snapshot" + suffix, "ms", made, "", {});
    report("snapshot: the source stands still" + suffix, "ms", stall, "", {}, "≤ 60");
    co_return Result<void>();
  }
  const auto peers = their_snapshots(&their_made, &their_restored);
  if (!peers) say(tier_ + ": no snapshots of the peer: " + peers.error().message);
  report("snapshot", "ms", made, their_made.empty() ? "" : peer_words("checkpoint -leave-running"), their_made);
  report("snapshot: the source stands still", "ms", stall, "", {});
  report("start from a snapshot → ready", "ms", restored, their_restored.empty() ? "" : peer_words("restore -detach"), their_restored,
         tier_ == "gvisor" ? "≤ 170" : "");
  report("fork of 4: all ready", "ms", forked, "", {});
  co_return Result<void>();
}

Async<void> TierBench::hibernations(std::string id) {
  Samples there, back, both;
  for (size_t i = 0; i < rounds_.lives / 2; ++i) {
    auto start = Clock::now();
    GB_CO_TRYV(co_await api_->post(path_of(id, "/hibernate"), "{}", 200));
    there.push_back(ms_since(start));
    start = Clock::now();
    GB_CO_TRYV(co_await api_->post(path_of(id, "/resume"), "{}", 200));
    back.push_back(ms_since(start));
    both.push_back(there.back() + back.back());
    if (i == 0) GB_CO_TRYV(co_await api_->exec(id, "true"));
  }
  const std::string suffix = tier_ == "gvisor" ? std::string(", ") + kHeldMemory : ", files only";
  report("hibernate" + suffix, "ms", there, "", {});
  report("resume from hibernation" + suffix, "ms", back, "", {});
  report("hibernate and resume" + suffix, "ms", both, "", {}, "≤ 400");
  co_return Result<void>();
}

// After 1000 files in 50 directories; and of what is as it was.
Async<void> TierBench::diffs(std::string id) {
  Samples untouched, written;
  constexpr const char* kWrite = "import os\nfor i in range(50):\n  os.makedirs(f'/tmp/d/{i}')\n  for j in range(20): open(f'/tmp/d/{i}/{j}', 'w').write('x')";
  for (Samples* samples : {&untouched, &written}) {
    if (samples == &written) GB_CO_TRYV(co_await api_->run(id, {"python3", "-c", kWrite}));
    for (size_t i = 0; i < rounds_.idle_execs; ++i) {
      const auto start = Clock::now();
      GB_CO_TRYV(co_await api_->get(path_of(id, "/diff?limit=1000")));
      samples->push_back(ms_since(start));
    }
  }
  report("diff of an untouched sandbox", "ms", untouched, "", {});
  report("diff after 1000 files in 50 directories", "ms", written, "", {});
  co_return Result<void>();
}

Async<void> TierBench::snapshots() {
  GB_CO_TRY(api_, co_await Api::connect(target_.url, target_.key));
  GB_CO_TRY(const auto id, co_await api_->create(tier_));
  GB_CO_TRYV(co_await diffs(id));
  GB_CO_TRYV(co_await pauses(id));
  GB_CO_TRYV(co_await copies(id, ""));
  GB_CO_TRYV(co_await hold_memory(id));
  GB_CO_TRYV(co_await copies(id, kHeldMemory));
  GB_CO_TRYV(co_await hibernations(id));
  GB_CO_TRYV(co_await api_->kill(id));
  co_return Result<void>();
}

}  // namespace glovebox::bench
