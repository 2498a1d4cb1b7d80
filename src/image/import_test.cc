// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "image/digest.h"
#include "image/files.h"
#include "image/oci.h"
#include "image/templates.h"
#include "image/test_archive.h"

namespace glovebox::image {
namespace {

using testing::compress;
using testing::docker_members;
using testing::Filter;
using testing::ImageParts;
using testing::oci_members;
using testing::tar;
using testing::tar_of;
using testing::TarEntry;

// A file of the host; each run of the tests has its own.
const char* const kCanary = [] {
  static const std::string path = "/etc/glovebox-import-canary-" + std::to_string(::getpid());
  return path.c_str();
}();
constexpr const char* kSecret = "host secret that no image may hold";

// Imports real archives through the real helper and looks at the image through a mount.
class Import : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Mounts of the tests stay in a namespace that dies with the program.
    if (::geteuid() == 0 && ::unshare(CLONE_NEWNS) == 0) (void)!::system("mount --make-rprivate /");
  }

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: imports make user namespaces and mounts";
    char dir[] = "/tmp/glovebox-import-test-XXXXXX";
    ASSERT_NE(::mkdtemp(dir), nullptr);
    dir_ = dir;
    std::ofstream(kCanary) << kSecret;
    ::chmod(kCanary, 0600);
  }

  void TearDown() override {
    if (dir_.empty()) return;
    (void)!::system(("umount -l " + dir_ + "/mnt 2>/dev/null").c_str());
    EXPECT_EQ(read_file(kCanary, 4096).value_or("gone"), kSecret) << "the host's file changed";
    struct stat st;
    ASSERT_EQ(::stat(kCanary, &st), 0);
    EXPECT_EQ(st.st_nlink, 1u);
    EXPECT_EQ(st.st_uid, 0u);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
    ::unlink(kCanary);
    EXPECT_TRUE(directory_names(dir_ + "/data/templates/tmp")->empty())
        << "staging was left behind";
    EXPECT_TRUE(remove_tree(dir_));
  }

  Result<Template> import_bytes(const std::string& archive, const ImportLimits& limits = {}) {
    const std::string path = dir_ + "/archive.tar";
    std::ofstream(path, std::ios::binary) << archive;
    return Templates(dir_ + "/data").import_archive("imported", path, nullptr, limits);
  }
  Result<Template> import_layers(const std::vector<std::vector<TarEntry>>& layers,
                                 const ImportLimits& limits = {}) {
    ImageParts parts;
    for (const auto& entries : layers) parts.layers.push_back(tar(entries));
    return import_bytes(tar_of(oci_members(parts)), limits);
  }

  // The image's root directory.
  std::string mounted(const Result<Template>& t) {
    EXPECT_TRUE(t) << t.error().message;
    const std::string at = dir_ + "/mnt";
    if (!t || !make_directories(at, 0755)) return "/nonexistent";
    const std::string mount = "mount -t erofs -o ro ", image = t->image_path + " " + at;
    if (::system(
            (mount + image + " 2>/dev/null || " + "mount -t erofs -o ro,loop " + image).c_str()) !=
        0) {
      ADD_FAILURE() << "cannot mount " << t->image_path;
    }
    return at;
  }

  static std::string text(const std::string& path) {
    return read_file(path, 1 << 20).value_or("(absent)");
  }
  static Code code(const Result<Template>& t) { return t ? Code::kInternal : t.error().code; }

  std::string dir_;
};

