// SPDX-License-Identifier: Apache-2.0
#include "sandbox/testing/fake_agent.h"

#include <algorithm>

namespace glovebox::sandbox::testing {
using channel::Frame;
using channel::Type;

std::string json_text(const std::string& json, const std::string& name) {
  const std::string key = "\"" + name + "\":";
  size_t at = json.find(key);
  if (at == std::string::npos) return "";
  at += key.size();
  if (json[at] == '"') return json.substr(at + 1, json.find('"', at + 1) - at - 1);
  return json.substr(at, json.find_first_of(",}", at) - at);
}

Awaitable<void> FakeAgent::run() {
  while (true) {
    auto frame = co_await box_->peer.next(std::chrono::hours(1));
    if (!frame) co_return;
    if (intercept_ && co_await intercept_(box_->peer, *frame)) continue;
    co_await handle(*frame);
  }
}

FakeAgent::Running* FakeAgent::of_channel(uint32_t channel) {
  for (auto& [id, running] : executions) {
    if (running.channel == channel) return &running;
  }
  return nullptr;
}

std::string FakeAgent::hello_list() const {
  std::string out = "[";
  for (const auto& [id, running] : executions) {
    if (out.size() > 1) out += ",";
    out += R"({"id":")" + id + R"(","state":")" + (running.exited ? "exited" : "running") + R"(","pid":7})";
  }
  return out + "]";
}

Awaitable<void> FakeAgent::handle(Frame& frame) {
  auto& peer = box_->peer;
  Running* running = of_channel(frame.channel);
  switch (frame.type) {
    case Type::kHello:
      for (auto& [id, execution] : executions) execution.channel = 0;
      co_await peer.write(channel::testing::hello_answer(frame.payload, hello_list()));
      break;
    case Type::kPrepare:
      ++seen["prepare"];
      co_await peer.send(0, Type::kPrepared, {});
      break;
    case Type::kProceed:
      ++seen["proceed"];
      co_await peer.send(0, Type::kProceeded, channel::testing::u64(42));
      break;
    case Type::kPing:
      co_await peer.send(0, Type::kPong, frame.payload);
      break;
    case Type::kRequest:
      ++seen["request"];
      co_await peer.send(frame.channel, Type::kResponse, R"({"ok":true})");
      break;
    case Type::kExec:
      ++seen["exec"];
      co_await start(frame.channel, frame.payload);
      break;
    case Type::kAttach:
      ++seen["attach"];
      co_await attach(frame.channel, frame.payload);
      break;
    case Type::kKill:
      ++seen["kill"];
      if (running == nullptr || running->exited) break;
      running->left = 0;
      running->outcome = R"("outcome":"killed_by_caller","signal":9)";
      co_await push(*running);
      break;
    case Type::kAck:
      if (running == nullptr) break;
      {
        const uint64_t to = channel::get_u64(frame.payload.data() + 8);
        running->out.erase(0, to - running->start);
        running->start = to;
      }
      co_await push(*running);
      break;
    case Type::kDrain:
      if (running == nullptr || frame.payload[0] != channel::kStdout) break;
      running->drained = true;
      co_await push(*running);
      break;
    case Type::kStdin:
      ++seen["stdin"];
      break;
    case Type::kForget:
      ++seen["forget"];
      if (running == nullptr) break;
      running->forgotten = true;
      co_await push(*running);
      break;
    default:
      break;
  }
}

Awaitable<void> FakeAgent::start(uint32_t channel, const std::string& payload) {
  auto& peer = box_->peer;
  const std::string command = json_text(payload, "command");
  const std::string verb = command.substr(0, command.find(' '));
  const std::string rest = command.size() > verb.size() ? command.substr(verb.size() + 1) : "";
  if (verb == "never") co_return;
  if (verb == "fail") {
    co_await peer.send(channel, Type::kFailed, R"({"code":")" + rest + R"(","message":"as told"})");
    co_return;
  }
  Running running;
  running.id = json_text(payload, "id");
  running.channel = channel;
  running.outcome = R"("outcome":"exited","code":0)";
  if (verb == "exit") running.outcome = R"("outcome":"exited","code":)" + rest;
  if (verb == "signal") running.outcome = R"("outcome":"signalled","signal":)" + rest;
  if (verb == "oom") running.outcome = R"("outcome":"signalled","oom":true,"signal":)" + rest;  // its own kernel's doing
  if (verb == "print") running.out = rest;
  if (verb == "flood") running.left = std::stoull(rest);
  if (verb == "serve") running.out = rest;
  if (verb == "hang" || verb == "serve") running.outcome = "";
  co_await peer.send(channel, Type::kStarted, R"({"pid":7})");
  const std::string id = running.id;
  co_await push(executions[id] = std::move(running));
}

Awaitable<void> FakeAgent::attach(uint32_t channel, const std::string& payload) {
  const auto found = executions.find(json_text(payload, "id"));
  if (found == executions.end()) {
    co_await box_->peer.send(channel, Type::kFailed, R"({"code":"execution_not_found","message":"no such execution"})");
    co_return;
  }
  Running& running = found->second;
  running.channel = channel;
  running.exit_told = false;
  const uint64_t wanted = std::stoull(json_text(payload, "stdout"));
  const uint64_t from = std::clamp(wanted, running.start, running.start + running.out.size());
  running.out.erase(0, from - running.start);
  running.start = running.sent = from;
  co_await push(running);
}

// Writes what the windows allow, and the end when all is written.
Awaitable<void> FakeAgent::push(Running& running) {
  auto& peer = box_->peer;
  if (running.channel == 0) co_return;
  while (true) {
    if (running.drained) {
      running.dropped += running.left + (running.start + running.out.size() - running.sent);
      running.out.clear();
      running.left = 0;
      break;
    }
    const uint64_t room = channel::kWindowBytes - std::min<uint64_t>(channel::kWindowBytes, running.out.size());
    const uint64_t n = std::min<uint64_t>({running.left, room, 60'000});
    running.out.append(n, 'f');
    running.left -= n;
    const std::string bytes = running.out.substr(running.sent - running.start, 60'000);
    if (bytes.empty()) break;
    co_await peer.send(running.channel, Type::kOutput, channel::stream_header(channel::kStdout, running.sent) + bytes);
    running.sent += bytes.size();
  }
  if (running.left > 0 || running.outcome.empty()) co_return;
  running.exited = true;
  if (!running.exit_told) {
    co_await peer.send(running.channel, Type::kExited,
                       "{" + running.outcome + R"(,"children":false,"stdout_bytes":)" +
                           std::to_string(running.sent + running.dropped) + R"(,"stderr_bytes":0})");
  }
  running.exit_told = true;
  if (!running.forgotten) co_return;
  co_await peer.send(running.channel, Type::kGone, "");
  executions.erase(std::string(running.id));
}

}  // namespace glovebox::sandbox::testing
