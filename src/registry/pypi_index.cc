// SPDX-License-Identifier: Apache-2.0
#include "registry/pypi_index.h"

#include <boost/json/object.hpp>
#include <boost/json/array.hpp>
#include <algorithm>
#include <set>

#include "http/json.h"
#include "http/message.h"
#include "registry/bounded_json.h"
#include "registry/digest.h"
#include "registry/names.h"

namespace glovebox::registry {
namespace {

constexpr size_t kMaxMemory = 256 << 20;
constexpr size_t kMaxFiles = 200'000;
constexpr size_t kMaxText = 1000;  // of fields that are passed on

std::string text_of(const boost::json::object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  if (!value || !value->is_string() || value->get_string().size() > kMaxText) return "";
  return std::string(value->get_string());
}

// PEP 714: "core-metadata", or under its first name; true, or an object of hashes.
void read_metadata(const boost::json::object& entry, IndexFile& file) {
  const auto* value = entry.if_contains("core-metadata");
  if (!value) value = entry.if_contains("dist-info-metadata");
  if (!value) return;
  file.has_metadata = value->is_object() || (value->is_bool() && value->get_bool());
  if (value->is_object()) file.metadata_sha256 = sha256_integrity(text_of(value->get_object(), "sha256")).hex;
}

// Completes `file` from its name and URL; false when it is none of ours.
bool settle(IndexFile& file, std::string_view href, const Url& base, std::string_view package) {
  const auto url = resolve_url(base, href);
  const auto read = read_pypi_file(file.filename, package);
  if (!url || !read) return false;
  file.url = url->text;
  file.version = read->version;
  file.is_source = read->is_source;
  file.uploaded_at_ms = parse_time(file.upload_time);
  return true;
}

std::optional<IndexFile> read_entry(const boost::json::object& entry, const Url& base, std::string_view package) {
  IndexFile file;
  file.filename = text_of(entry, "filename");
  file.requires_python = text_of(entry, "requires-python");
  file.upload_time = text_of(entry, "upload-time");
  const auto* hashes = entry.if_contains("hashes");
  if (hashes && hashes->is_object()) file.sha256 = sha256_integrity(text_of(hashes->get_object(), "sha256")).hex;
  const auto* size = entry.if_contains("size");
  if (size && size->is_int64() && size->get_int64() >= 0) file.size = static_cast<uint64_t>(size->get_int64());
  const auto* yanked = entry.if_contains("yanked");
  if (yanked && yanked->is_string()) file.yanked = text_of(entry, "yanked");
  if (yanked && yanked->is_bool() && yanked->get_bool()) file.yanked = "";
  read_metadata(entry, file);
  const auto* url = entry.if_contains("url");
  if (!url || !url->is_string()) return std::nullopt;
  if (!settle(file, std::string_view(url->get_string()), base, package)) return std::nullopt;
  return file;
}

}  // namespace

const IndexFile* Index::find(std::string_view filename) const {
  const auto it = std::find_if(files.begin(), files.end(), [filename](const IndexFile& file) { return file.filename == filename; });
  return it == files.end() ? nullptr : &*it;
}

Result<Index> parse_index_json(std::string_view body, const Url& base, std::string_view package) {
  GB_TRY(const auto page, parse_bounded_json(body, kMaxMemory));
  const auto* files = page.is_object() ? page.get_object().if_contains("files") : nullptr;
  if (!files || !files->is_array()) return fail(Code::kCorrupt, "the upstream's index has no list of files");
  Index index{std::string(package), {}};
  for (const auto& entry : files->get_array()) {
    if (!entry.is_object() || index.files.size() >= kMaxFiles) continue;
    if (auto file = read_entry(entry.get_object(), base, package)) index.files.push_back(std::move(*file));
  }
  return index;
}

namespace {

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
  } else if (c < 0x10000) {
    out += {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
  }
}

// &amp; and the like, and numbers up to U+FFFF; anything else stays as it is.
std::string unescape(std::string_view text) {
  static constexpr std::pair<std::string_view, char> kNames[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = text[i] == '&' ? text.find(';', i) : text.npos;
    if (end == text.npos || end - i > 10) {
      out += text[i];
      continue;
    }
    const std::string_view name = text.substr(i + 1, end - i - 1);
    const auto* known = std::find_if(std::begin(kNames), std::end(kNames), [name](const auto& entry) { return entry.first == name; });
    const bool is_hex = name.starts_with("#x") || name.starts_with("#X");
    const bool is_number = name.size() > (is_hex ? 2u : 1u) && name.starts_with('#');
    if (known != std::end(kNames)) {
      out += known->second;
    } else if (is_number) {
      append_utf8(out, static_cast<uint32_t>(std::strtoul(std::string(name.substr(is_hex ? 2 : 1)).c_str(), nullptr, is_hex ? 16 : 10)));
    } else {
      out += text[i];
      continue;
    }
    i = end;
  }
  return out;
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

// Takes one attribute from the inside of a tag; false at its end.
bool take_attribute(std::string_view& tag, std::string& name, std::string& value) {
  while (!tag.empty() && (is_space(tag.front()) || tag.front() == '/')) tag.remove_prefix(1);
  if (tag.empty()) return false;
  size_t end = 0;
  while (end < tag.size() && !is_space(tag[end]) && (tag[end] != '=' || end == 0)) ++end;
  name = tag.substr(0, end);
  std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  tag.remove_prefix(end);
  while (!tag.empty() && is_space(tag.front())) tag.remove_prefix(1);
  value.clear();
  if (!tag.starts_with('=')) return true;
  tag.remove_prefix(1);
  while (!tag.empty() && is_space(tag.front())) tag.remove_prefix(1);
  const char quote = tag.starts_with('"') || tag.starts_with('\'') ? tag.front() : '\0';
  if (quote) tag.remove_prefix(1);
  end = 0;
  while (end < tag.size() && (quote ? tag[end] != quote : !is_space(tag[end]))) ++end;
  value = unescape(tag.substr(0, end));
  tag.remove_prefix(std::min(tag.size(), end + (quote ? 1 : 0)));
  return true;
}

// The end of the tag that starts at `start`: the first '>' outside of quotes.
size_t tag_end(std::string_view html, size_t start) {
  char quote = '\0';
  for (size_t i = start; i < html.size(); ++i) {
    const char c = html[i];
    if (quote) {
      if (c == quote) quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '>') {
      return i;
    }
  }
  return html.npos;
}

std::optional<IndexFile> read_anchor(std::string_view attributes, const Url& base, std::string_view package) {
  IndexFile file;
  std::string name, value, href;
  bool has_core = false;
  while (take_attribute(attributes, name, value)) {
    if (name == "href") href = value;
    if (value.size() > kMaxText) continue;
    if (name == "data-requires-python") file.requires_python = value;
    if (name == "data-yanked") file.yanked = value;
    if (name != "data-core-metadata" && (name != "data-dist-info-metadata" || has_core)) continue;
    has_core = has_core || name == "data-core-metadata";
    file.has_metadata = value == "true" || value.starts_with("sha256=");
    file.metadata_sha256 = value.starts_with("sha256=") ? sha256_integrity(std::string_view(value).substr(7)).hex : "";
  }
  const auto url = resolve_url(base, href);
  if (!url) return std::nullopt;
  file.filename = http::percent_decode(std::string_view(url->path).substr(url->path.rfind('/') + 1)).value_or("");
  if (url->fragment.starts_with("sha256=")) file.sha256 = sha256_integrity(std::string_view(url->fragment).substr(7)).hex;
  if (!settle(file, href, base, package)) return std::nullopt;
  return file;
}

}  // namespace

Result<Index> parse_index_html(std::string_view html, const Url& base, std::string_view package) {
  Index index{std::string(package), {}};
  bool has_tag = false;
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at)) {
    if (html.substr(at).starts_with("<!--")) {
      at = html.find("-->", at);
      if (at == html.npos) break;
      continue;
    }
    const size_t end = tag_end(html, at + 1);
    if (end == html.npos) break;
    const std::string_view tag = html.substr(at + 1, end - at - 1);
    has_tag = true;
    at = end;
    if (tag.size() < 2 || (tag[0] != 'a' && tag[0] != 'A') || !is_space(tag[1]) || index.files.size() >= kMaxFiles) continue;
    if (auto file = read_anchor(tag.substr(2), base, package)) index.files.push_back(std::move(*file));
  }
  if (!has_tag) return fail(Code::kCorrupt, "the upstream's index is no HTML");
  return index;
}

