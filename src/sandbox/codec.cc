// SPDX-License-Identifier: Apache-2.0
#include "sandbox/codec.h"

#include <boost/json.hpp>

#include <algorithm>
#include <set>

#include "channel/json_shape.h"
#include "policy/egress.h"
#include "sandbox/json_reader.h"
#include "sandbox/snapshot_codec.h"

namespace glovebox::sandbox::codec {
namespace json = boost::json;
namespace {

constexpr uint64_t kMaxCount = INT64_MAX / 2;  // sums of two stay numbers that JSON readers know
constexpr size_t kMaxEventPath = 8192;  // a watched path and a name
constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kMaxAgentExecutions = 4096;   // spec/channel.md, Limits

Result<FileEntry> entry_from(const json::value& value) {
  if (!value.is_object()) return fail(Code::kAgentProtocol, "a file entry is not an object");
  FileEntry e;
  Reader reader(value.get_object(), Code::kAgentProtocol);
  reader.text("name", &e.name).text("path", &e.path).text("type", &e.type).number("size", &e.size)
      .number("mode", &e.mode).number("uid", &e.uid).number("gid", &e.gid).text("user", &e.user)
      .text("group", &e.group).number("mtime_ms", &e.mtime_ms).number("ctime_ns", &e.ctime_ns)
      .text("target", &e.target);
  GB_TRYV(reader.done());
  constexpr std::string_view kTypes[] = {"file", "directory", "symlink", "fifo", "socket", "char", "block"};
  const bool is_possible = std::find(std::begin(kTypes), std::end(kTypes), e.type) != std::end(kTypes) && e.mode <= 07777 &&
                           e.size <= kMaxCount && e.name.size() <= kMaxNameBytes && e.path.size() <= 2 * kMaxNameBytes &&
                           e.user.size() <= kMaxNameBytes && e.group.size() <= kMaxNameBytes &&
                           (!e.target || e.target->size() <= kMaxNameBytes) && (e.name + e.path).find('\0') == std::string::npos;
  if (!is_possible) return fail(Code::kAgentProtocol, "an impossible file entry");
  return e;
}

json::array to_json(const std::vector<VolumeMount>& volumes) {
  json::array out;
  for (const auto& v : volumes) out.push_back({{"volume", v.volume}, {"path", v.path}, {"read_only", v.read_only}});
  return out;
}

Result<std::vector<VolumeMount>> read_volumes(const json::object& document) {
  std::vector<VolumeMount> volumes;
  Reader r(document, Code::kCorrupt);
  const auto* list = r.array("volumes");
  GB_TRYV(r.done());
  for (const json::value& value : list ? *list : json::array()) {
    if (!value.is_object()) return fail(Code::kCorrupt, "field 'volumes' is wrong");
    VolumeMount& v = volumes.emplace_back();
    Reader item(value.get_object(), Code::kCorrupt);
    item.text("volume", &v.volume).text("path", &v.path).boolean("read_only", &v.read_only);
    GB_TRYV(item.done());
  }
  return volumes;
}

void append_field(std::string& out, std::string_view name) {
  out += out.size() > 1 ? ",\"" : "\"";
  out += name;
  out += "\":";
}

}  // namespace

json::object to_json(const StringMap& map) {
  json::object out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}

Result<json::object> parse(std::string_view text, Code code) {
  if (code == Code::kAgentProtocol) GB_TRYV(channel::check_json_shape(text));
  boost::system::error_code ec;
  json::parse_options options;
  options.max_depth = 16;
  json::value value = json::parse(json::string_view(text.data(), text.size()), ec, {}, options);
  if (ec || !value.is_object()) return fail(code, "not a JSON object: " + ec.message());
  return std::move(value.as_object());
}

json::object limits_to_json(const runtime::Limits& l) {
  return {{"cpus", l.cpus}, {"memory_bytes", l.memory_bytes}, {"disk_bytes", l.disk_bytes},
          {"inodes", l.inodes}, {"processes", l.processes}, {"open_files", l.open_files}};
}

Result<runtime::Limits> read_limits(const json::object& document) {
  runtime::Limits out;
  Reader r(document, Code::kCorrupt);
  if (const auto* l = r.object("limits")) {
    Reader limits(*l, Code::kCorrupt);
    limits.real("cpus", &out.cpus).number("memory_bytes", &out.memory_bytes)
        .number("disk_bytes", &out.disk_bytes).number("inodes", &out.inodes)
        .number("processes", &out.processes).number("open_files", &out.open_files);
    GB_TRYV(limits.done());
  }
  GB_TRYV(r.done());
  return out;
}

void append_bytes(std::string& out, std::string_view bytes) {
  if (is_utf8(bytes)) {
    append_json_string(out, bytes);
  } else {
    out += "{\"b64\":\"" + base64_encode(bytes) + "\"}";
  }
}

void append_map(std::string& out, const StringMap& map) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : map) {
    if (!first) out += ',';
    first = false;
    append_json_string(out, key);
    out += ':';
    append_json_string(out, value);
  }
  out += '}';
}

