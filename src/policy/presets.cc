// SPDX-License-Identifier: Apache-2.0
#include "policy/internal/presets.h"

#include <map>

namespace glovebox::policy {
namespace {

struct Definition {
  Preset preset;
  std::vector<std::string_view> tls_hosts;  // on port 443
  std::vector<Registry> registries;
};

const std::vector<Definition>& definitions() {
  static const std::vector<Definition> all{
      {{"python-packages", "PyPI through the registry proxy; nothing else."},
       {},
       {Registry::kPypi}},
      {{"node-packages", "npm through the registry proxy; nothing else."}, {}, {Registry::kNpm}},
      {{"debian-packages", "Debian through the registry proxy; nothing else."},
       {},
       {Registry::kDebian}},
      {{"github",
        "Clone, fetch, push and the API of GitHub over HTTPS. What a token in the sandbox may "
        "write can be written."},
       {"github.com", "api.github.com", "codeload.github.com", "raw.githubusercontent.com",
        "objects.githubusercontent.com", "release-assets.githubusercontent.com"},
       {}},
      {{"github-readonly",
        "GitHub's download hosts alone, which take no writes: source archives, raw files, release "
        "files by "
        "their final address. No git, no API."},
       {"codeload.github.com", "raw.githubusercontent.com", "objects.githubusercontent.com",
        "release-assets.githubusercontent.com"},
       {}},
      {{"huggingface", "The Hugging Face hub and its file stores; uploads, too, with a token."},
       {"huggingface.co", "*.huggingface.co", "hf.co", "*.hf.co"},
       {}},
      {{"openai", "The OpenAI API."}, {"api.openai.com"}, {}},
      {{"anthropic", "The Anthropic API."}, {"api.anthropic.com"}, {}},
  };
  return all;
}

internal::PresetBody body_of(const Definition& definition) {
  internal::PresetBody out;
  for (const auto host : definition.tls_hosts) {
    Rule rule;
    rule.host = host;
    rule.ports = {{443, 443}};
    rule.protocols = static_cast<uint8_t>(Protocol::kTls);
    rule.name = "preset:" + std::string(definition.preset.name) + "[" +
                std::to_string(out.allow.size()) + "]";
    out.allow.push_back(std::move(rule));
  }
  out.registries = definition.registries;
  return out;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> out;
    for (const auto& definition : definitions()) out.push_back(definition.preset);
    return out;
  }();
  return all;
}

NetworkPolicy preset_policy(std::string_view name) {
  const auto* body = internal::find_preset(name);
  GB_ASSERT(body);
  NetworkPolicy out;
  out.egress = Egress::kAllowlist;
  out.allow = body->allow;
  for (size_t i = 0; i < out.allow.size(); ++i)
    out.allow[i].name = "allow[" + std::to_string(i) + "]";
  if (!body->registries.empty()) {
    out.packages.emplace();
    out.packages->registries = body->registries;
  }
  return out;
}

namespace internal {

const PresetBody* find_preset(std::string_view name) {
  static const std::map<std::string_view, PresetBody> bodies = [] {
    std::map<std::string_view, PresetBody> out;
    for (const auto& definition : definitions())
      out.emplace(definition.preset.name, body_of(definition));
    return out;
  }();
  const auto found = bodies.find(name);
  return found == bodies.end() ? nullptr : &found->second;
}

std::string preset_names() {
  std::string out;
  for (const auto& preset : presets()) {
    if (!out.empty()) out += ", ";
    out += preset.name;
  }
  return out;
}

}  // namespace internal
}  // namespace glovebox::policy
