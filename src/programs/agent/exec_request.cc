// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/exec_request.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::agent {
namespace {

constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr size_t kMaxIdBytes = 64;
constexpr size_t kMaxStringBytes =
    128 * 1024;  // Linux: MAX_ARG_STRLEN, with its NUL; gVisor names the error differently
constexpr int64_t kMaxMillis = 366ll * 24 * 3600 * 1000;

Result<std::vector<std::string>> parse_argv(const json::object& object) {
  const json::value* list = find_field(object, "argv");
  const json::value* command = find_field(object, "command");
  if ((list == nullptr) == (command == nullptr)) {
    return fail(Code::kInvalidArgument, "argv or command, one of them");
  }
  if (command != nullptr) {
    GB_TRY(auto text, text_field(object, "command"));
    return std::vector<std::string>{"/bin/sh", "-c", std::move(text)};
  }
  if (!list->is_array() || list->get_array().empty()) {
    return fail(Code::kInvalidArgument, "argv: must be a list that is not empty");
  }
  std::vector<std::string> argv;
  for (const json::value& item : list->get_array()) {
    auto bytes = bytes_of(item);
    if (!bytes || bytes->find('\0') != std::string::npos) {
      return fail(Code::kInvalidArgument, "argv: must hold strings without NUL");
    }
    argv.push_back(*std::move(bytes));
  }
  return argv;
}

void add_user_defaults(std::map<std::string, std::string>& env, const ExecRequest& request,
                       const std::string& term) {
  env.try_emplace("HOME", request.user.home);
  env.try_emplace("USER", request.user.name);
  env.try_emplace("LOGNAME", request.user.name);
  env.try_emplace("SHELL", request.user.shell);
  env.try_emplace("PATH", kDefaultPath);
  env.try_emplace("LANG", "C.UTF-8");
  if (request.pty) env["TERM"] = term;
}

std::vector<std::string> program_candidates(const std::string& name, const std::string& path) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> out;
  for (const std::string& dir : split(path, ':'))
    out.push_back((dir.empty() ? "." : dir) + "/" + name);
  return out;
}

Result<void> parse_directory(const json::object& object, ExecRequest& request) {
  GB_TRY(request.directory, text_field(object, "cwd"));
  request.directory_is_default = request.directory.empty();
  if (request.directory_is_default) {
    request.directory = request.user.home;
  } else if (request.directory[0] != '/') {
    request.directory = request.user.home + "/" + request.directory;
  }
  return {};
}

Result<std::string> parse_pty(const json::object& object, ExecRequest& request) {
  const json::value* pty = find_field(object, "pty");
  if (pty == nullptr) return std::string();
  if (!pty->is_object()) return fail(Code::kInvalidArgument, "pty: must be an object");
  GB_TRY(const int64_t columns, int_field(pty->get_object(), "cols", 80, 1, 65535));
  GB_TRY(const int64_t rows, int_field(pty->get_object(), "rows", 24, 1, 65535));
  request.pty = PtySize{static_cast<uint16_t>(columns), static_cast<uint16_t>(rows)};
  return text_field(pty->get_object(), "term", "xterm-256color");
}

void apply_limits(const ExecDefaults& defaults, ExecRequest& request) {
  request.open_files = defaults.own_open_files;
  if (defaults.open_files > 0) {
    const uint64_t limit =
        std::min<uint64_t>(defaults.open_files, defaults.own_open_files.rlim_max);
    request.open_files = rlimit64{limit, limit};
  }
  if (defaults.processes > 0) request.processes = rlimit64{defaults.processes, defaults.processes};
}

}  // namespace

Result<std::map<std::string, std::string>> parse_env(const json::object& object,
                                                     std::string_view field) {
  std::map<std::string, std::string> env;
  const json::value* value = find_field(object, field);
  if (value == nullptr) return env;
  if (!value->is_object())
    return fail(Code::kInvalidArgument, std::string(field) + ": must be an object");
  for (const auto& [key, item] : value->get_object()) {
    std::string name(key.data(), key.size());
    auto bytes = bytes_of(item);
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      return fail(Code::kInvalidArgument, "env: a name is empty or holds = or NUL");
    }
    if (!bytes || bytes->find('\0') != std::string::npos) {
      return fail(Code::kInvalidArgument,
                  "env: the value of " + name + " must be a string without NUL");
    }
    env[std::move(name)] = *std::move(bytes);
  }
  return env;
}

Result<ExecRequest> parse_exec(const json::object& object, const ExecDefaults& defaults,
                               Users& users) {
  ExecRequest request;
  GB_TRY(request.id, text_field(object, "id"));
  if (request.id.empty() || request.id.size() > kMaxIdBytes) {
    return fail(Code::kInvalidArgument, "id: 1 to 64 bytes");
  }
  GB_TRY(request.argv, parse_argv(object));
  GB_TRY(const std::string user, text_field(object, "user", defaults.default_user));
  GB_TRY(request.user, users.find(user));
  GB_TRYV(parse_directory(object, request));
  GB_TRY(request.wants_stdin, bool_field(object, "stdin", false));
  GB_TRY(const std::string term, parse_pty(object, request));
  GB_TRY(const int64_t timeout, int_field(object, "timeout_ms", 0, 0, kMaxMillis));
  GB_TRY(const int64_t grace, int_field(object, "kill_grace_ms", 0, 0, kMaxMillis));
  request.timeout = std::chrono::milliseconds(timeout);
  request.kill_grace = std::chrono::milliseconds(grace);
  GB_TRY(auto env, parse_env(object, "env"));
  env.insert(defaults.env.begin(), defaults.env.end());  // keeps what EXEC said
  const bool term_given = env.contains("TERM") &&
                          !(find_field(object, "pty") != nullptr &&
                            find_field(find_field(object, "pty")->get_object(), "term") != nullptr);
  add_user_defaults(env, request, term_given ? env["TERM"] : term);
  request.candidates = program_candidates(request.argv[0], env["PATH"]);
  for (const auto& [name, value] : env) request.env.push_back(name + "=" + value);
  for (const auto* strings : {&request.argv, &request.env}) {
    for (const std::string& text : *strings) {
      if (text.size() < kMaxStringBytes) continue;
      return fail(Code::kArgumentsTooLong,
                  "an argument or environment variable has 128 KiB or more");
    }
  }
  apply_limits(defaults, request);
  return request;
}

}  // namespace glovebox::agent