std::string encode(const SandboxDocument& d) {
  const SandboxInfo& i = d.info;
  json::object o{{"id", i.id}, {"tenant", i.tenant}, {"state", state_name(i.state)}, {"tier", tier_name(i.tier)},
                 {"template_name", i.template_name}, {"template_version", i.template_version},
                 {"started_from", i.started_from}, {"ready_ms", i.ready_ms}, {"created_ms", unix_millis(i.created_at)},
                 {"idle_timeout_ms", i.idle_timeout.count()}, {"limits", limits_to_json(i.limits)},
                 {"env", to_json(i.env)}, {"metadata", to_json(i.metadata)}, {"attributes", to_json(i.attributes)},
                 {"user", i.user}, {"workdir", i.workdir}};
  if (!i.secrets.empty()) o["secrets"] = to_json(i.secrets);
  if (i.network) o["network"] = policy::to_json(*i.network);
  if (i.link) o["link"] = *i.link;
  if (i.network_in + i.network_out > 0) {
    o["network_in"] = i.network_in;
    o["network_out"] = i.network_out;
  }
  if (!i.idempotency_key.empty()) {
    o["idempotency_key"] = i.idempotency_key;
    o["request_hash"] = i.request_hash;
  }
  if (i.lifetime.count() > 0) o["lifetime_ms"] = i.lifetime.count();
  if (i.on_timeout != OnTimeout::kKill) o["on_timeout"] = on_timeout_name(i.on_timeout);
  if (i.paused) {
    o["paused"] = {{"at_ms", unix_millis(i.paused->at)}, {"cause", i.paused->cause}, {"hibernated", i.paused->hibernated},
                   {"kept", runtime::kept_name(i.paused->kept)}};
  }
  if (!i.snapshot_id.empty()) o["snapshot_id"] = i.snapshot_id;
  if (!i.volumes.empty()) o["volumes"] = to_json(i.volumes);
  if (i.expires_at) o["expires_ms"] = unix_millis(*i.expires_at);
  if (i.ended) {
    o["ended"] = {{"at_ms", unix_millis(i.ended->at)}, {"reason", i.ended->reason}, {"message", i.ended->message}};
  }
  if (d.image) {
    const runtime::SnapshotImage& content = d.image->content;
    o["image"] = {{"directory", d.image->directory}, {"is_own", d.image->is_own}, {"kept", runtime::kept_name(content.kept)},
                  {"parts", to_json(content.parts)}, {"needs", to_json(content.needs)}, {"min_memory_bytes", content.min_memory_bytes},
                  {"min_disk_bytes", content.min_disk_bytes}};
  }
  if (d.unowned_cpu_us > 0) o["unowned_cpu_us"] = d.unowned_cpu_us;
  o["record"] = {{"directory", d.record.directory}, {"fields", to_json(d.record.fields)}};
  o["rootfs"] = {{"digest", d.rootfs.digest}, {"image_path", d.rootfs.image_path}};
  return json::serialize(o);
}

namespace {

Result<StoredImage> read_image(const json::object& o) {
  StoredImage image;
  std::string kept;
  Reader r(o, Code::kCorrupt);
  r.text("directory", &image.directory).boolean("is_own", &image.is_own).text("kept", &kept).map("needs", &image.content.needs)
      .number("min_memory_bytes", &image.content.min_memory_bytes).number("min_disk_bytes", &image.content.min_disk_bytes);
  GB_TRYV(r.done());
  GB_TRY(image.content.parts, read_parts(o));
  image.content.kept = runtime::kept_from_name(kept).value_or(runtime::Kept::kFiles);
  return image;
}

}  // namespace