TEST_F(Import, KeepsContentOwnersModesTimesAndConfiguration) {
  const auto t = import_layers(
      {{{.name = "etc/", .type = '5', .mode = 0755},
        {.name = "etc/plain", .content = "hello", .mode = 0640, .uid = 5, .gid = 65535},
        {.name = "bin/", .type = '5', .mode = 0755},
        {.name = "bin/su", .content = "x", .mode = 04755},
        {.name = "bin/hard", .type = '1', .link = "bin/su"},
        {.name = "bin/soft", .type = '2', .link = "/etc/plain"},
        {.name = "opt/deep/er/file", .content = "1"}}});
  const std::string root = mounted(t);
  struct stat st, other;
  ASSERT_EQ(::stat((root + "/etc/plain").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 5u);
  EXPECT_EQ(st.st_gid, 65535u);
  EXPECT_EQ(st.st_mode & 07777, 0640u);
  EXPECT_EQ(st.st_mtime, 1'700'000'000);
  ASSERT_EQ(::stat((root + "/bin/su").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 04755u);
  ASSERT_EQ(::stat((root + "/bin/hard").c_str(), &other), 0);
  EXPECT_EQ(st.st_ino, other.st_ino);
  EXPECT_EQ(text(root + "/opt/deep/er/file"), "1");
  EXPECT_EQ(t->kind, "oci-import");
  EXPECT_EQ(t->config.user, "1000");
  EXPECT_EQ(t->config.workdir, "/srv");
  EXPECT_EQ(t->config.env.at("A"), "b=c");
  EXPECT_EQ(t->config.entrypoint, std::vector<std::string>{"/bin/sh"});
  EXPECT_EQ(t->config.cmd, (std::vector<std::string>{"-c", "true"}));
  EXPECT_EQ(t->config.exposed_ports, std::vector<std::string>{"8080/tcp"});
}

TEST_F(Import, AddsTheSkeletonToAnEmptyImage) {
  const std::string root = mounted(import_layers({{}}));
  struct stat st;
  for (const char* dir :
       {"/.glovebox", "/proc", "/sys", "/dev", "/tmp", "/workspace", "/home/user"}) {
    ASSERT_EQ(::lstat((root + dir).c_str(), &st), 0) << dir;
    EXPECT_TRUE(S_ISDIR(st.st_mode)) << dir;
  }
  EXPECT_EQ(st.st_uid, 1000u);
  ASSERT_EQ(::lstat((root + "/tmp").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 01777u);
  ASSERT_EQ(::lstat(root.c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 0u);
  EXPECT_NE(text(root + "/etc/passwd").find("user:x:1000:1000:"), std::string::npos);
  EXPECT_NE(text(root + "/etc/passwd").find("root:x:0:0:"), std::string::npos);
}

TEST_F(Import, ReplacesLinksWhereTheSkeletonNeedsRealPlaces) {
  const std::string root =
      mounted(import_layers({{{.name = "proc", .type = '2', .link = "/etc"},
                              {.name = "workspace", .type = '2', .link = "/etc"},
                              {.name = "etc/", .type = '5', .mode = 0755},
                              {.name = "etc/resolv.conf", .type = '2', .link = kCanary},
                              {.name = "etc/passwd", .type = '2', .link = "/data/accounts"},
                              {.name = "data/accounts", .content = "bob:x:7:7::/:/bin/sh"}}}));
  struct stat st;
  for (const char* path : {"/proc", "/workspace"}) {
    ASSERT_EQ(::lstat((root + path).c_str(), &st), 0);
    EXPECT_TRUE(S_ISDIR(st.st_mode)) << path;
  }
  EXPECT_EQ(text(root + "/etc/resolv.conf"), "");
  EXPECT_EQ(text(root + "/etc/passwd").rfind("bob:x:7:7::/:/bin/sh\nroot:x:0:0:", 0), 0u)
      << text(root + "/etc/passwd");
}

TEST_F(Import, ReadsGzipAndZstdLayersDockerArchivesAndDirectories) {
  const std::string layer = tar({{.name = "file", .content = "same"}});
  ImageParts parts;
  parts.layers = {compress(layer, Filter::kGzip), compress(layer, Filter::kZstd)};
  parts.diffs = {layer, layer};
  const auto oci = import_bytes(tar_of(oci_members(parts)));
  ASSERT_TRUE(oci) << oci.error().message;
  const auto docker = import_bytes(compress(tar_of(docker_members(parts)), Filter::kGzip));
  ASSERT_TRUE(docker) << docker.error().message;

  const std::string layout = dir_ + "/layout";
  ASSERT_TRUE(make_directories(layout + "/blobs/sha256", 0700));
  for (const auto& [name, content] : oci_members(parts))
    std::ofstream(layout + "/" + name, std::ios::binary) << content;
  ASSERT_EQ(::chmod(layout.c_str(), 0700), 0);
  const auto from_directory = Templates(dir_ + "/data").import_archive("imported", layout, nullptr);
  ASSERT_TRUE(from_directory) << from_directory.error().message;
  EXPECT_EQ(docker->version, oci->version);
  EXPECT_EQ(from_directory->version, oci->version);
  EXPECT_EQ(text(mounted(from_directory) + "/file"), "same");
}

TEST_F(Import, FollowsLinksOfOldDockerArchivesBetweenLayers) {
  const std::string layer = tar({{.name = "file", .content = "1"}});
  ImageParts parts{.layers = {layer, layer}};
  std::vector<TarEntry> members;
  for (const auto& [name, content] : docker_members(parts))
    members.push_back({.name = name, .content = content});
  for (auto& m : members) {
    if (m.name == "1/layer.tar") m = {.name = m.name, .type = '2', .link = "../0/layer.tar"};
  }
  EXPECT_EQ(text(mounted(import_bytes(tar(members))) + "/file"), "1");
}

TEST_F(Import, WhiteoutsRemoveLowerFilesOnly) {
  const std::string root = mounted(import_layers({{{.name = "a/gone", .content = "1"},
                                                   {.name = "a/kept", .content = "1"},
                                                   {.name = "b/old", .content = "1"},
                                                   {.name = "b/sub/old", .content = "1"},
                                                   {.name = "c/tree/x", .content = "1"},
                                                   {.name = "d/same", .content = "low"}},
                                                  {{.name = "a/.wh.gone"},
                                                   {.name = "a/.wh.never-there"},
                                                   {.name = "b/sub/new", .content = "2"},
                                                   {.name = "b/new", .content = "2"},
                                                   {.name = "b/.wh..wh..opq"},
                                                   {.name = "c/.wh.tree"},
                                                   {.name = "d/same", .content = "high"},
                                                   {.name = "d/.wh.same"},
                                                   {.name = ".wh..wh.plnk"}}}));
  EXPECT_EQ(text(root + "/a/gone"), "(absent)");
  EXPECT_EQ(text(root + "/a/kept"), "1");
  EXPECT_EQ(text(root + "/b/old"), "(absent)");
  EXPECT_EQ(text(root + "/b/sub/old"), "(absent)");
  EXPECT_EQ(text(root + "/b/sub/new"), "2");
  EXPECT_EQ(text(root + "/b/new"), "2");
  EXPECT_FALSE(path_exists(root + "/c/tree"));
  EXPECT_EQ(text(root + "/d/same"), "high");
  EXPECT_FALSE(path_exists(root + "/.wh..wh.plnk"));
}

TEST_F(Import, UpperEntriesReplaceLowerOnesOfAnotherKind) {
  const std::string root = mounted(import_layers({{{.name = "dir/x", .content = "1"},
                                                   {.name = "file", .content = "1"},
                                                   {.name = "usr/lib/", .type = '5', .mode = 0755},
                                                   {.name = "lib", .type = '2', .link = "usr/lib"},
                                                   {.name = "base", .content = "lower"}},
                                                  {{.name = "dir", .content = "now a file"},
                                                   {.name = "file/", .type = '5', .mode = 0700},
                                                   {.name = "lib/so", .content = "1"},
                                                   {.name = "twin", .type = '1', .link = "base"},
                                                   {.name = "base", .content = "upper"},
                                                   {.name = "base", .content = "twice"}}}));
  EXPECT_EQ(text(root + "/dir"), "now a file");
  struct stat st;
  ASSERT_EQ(::lstat((root + "/file").c_str(), &st), 0);
  EXPECT_TRUE(S_ISDIR(st.st_mode));
  EXPECT_EQ(text(root + "/usr/lib/so"), "1");
  EXPECT_EQ(text(root + "/twin"), "lower");
  EXPECT_EQ(text(root + "/base"), "twice");
}

TEST_F(Import, KeepsNamesWithOddBytes) {
  const std::string odd = "odd\xff\xfe name\n*\x01", utf8 = "gr\xc3\xbc\xc3\x9f";
  const std::string root = mounted(import_layers(
      {{{.name = odd, .content = "1"},
        {.name = "x", .content = "2", .pax = {{"path", utf8}}},
        {.name = "x", .content = "3", .pax = {{"hdrcharset", "BINARY"}, {"path", "pax\xff"}}}}}));
  EXPECT_EQ(text(root + "/" + odd), "1");
  EXPECT_EQ(text(root + "/" + utf8), "2");
  EXPECT_EQ(text(root + "/pax\xff"), "3");
}

TEST_F(Import, LeavesOutDevicesAndSecurityAttributes) {
  const std::string root = mounted(
      import_layers({{{.name = "disk", .type = '4'},
                      {.name = "null", .type = '3'},
                      {.name = "pipe", .type = '6'},
                      {.name = "cap",
                       .content = "1",
                       .pax = {{"SCHILY.xattr.security.capability",
                                std::string("\1\0\0\2\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20)},
                               {"SCHILY.xattr.user.note", "kept"}}}}}));
  EXPECT_FALSE(path_exists(root + "/disk"));
  EXPECT_FALSE(path_exists(root + "/null"));
  struct stat st;
  ASSERT_EQ(::lstat((root + "/pipe").c_str(), &st), 0);
  EXPECT_TRUE(S_ISFIFO(st.st_mode));
  char value[64] = {};
  EXPECT_EQ(::lgetxattr((root + "/cap").c_str(), "user.note", value, sizeof value), 4);
  EXPECT_EQ(::lgetxattr((root + "/cap").c_str(), "security.capability", value, sizeof value), -1);
  EXPECT_EQ(errno, ENODATA);
}

// One hostile layer each, and what must come of it.
struct Attack {
  const char* name;
  std::vector<TarEntry> entries;
  bool is_refused;
};

std::vector<Attack> attacks() {
  const std::string content = "written by the image";
  return {
      {"dot-dot name",
       {{.name = "../../../../etc/glovebox-import-canary", .content = content}},
       true},
      {"dot-dot inside",
       {{.name = "a/b/../../../../etc/glovebox-import-canary", .content = content}},
       true},
      {"absolute name", {{.name = kCanary, .content = content}}, false},
      {"link to / and write",
       {{.name = "esc", .type = '2', .link = "/"},
        {.name = "esc/etc/glovebox-import-canary", .content = content}},
       false},
      {"link up and write",
       {{.name = "etc/", .type = '5', .mode = 0755},
        {.name = "esc", .type = '2', .link = "../../../../../../.."},
        {.name = "esc/etc/glovebox-import-canary", .content = content}},
       false},
      {"link to file and write",
       {{.name = "f", .type = '2', .link = kCanary}, {.name = "f", .content = content}},
       false},
      {"link through /proc",
       {{.name = "esc", .type = '2', .link = "/proc/1/root"},
        {.name = "esc/etc/glovebox-import-canary", .content = content}},
       true},
      {"link to an open descriptor",
       {{.name = "esc", .type = '2', .link = "/proc/self/fd/3"},
        {.name = "esc/1000", .content = content}},
       true},
      {"hard link to host file", {{.name = "h", .type = '1', .link = kCanary}}, true},
      {"hard link upwards",
       {{.name = "h", .type = '1', .link = "../../../../etc/glovebox-import-canary"}},
       true},
      {"hard link through link",
       {{.name = "esc", .type = '2', .link = "/"},
        {.name = "h", .type = '1', .link = "esc/etc/glovebox-import-canary"}},
       true},
      {"whiteout upwards", {{.name = "etc/.wh..."}}, true},
      {"whiteout of the directory", {{.name = "etc/.wh.."}}, true},
      {"whiteout without a name", {{.name = "etc/.wh."}}, true},
      {"whiteout through link",
       {{.name = "esc", .type = '2', .link = "/"}, {.name = "esc/etc/.wh.glovebox-import-canary"}},
       false},
      {"opaque through link",
       {{.name = "esc", .type = '2', .link = "/etc"}, {.name = "esc/.wh..wh..opq"}},
       false},
      {"passwd link to host",
       {{.name = "etc/", .type = '5'}, {.name = "etc/passwd", .type = '2', .link = kCanary}},
       false},
      {"file below a file", {{.name = "f", .content = "1"}, {.name = "f/g", .content = "1"}}, true},
      {"owner out of range", {{.name = "f", .content = "1", .uid = 65536}}, true},
      {"long component",
       {{.name = "x", .content = "1", .pax = {{"path", std::string(300, 'n')}}}},
       true},
      {"long path",
       {{.name = "x", .content = "1", .pax = {{"path", std::string(5000, 'n')}}}},
       true},
  };
}

TEST_F(Import, HostileLayersStayInsideTheImage) {
  for (const auto& attack : attacks()) {
    SCOPED_TRACE(attack.name);
    const auto t = import_layers({attack.entries});
    EXPECT_EQ(!t, attack.is_refused) << (t ? "accepted" : t.error().message);
    if (!t) {
      EXPECT_TRUE(t.error().code == Code::kCorrupt || t.error().code == Code::kUnsupported ||
                  t.error().code == Code::kPayloadTooLarge)
          << t.error().message;
    }
    EXPECT_EQ(text(kCanary), kSecret);
    if (!t) continue;
    const std::string root = mounted(t);
    EXPECT_NE(::system(("grep -rqF '" + std::string(kSecret) + "' " + root).c_str()), 0)
        << "the host's secret is in the image";
    ASSERT_EQ(::system(("umount " + root).c_str()), 0);
  }
}

TEST_F(Import, RefusesTreesDeeperThanAPathAndRemovesThem) {
  // Each link leads to the end of a long chain, where the next chain starts: 4500 directories,
  // one in another.
  std::string chain;
  for (int i = 0; i < 250; ++i) chain += "d/";
  std::vector<TarEntry> entries;
  std::string start;
  for (int i = 0; i < 18; ++i) {  // a walk follows 40 links, and may start twice
    const std::string link = "link" + std::to_string(i);
    entries.push_back({.name = "x", .type = '5', .mode = 0755, .pax = {{"path", start + chain}}});
    entries.push_back(
        {.name = link, .type = '2', .link = "x", .pax = {{"linkpath", start + chain}}});
    start = link + "/";
  }
  const auto t = import_layers({entries});
  EXPECT_EQ(code(t), Code::kPayloadTooLarge) << (t ? "accepted" : t.error().message);
}

TEST_F(Import, RefusesDamagedAndWrongArchives) {
  ImageParts parts{.layers = {tar({{.name = "file", .content = std::string(5000, 'x')}})}};
  const auto members = oci_members(parts);
  const std::string whole = tar_of(members);
  EXPECT_EQ(code(import_bytes("")), Code::kCorrupt);
  EXPECT_EQ(code(import_bytes("not an archive at all")), Code::kCorrupt);
  for (const size_t length : {size_t{700}, whole.size() / 2, whole.size() - 1600}) {
    EXPECT_EQ(code(import_bytes(whole.substr(0, length))), Code::kCorrupt) << length;
  }
  auto wrong = members;
  wrong[1].second[600] ^= 1;
  EXPECT_EQ(code(import_bytes(tar_of(wrong))), Code::kCorrupt);
  auto missing = members;
  missing.erase(missing.begin() + 1);
  EXPECT_EQ(code(import_bytes(tar_of(missing))), Code::kCorrupt);
  auto no_json = members;
  no_json.back().second = "{\"manifests\":[";
  EXPECT_EQ(code(import_bytes(tar_of(no_json))), Code::kCorrupt);
}

TEST_F(Import, RefusesLayersThatAreNotWhatTheConfigurationSays) {
  ImageParts parts{.layers = {tar({{.name = "file", .content = "1"}})}};
  parts.diffs = {tar({{.name = "file", .content = "2"}})};
  EXPECT_EQ(code(import_bytes(tar_of(oci_members(parts)))), Code::kCorrupt);
  // A whole blob whose layer ends early: digests match, the tar inside does not.
  const std::string cut =
      tar({{.name = "file", .content = std::string(5000, 'x')}}).substr(0, 3000);
  EXPECT_EQ(code(import_bytes(tar_of(oci_members({.layers = {cut}})))), Code::kCorrupt);
  const std::string zipped =
      compress(tar({{.name = "file", .content = std::string(50000, 'x')}}), Filter::kGzip);
  EXPECT_EQ(
      code(import_bytes(tar_of(oci_members({.layers = {zipped.substr(0, zipped.size() / 2)}})))),
      Code::kCorrupt);
}

TEST_F(Import, RefusesOtherArchitectures) {
  ImageParts parts{.layers = {tar({})}};
  parts.architecture = "s390x";
  EXPECT_EQ(code(import_bytes(tar_of(oci_members(parts)))), Code::kUnsupported);
}

TEST_F(Import, StopsAtItsLimitsAndNamesThem) {
  const auto limit = [](const Result<Template>& t) {
    return t || t.error().code != Code::kPayloadTooLarge ? std::string("none")
                                                         : t.error().details.at("limit");
  };
  std::vector<TarEntry> many;
  for (int i = 0; i < 30; ++i) many.push_back({.name = "f" + std::to_string(i)});
  EXPECT_EQ(limit(import_layers({many}, {.entries = 29})), "entries");
  EXPECT_EQ(limit(import_layers({{{.name = "f", .content = std::string(100000, 'x')}}},
                                {.unpacked_bytes = 90000})),
            "unpacked_bytes");
  EXPECT_EQ(limit(import_layers({{{.name = "f", .content = std::string(100000, 'x')}}},
                                {.archive_bytes = 90000})),
            "archive_bytes");

  // 100 MiB of zeros in a few kilobytes.
  ImageParts bomb{.layers = {compress(tar({{.name = "f", .content = std::string(100 << 20, '\0')}}),
                                      Filter::kZstd)}};
  bomb.diffs = {"whatever"};
  EXPECT_EQ(limit(import_bytes(tar_of(oci_members(bomb)))), "ratio");

  // A sparse file of 10 GiB in one header.
  const TarEntry sparse{.name = "f",
                        .content = "x",
                        .pax = {{"GNU.sparse.major", "0"},
                                {"GNU.sparse.minor", "1"},
                                {"GNU.sparse.name", "f"},
                                {"GNU.sparse.size", "10737418240"},
                                {"GNU.sparse.map", "0,1"}}};
  EXPECT_EQ(limit(import_layers({{sparse}})), "ratio");
}

TEST_F(Import, AnImageOfBusyboxRunsItsShell) {
  const auto busybox = read_file("/bin/busybox", 8 << 20);
  if (!busybox)
    GTEST_SKIP() << "needs the package busybox-static: running an imported image not proven";
  const auto t = import_layers({{{.name = "bin/", .type = '5', .mode = 0755},
                                 {.name = "bin/busybox", .content = *busybox, .mode = 0755},
                                 {.name = "bin/sh", .type = '2', .link = "busybox"}}});
  const std::string root = mounted(t);
  EXPECT_EQ(::system(("chroot --userspec=1000:1000 " + root +
                      " /bin/sh -c 'test \"$(busybox id -un)\" = user'")
                         .c_str()),
            0);
  EXPECT_TRUE(Templates(dir_ + "/data").verify(*t));
}

TEST_F(Import, EqualArchivesAreOneVersionAndRemovalRespectsUse) {
  const auto first = import_layers({{{.name = "f", .content = "1"}}});
  Templates templates(dir_ + "/data");
  const auto second = templates.import_archive("other", dir_ + "/archive.tar", nullptr);
  ASSERT_TRUE(first && second);
  ASSERT_EQ(first->version, second->version);
  EXPECT_EQ(templates.list()->size(), 2u);
  EXPECT_EQ(templates.find("other@" + first->version.substr(0, 8))->name, "other");
  const auto refused = templates.remove("other", [](const std::string&) { return true; });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kTemplateInUse);
  ASSERT_TRUE(templates.remove("other", [](const std::string&) { return false; }));
  EXPECT_TRUE(path_exists(first->image_path)) << "another name still has it";
  const auto newer = import_layers({{{.name = "f", .content = "2"}}});
  ASSERT_TRUE(newer);
  EXPECT_TRUE(templates.collect_garbage([&](const std::string& v) { return v == first->version; })
                  ->empty());
  EXPECT_TRUE(templates.find("@" + first->version)->name.empty());
  EXPECT_EQ(*templates.collect_garbage([](const std::string&) { return false; }),
            std::vector<std::string>{first->version});
  EXPECT_FALSE(path_exists(first->image_path));
  EXPECT_TRUE(path_exists(newer->image_path));
}

}  // namespace
}  // namespace glovebox::image
