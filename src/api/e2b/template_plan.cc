// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/template_plan.h"

#include <algorithm>
#include <optional>

#include "api/e2b/names.h"
#include "base/text.h"
#include "code/interpreter.h"
#include "http/json.h"
#include "image/digest.h"
#include "image/templates.h"

namespace glovebox::api::e2b {
namespace {

using Kind = BuildStep::Kind;

constexpr size_t kMaxSteps = 500, kMaxArgs = 400, kMaxTags = 20, kMaxTag = 64;
constexpr size_t kMaxCommand = 120 << 10;  // the kernel takes 128 KiB

struct Verb {
  std::string_view name;
  Kind kind;
  size_t min_args, max_args;
};
constexpr Verb kVerbs[] = {
    {"COPY", Kind::kCopy, 2, 4},       {"RUN", Kind::kRun, 1, 2},  {"WORKDIR", Kind::kWorkdir, 1, 1},
    {"USER", Kind::kUser, 1, 2},       {"ENV", Kind::kEnv, 2, kMaxArgs},
};

bool is_word(std::string_view text, std::string_view more) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || more.find(c) != more.npos;
  });
}

bool is_owner(std::string_view text) { return text.size() <= 65 && text[0] != '-' && is_word(text, "._-:"); }
bool is_mode(std::string_view text) { return text.size() <= 5 && text.find_first_not_of("01234567") == text.npos; }

// What of the protocol a step of a known kind may hold and this server cannot do, and what makes no sense.
Result<void> check_step(json::Reader& r, const BuildStep& step) {
  const auto bad = [&](std::string_view why) { return fail(r.error("args", why)); };
  const auto& args = step.args;
  const auto arg = [&](size_t i) { return i < args.size() ? std::string_view(args[i]) : std::string_view(); };
  switch (step.kind) {
    case Kind::kCopy:
      if (arg(0).empty() || arg(1).empty()) return bad("COPY needs a source and a destination");
      if (!arg(2).empty() && !is_owner(arg(2))) return bad("the owner of COPY is no user's name");
      if (!arg(3).empty() && !is_mode(arg(3))) return bad("the mode of COPY is not octal");
      if (!image::is_sha256_hex(step.files_hash)) return fail(r.error("filesHash", "COPY needs one, of 64 hexadecimal digits"));
      return {};
    case Kind::kRun:
      if (!arg(1).empty() && !is_owner(arg(1))) return bad("the user of RUN is no user's name");
      return {};
    case Kind::kWorkdir:
      if (arg(0).empty()) return bad("WORKDIR needs a path");
      return {};
    case Kind::kUser:
      if (arg(1) == "true") return fail(Code::kUnsupported, "this server does not have USER with the rights of sudo");
      if (arg(0).empty() || !is_owner(arg(0))) return bad("USER needs the name of a user");
      return {};
    case Kind::kEnv:
      if (args.size() % 2 != 0) return bad("ENV needs pairs of names and values");
      for (size_t i = 0; i < args.size(); i += 2) {
        if (!code::is_variable_name(args[i])) return bad("ENV holds a name that is none");
      }
      return {};
  }
  return {};
}

Result<BuildStep> read_step(json::Reader& r) {
  GB_TRY(const auto type, r.string("type", 1, 64).required());
  const auto verb = std::ranges::find(kVerbs, type, &Verb::name);
  if (verb == std::end(kVerbs)) return fail(Code::kUnsupported, "this server does not have the instruction " + type + " in templates");
  BuildStep step{.kind = verb->kind};
  GB_TRY(step.args, r.strings("args", kMaxArgs).or_default({}));
  GB_TRY(step.files_hash, r.string("filesHash", 0, 64).or_default(""));
  if (step.args.size() < verb->min_args || step.args.size() > verb->max_args)
    return fail(r.error("args", "has a number of values that " + type + " does not take"));
  for (const auto& arg : step.args) {
    if (arg.size() > kMaxCommand) return fail(r.error("args", "holds one of more than 120 KiB"));
  }
  GB_TRYV(check_step(r, step));
  return step;
}