Result<SandboxDocument> decode_sandbox(std::string_view text) {
  GB_TRY(const json::object o, parse(text, Code::kCorrupt));
  SandboxDocument d;
  SandboxInfo& i = d.info;
  std::string state, tier, on_timeout;
  int64_t created = 0, idle = 0, lifetime = 0;
  std::optional<int64_t> expires;
  Reader r(o, Code::kCorrupt);
  r.text("id", &i.id).text("tenant", &i.tenant).text("state", &state).text("tier", &tier)
      .text("template_name", &i.template_name).text("template_version", &i.template_version)
      .text("started_from", &i.started_from).real("ready_ms", &i.ready_ms).number("created_ms", &created)
      .number("idle_timeout_ms", &idle).map("env", &i.env).map("secrets", &i.secrets).map("metadata", &i.metadata)
      .map("attributes", &i.attributes).text("user", &i.user).text("workdir", &i.workdir).number("expires_ms", &expires)
      .text("idempotency_key", &i.idempotency_key).text("request_hash", &i.request_hash)
      .number("lifetime_ms", &lifetime).text("on_timeout", &on_timeout).text("snapshot_id", &i.snapshot_id)
      .number("unowned_cpu_us", &d.unowned_cpu_us);
  GB_TRY(i.volumes, read_volumes(o));
  if (const auto* p = r.object("paused")) {
    Paused paused;
    int64_t at = 0;
    Reader reader(*p, Code::kCorrupt);
    std::string kept;
    reader.number("at_ms", &at).text("cause", &paused.cause).boolean("hibernated", &paused.hibernated).text("kept", &kept);
    GB_TRYV(reader.done());
    paused.kept = runtime::kept_from_name(kept).value_or(runtime::Kept::kMemoryAndFiles);
    paused.at = from_unix_millis(at);
    i.paused = paused;
  }
  GB_TRY(i.limits, read_limits(o));
  if (const auto* e = r.object("ended")) {
    Ended ended;
    int64_t at = 0;
    Reader reader(*e, Code::kCorrupt);
    reader.number("at_ms", &at).text("reason", &ended.reason).text("message", &ended.message);
    GB_TRYV(reader.done());
    ended.at = from_unix_millis(at);
    i.ended = ended;
  }
  if (const auto* network = r.object("network")) {
    GB_TRY(auto policy, policy::parse_network_policy(boost::json::value(*network)));
    i.network = std::make_shared<policy::NetworkPolicy>(std::move(policy));
  }
  std::optional<int64_t> link;
  r.number("link", &link).number("network_in", &i.network_in).number("network_out", &i.network_out);
  if (link) i.link = static_cast<uint32_t>(*link);
  if (const auto* rec = r.object("record")) {
    Reader reader(*rec, Code::kCorrupt);
    reader.text("directory", &d.record.directory).map("fields", &d.record.fields);
    GB_TRYV(reader.done());
  }
  if (const auto* image = r.object("image")) {
    GB_TRY(d.image, read_image(*image));
  }
  if (const auto* root = r.object("rootfs")) {
    Reader reader(*root, Code::kCorrupt);
    reader.text("digest", &d.rootfs.digest).text("image_path", &d.rootfs.image_path);
    GB_TRYV(reader.done());
  }
  GB_TRYV(r.done());
  const auto known_state = state_from_name(state);
  const auto known_tier = runtime::tier_from_name(tier);
  if (!known_state || !known_tier) return fail(Code::kCorrupt, "unknown state or tier: " + state + ", " + tier);
  i.state = *known_state;
  i.tier = d.record.tier = *known_tier;
  d.record.id = i.id;
  if (i.state == State::kEnded && !i.ended) return fail(Code::kCorrupt, "it has ended, and does not say how");
  i.created_at = from_unix_millis(created);
  i.idle_timeout = Millis(idle);
  i.lifetime = Millis(lifetime);
  i.on_timeout = on_timeout_from_name(on_timeout).value_or(OnTimeout::kKill);
  if (i.state == State::kPaused && !i.paused) return fail(Code::kCorrupt, "it is paused, and does not say since when");
  if (expires) i.expires_at = from_unix_millis(*expires);
  return d;
}

