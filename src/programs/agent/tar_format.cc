// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/tar_format.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/text.h"

namespace glovebox::agent {
namespace {

constexpr size_t kMaxExtraBytes = 1 << 20;  // a pax header or long name

struct Field {
  size_t at, size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kType{156, 1}, kLink{157, 100}, kMagic{257, 8}, kUser{265, 32},
    kGroup{297, 32}, kPrefix{345, 155};

void put_text(std::string& block, Field field, std::string_view text) {
  block.replace(field.at, std::min(text.size(), field.size), text.substr(0, field.size));
}

bool fits_octal(uint64_t value, Field field) {
  return value >> (3 * (field.size - 1)) == 0;
}

void put_octal(std::string& block, Field field, uint64_t value) {
  char text[32];
  if (!fits_octal(value, field)) value = 0;  // the pax header says it
  const int n = std::snprintf(text, sizeof text, "%0*llo", static_cast<int>(field.size - 1),
                              static_cast<unsigned long long>(value));
  put_text(block, field, std::string_view(text, static_cast<size_t>(n)));
}

// The sum of the header's bytes, its own field counted as spaces.
unsigned checksum(std::string_view block) {
  unsigned sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i) {
    const bool own = i >= kSum.at && i < kSum.at + kSum.size;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

std::string header_block(const TarEntry& entry) {
  std::string block(kTarBlock, '\0');
  put_text(block, kName, entry.path);
  put_octal(block, kMode, entry.mode);
  put_octal(block, kUid, entry.uid);
  put_octal(block, kGid, entry.gid);
  put_octal(block, kSize, entry.size);
  put_octal(block, kTime, static_cast<uint64_t>(std::max<int64_t>(entry.mtime, 0)));
  block[kType.at] = entry.type;
  put_text(block, kLink, entry.target);
  put_text(block, kMagic, std::string_view("ustar\00000", 8));
  put_text(block, kUser, entry.user.substr(0, kUser.size - 1));
  put_text(block, kGroup, entry.group.substr(0, kGroup.size - 1));
  char sum[8];
  std::snprintf(sum, sizeof sum, "%06o", checksum(block));
  put_text(block, kSum, std::string_view(sum, 7));
  block[kSum.at + 7] = ' ';
  return block;
}

// "<length> <key>=<value>\n", where the length counts itself.
void append_record(std::string& out, std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (rest + std::to_string(length).size() != length)
    length = rest + std::to_string(length).size();
  out += std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

std::string_view text_of(std::string_view block, Field field) {
  const std::string_view text = block.substr(field.at, field.size);
  return text.substr(0, text.find('\0'));
}

std::optional<uint64_t> number_of(std::string_view block, Field field) {
  const std::string_view text = block.substr(field.at, field.size);
  uint64_t value = 0;
  if ((static_cast<unsigned char>(text[0]) & 0x80) != 0) {  // GNU: base 256
    for (size_t i = 0; i < text.size(); ++i) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | (static_cast<unsigned char>(text[i]) & (i == 0 ? 0x7F : 0xFF));
    }
    return value;
  }
  for (const char c : text) {
    if (c == ' ' && value == 0) continue;
    if (c == '\0' || c == ' ') break;
    if (c < '0' || c > '7') return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(c - '0');
  }
  return value;
}

tl::unexpected<Error> corrupt(const char* what) {
  return fail(Code::kInvalidArgument, std::string("not a tar archive: ") + what);
}

}  // namespace

std::string tar_header(const TarEntry& entry) {
  std::string records;
  const bool long_path = entry.path.size() > kName.size,
             long_target = entry.target.size() > kLink.size;
  if ((long_path && !is_utf8(entry.path)) || (long_target && !is_utf8(entry.target))) {
    append_record(records, "hdrcharset", "BINARY");
  }
  if (long_path) append_record(records, "path", entry.path);
  if (long_target) append_record(records, "linkpath", entry.target);
  if (!fits_octal(entry.size, kSize)) append_record(records, "size", std::to_string(entry.size));
  if (!fits_octal(entry.uid, kUid)) append_record(records, "uid", std::to_string(entry.uid));
  if (!fits_octal(entry.gid, kGid)) append_record(records, "gid", std::to_string(entry.gid));
  if (entry.mtime < 0) append_record(records, "mtime", std::to_string(entry.mtime));
  if (records.empty()) return header_block(entry);
  TarEntry extra;
  extra.type = 'x';
  extra.path = "PaxHeaders/entry";
  extra.size = records.size();
  return header_block(extra) + records + std::string(tar_padding(records.size()), '\0') +
         header_block(entry);
}

Result<TarReader::Kind> TarReader::take_header(std::string_view block, TarEntry* entry,
                                               size_t* content) {
  if (block.find_first_not_of('\0') == std::string_view::npos) return Kind::kEnd;
  const auto sum = number_of(block, kSum), size = number_of(block, kSize);
  if (!sum || *sum != checksum(block)) return corrupt("a header's checksum is wrong");
  if (!size) return corrupt("a size is no number");
  const char type = block[kType.at];
  if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
    if (*size > kMaxExtraBytes) return corrupt("an extended header is too long");
    pending_ = type;
    *content = static_cast<size_t>(*size);
    return Kind::kNeedsContent;
  }
  *entry = TarEntry();
  entry->type = type == '\0' || type == '7' ? '0' : type;
  entry->path = text_of(block, kName);
  if (block.substr(kMagic.at, 6) == std::string_view("ustar\0", 6) &&
      !text_of(block, kPrefix).empty()) {
    entry->path = std::string(text_of(block, kPrefix)) + "/" + entry->path;
  }
  entry->target = text_of(block, kLink);
  entry->size = *size;
  entry->mode = static_cast<uint32_t>(number_of(block, kMode).value_or(0644) & 07777);
  entry->uid = static_cast<uint32_t>(number_of(block, kUid).value_or(0));
  entry->gid = static_cast<uint32_t>(number_of(block, kGid).value_or(0));
  entry->mtime = static_cast<int64_t>(number_of(block, kTime).value_or(0));
  apply_extras(*entry);
  extras_.clear();
  // What old tar programs meant by a name that ends in a slash.
  if (entry->type == '0' && entry->path.ends_with('/')) entry->type = '5';
  if (entry->type != '0')
    entry->size = entry->type == '1' || entry->type == '2' || entry->type == '5' ? 0 : entry->size;
  return Kind::kEntry;
}

void TarReader::apply_extras(TarEntry& entry) const {
  for (const auto& [key, value] : extras_) {
    const auto number = parse_int(std::string_view(value).substr(0, value.find('.')));
    if (key == "path") entry.path = value;
    if (key == "linkpath") entry.target = value;
    if (!number) continue;
    if (key == "mtime") entry.mtime = *number;
    if (*number < 0) continue;
    if (key == "size") entry.size = static_cast<uint64_t>(*number);
    if (key == "uid") entry.uid = static_cast<uint32_t>(*number);
    if (key == "gid") entry.gid = static_cast<uint32_t>(*number);
  }
}

Result<void> TarReader::take_content(std::string_view content) {
  switch (pending_) {
    case 'x':
      return take_pax(content);
    case 'L':
      extras_["path"] = content.substr(0, content.find('\0'));
      return {};
    case 'K':
      extras_["linkpath"] = content.substr(0, content.find('\0'));
      return {};
    default:
      return {};  // a global pax header: comments, in practice
  }
}

Result<void> TarReader::take_pax(std::string_view content) {
  while (!content.empty()) {
    const size_t space = content.find(' ');
    const auto length =
        space == std::string_view::npos ? std::nullopt : parse_int(content.substr(0, space));
    if (!length || *length <= static_cast<int64_t>(space) + 1 ||
        static_cast<uint64_t>(*length) > content.size()) {
      return corrupt("a pax record is malformed");
    }
    const std::string_view record =
        content.substr(space + 1, static_cast<size_t>(*length) - space - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return corrupt("a pax record is malformed");
    extras_[std::string(record.substr(0, equals))] = record.substr(equals + 1);
    content.remove_prefix(static_cast<size_t>(*length));
  }
  return {};
}

}  // namespace glovebox::agent
