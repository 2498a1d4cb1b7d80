// SPDX-License-Identifier: Apache-2.0
// An agent that is not on our side. It stands in a real sandbox in the place of ours, shakes hands (or does not), answers the first
// request so that the sandbox becomes ready, and then does what the environment variable HOSTILE of its HELLO names, on the channel
// of the next message. `honest` answers every request and runs every command at once.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "channel/frame.h"

namespace {

using namespace glovebox::channel;

void write_all(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::write(1, bytes.data() + at, bytes.size() - at);
    if (n > 0) at += static_cast<size_t>(n);
    if (n < 0 && errno != EINTR && errno != EAGAIN) ::_exit(1);
  }
}

[[noreturn]] void be_silent() {
  for (;;) ::pause();
}

void pause_for(long ms) {
  const timespec t{ms / 1000, ms % 1000 * 1000000};
  ::nanosleep(&t, nullptr);
}

[[noreturn]] void repeat(const std::string& bytes) {
  for (;;) write_all(bytes);
}

std::string frame(uint32_t channel, Type type, const std::string& payload, uint8_t flags = 0) {
  std::string out;
  append_frame(out, channel, type, payload, flags);
  return out;
}

std::string message(uint32_t channel, Type type, const std::string& payload) {
  std::string out;
  append_message(out, channel, type, payload, kMaxPayloadFromAgent);
  return out;
}

std::string times(const std::string& bytes, size_t count) {
  std::string out;
  out.reserve(bytes.size() * count);
  for (size_t i = 0; i < count; ++i) out += bytes;
  return out;
}

std::string header(uint32_t length, uint32_t channel, Type type) {
  std::string out(kHeaderBytes, '\0');
  put_header(out.data(), Header{length, channel, type, 0});
  return out;
}

std::string field(const std::string& json, const std::string& name) {
  const std::string key = "\"" + name + "\":\"";
  const size_t at = json.find(key);
  if (at == std::string::npos) return "";
  return json.substr(at + key.size(), json.find('"', at + key.size()) - at - key.size());
}

std::string mark_of(const std::string& hello) {
  const std::string digits = field(hello, "nonce");
  std::string nonce;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) nonce += static_cast<char>(std::strtol(digits.substr(i, 2).c_str(), nullptr, 16));
  return sync_mark(nonce);
}

std::string hello_ok(const std::string& executions) {
  return message(0, Type::kHelloOk, R"({"version":1,"agent":"hostile","executions":)" + executions + "}");
}

std::string output(uint32_t c, uint64_t offset, size_t bytes, uint8_t stream = kStdout) {
  return frame(c, Type::kOutput, stream_header(stream, offset) + std::string(bytes, 'x'));
}
std::string started(uint32_t c) { return frame(c, Type::kStarted, R"({"pid":2})"); }
std::string exited(uint32_t c, const std::string& rest) {
  return frame(c, Type::kExited, "{\"outcome\":\"exited\"," + rest + R"(,"stdout_bytes":0,"stderr_bytes":0})");
}

// What is done in place of the answer to HELLO.
const std::map<std::string, std::function<void(const std::string& hello)>> kAtHello{
    {"hello_none", [](const std::string&) { be_silent(); }},
    {"hello_wrong_sync", [](const std::string&) { repeat(sync_mark(std::string(16, 'x')) + hello_ok("[]")); }},
    {"hello_noise", [](const std::string&) { repeat(std::string(65536, '\xF0')); }},
    {"hello_slow", [](const std::string& hello) {
       for (const char c : mark_of(hello) + hello_ok("[]")) write_all(std::string(1, c)), pause_for(1000);
     }},
    {"hello_half", [](const std::string& hello) { write_all(mark_of(hello) + hello_ok("[]").substr(0, 30)), be_silent(); }},
    {"hello_deep", [](const std::string& hello) { write_all(mark_of(hello) + hello_ok(std::string(4000000, '['))), be_silent(); }},
    {"hello_million", [](const std::string& hello) {
       write_all(mark_of(hello) + hello_ok("[" + times(R"({"id":"ex-a"},)", 280000) + "{}]")), be_silent();
     }},
    {"hello_exit", [](const std::string&) { ::_exit(0); }},
    {"hello_close", [](const std::string&) { ::close(0), ::close(1), be_silent(); }},
};

