// SPDX-License-Identifier: Apache-2.0
#include "registry/npm_repack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "base/unique_fd.h"

namespace glovebox::registry {
namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

UniqueFd packed(const Files& files) {
  UniqueFd fd(::memfd_create("package", MFD_CLOEXEC));
  archive* out = archive_write_new();
  archive_write_add_filter_gzip(out);
  archive_write_set_format_ustar(out);
  archive_write_open_fd(out, fd.get());
  for (const auto& [path, content] : files) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, path.c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0755);
    archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
    archive_write_header(out, entry);
    archive_write_data(out, content.data(), content.size());
    archive_entry_free(entry);
  }
  archive_write_free(out);
  return fd;
}

std::map<std::string, std::string> unpacked(const std::string& bytes) {
  std::map<std::string, std::string> out;
  archive* in = archive_read_new();
  archive_read_support_filter_gzip(in);
  archive_read_support_format_tar(in);
  EXPECT_EQ(archive_read_open_memory(in, bytes.data(), bytes.size()), ARCHIVE_OK);
  archive_entry* entry = nullptr;
  while (archive_read_next_header(in, &entry) == ARCHIVE_OK) {
    std::string content(static_cast<size_t>(archive_entry_size(entry)), '\0');
    archive_read_data(in, content.data(), content.size());
    out[archive_entry_pathname(entry)] = content;
  }
  archive_read_free(in);
  return out;
}

struct Outcome {
  Result<bool> changed;
  std::string bytes;
};
Outcome repack(const Files& files) {
  const UniqueFd fd = packed(files);
  std::string bytes;
  auto changed = repack_without_scripts(fd.get(), [&bytes](std::string_view part) -> Result<void> {
    bytes += part;
    return {};
  });
  return {std::move(changed), std::move(bytes)};
}

constexpr const char* kEvil = R"({"name":"p","scripts":{"postinstall":"evil"}})";

TEST(Repack, TakesScriptsOutOfTheManifestAndKeepsTheRest) {
  const auto out = repack({{"package/package.json", kEvil}, {"package/index.js", "code"}, {"package/test/package.json", kEvil}});
  ASSERT_TRUE(out.changed && *out.changed);
  const auto files = unpacked(out.bytes);
  EXPECT_EQ(files.at("package/package.json").find("evil"), std::string::npos);
  EXPECT_EQ(files.at("package/index.js"), "code");
  EXPECT_EQ(files.at("package/test/package.json"), kEvil) << "no installer looks there";
  EXPECT_EQ(repack({{"package/package.json", kEvil}, {"package/index.js", "code"}, {"package/test/package.json", kEvil}}).bytes, out.bytes);
}

TEST(Repack, FindsManifestsWhereverAnInstallerDoes) {
  for (const char* path : {"package/package.json", "other/package.json", "./package.json", "./package/package.json", "package//package.json",
                           "package/node_modules/a/package.json", "package/node_modules/@s/a/package.json",
                           "package/node_modules/a/node_modules/b/package.json"}) {
    const auto out = repack({{"package/index.js", "code"}, {path, kEvil}});
    ASSERT_TRUE(out.changed && *out.changed) << path;
    for (const auto& [name, content] : unpacked(out.bytes)) EXPECT_EQ(content.find("evil"), std::string::npos) << path;
  }
  EXPECT_TRUE(*repack({{"package/package.json", "{\"name\":\"p\"}"}, {"package/package.json", kEvil}}).changed) << "the last one counts";
  EXPECT_TRUE(*repack({{"package/package.json", kEvil}, {"package/package.json", "{\"name\":\"p\"}"}}).changed == false);
}

TEST(Repack, StopsImplicitNativeBuilds) {
  const auto out = repack({{"package/package.json", "{\"name\":\"p\"}"}, {"package/binding.gyp", "{}"}});
  ASSERT_TRUE(out.changed && *out.changed);
  EXPECT_NE(unpacked(out.bytes).at("package/package.json").find("\"gypfile\":false"), std::string::npos);
}

TEST(Repack, LeavesHarmlessPackagesAlone) {
  const auto out = repack({{"package/package.json", R"({"name":"p","scripts":{"test":"t"}})"}, {"package/index.js", "code"}});
  ASSERT_TRUE(out.changed);
  EXPECT_FALSE(*out.changed);
  EXPECT_TRUE(out.bytes.empty());
}

TEST(Repack, RefusesWhatItCannotUnderstand) {
  EXPECT_FALSE(repack({{"package/package.json", "not json"}}).changed);
  EXPECT_FALSE(repack({{"package/../../etc/passwd", "x"}}).changed);
  UniqueFd fd(::memfd_create("garbage", MFD_CLOEXEC));
  ASSERT_EQ(::write(fd.get(), "garbage", 7), 7);
  EXPECT_FALSE(repack_without_scripts(fd.get(), [](std::string_view) -> Result<void> { return {}; }));
}

}  // namespace
}  // namespace glovebox::registry