std::string encode(const ExecInfo& i) {
  json::array argv(i.argv.begin(), i.argv.end());
  json::object o{{"id", i.id}, {"sandbox_id", i.sandbox_id}, {"name", i.name}, {"pid", i.pid},
                 {"argv", std::move(argv)}, {"command", i.command}, {"cwd", i.cwd}, {"user", i.user}, {"pty", i.pty},
                 {"background", i.background},
                 {"started_ms", unix_millis(i.started_at)}, {"children_left", i.children_left},
                 {"stdout_bytes", i.stdout_bytes}, {"stderr_bytes", i.stderr_bytes}, {"kept_bytes", i.kept_bytes},
                 {"dropped_stdout", i.dropped_stdout}, {"dropped_stderr", i.dropped_stderr},
                 {"next_cursor", i.next_cursor}, {"user_us", i.user_us}, {"system_us", i.system_us},
                 {"max_rss_bytes", i.max_rss_bytes}};
  if (!i.idempotency_key.empty()) {
    o["idempotency_key"] = i.idempotency_key;
    o["request_hash"] = i.request_hash;
  }
  if (i.ended_at) o["ended_ms"] = unix_millis(*i.ended_at);
  if (i.outcome) {
    json::object outcome{{"type", i.outcome->type}, {"message", i.outcome->message}};
    if (i.outcome->exit_code) outcome["exit_code"] = *i.outcome->exit_code;
    if (i.outcome->signal) outcome["signal"] = *i.outcome->signal;
    o["outcome"] = std::move(outcome);
  }
  return json::serialize(o);
}

Result<ExecInfo> decode_execution(std::string_view text) {
  GB_TRY(const json::object o, parse(text, Code::kCorrupt));
  ExecInfo i;
  int64_t started = 0;
  std::optional<int64_t> ended;
  Reader r(o, Code::kCorrupt);
  r.text("id", &i.id).text("sandbox_id", &i.sandbox_id).text("name", &i.name).number("pid", &i.pid)
      .list("argv", &i.argv).text("command", &i.command).text("cwd", &i.cwd).text("user", &i.user)
      .boolean("pty", &i.pty).boolean("background", &i.background).number("started_ms", &started).boolean("children_left", &i.children_left)
      .number("stdout_bytes", &i.stdout_bytes).number("stderr_bytes", &i.stderr_bytes)
      .number("kept_bytes", &i.kept_bytes).number("dropped_stdout", &i.dropped_stdout)
      .number("dropped_stderr", &i.dropped_stderr).number("next_cursor", &i.next_cursor)
      .number("user_us", &i.user_us).number("system_us", &i.system_us).number("max_rss_bytes", &i.max_rss_bytes)
      .number("ended_ms", &ended).text("idempotency_key", &i.idempotency_key).text("request_hash", &i.request_hash);
  if (const auto* out = r.object("outcome")) {
    Outcome outcome;
    Reader reader(*out, Code::kCorrupt);
    reader.text("type", &outcome.type).text("message", &outcome.message).number("exit_code", &outcome.exit_code)
        .number("signal", &outcome.signal);
    GB_TRYV(reader.done());
    i.outcome = outcome;
  }
  GB_TRYV(r.done());
  i.started_at = from_unix_millis(started);
  if (ended) i.ended_at = from_unix_millis(*ended);
  return i;
}

std::string hello_fields(const SandboxInfo& info, const std::string& hostname, const std::string& seed_hex, const Identity* resumed) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string out = "{";
  append_field(out, "unix_time_ns");
  out += std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  append_field(out, "sandbox");
  append_json_string(out, info.id);
  append_field(out, "hostname");
  append_json_string(out, hostname);
  append_field(out, "env");
  StringMap env = info.secrets;
  env.insert(info.env.begin(), info.env.end());
  append_map(out, env);
  append_field(out, "default_user");
  append_json_string(out, info.user);
  append_field(out, "limits");
  out += "{\"open_files\":" + std::to_string(info.limits.open_files) +
         ",\"processes\":" + std::to_string(info.limits.processes) + "}";
  if (info.tenant.empty()) {
    append_field(out, "pooled");
    out += "true";
  }
  append_field(out, "seed");
  append_json_string(out, seed_hex);
  if (resumed != nullptr) {
    append_field(out, "resumed");
    append_map(out, {{"machine_id", resumed->machine_id}, {"boot_id", resumed->boot_id}});
    if (!resumed->network.empty()) {
      append_field(out, "network");
      out += resumed->network;
    }
  }
  return out + "}";
}