// What is done with a channel that the daemon has just opened.
const std::map<std::string, std::function<void(uint32_t c)>> kAtCall{
    {"giant_length", [](uint32_t c) { write_all(header(kMaxPayloadFromAgent + 1, c, Type::kResponse)); }},
    {"largest_length", [](uint32_t c) { write_all(header(UINT32_MAX, c, Type::kOutput)); }},
    {"negative_length", [](uint32_t c) { write_all(header(0x80000000u, c, Type::kOutput)); }},
    {"half_frame", [](uint32_t c) { write_all(header(60000, c, Type::kResponse) + "x"), be_silent(); }},
    {"parts_of_thousands", [](uint32_t c) {
       for (uint32_t i = 0;; ++i) write_all(frame(i % (c + 1), Type::kResponse, "x", kFlagMore) + frame(i, Type::kOutput, "", kFlagMore));
     }},
    {"endless_part", [](uint32_t c) { repeat(frame(c, Type::kResponse, std::string(60000, 'x'), kFlagMore)); }},
    {"pongs", [](uint32_t) { repeat(times(frame(0, Type::kPong, ""), 5000)); }},
    {"empty_output", [](uint32_t c) { write_all(started(c)), repeat(times(output(c, 0, 0), 2000)); }},
    {"stdin_acks", [](uint32_t c) { write_all(started(c)), repeat(times(frame(c, Type::kStdinAck, std::string(8, '\0')), 3000)); }},
    {"windows", [](uint32_t c) { repeat(times(frame(c, Type::kWindow, std::string(8, '\0')), 3000)); }},
    {"responses", [](uint32_t c) { repeat(times(frame(c, Type::kResponse, "{\"ok\":true}"), 2000)); }},
    {"old_channels", [](uint32_t) { repeat(times(frame(1, Type::kData, "x"), 3000)); }},
    {"slow_bytes", [](uint32_t c) {
       for (const char byte : frame(c, Type::kResponse, std::string(60000, 'x'))) write_all(std::string(1, byte)), pause_for(1000);
     }},
    {"output_flood", [](uint32_t c) {
       write_all(started(c));
       for (uint64_t at = 0;; at += 60000) write_all(output(c, at, 60000));
     }},
    {"output_jumps", [](uint32_t c) { write_all(started(c) + output(c, 1ull << 62, 10)), be_silent(); }},
    {"output_back", [](uint32_t c) { write_all(started(c) + output(c, 0, 10) + output(c, 5, 10)), be_silent(); }},
    {"output_streams", [](uint32_t c) { write_all(started(c) + output(c, 0, 10, 77)), be_silent(); }},
    {"unknown_channel", [](uint32_t c) { write_all(output(c + 1000, 0, 10)), be_silent(); }},
    {"exited_first", [](uint32_t c) { write_all(exited(c, "\"code\":0")), be_silent(); }},
    {"exited_twice", [](uint32_t c) { write_all(started(c) + exited(c, "\"code\":0") + exited(c, "\"code\":1")), be_silent(); }},
    {"exited_impossible", [](uint32_t c) { write_all(started(c) + exited(c, "\"code\":-2147483649")), be_silent(); }},
    {"gone_first", [](uint32_t c) { write_all(started(c) + frame(c, Type::kGone, "")), be_silent(); }},
    {"json_deep", [](uint32_t c) { write_all(message(c, Type::kResponse, "{\"ok\":" + std::string(4000000, '['))), be_silent(); }},
    {"json_zeros", [](uint32_t c) {
       write_all(message(c, Type::kResponse, "{\"ok\":true,\"entries\":[" + times("0,", 2000000) + "0]}")), be_silent();
     }},
    {"json_names", [](uint32_t c) {
       std::string names;
       for (int i = 0; i < 300000; ++i) names += "\"" + std::to_string(i) + "\":0,";
       write_all(message(c, Type::kResponse, "{" + names + "\"ok\":true}")), be_silent();
     }},
    {"json_nonsense", [](uint32_t c) { write_all(message(c, Type::kResponse, std::string(4000000, '"'))), be_silent(); }},
    {"json_not_utf8", [](uint32_t c) { write_all(frame(c, Type::kResponse, "{\"ok\":true,\"entry\":{\"name\":\"\xFF\xC0\x80\"}}")), be_silent(); }},
    {"entry_huge", [](uint32_t c) {
       write_all(message(c, Type::kResponse, R"({"ok":true,"entry":{"type":"file","name":")" + std::string(4000000, 'n') + "\"}}")), be_silent();
     }},
    {"entry_negative", [](uint32_t c) {
       write_all(frame(c, Type::kResponse, R"({"ok":true,"length":-5,"entry":{"type":"file","name":"n","path":"/n","size":-9,"mode":99999}})")), be_silent();
     }},
    {"error_of_ours", [](uint32_t c) { write_all(frame(c, Type::kResponse, R"({"ok":false,"code":"unauthenticated"})")), be_silent(); }},
    {"data_flood", [](uint32_t c) { write_all(frame(c, Type::kResponse, "{\"ok\":true}")), repeat(frame(c, Type::kData, std::string(60000, 'x'))); }},
    {"data_short", [](uint32_t c) {
       write_all(frame(c, Type::kResponse, R"({"ok":true,"length":100})") + frame(c, Type::kData, "x") + frame(c, Type::kEnd, "")), be_silent();
     }},
    {"end_twice", [](uint32_t c) {
       write_all(frame(c, Type::kResponse, "{\"ok\":true}") + frame(c, Type::kEnd, "") + frame(c, Type::kEnd, "")), be_silent();
     }},
    {"exit", [](uint32_t) { ::_exit(7); }},
    {"crash", [](uint32_t) { ::abort(); }},
    {"close_all", [](uint32_t) { ::close(0), ::close(1), be_silent(); }},
    {"close_input", [](uint32_t) { ::close(0), be_silent(); }},
    {"deaf", [](uint32_t) { be_silent(); }},
    {"random", [](uint32_t c) {
       uint64_t seed = 88172645463325252ull + c;
       for (;;) {
         std::string bytes;
         for (int i = 0; i < 512; ++i) {
           seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
           bytes.append(reinterpret_cast<const char*>(&seed), sizeof seed);
         }
         write_all(bytes);
       }
     }},
};

