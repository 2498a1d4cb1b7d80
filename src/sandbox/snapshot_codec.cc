// SPDX-License-Identifier: Apache-2.0
#include "sandbox/snapshot_codec.h"

#include "sandbox/codec.h"

namespace glovebox::sandbox::codec {

json::array to_json(const std::vector<runtime::SnapshotPart>& parts) {
  json::array out;
  for (const auto& p : parts) out.push_back({{"name", p.name}, {"bytes", p.bytes}, {"sha256", p.sha256}});
  return out;
}

Result<std::vector<runtime::SnapshotPart>> read_parts(const json::object& document) {
  std::vector<runtime::SnapshotPart> parts;
  Reader r(document, Code::kCorrupt);
  const auto* list = r.array("parts");
  GB_TRYV(r.done());
  for (const json::value& value : list ? *list : json::array()) {
    if (!value.is_object()) return fail(Code::kCorrupt, "field 'parts' is wrong");
    auto& part = parts.emplace_back();
    Reader item(value.get_object(), Code::kCorrupt);
    item.text("name", &part.name).number("bytes", &part.bytes).text("sha256", &part.sha256);
    GB_TRYV(item.done());
    if (part.name.empty() || part.name.find('/') != std::string::npos || part.name[0] == '.') return fail(Code::kCorrupt, "an impossible part");
  }
  return parts;
}

std::string encode(const SnapshotDocument& d) {
  const SnapshotInfo& i = d.info;
  json::object o{{"id", i.id}, {"tenant", i.tenant}, {"name", i.name}, {"labels", to_json(i.labels)}, {"state", i.state},
                 {"message", i.message}, {"tier", tier_name(i.tier)}, {"kept", kept_name(i.kept)}, {"source", i.source_sandbox},
                 {"parent", i.parent}, {"template_name", i.template_name}, {"template_version", i.template_version},
                 {"limits", limits_to_json(i.limits)}, {"min_memory_bytes", i.min_memory_bytes}, {"min_disk_bytes", i.min_disk_bytes},
                 {"env", to_json(i.env)}, {"user", i.user}, {"workdir", i.workdir}, {"bytes", i.bytes}, {"parts", to_json(i.parts)},
                 {"needs", to_json(i.needs)}, {"stall_us", i.stall.count()}, {"created_ms", unix_millis(i.created_at)}};
  o["rootfs"] = {{"digest", d.rootfs.digest}, {"image_path", d.rootfs.image_path}};
  json::array executions;
  for (const auto& execution : d.executions) executions.emplace_back(encode(execution));
  o["executions"] = std::move(executions);
  return json::serialize(o);
}

Result<SnapshotDocument> decode_snapshot(std::string_view text) {
  GB_TRY(const json::object o, parse(text, Code::kCorrupt));
  SnapshotDocument d;
  SnapshotInfo& i = d.info;
  std::string tier, kept;
  int64_t created = 0, stall = 0;
  std::vector<std::string> executions;
  Reader r(o, Code::kCorrupt);
  r.text("id", &i.id).text("tenant", &i.tenant).text("name", &i.name).map("labels", &i.labels).text("state", &i.state)
      .text("message", &i.message).text("tier", &tier).text("kept", &kept).text("source", &i.source_sandbox).text("parent", &i.parent)
      .text("template_name", &i.template_name).text("template_version", &i.template_version)
      .number("min_memory_bytes", &i.min_memory_bytes).number("min_disk_bytes", &i.min_disk_bytes).map("env", &i.env)
      .text("user", &i.user).text("workdir", &i.workdir).number("bytes", &i.bytes).map("needs", &i.needs).number("stall_us", &stall)
      .number("created_ms", &created).list("executions", &executions);
  GB_TRY(i.limits, read_limits(o));
  GB_TRY(i.parts, read_parts(o));
  if (const auto* root = r.object("rootfs")) {
    Reader reader(*root, Code::kCorrupt);
    reader.text("digest", &d.rootfs.digest).text("image_path", &d.rootfs.image_path);
    GB_TRYV(reader.done());
  }
  GB_TRYV(r.done());
  const auto known_tier = runtime::tier_from_name(tier);
  const auto known_kept = runtime::kept_from_name(kept);
  if (!known_tier || !known_kept || i.id.empty()) return fail(Code::kCorrupt, "unknown runtime or kind of snapshot: " + tier + ", " + kept);
  i.tier = *known_tier;
  i.kept = *known_kept;
  i.stall = std::chrono::microseconds(stall);
  i.created_at = from_unix_millis(created);
  for (const auto& execution : executions) {
    GB_TRY(auto decoded, decode_execution(execution));
    d.executions.push_back(std::move(decoded));
  }
  return d;
}

}  // namespace glovebox::sandbox::codec
