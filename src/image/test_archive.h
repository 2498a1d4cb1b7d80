// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

// Archives for tests, written byte by byte so that they can be as wrong as an attacker likes.
namespace glovebox::image::testing {

struct TarEntry {
  std::string name;
  char type = '0';  // ustar: '0' file, '1' hard link, '2' symbolic link, '3' '4' devices, '5'
                    // directory, '6' fifo
  std::string content;
  std::string link;
  unsigned mode = 0644;
  unsigned uid = 0, gid = 0;
  unsigned long mtime = 1'700'000'000;
  std::vector<std::pair<std::string, std::string>> pax;  // records of a preceding extended header
};

std::string tar(const std::vector<TarEntry>& entries, bool has_end = true);
enum class Filter { kNone, kGzip, kZstd };
std::string compress(const std::string& bytes, Filter filter);

struct ImageParts {
  std::vector<std::string> layers;  // as stored
  std::vector<std::string> diffs;   // uncompressed; empty: the layers themselves
  std::string config =
      R"({"Env":["PATH=/bin","A=b=c"],"User":"1000:1000","WorkingDir":"/srv","Entrypoint":["/bin/sh"],"Cmd":["-c","true"],"ExposedPorts":{"8080/tcp":{}}})";
  std::string architecture;  // empty: this machine's
};

// Members of an OCI layout: name and content.
using Members = std::vector<std::pair<std::string, std::string>>;
Members oci_members(const ImageParts& parts);
Members docker_members(
    const ImageParts& parts);  // the old layout: HASH.json, N/layer.tar, manifest.json last
std::string tar_of(const Members& members);

}  // namespace glovebox::image::testing
