// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/config_file.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "base/text.h"
#include "code/interpreter.h"
#include "http/json.h"
#include "policy/egress.h"

// The packaged library is built with exceptions; this file wants the other form, so it compiles its own.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace glovebox {
namespace {

using Setter = std::function<std::string(const toml::node&)>;  // returns what is wrong, or nothing

Setter integer(int64_t min, int64_t max, std::function<void(int64_t)> set) {
  return [=](const toml::node& node) -> std::string {
    const auto value = node.value_exact<int64_t>();
    if (!value || *value < min || *value > max) {
      return "must be an integer between " + std::to_string(min) + " and " + std::to_string(max);
    }
    set(*value);
    return {};
  };
}

Setter milliseconds(std::chrono::milliseconds* field) {
  return integer(0, 365LL * 24 * 3600 * 1000, [field](int64_t v) { *field = std::chrono::milliseconds(v); });
}

Setter cpus(double* field) {
  return [field](const toml::node& node) -> std::string {
    const auto value = node.value<double>();
    if (!value || !(*value >= 0.05 && *value <= 4096)) return "must be a number between 0.05 and 4096";
    *field = *value;
    return {};
  };
}

Setter mebibytes(uint64_t* field) {
  return integer(16, 1LL << 30, [field](int64_t v) { *field = static_cast<uint64_t>(v) << 20; });
}
Setter count(uint64_t* field, int64_t min) {
  return integer(min, 1LL << 22, [field](int64_t v) { *field = static_cast<uint64_t>(v); });
}

Setter tier(std::optional<runtime::Tier>* field) {
  return [field](const toml::node& node) -> std::string {
    const auto name = node.value_exact<std::string>();
    *field = name ? runtime::tier_from_name(*name) : std::nullopt;
    return name && (*field || *name == "auto") ? "" : "must be auto, microvm, gvisor or container";
  };
}

Setter engine_of(runtime::MicrovmConfig* m) {
  return [m](const toml::node& node) -> std::string {
    using Engine = runtime::MicrovmConfig::Engine;
    static const std::map<std::string, Engine> kEngines = {{"auto", Engine::kAuto}, {"qemu", Engine::kQemu}, {"firecracker", Engine::kFirecracker}};
    const auto found = kEngines.find(node.value_exact<std::string>().value_or(""));
    if (found == kEngines.end()) return "must be auto, qemu or firecracker";
    m->engine = found->second;
    return {};
  };
}

void add_limits(std::map<std::string, Setter>* keys, const std::string& section, runtime::Limits* limits) {
  (*keys)[section + ".cpus"] = cpus(&limits->cpus);
  (*keys)[section + ".memory_mb"] = mebibytes(&limits->memory_bytes);
  (*keys)[section + ".disk_mb"] = mebibytes(&limits->disk_bytes);
  (*keys)[section + ".processes"] = count(&limits->processes, 8);
  (*keys)[section + ".open_files"] = count(&limits->open_files, 64);
}

constexpr int64_t kMostPooled = 1000;

std::string optional_boolean(const toml::node& node, std::optional<bool>* field) {
  *field = node.value_exact<bool>();
  return *field ? "" : "must be true or false";
}

std::string warm_languages(const toml::node& node, std::vector<std::string>* languages) {
  const toml::array* names = node.as_array();
  if (names == nullptr) return "must be an array of languages";
  for (const auto& item : *names) {
    const auto name = item.value_exact<std::string>().value_or("");
    if (std::ranges::find(code::kLanguages, name) == code::kLanguages.end()) return "may name python, javascript and bash";
    if (std::ranges::find(*languages, name) != languages->end()) return "names " + name + " twice";
    languages->push_back(name);
  }
  return "";
}

// What a pool of one class says: a number, or a table.
std::string pool_class(const toml::node& node, sandbox::PoolTarget* target) {
  const toml::table* table = node.as_table();
  const toml::table just_a_number{{"count", node.value_exact<int64_t>().value_or(-1)}};
  std::map<std::string, Setter> keys{
      {"count", integer(0, kMostPooled, [=](int64_t v) { target->count = static_cast<size_t>(v); })},
      {"max", integer(0, kMostPooled, [=](int64_t v) { target->max = static_cast<size_t>(v); })},
      {"network", [=](const toml::node& n) { return optional_boolean(n, &target->network); }},
      {"warm", [=](const toml::node& n) { return warm_languages(n, &target->warm); }},
      {"cpus", [=](const toml::node& n) { return cpus(&target->cpus.emplace())(n); }},
      {"memory_mb", [=](const toml::node& n) { return mebibytes(&target->memory_bytes.emplace())(n); }},
      {"disk_mb", [=](const toml::node& n) { return mebibytes(&target->disk_bytes.emplace())(n); }},
      {"processes", [=](const toml::node& n) { return count(&target->processes.emplace(), 8)(n); }},
      {"open_files", [=](const toml::node& n) { return count(&target->open_files.emplace(), 64)(n); }}};
  for (const auto& [key, value] : table != nullptr ? *table : just_a_number) {
    const auto setter = keys.find(std::string(key.str()));
    if (setter == keys.end()) return "has no " + std::string(key.str());
    if (const std::string wrong = setter->second(value); !wrong.empty()) return std::string(key.str()) + " " + wrong;
  }
  return target->max != 0 && target->max < target->count ? "max must not be below count" : "";
}

// [pool] container, gvisor, microvm: of the base template. [pool.<template>] likewise for others. One class, or an array of them.
std::string pool_targets(const std::string& template_name, const toml::table& counts, std::vector<sandbox::PoolTarget>* out) {
  for (const auto& [key, node] : counts) {
    const auto tier = runtime::tier_from_name(key.str());
    if (!tier) return "may name container, gvisor and microvm, not " + std::string(key.str());
    const toml::array* classes = node.as_array();
    for (size_t i = 0; i < (classes != nullptr ? classes->size() : 1); ++i) {
      sandbox::PoolTarget target{.template_name = template_name, .tier = *tier};
      const std::string wrong = pool_class(classes != nullptr ? (*classes)[i] : node, &target);
      if (!wrong.empty()) return std::string(key.str()) + ": " + wrong;
      out->push_back(std::move(target));
    }
  }
  return {};
}

Setter pool(std::vector<sandbox::PoolTarget>* targets, uint64_t* free_memory_bytes) {
  return [=](const toml::node& node) -> std::string {
    const toml::table* table = node.as_table();
    if (table == nullptr) return "must be a table";
    toml::table of_base;
    for (const auto& [key, value] : *table) {
      const toml::table* counts = value.as_table();
      if (key == "free_memory_mb") {
        const auto set = integer(0, 1LL << 30, [=](int64_t v) { *free_memory_bytes = static_cast<uint64_t>(v) << 20; });
        if (const std::string wrong = set(value); !wrong.empty()) return "free_memory_mb " + wrong;
      } else if (counts == nullptr || runtime::tier_from_name(key.str())) {
        of_base.insert(key, value);
      } else if (const std::string wrong = pool_targets(std::string(key.str()), *counts, targets); !wrong.empty()) {
        return wrong;
      }
    }
    return pool_targets("base", of_base, targets);
  };
}

std::map<std::string, Setter> known_keys(sandbox::Config* c) {
  std::map<std::string, Setter> keys{
      {"max_sandboxes", integer(1, 100'000, [c](int64_t v) { c->max_sandboxes = static_cast<size_t>(v); })},
      {"parallel_starts", integer(1, 64, [c](int64_t v) { c->parallel_starts = static_cast<int>(v); })},
      {"default_runtime", tier(&c->default_runtime)},
      {"default_lifetime_ms", milliseconds(&c->default_lifetime)},
      {"max_lifetime_ms", milliseconds(&c->max_lifetime)},
      {"retention_ms", milliseconds(&c->retention)},
      {"start_timeout_ms", milliseconds(&c->start_timeout)},
      {"freeze_after_ms", milliseconds(&c->freeze_after)},
      {"execution_output_mb", integer(1, 1 << 20, [c](int64_t v) { c->output_file_bytes = static_cast<uint64_t>(v) << 20; })},
      {"max_snapshot_mb", integer(0, 1 << 30, [c](int64_t v) { c->max_snapshot_bytes = static_cast<uint64_t>(v) << 20; })},
      {"kept_executions", integer(1, 100'000, [c](int64_t v) { c->kept_executions = static_cast<size_t>(v); })},
  };
  keys["pool"] = pool(&c->pool, &c->pool_free_memory_bytes);
  constexpr int64_t kMostMb = 1LL << 32;
  const auto megabytes = [](int64_t min, int64_t max, uint64_t* field) {
    return integer(min, max, [field](int64_t v) { *field = static_cast<uint64_t>(v) << 20; });
  };
  keys["volumes.max_per_tenant"] = integer(0, 1'000'000, [c](int64_t v) { c->volumes.count = static_cast<size_t>(v); });
  keys["volumes.max_total_mb"] = megabytes(0, kMostMb, &c->volumes.total_bytes);
  keys["volumes.max_mb"] = megabytes(16, 16LL << 20, &c->volumes.bytes);  // ext4 ends at 16 TiB
  add_limits(&keys, "default_limits", &c->default_limits);
  add_limits(&keys, "max_limits", &c->max_limits);
  return keys;
}

// What `is_good` takes; `what` says what that is.
Setter text(std::string* field, std::function<bool(const std::string&)> is_good, std::string what) {
  return [=](const toml::node& node) -> std::string {
    const auto value = node.value_exact<std::string>();
    if (!value || !is_good(*value)) return "must be " + what;
    *field = *value;
    return {};
  };
}

Setter boolean(bool* field) {
  return [field](const toml::node& node) -> std::string {
    const auto value = node.value_exact<bool>();
    if (!value) return "must be true or false";
    *field = *value;
    return {};
  };
}

bool is_host_name(const std::string& text) {
  const bool is_clean = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789.-") == std::string::npos;
  return is_clean && !text.empty() && text.size() <= 180 && text.front() != '.' && text.back() != '.' && text.find("..") == std::string::npos;
}

void add_preview(std::map<std::string, Setter>* keys, api::preview::Settings* p) {
  const auto is_path = [](const std::string& path) { return path.starts_with('/'); };
  (*keys)["preview.domain"] = text(&p->domain, is_host_name, "a host name in lower case, such as preview.example.com");
  (*keys)["preview.scheme"] = text(&p->scheme, [](const std::string& s) { return s == "http" || s == "https"; }, "http or https");
  (*keys)["preview.port"] = integer(1, 65535, [p](int64_t v) { p->port = static_cast<uint16_t>(v); });
  (*keys)["preview.listen"] = text(&p->listen, [](const std::string& s) { return !s.empty(); }, "an address such as 0.0.0.0:443");
  (*keys)["preview.tls_cert"] = text(&p->tls_cert, is_path, "the absolute path of a PEM file");
  (*keys)["preview.tls_key"] = text(&p->tls_key, is_path, "the absolute path of a PEM file");
  (*keys)["preview.path_same_origin"] = boolean(&p->path_same_origin);
}

void add_mcp(std::map<std::string, Setter>* keys, api::mcp::Settings* m) {
  constexpr int64_t kDayMs = 24LL * 3600 * 1000;
  (*keys)["mcp.session_timeout_ms"] = integer(1000, 30 * kDayMs, [m](int64_t v) { m->session_timeout = std::chrono::milliseconds(v); });
  (*keys)["mcp.max_sessions"] = integer(1, 100'000, [m](int64_t v) { m->max_sessions = static_cast<size_t>(v); });
  const auto is_name = [](const std::string& name) { return !name.empty() && name.size() <= 200; };
  (*keys)["mcp.template"] = text(&m->template_name, is_name, "the name of a template");
}

void add_microvm(std::map<std::string, Setter>* keys, runtime::MicrovmConfig* m) {
  const auto is_path = [](const std::string& path) { return path.starts_with('/'); };
  (*keys)["microvm.allow_emulation"] = boolean(&m->allow_emulation);
  (*keys)["microvm.qemu"] = text(&m->qemu_path, is_path, "the absolute path of qemu-system-x86_64");
  (*keys)["microvm.firecracker"] = text(&m->firecracker_path, is_path, "the absolute path of firecracker");
  (*keys)["microvm.jailer"] = text(&m->jailer_path, is_path, "the absolute path of Firecracker's jailer");
  (*keys)["microvm.engine"] = engine_of(m);
}

// An option that would have no effect is a mistake.
Result<void> check(const std::string& path, const api::preview::Settings& p) {
  const auto wrong = [&](const std::string& what) { return fail(Code::kInvalidArgument, path + ": " + what, {{"field", "preview"}}); };
  if (p.tls_cert.empty() != p.tls_key.empty()) return wrong("preview.tls_cert and preview.tls_key go together");
  if (!p.tls_cert.empty() && p.listen.empty()) return wrong("preview.tls_cert needs preview.listen");
  const bool speaks_of_domain = !p.listen.empty() || !p.scheme.empty() || p.port != 0;
  if (speaks_of_domain && p.domain.empty()) return wrong("preview.listen, .scheme and .port need preview.domain");
  return {};
}

// A pool that nothing could be claimed from, or started for, is a mistake.
Result<void> check_pool(const std::string& path, const sandbox::Config& config, const network::Config& network) {
  const runtime::Limits& max = config.max_limits;
  for (const sandbox::PoolTarget& t : config.pool) {
    const auto wrong = [&](const std::string& what) {
      return fail(Code::kInvalidArgument, path + ": pool of " + t.template_name + ", " + std::string(runtime::tier_name(t.tier)) + ": " + what, {{"field", "pool"}});
    };
    if (t.cpus.value_or(0) > max.cpus || t.memory_bytes.value_or(0) > max.memory_bytes || t.disk_bytes.value_or(0) > max.disk_bytes ||
        t.processes.value_or(0) > max.processes || t.open_files.value_or(0) > max.open_files) {
      return wrong("no call may ask for these limits, see max_limits");
    }
    if (t.network == true && !network.is_enabled) return wrong("network = true needs network.enabled = true");
    if (t.network == false && config.default_network) return wrong("with network.default every sandbox has a network");
  }
  return {};
}

// With a default that no sandbox could get, every create call that says nothing would fail.
Result<void> check(const std::string& path, const sandbox::Config& config, const network::Config& network) {
  if (!config.default_network) return {};
  const auto wrong = [&](const std::string& what) { return fail(Code::kInvalidArgument, path + ": " + what, {{"field", "network.default"}}); };
  if (!network.is_enabled) return wrong("network.default needs network.enabled = true");
  policy::Operator limits = network.limits;
  limits.forwards_datagrams = true;
  const auto within = policy::check_within(*config.default_network, limits);
  if (!within) return wrong("network.default: " + within.error().message);
  return {};
}

bool is_web_url(const std::string& text) { return text.starts_with("https://") || text.starts_with("http://"); }

// Where "address:port" or "[address]:port" is wanted; the port may be left out.
std::string with_port(const std::string& text) {
  if (const auto address = policy::parse_address(text)) return address->is_v6 ? "[" + text + "]:53" : text + ":53";
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return "";
  std::string host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = parse_int(std::string_view(text).substr(colon + 1));
  return policy::parse_address(host) && port && *port >= 1 && *port <= 65535 ? text : "";
}

Setter web_url(std::map<std::string, std::string>* upstreams, const std::string& name) {
  return [=](const toml::node& node) -> std::string { return text(&(*upstreams)[name], is_web_url, "an http or https URL")(node); };
}

Setter strings(std::vector<std::string>* field, std::function<std::string(const std::string&)> accept, std::string what) {
  return [=](const toml::node& node) -> std::string {
    const toml::array* items = node.as_array();
    if (items == nullptr) return "must be an array of " + what;
    field->clear();
    for (const toml::node& item : *items) {
      const auto value = item.value_exact<std::string>();
      field->push_back(value ? accept(*value) : "");
      if (field->back().empty()) return "must be an array of " + what;
    }
    return {};
  };
}

// A part of the operator's policy, in the form that the API has for policies.
Setter policy_part(boost::json::object* all, const std::string& name) {
  return [=](const toml::node& node) -> std::string {
    std::ostringstream written;
    node.visit([&](const auto& n) { written << toml::json_formatter{n}; });
    auto value = json::parse(written.str());
    if (!value) return value.error().message;
    boost::json::object candidate = *all;
    candidate[name] = std::move(*value);
    auto parsed = policy::parse_operator(candidate, "network");
    if (!parsed) return parsed.error().message;
    *all = std::move(candidate);
    return {};
  };
}

Setter default_policy(std::shared_ptr<const policy::NetworkPolicy>* field) {
  return [=](const toml::node& node) -> std::string {
    std::ostringstream written;
    if (!node.is_table()) return "must be a table";
    written << toml::json_formatter{*node.as_table()};
    auto value = json::parse(written.str());
    auto parsed = value ? policy::parse_network_policy(*value, "network.default") : Result<policy::NetworkPolicy>(fail(value.error()));
    if (!parsed) return parsed.error().message;
    *field = std::make_shared<policy::NetworkPolicy>(std::move(*parsed));
    return {};
  };
}

void add_network(std::map<std::string, Setter>* keys, sandbox::Config* c, network::Config* n, boost::json::object* limits) {
  (*keys)["network.enabled"] = boolean(&n->is_enabled);
  (*keys)["network.resolvers"] = strings(&n->resolvers, with_port, "addresses, with or without a port");
  (*keys)["network.ready_links"] = integer(0, 256, [n](int64_t v) { n->ready_links = static_cast<size_t>(v); });
  for (const char* name : {"max_egress", "deny", "internal", "max_limits"}) (*keys)[std::string("network.") + name] = policy_part(limits, name);
  (*keys)["network.default"] = default_policy(&c->default_network);
  for (const char* name : {"pypi", "npm", "debian", "debian_security"}) (*keys)[std::string("registry.") + name] = web_url(&n->upstreams, name);
  (*keys)["registry.file_hosts"] = strings(&n->file_hosts, policy::normal_host, "host names");
  (*keys)["registry.cache_mb"] = integer(1, 1LL << 24, [n](int64_t v) { n->cache_bytes = static_cast<uint64_t>(v) << 20; });
}

std::string place(const std::string& path, const toml::source_region& source) {
  return path + ":" + std::to_string(source.begin.line) + ":" + std::to_string(source.begin.column);
}

Result<void> apply(const std::string& path, const std::string& prefix, const toml::table& table,
                   const std::map<std::string, Setter>& keys) {
  for (const auto& [key, node] : table) {
    const std::string name = prefix + std::string(key.str());
    const auto setter = keys.find(name);
    const bool is_section = keys.lower_bound(name + ".") != keys.end() && keys.lower_bound(name + ".")->first.starts_with(name + ".");
    if (node.is_table() && is_section) {
      GB_TRYV(apply(path, name + ".", *node.as_table(), keys));
      continue;
    }
    const std::string wrong = setter == keys.end() ? "is not a known key" : setter->second(node);
    if (wrong.empty()) continue;
    const std::string what = wrong.starts_with(name) ? wrong : name + " " + wrong;  // a policy says itself where in it
    return fail(Code::kInvalidArgument, place(path, key.source()) + ": " + what, {{"field", name}});
  }
  return {};
}

}  // namespace

Result<void> read_config_file(const std::string& path, sandbox::Config* config, api::preview::Settings* preview,
                              network::Config* network, api::mcp::Settings* mcp, runtime::MicrovmConfig* microvm) {
  const toml::parse_result parsed = toml::parse_file(path);
  if (!parsed) {
    return fail(Code::kInvalidArgument, place(path, parsed.error().source()) + ": " + std::string(parsed.error().description()));
  }
  auto keys = known_keys(config);
  add_preview(&keys, preview);
  add_mcp(&keys, mcp);
  add_microvm(&keys, microvm);
  boost::json::object limits;
  add_network(&keys, config, network, &limits);
  GB_TRYV(apply(path, "", parsed.table(), keys));
  GB_TRY(network->limits, policy::parse_operator(limits, "network"));
  GB_TRYV(check(path, *config, *network));
  GB_TRYV(check_pool(path, *config, *network));
  return check(path, *preview);
}

}  // namespace glovebox