// Images are not fetched. What the vendor's base images and plain Debian stand for is the template that is closest.
std::optional<std::string> template_of_image(std::string_view image) {
  for (const std::string_view host : {"docker.io/", "library/"}) {
    if (image.starts_with(host)) image.remove_prefix(host.size());
  }
  const size_t colon = image.find(':');
  const std::string_view name = image.substr(0, colon);
  std::string_view tag = colon == image.npos ? "latest" : image.substr(colon + 1);
  if ((name == "e2bdev/base" || name == "novita/base") && tag == "latest") return "base";
  if ((name == "e2bdev/code-interpreter" || name == "novita/code-interpreter") && tag == "latest") return "interpreter";
  if (name != "debian") return std::nullopt;
  if (tag.ends_with("-slim")) tag.remove_suffix(5);
  const bool is_ours = tag == "trixie" || tag == "13" || tag == "stable" || tag == "latest";
  return is_ours ? std::optional<std::string>("base") : std::nullopt;
}

Result<std::string> read_from(json::Reader& r) {
  GB_TRY(const auto from, r.string("fromTemplate", 0, 200).or_default(""));
  GB_TRY(const auto image, r.string("fromImage", 0, 500).or_default(""));
  if (!from.empty() && !image.empty()) return fail(r.error("fromImage", "cannot be given together with fromTemplate"));
  if (r.has("fromImageRegistry")) return fail(Code::kUnsupported, "this server does not have fromImageRegistry: it fetches no images");
  if (!from.empty()) return template_name(from);
  if (image.empty()) return std::string("base");
  if (const auto known = template_of_image(image)) return *known;
  return fail(Code::kUnsupported, "this server does not have fromImage(\"" + utf8_lossy(image) +
                                      "\"): it fetches no images. Import it with `glovebox template import` and use fromTemplate");
}

}  // namespace

std::string BuildStep::text() const {
  std::string out(std::ranges::find(kVerbs, kind, &Verb::kind)->name);
  for (const auto& arg : args) {
    if (!arg.empty()) out += " " + arg;
  }
  return utf8_lossy(out.substr(0, utf8_complete_prefix(std::string_view(out).substr(0, 500))));
}

Result<BuildPlan> read_plan(const boost::json::value& body) {
  json::Reader r(body);
  BuildPlan plan;
  GB_TRY(plan.from, read_from(r));
  GB_TRY(plan.start_command, r.string("startCmd", 0, kMaxCommand).or_default(""));
  GB_TRY(plan.ready_command, r.string("readyCmd", 0, kMaxCommand).or_default(""));
  GB_TRY(auto steps, r.objects("steps", kMaxSteps).or_default({}));
  for (auto& step : steps) {
    GB_TRY(auto read, read_step(step));
    plan.steps.push_back(std::move(read));
  }
  return plan;
}

std::string expand_variables(std::string_view text, const sandbox::StringMap& env) {
  const auto is_name_char = [](char c) { return is_word(std::string_view(&c, 1), "_"); };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("\\$")) {
      out += text[++i];
      continue;
    }
    const bool is_braced = text.substr(i).starts_with("${");
    const size_t begin = i + (is_braced ? 2 : 1);
    size_t end = begin;
    while (end < text.size() && is_name_char(text[end])) ++end;
    const std::string name(text.substr(std::min(begin, text.size()), end - begin));
    const bool is_closed = !is_braced || (end < text.size() && text[end] == '}');
    if (text[i] != '$' || !is_closed || !code::is_variable_name(name)) {
      out += text[i];
      continue;
    }
    if (const auto found = env.find(name); found != env.end()) out += found->second;
    i = is_braced ? end : end - 1;
  }
  return out;
}

Result<BuildName> read_build_name(std::string_view reference, const std::vector<std::string>& more) {
  if (const size_t slash = reference.rfind('/'); slash != reference.npos) reference.remove_prefix(slash + 1);
  const size_t colon = reference.find(':');
  BuildName out{.name = std::string(reference.substr(0, colon))};
  if (!image::is_template_name(out.name)) {
    return fail(Code::kInvalidArgument, "name: must have 1 to 63 characters of a-z, 0-9, '.', '_', '-' and start with a letter or digit",
                {{"field", "name"}});
  }
  if (more.size() > kMaxTags) return fail(Code::kInvalidArgument, "tags: has more than 20", {{"field", "tags"}});
  std::vector<std::string> tags = more;
  if (colon != reference.npos) tags.insert(tags.begin(), std::string(reference.substr(colon + 1)));
  if (tags.empty()) tags.emplace_back("default");
  for (auto& tag : tags) {
    if (tag.size() > kMaxTag || !is_word(tag, "._-")) return fail(Code::kInvalidArgument, "tags: holds one that is none", {{"field", "tags"}});
    if (tag == "latest") tag = "default";
    if (std::ranges::find(out.tags, tag) == out.tags.end()) out.tags.push_back(tag);
  }
  return out;
}

}  // namespace glovebox::api::e2b