std::string exec_message(const std::string& id, const ExecSpec& spec, const SandboxInfo& sandbox) {
  std::string out = "{";
  append_field(out, "id");
  append_json_string(out, id);
  if (spec.argv.empty()) {
    append_field(out, "command");
    append_json_string(out, spec.command);
  } else {
    append_field(out, "argv");
    char separator = '[';
    for (const std::string& word : spec.argv) {
      out += separator;
      separator = ',';
      append_bytes(out, word);
    }
    out += ']';
  }
  append_field(out, "env");
  append_map(out, spec.env);
  const std::string& cwd = spec.cwd.empty() ? sandbox.workdir : spec.cwd;
  if (!cwd.empty()) {
    append_field(out, "cwd");
    append_bytes(out, cwd);
  }
  append_field(out, "user");
  append_json_string(out, spec.user.empty() ? sandbox.user : spec.user);
  append_field(out, "stdin");
  out += spec.keep_stdin || spec.stdin_data ? "true" : "false";
  if (spec.pty) {
    append_field(out, "pty");
    out += "{\"cols\":" + std::to_string(spec.pty->cols) + ",\"rows\":" + std::to_string(spec.pty->rows);
    if (!spec.pty->term.empty()) {
      out += ",\"term\":";
      append_json_string(out, spec.pty->term);
    }
    out += '}';
  }
  append_field(out, "timeout_ms");
  out += std::to_string(spec.timeout.count());
  append_field(out, "kill_grace_ms");
  out += std::to_string(spec.kill_grace.count());
  return out + "}";
}

// One of ours: it becomes part of a file name.
bool is_execution_id(std::string_view id) {
  return id.size() > 3 && id.size() <= 64 && id.starts_with("ex-") &&
         std::all_of(id.begin() + 3, id.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); });
}

Result<std::vector<AgentExecution>> decode_hello(std::string_view text) {
  GB_TRY(const json::object o, parse(text, Code::kAgentProtocol));
  int version = 0;
  Reader r(o, Code::kAgentProtocol);
  r.number("version", &version);
  std::vector<AgentExecution> out;
  std::set<std::string> seen;
  if (const auto* list = r.array("executions")) {
    for (const auto& item : *list) {
      if (!item.is_object()) return fail(Code::kAgentProtocol, "executions holds something else than objects");
      AgentExecution e;
      std::string state;
      Reader reader(item.get_object(), Code::kAgentProtocol);
      reader.text("id", &e.id).text("state", &state).number("pid", &e.pid);
      GB_TRYV(reader.done());
      if (!is_execution_id(e.id) || e.pid < 0 || !seen.insert(e.id).second || seen.size() > kMaxAgentExecutions) {
        return fail(Code::kAgentProtocol, "the agent knows impossible executions");
      }
      e.exited = state == "exited";
      out.push_back(std::move(e));
    }
  }
  GB_TRYV(r.done());
  if (version != 1) return fail(Code::kAgentProtocol, "the agent speaks version " + std::to_string(version));
  return out;
}

Result<int64_t> decode_pid(std::string_view started) {
  GB_TRY(const json::object o, parse(started, Code::kAgentProtocol));
  int64_t pid = 0;
  Reader r(o, Code::kAgentProtocol);
  r.number("pid", &pid);
  GB_TRYV(r.done());
  if (pid < 1) return fail(Code::kAgentProtocol, "STARTED without a process");
  return pid;
}

Result<bool> decode_exited(std::string_view text, ExecInfo* info) {
  GB_TRY(const json::object o, parse(text, Code::kAgentProtocol));
  Outcome outcome;
  std::optional<int> code, signal;
  bool had_oom = false;
  Reader r(o, Code::kAgentProtocol);
  r.text("outcome", &outcome.type).number("code", &code).number("signal", &signal)
      .boolean("oom", &had_oom).boolean("children", &info->children_left).number("stdout_bytes", &info->stdout_bytes)
      .number("stderr_bytes", &info->stderr_bytes);
  if (const auto* usage = r.object("usage")) {
    uint64_t rss_kb = 0;
    Reader reader(*usage, Code::kAgentProtocol);
    reader.number("user_us", &info->user_us).number("system_us", &info->system_us).number("max_rss_kb", &rss_kb);
    GB_TRYV(reader.done());
    if (rss_kb > kMaxCount / 1024) return fail(Code::kAgentProtocol, "EXITED with an impossible usage");
    info->max_rss_bytes = rss_kb * 1024;
  }
  GB_TRYV(r.done());
  if (std::max({info->stdout_bytes, info->stderr_bytes, info->user_us, info->system_us}) > kMaxCount) {
    return fail(Code::kAgentProtocol, "EXITED with impossible counts");
  }
  const bool known = outcome.type == "exited" || outcome.type == "signalled" || outcome.type == "timed_out" ||
                     outcome.type == "killed_by_caller";
  const bool has_status = outcome.type == "exited" ? code.has_value() : outcome.type != "signalled" || signal.has_value();
  if (!known || !has_status || (code && (*code < 0 || *code > 255)) || (signal && (*signal < 1 || *signal > 64))) {
    return fail(Code::kAgentProtocol, "EXITED without a possible outcome");
  }
  if (outcome.type == "exited") outcome.exit_code = code;
  outcome.signal = signal;
  info->outcome = outcome;
  return had_oom;
}

