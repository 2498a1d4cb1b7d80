// SPDX-License-Identifier: Apache-2.0
#include "runtime/internal/snapshot_files.h"

#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/text.h"
#include "sys/command.h"
#include "sys/files.h"

namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;

constexpr size_t kCpuInfoBytes = 64 << 10;  // the first processor's paragraph and more

}  // namespace

// FNV-1a.
std::string word_digest(const std::set<std::string>& words) {
  uint64_t h = 14695981039346656037ull;
  for (const auto& word : words) {
    for (const unsigned char c : word + " ") h = (h ^ c) * 1099511628211ull;
  }
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

std::vector<SnapshotPart> list_parts(const std::string& directory) {
  std::vector<SnapshotPart> parts;
  for (const auto& name : sys::list_directory(directory)) {
    struct stat st{};
    if (::stat((directory + "/" + name).c_str(), &st) < 0 || !S_ISREG(st.st_mode)) continue;
    parts.push_back({name, static_cast<uint64_t>(st.st_size), {}});
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return parts;
}

std::string processor_features() {
  utsname kernel{};
  ::uname(&kernel);
  const std::string text = sys::read_file("/proc/cpuinfo", kCpuInfoBytes).value_or("");
  std::set<std::string> words;
  for (const char* key : {"\nflags", "\nFeatures"}) {
    const size_t at = text.find(key);
    if (at == std::string::npos) continue;
    const size_t colon = text.find(':', at);
    for (const auto& word : split(text.substr(colon + 1, text.find('\n', colon) - colon - 1), ' ')) {
      if (!word.empty()) words.insert(word);
    }
  }
  return std::string(kernel.machine) + "-" + word_digest(words);
}

Result<void> compare_needs(const std::map<std::string, std::string>& needs, const std::map<std::string, std::string>& here) {
  for (const auto& [name, wanted] : needs) {
    const auto found = here.find(name);
    const std::string present = found == here.end() ? "" : found->second;
    if (present == wanted) continue;
    return fail(Code::kSnapshotMismatch, "the snapshot needs " + name + " " + wanted + ", and here it is " + (present.empty() ? "unknown" : present),
                {{"need", name}, {"wanted", wanted}, {"present", present}});
  }
  return {};
}

// Without a journal and resize inode all of it is moved offline. The image is that of a mounted file system, so it is looked through
// first; 1 is "was repaired".
Result<void> grow_disk(const std::string& image, uint64_t bytes) {
  struct stat st{};
  if (::stat(image.c_str(), &st) < 0) return fail_errno(image);
  if (static_cast<uint64_t>(st.st_size) >= bytes) return {};
  if (::truncate(image.c_str(), static_cast<off_t>(bytes)) < 0) return fail_errno(image);
  GB_TRYV(sys::run_command({"sh", "-c", "e2fsck -f -p \"$0\" >&2 || [ $? -eq 1 ]", image}, 60s));
  GB_TRYV(sys::run_command({"resize2fs", image}, 60s));
  return {};
}

}  // namespace glovebox::runtime