std::string index_file_path(const Index& index, const IndexFile& file) {
  return "/pypi/files/" + index.name + "/" + (file.sha256.empty() ? "unhashed" : file.sha256) + "/" + http::percent_encode(file.filename);
}

std::string render_index_json(const Index& index) {
  boost::json::array files, versions;
  std::set<std::string_view> seen;
  for (const IndexFile& file : index.files) {
    boost::json::object entry{{"filename", file.filename}, {"url", index_file_path(index, file)}};
    entry["hashes"] = file.sha256.empty() ? boost::json::object() : boost::json::object({{"sha256", file.sha256}});
    if (!file.requires_python.empty()) entry["requires-python"] = file.requires_python;
    if (file.size) entry["size"] = *file.size;
    if (!file.upload_time.empty()) entry["upload-time"] = file.upload_time;
    entry["yanked"] = file.yanked ? (file.yanked->empty() ? boost::json::value(true) : boost::json::value(*file.yanked)) : false;
    if (file.has_metadata) {
      entry["core-metadata"] = file.metadata_sha256.empty() ? boost::json::value(true)
                                                            : boost::json::value(boost::json::object({{"sha256", file.metadata_sha256}}));
      entry["dist-info-metadata"] = entry["core-metadata"];
    }
    files.push_back(std::move(entry));
    if (seen.insert(file.version).second) versions.emplace_back(file.version);
  }
  return json::to_text(boost::json::object{{"meta", {{"api-version", "1.1"}}}, {"name", index.name}, {"versions", versions}, {"files", files}});
}

namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

}  // namespace

std::string render_index_html(const Index& index) {
  std::string out = "<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.1\"><title>Links for " + index.name +
                    "</title></head>\n<body>\n";
  for (const IndexFile& file : index.files) {
    out += "<a href=\"" + index_file_path(index, file) + (file.sha256.empty() ? "" : "#sha256=" + file.sha256) + "\"";
    if (!file.requires_python.empty()) out += " data-requires-python=\"" + escape(file.requires_python) + "\"";
    if (file.yanked) out += " data-yanked=\"" + escape(*file.yanked) + "\"";
    if (file.has_metadata) {
      const std::string value = file.metadata_sha256.empty() ? "true" : "sha256=" + file.metadata_sha256;
      out += " data-core-metadata=\"" + value + "\" data-dist-info-metadata=\"" + value + "\"";
    }
    out += ">" + escape(file.filename) + "</a><br>\n";
  }
  return out + "</body></html>\n";
}

}  // namespace glovebox::registry
