// SPDX-License-Identifier: Apache-2.0
#include <boost/json.hpp>

#include "image/digest.h"
#include "image/store.h"

namespace glovebox::image {
namespace {

namespace json = boost::json;
constexpr int kSchema = 1;

json::array array_of(const std::vector<std::string>& list) {
  json::array out;
  for (const auto& s : list) out.emplace_back(s);
  return out;
}

json::object object_of(const std::map<std::string, std::string>& map) {
  json::object out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}

json::object config_json(const TemplateConfig& c) {
  return {{"env", object_of(c.env)}, {"user", c.user},
          {"workdir", c.workdir},    {"entrypoint", array_of(c.entrypoint)},
          {"cmd", array_of(c.cmd)},  {"exposed_ports", array_of(c.exposed_ports)}};
}

std::vector<std::string> strings(const json::value& v) {
  std::vector<std::string> out;
  for (const auto& item : v.as_array()) out.emplace_back(item.as_string());
  return out;
}

std::map<std::string, std::string> string_map(const json::value& v) {
  std::map<std::string, std::string> out;
  for (const auto& member : v.as_object())
    out[std::string(member.key())] = std::string(member.value().as_string());
  return out;
}

std::string text_of(const json::object& o, const char* key) {
  return std::string(o.at(key).as_string());
}

TemplateConfig config_from(const json::object& o) {
  return {string_map(o.at("env")),     text_of(o, "user"),   text_of(o, "workdir"),
          strings(o.at("entrypoint")), strings(o.at("cmd")), strings(o.at("exposed_ports"))};
}

Manifest manifest_from(const json::object& o) {
  Manifest m;
  m.version = text_of(o, "version");
  m.kind = text_of(o, "kind");
  m.name = text_of(o, "name");
  m.created_at = text_of(o, "created_at");
  m.image_sha256 = text_of(o.at("image").as_object(), "sha256");
  m.image_bytes = o.at("image").as_object().at("bytes").to_number<uint64_t>();
  m.config = config_from(o.at("config").as_object());
  for (const auto& p : o.at("packages").as_array()) {
    const auto& fields = p.as_object();
    m.packages.push_back(
        {text_of(fields, "name"), text_of(fields, "version"), text_of(fields, "architecture")});
  }
  m.inputs = text_of(o, "inputs");
  m.suites = strings(o.at("suites"));
  m.tools = string_map(o.at("tools"));
  m.source = string_map(o.at("source"));
  return m;
}

}  // namespace

std::string to_json(const Manifest& m) {
  json::array packages;
  for (const auto& p : m.packages) {
    packages.push_back(
        json::object{{"name", p.name}, {"version", p.version}, {"architecture", p.architecture}});
  }
  const json::object all = {{"schema", kSchema},
                            {"name", m.name},
                            {"version", m.version},
                            {"kind", m.kind},
                            {"created_at", m.created_at},
                            {"image", json::object{{"file", "rootfs.erofs"},
                                                   {"sha256", m.image_sha256},
                                                   {"bytes", m.image_bytes}}},
                            {"config", config_json(m.config)},
                            {"inputs", m.inputs},
                            {"suites", array_of(m.suites)},
                            {"tools", object_of(m.tools)},
                            {"source", object_of(m.source)},
                            {"packages", packages}};
  return json::serialize(all) + "\n";
}

Result<Manifest> manifest_from_json(const std::string& text, const std::string& where) {
  json::error_code error;
  const json::value root = json::parse(text, error);
  if (error) return fail(Code::kCorrupt, where + " is not whole JSON");
  try {
    const auto& all = root.as_object();
    if (all.at("schema").to_number<int>() != kSchema) {
      return fail(Code::kUnsupported, where + ": written by a newer version of this program");
    }
    return manifest_from(all);
  } catch (const std::exception&) {  // a member that is absent or of another type
    return fail(Code::kCorrupt, where + " is not a template's manifest");
  }
}

std::string version_of(const Manifest& m) {
  return sha256_hex(m.kind + "\n" + m.image_sha256 + "\n" + json::serialize(config_json(m.config)));
}

}  // namespace glovebox::image