Result<FileEntry> decode_entry(std::string_view response) {
  GB_TRY(const json::object o, parse(response, Code::kAgentProtocol));
  const auto* entry = o.if_contains("entry");
  if (entry == nullptr) return fail(Code::kAgentProtocol, "an answer lacks its entry");
  return entry_from(*entry);
}

Result<EntryList> decode_entries(std::string_view response) {
  GB_TRY(const json::object o, parse(response, Code::kAgentProtocol));
  EntryList out;
  Reader r(o, Code::kAgentProtocol);
  r.boolean("more", &out.more);
  if (const auto* list = r.array("entries")) {
    for (const auto& item : *list) {
      GB_TRY(FileEntry entry, entry_from(item));
      out.entries.push_back(std::move(entry));
    }
  }
  GB_TRYV(r.done());
  return out;
}

Result<std::vector<ProcessInfo>> decode_processes(std::string_view response) {
  GB_TRY(const json::object o, parse(response, Code::kAgentProtocol));
  std::vector<ProcessInfo> out;
  Reader r(o, Code::kAgentProtocol);
  if (const auto* list = r.array("processes")) {
    for (const auto& item : *list) {
      if (!item.is_object()) return fail(Code::kAgentProtocol, "processes holds something else than objects");
      ProcessInfo p;
      Reader reader(item.get_object(), Code::kAgentProtocol);
      reader.number("pid", &p.pid).number("ppid", &p.ppid).text("execution", &p.execution).text("user", &p.user)
          .list("argv", &p.argv).text("cwd", &p.cwd).text("state", &p.state).number("started_ms", &p.started_ms)
          .number("rss_bytes", &p.rss_bytes);
      GB_TRYV(reader.done());
      out.push_back(std::move(p));
    }
  }
  GB_TRYV(r.done());
  return out;
}

Result<ReadAnswer> decode_read(std::string_view response) {
  GB_TRY(const json::object o, parse(response, Code::kAgentProtocol));
  ReadAnswer out;
  Reader r(o, Code::kAgentProtocol);
  r.number("length", &out.length);
  GB_TRYV(r.done());
  if (out.length && *out.length > kMaxCount) return fail(Code::kAgentProtocol, "an answer with an impossible length");
  if (const auto* entry = o.if_contains("entry")) {
    GB_TRY(out.entry, entry_from(*entry));
  }
  return out;
}

namespace {

// Below a directory, in the shortest way: whoever joins it to a path stays there.
bool is_below(std::string_view path) {
  if (path.size() > kMaxEventPath || path.find('\0') != std::string_view::npos) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view name = path.substr(at, end - at);
    if (name.empty() || name == "." || name == "..") return false;
    at = end + 1;
  }
  return true;
}

}  // namespace

Result<FileEvent> decode_file_event(std::string_view line) {
  GB_TRY(const json::object o, parse(line, Code::kAgentProtocol));
  FileEvent event;
  Reader r(o, Code::kAgentProtocol);
  r.text("type", &event.type).text("path", &event.path);
  GB_TRYV(r.done());
  constexpr std::string_view kTypes[] = {"create", "write", "remove", "rename", "chmod", "overflow"};
  if (std::ranges::find(kTypes, event.type) == std::end(kTypes)) return fail(Code::kAgentProtocol, "an unknown type of file event");
  if (!event.path.empty() && !is_below(event.path)) return fail(Code::kAgentProtocol, "a file event outside of its directory");
  return event;
}

// FNV-1a
std::string request_hash(std::string_view request) {
  uint64_t h = 14695981039346656037ull;
  for (const unsigned char c : request) h = (h ^ c) * 1099511628211ull;
  return std::to_string(h);
}

Result<bool> decode_bool(std::string_view response, std::string_view field) {
  GB_TRY(const json::object o, parse(response, Code::kAgentProtocol));
  bool value = false;
  Reader r(o, Code::kAgentProtocol);
  r.boolean(field, &value);
  GB_TRYV(r.done());
  return value;
}

}  // namespace glovebox::sandbox::codec