void be_honest(const Frame& got) {
  if (got.type == Type::kPing) write_all(frame(0, Type::kPong, got.payload));
  if (got.type == Type::kRequest) write_all(frame(got.channel, Type::kResponse, "{\"ok\":true}"));
  if (got.type == Type::kExec) write_all(started(got.channel) + exited(got.channel, "\"code\":0"));
  if (got.type == Type::kForget) write_all(frame(got.channel, Type::kGone, ""));
}

class Agent {
 public:
  void handle(const Frame& got) {
    if (got.type == Type::kHello) return greet(got.payload);
    const auto behaviour = kAtCall.find(behaviour_);
    const bool opens = got.type == Type::kRequest || got.type == Type::kExec;
    if (!opens || behaviour == kAtCall.end() || calls_++ == 0) return be_honest(got);
    behaviour->second(got.channel);
  }

 private:
  void greet(const std::string& hello) {
    behaviour_ = field(hello, "HOSTILE");
    const auto at_hello = kAtHello.find(behaviour_);
    if (at_hello != kAtHello.end()) at_hello->second(hello);
    write_all(mark_of(hello) + hello_ok("[]"));
  }
  std::string behaviour_;
  int calls_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--list") {
    for (const auto& [name, act] : kAtHello) ::dprintf(1, "%s\n", name.c_str());
    for (const auto& [name, act] : kAtCall) ::dprintf(1, "%s\n", name.c_str());
    return 0;
  }
  for (const int fd : {0, 1}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  Agent agent;
  Decoder decoder(kMaxPayloadToAgent, kMaxMessageToAgent);
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(0, buffer, sizeof buffer);
    if (n <= 0) continue;
    decoder.feed(std::string_view(buffer, static_cast<size_t>(n)));
    Frame got;
    for (auto whole = decoder.next(&got); whole && *whole; whole = decoder.next(&got)) agent.handle(got);
  }
}
