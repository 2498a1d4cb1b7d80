// SPDX-License-Identifier: Apache-2.0
#include "api/v1/views.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cstdio>
#include <cstring>

#include "base/text.h"
#include "policy/egress.h"

namespace glovebox::api::v1 {
namespace bj = boost::json;
namespace {

bj::object strings(const sandbox::StringMap& map) {
  bj::object out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}

bj::value time_or_null(const std::optional<WallTime>& time) { return time ? bj::value(iso_time(*time)) : bj::value(nullptr); }

uint64_t mebibytes(uint64_t bytes) { return bytes >> 20; }

bj::object view(const runtime::Limits& l) {
  return {{"cpus", l.cpus}, {"memory_mb", mebibytes(l.memory_bytes)}, {"disk_mb", mebibytes(l.disk_bytes)},
          {"processes", l.processes}, {"open_files", l.open_files}};
}

bj::value view(const std::optional<sandbox::Outcome>& outcome) {
  if (!outcome) return nullptr;
  bj::object out{{"type", outcome->type}};
  if (outcome->exit_code) out["exit_code"] = *outcome->exit_code;
  if (outcome->signal) {
    out["signal"] = *outcome->signal;
    out["signal_name"] = signal_name(*outcome->signal);
  }
  if (!outcome->message.empty()) out["message"] = outcome->message;
  return out;
}

}  // namespace

std::string_view signal_name(int signal) {
  // sigabbrev_np gives "KILL"; the table makes "SIGKILL" once.
  static const auto names = [] {
    std::array<std::string, 65> table;
    for (int i = 1; i <= 64; ++i) {
      if (const char* name = ::sigabbrev_np(i)) table[static_cast<size_t>(i)] = std::string("SIG") + name;
    }
    return table;
  }();
  return signal >= 1 && signal <= 64 ? names[static_cast<size_t>(signal)] : std::string_view();
}

void put_bytes(bj::object& object, std::string_view name, std::string_view bytes) {
  object[bj::string_view(name.data(), name.size())] = is_utf8(bytes) ? std::string(bytes) : utf8_lossy(bytes);
  if (!is_utf8(bytes)) object[std::string(name) + "_b64"] = base64_encode(bytes);
}

bj::value page_cursor(const std::string& cursor) { return cursor.empty() ? bj::value(nullptr) : bj::value(cursor); }

namespace {
bj::object network_view(const sandbox::SandboxInfo& i) {
  bj::object out{{"egress", policy::egress_name(i.network ? i.network->egress : policy::Egress::kNone)}, {"link", i.link.has_value()}};
  out["address"] = i.link ? bj::value(sandbox::link_address(*i.link)) : bj::value(nullptr);
  return out;
}

bj::array volumes_view(const sandbox::SandboxInfo& i) {
  bj::array out;
  for (const auto& v : i.volumes) out.push_back({{"volume", v.volume}, {"path", utf8_lossy(v.path)}, {"read_only", v.read_only}});
  return out;
}

bj::value paused_view(const sandbox::SandboxInfo& i) {
  if (!i.paused) return nullptr;
  const sandbox::Paused& p = *i.paused;
  return {{"at", iso_time(p.at)}, {"cause", p.cause}, {"hibernated", p.hibernated}, {"kept", runtime::kept_name(p.kept)}};
}
}  // namespace

bj::object view(const sandbox::SnapshotInfo& s) {
  bj::array parts;
  for (const auto& part : s.parts) parts.push_back({{"name", part.name}, {"bytes", part.bytes}, {"sha256", part.sha256}});
  bj::object out{{"id", s.id},
                 {"name", s.name},
                 {"labels", strings(s.labels)},
                 {"state", s.state},
                 {"runtime", runtime::tier_name(s.tier)},
                 {"kept", runtime::kept_name(s.kept)},
                 {"source_sandbox", s.source_sandbox},
                 {"parent", page_cursor(s.parent)},
                 {"template", s.template_name},
                 {"template_version", s.template_version},
                 {"limits", view(s.limits)},
                 {"min_memory_mb", mebibytes(s.min_memory_bytes)},
                 {"min_disk_mb", mebibytes(s.min_disk_bytes)},
                 {"bytes", s.bytes},
                 {"parts", std::move(parts)},
                 {"stall_ms", std::chrono::duration<double, std::milli>(s.stall).count()},
                 {"created_at", iso_time(s.created_at)}};
  if (!s.message.empty()) out["message"] = s.message;
  return out;
}

bj::object view(const sandbox::SandboxInfo& i) {
  bj::array env_keys, secret_keys;
  for (const auto& [key, value] : i.env) env_keys.emplace_back(key);
  for (const auto& [key, value] : i.secrets) secret_keys.emplace_back(key);
  bj::value ended = nullptr;
  if (i.ended) ended = {{"at", iso_time(i.ended->at)}, {"reason", i.ended->reason}, {"message", i.ended->message}};
  bj::object out{{"id", i.id},
          {"state", sandbox::state_name(i.state)},
          {"runtime", runtime::tier_name(i.tier)},
          {"template", {{"name", i.template_name}, {"version", i.template_version}}},
          {"started_from", i.started_from},
          {"snapshot_id", page_cursor(i.snapshot_id)},
          {"ready_ms", i.ready_ms},
          {"created_at", iso_time(i.created_at)},
          {"expires_at", time_or_null(i.expires_at)},
          {"idle_timeout_ms", i.idle_timeout.count()},
          {"on_timeout", sandbox::on_timeout_name(i.on_timeout)},
          {"limits", view(i.limits)},
          {"user", i.user},
          {"workdir", i.workdir},
          {"env_keys", std::move(env_keys)},
          {"secret_keys", std::move(secret_keys)},
          {"metadata", strings(i.metadata)},
          {"network", network_view(i)},
          {"volumes", volumes_view(i)},
          {"frozen", i.frozen},
          {"paused", paused_view(i)},
          {"running_executions", i.running_executions},
          {"ended", std::move(ended)}};
  if (!i.engine.empty()) out["engine"] = i.engine;
  if (!i.accel.empty()) out["accel"] = i.accel;
  return out;
}

bj::object view(const sandbox::ExecInfo& i) {
  bj::object out{{"id", i.id}, {"sandbox_id", i.sandbox_id}, {"state", i.outcome ? "ended" : "running"}, {"pid", i.pid}};
  if (i.argv.empty()) {
    out["command"] = i.command;
  } else {
    bj::array argv;
    for (const std::string& word : i.argv) argv.emplace_back(is_utf8(word) ? word : utf8_lossy(word));
    out["argv"] = std::move(argv);
  }
  put_bytes(out, "cwd", i.cwd);
  out["user"] = i.user;
  out["pty"] = i.pty;
  out["name"] = i.name;
  out["started_at"] = iso_time(i.started_at);
  out["ended_at"] = time_or_null(i.ended_at);
  const auto until = i.ended_at.value_or(std::chrono::system_clock::now());
  out["duration_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(until - i.started_at).count();
  out["outcome"] = view(i.outcome);
  if (i.outcome && i.outcome->exit_code) out["exit_code"] = *i.outcome->exit_code;
  out["children_left"] = i.children_left;
  out["output"] = {{"stdout_bytes", i.stdout_bytes}, {"stderr_bytes", i.stderr_bytes}, {"kept_bytes", i.kept_bytes},
                   {"truncated", i.truncated()}, {"next_cursor", i.next_cursor}};
  out["usage"] = {{"user_ms", i.user_us / 1000}, {"system_ms", i.system_us / 1000},
                  {"max_rss_bytes", i.max_rss_bytes}};
  return out;
}

namespace {
std::string mode_text(uint32_t mode) {
  std::array<char, 8> text;
  std::snprintf(text.data(), text.size(), "%04o", mode & 07777);
  return text.data();
}
}  // namespace

bj::object view(const sandbox::FileChange& c) {
  constexpr const char* kKinds[] = {"added", "changed", "deleted"};
  bj::object out;
  put_bytes(out, "path", c.path);
  out["change"] = kKinds[static_cast<size_t>(c.kind)];
  out["type"] = c.type;
  out["size"] = c.size;
  out["mode"] = mode_text(c.mode);
  return out;
}

bj::object view(const sandbox::FileEntry& e) {
  bj::object out;
  put_bytes(out, "name", e.name);
  put_bytes(out, "path", e.path);
  out["type"] = utf8_lossy(e.type);
  out["size_bytes"] = e.size;
  out["mode"] = mode_text(e.mode);
  out["uid"] = e.uid;
  out["gid"] = e.gid;
  out["user"] = utf8_lossy(e.user);
  out["group"] = utf8_lossy(e.group);
  out["modified_at"] = iso_time(from_unix_millis(std::clamp<int64_t>(e.mtime_ms, 0, 253402300799999)));  // years 1970 … 9999
  if (e.target) put_bytes(out, "target", *e.target);
  return out;
}

bj::object view(const sandbox::FileEvent& event) {
  bj::object out{{"type", event.type}};
  put_bytes(out, "path", event.path);
  return out;
}

bj::object view(const sandbox::ProcessInfo& p) {
  bj::array argv;
  for (const std::string& word : p.argv) argv.emplace_back(utf8_lossy(word));
  bj::object out{{"pid", p.pid}, {"ppid", p.ppid}, {"user", utf8_lossy(p.user)}, {"argv", std::move(argv)}};
  out["execution"] = page_cursor(utf8_lossy(p.execution));
  put_bytes(out, "cwd", p.cwd);
  out["state"] = utf8_lossy(p.state);
  out["started_at"] = iso_time(from_unix_millis(std::clamp<int64_t>(p.started_ms, 0, 253402300799999)));
  out["rss_bytes"] = p.rss_bytes;
  return out;
}

bj::object view(const sandbox::PoolState& p) {
  return {{"template", {{"name", p.target.template_name}, {"version", page_cursor(p.template_version)}}},
          {"runtime", runtime::tier_name(p.target.tier)}, {"limits", view(p.limits)}, {"network", p.target.network.value_or(false)}, {"wanted", p.target.count},
          {"max", std::max(p.target.count, p.target.max)}, {"ready", p.ready}, {"warm", bj::array(p.target.warm.begin(), p.target.warm.end())}, {"ready_warm", p.warm},
          {"starting", p.starting}, {"claimed", p.claimed}, {"misses", p.misses}, {"refill_ms", p.refill_ms}};
}

bj::object view(const sandbox::SandboxService::RuntimeInfo& r) {
  const runtime::Capability& c = r.capability;
  return {{"runtime", runtime::tier_name(r.tier)}, {"usable", c.usable}, {"engine", c.engine}, {"problem", c.problem},
          {"remedy", c.remedy}, {"facts", strings(c.facts)}};
}

bj::object view(const image::Template& t) {
  return {{"name", t.name}, {"version", t.version}, {"kind", t.kind}, {"image_sha256", t.image_sha256},
          {"image_bytes", t.image_bytes}, {"created_at", iso_time(t.created_at)}, {"package_count", t.package_count},
          {"user", t.config.user}, {"workdir", t.config.workdir}, {"env", strings(t.config.env)}};
}

bj::object view(const tenant::KeyInfo& k) {
  return {{"id", k.id}, {"name", k.name}, {"tenant", k.tenant}, {"role", tenant::role_name(k.role)}, {"preview", k.preview},
          {"default_runtime", k.default_runtime ? bj::value(runtime::tier_name(*k.default_runtime)) : bj::value(nullptr)},
          {"created_at", iso_time(k.created_at)}};
}

bj::object view(const sandbox::Chunk& c) {
  bj::object out{{"stream", c.stream == sandbox::Stream::kStdout ? "stdout" : "stderr"}, {"cursor", c.cursor}};
  if (is_utf8(c.data)) {
    out["data"] = c.data;
  } else {
    out["data_b64"] = base64_encode(c.data);
  }
  return out;
}

}  // namespace glovebox::api::v1
