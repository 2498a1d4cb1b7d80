// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Names, versions and times as the registries write them. Everything here comes from a sandbox or an upstream.
namespace glovebox::registry {

// PEP 508: letters, digits, '.', '_', '-', not at either end; at most 200 bytes.
bool is_pypi_name(std::string_view name);
// "name" or "@scope/name", npm's legacy names included: URL-safe characters, no leading '.' or '_' in new ones; at most 214 bytes.
bool is_npm_name(std::string_view name);
// A file name that can be one path segment: printable ASCII without '/', '\\', '%', '?', '#', quotes; not "." or ".."; at most 255 bytes.
bool is_file_name(std::string_view name);

struct PypiFile {
  std::string version;
  bool is_source = false;
};
// What `filename` says when it belongs to `package` (normalised, PEP 503): wheels and source distributions. Eggs, installers and
// files of other packages: nothing.
std::optional<PypiFile> read_pypi_file(std::string_view filename, std::string_view package);

// "left-pad-1.3.0.tgz" of "left-pad" or "@scope/left-pad": "1.3.0".
std::optional<std::string> npm_file_version(std::string_view filename, std::string_view package);
std::string npm_file_name(std::string_view package, std::string_view version);

struct DebianFile {
  std::string package, version;
};
// "pool/main/h/hello/hello_2.10-3_amd64.deb" (the epoch is not part of file names); nothing for other files.
std::optional<DebianFile> read_debian_file(std::string_view path);

// RFC 3339 with any fraction and offset ("2015-01-02T16:38:06.621099Z"): unix time in milliseconds.
std::optional<int64_t> parse_time(std::string_view text);

// The order of SemVer 2.0; what is no such version is below all others, and among themselves they are ordered as text.
bool semver_less(std::string_view a, std::string_view b);
bool is_prerelease(std::string_view version);

// Path segments, percent-decoded once each; nothing when one is empty (but for a last one), "." or "..", or holds '/', '\\' or
// control characters after decoding, or the encoding is broken. "%2f" is allowed in a segment that starts with '@' (npm scopes).
std::optional<std::vector<std::string>> path_segments(std::string_view path);

}  // namespace glovebox::registry
