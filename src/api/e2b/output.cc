// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/output.h"

#include <boost/json/object.hpp>
#include <csignal>

#include "api/e2b/rpc.h"
#include "base/text.h"
#include "http/json.h"

namespace glovebox::api::e2b {
namespace {

constexpr size_t kPiece = 32 << 10, kPtyPiece = 16 << 10;

// As the vendor's daemon words it.
std::string signal_text(int number) {
  constexpr std::pair<int, std::string_view> kKnown[] = {
      {SIGHUP, "hangup"},   {SIGINT, "interrupt"}, {SIGQUIT, "quit"},     {SIGILL, "illegal instruction"},
      {SIGABRT, "aborted"}, {SIGBUS, "bus error"}, {SIGFPE, "floating point exception"},
      {SIGKILL, "killed"},  {SIGSEGV, "segmentation fault"},              {SIGPIPE, "broken pipe"},
      {SIGALRM, "alarm clock"},                    {SIGTERM, "terminated"}};
  for (const auto& [known, text] : kKnown) {
    if (known == number) return "signal: " + std::string(text);
  }
  return "signal: signal " + std::to_string(number);
}

std::string end_payload(boost::json::object end) {
  return json::to_text(boost::json::object{{"event", boost::json::object{{"end", std::move(end)}}}});
}

}  // namespace

std::string output_event(std::string_view kind, std::string_view bytes) {
  std::string payload = R"({"event":{"data":{")";
  payload += kind;
  payload += R"(":")" + base64_encode(bytes) + "\"}}}";
  return envelope(payload);
}

std::string OutputEvents::take(sandbox::Stream stream, std::string_view bytes) {
  const bool is_error = stream == sandbox::Stream::kStderr;
  const std::string_view kind = is_pty_ ? "pty" : is_error ? "stderr" : "stdout";
  std::string& rest = rest_[is_error];
  rest += bytes;
  const std::string_view all = rest;
  std::string out;
  size_t at = 0;
  while (at < all.size()) {
    std::string_view piece = all.substr(at, is_pty_ ? kPtyPiece : kPiece);
    if (!is_pty_) piece = piece.substr(0, utf8_complete_prefix(piece));
    if (piece.empty()) break;
    out += output_event(kind, piece);
    at += piece.size();
  }
  rest.erase(0, at);
  return out;
}

std::string OutputEvents::finish() {
  std::string out;
  for (const bool is_error : {false, true}) {
    if (!rest_[is_error].empty()) out += output_event(is_error ? "stderr" : "stdout", rest_[is_error]);
    rest_[is_error].clear();
  }
  return out;
}

std::optional<std::string> end_event(const sandbox::Outcome& outcome) {
  if (outcome.type == "exited" && outcome.exit_code) {
    const std::string status = "exit status " + std::to_string(*outcome.exit_code);
    boost::json::object end{{"exited", true}, {"status", status}};
    if (*outcome.exit_code != 0) {
      end["exitCode"] = *outcome.exit_code;
      end["error"] = status;
    }
    return end_payload(std::move(end));
  }
  int number = outcome.signal.value_or(0);
  const bool was_killed = outcome.type == "oom_killed" || outcome.type == "killed_by_caller";
  if (was_killed && number == 0) number = SIGKILL;
  if (number == 0 || (outcome.type != "signalled" && !was_killed)) return std::nullopt;
  std::string error = signal_text(number);
  if (outcome.type == "oom_killed") error += " (out of memory)";
  return end_payload({{"exitCode", -1}, {"status", signal_text(number)}, {"error", error}});
}

}  // namespace glovebox::api::e2b
