// SPDX-License-Identifier: Apache-2.0
#include "image/test_archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <cstdio>
#include <cstring>

#include "image/digest.h"
#include "image/oci.h"

namespace glovebox::image::testing {
namespace {

void octal(char* field, size_t width, unsigned long value) {
  std::snprintf(field, width, "%0*lo", static_cast<int>(width - 1), value);
}

std::string padded(std::string bytes) {
  bytes.resize((bytes.size() + 511) / 512 * 512, '\0');
  return bytes;
}

std::string header(const TarEntry& e) {
  char block[512] = {};
  std::memcpy(block, e.name.data(), std::min<size_t>(100, e.name.size()));
  octal(block + 100, 8, e.mode);
  octal(block + 108, 8, e.uid);
  octal(block + 116, 8, e.gid);
  octal(block + 124, 12, e.type == '0' || e.type == 'x' ? e.content.size() : 0);
  octal(block + 136, 12, e.mtime);
  std::memset(block + 148, ' ', 8);
  block[156] = e.type;
  std::memcpy(block + 157, e.link.data(), std::min<size_t>(100, e.link.size()));
  std::memcpy(block + 257, "ustar\00000", 8);
  octal(block + 329, 8, 1);
  octal(block + 337, 8, 3);
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  std::snprintf(block + 148, 8, "%06o", sum);
  block[155] = ' ';
  return std::string(block, sizeof block);
}

// "LENGTH key=value\n", where LENGTH counts itself.
std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length)
    length = std::to_string(length).size() + rest.size();
  return std::to_string(length) + rest;
}

std::string quoted_digest(const std::string& bytes) {
  return "\"sha256:" + sha256_hex(bytes) + "\"";
}

std::string config_json(const ImageParts& parts) {
  std::string ids;
  for (const auto& diff : parts.diffs.empty() ? parts.layers : parts.diffs)
    ids += (ids.empty() ? "" : ",") + quoted_digest(diff);
  const std::string architecture =
      parts.architecture.empty() ? host_architecture() : parts.architecture;
  return R"({"os":"linux","architecture":")" + architecture + R"(","config":)" + parts.config +
         R"(,"rootfs":{"type":"layers","diff_ids":[)" + ids + "]}}";
}

std::string descriptor(const std::string& bytes) {
  return R"({"digest":)" + quoted_digest(bytes) + R"(,"size":)" + std::to_string(bytes.size()) +
         "}";
}

}  // namespace

std::string tar(const std::vector<TarEntry>& entries, bool has_end) {
  std::string out;
  for (const auto& e : entries) {
    if (!e.pax.empty()) {
      TarEntry extended{.name = "pax", .type = 'x'};
      for (const auto& [key, value] : e.pax) extended.content += pax_record(key, value);
      out += header(extended) + padded(extended.content);
    }
    out += header(e);
    if (e.type == '0') out += padded(e.content);
  }
  if (has_end) out.append(1024, '\0');
  return out;
}

std::string compress(const std::string& bytes, Filter filter) {
  if (filter == Filter::kNone) return bytes;
  struct archive* a = ::archive_write_new();
  ::archive_write_set_format_raw(a);
  filter == Filter::kGzip ? ::archive_write_add_filter_gzip(a) : ::archive_write_add_filter_zstd(a);
  std::string out(bytes.size() + (1 << 20), '\0');
  size_t used = 0;
  ::archive_write_set_bytes_in_last_block(a, 1);
  ::archive_write_open_memory(a, out.data(), out.size(), &used);
  struct archive_entry* e = ::archive_entry_new();
  ::archive_entry_set_filetype(e, AE_IFREG);
  ::archive_write_header(a, e);
  ::archive_write_data(a, bytes.data(), bytes.size());
  ::archive_entry_free(e);
  ::archive_write_close(a);
  ::archive_write_free(a);
  out.resize(used);
  return out;
}

Members oci_members(const ImageParts& parts) {
  const std::string config = config_json(parts);
  std::string layers;
  for (const auto& layer : parts.layers) layers += (layers.empty() ? "" : ",") + descriptor(layer);
  const std::string manifest =
      R"({"schemaVersion":2,"config":)" + descriptor(config) + R"(,"layers":[)" + layers + "]}";
  Members out;
  out.emplace_back("oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
  std::string last;
  for (const auto& blob : parts.layers) {
    if (blob != last) out.emplace_back("blobs/sha256/" + sha256_hex(blob), blob);
    last = blob;
  }
  out.emplace_back("blobs/sha256/" + sha256_hex(config), config);
  out.emplace_back("blobs/sha256/" + sha256_hex(manifest), manifest);
  out.emplace_back("index.json",
                   R"({"schemaVersion":2,"manifests":[)" + descriptor(manifest) + "]}");
  return out;
}

Members docker_members(const ImageParts& parts) {
  Members out;
  const std::string config = config_json(parts);
  std::string layers;
  for (size_t i = 0; i < parts.layers.size(); ++i) {
    const std::string name = std::to_string(i) + "/layer.tar";
    out.emplace_back(name, parts.layers[i]);
    layers += (layers.empty() ? "\"" : ",\"") + name + "\"";
  }
  out.emplace_back(sha256_hex(config) + ".json", config);
  out.emplace_back("manifest.json", R"([{"Config":")" + sha256_hex(config) +
                                        R"(.json","RepoTags":["x:1"],"Layers":[)" + layers + "]}]");
  return out;
}

std::string tar_of(const Members& members) {
  std::vector<TarEntry> entries;
  for (const auto& [name, content] : members) entries.push_back({.name = name, .content = content});
  return tar(entries);
}

}  // namespace glovebox::image::testing
