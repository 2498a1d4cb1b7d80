// SPDX-License-Identifier: Apache-2.0
#include "registry/names.h"

#include <gtest/gtest.h>

namespace glovebox::registry {
namespace {

TEST(PypiFile, BelongsToItsPackageOnly) {
  struct Case {
    const char *filename, *package, *version;
    bool is_source;
  };
  for (const Case& c : {Case{"six-1.16.0-py2.py3-none-any.whl", "six", "1.16.0", false},
                        Case{"Foo.Bar_baz-1.0-1-cp311-cp311-linux_x86_64.whl", "foo-bar-baz", "1.0", false},
                        Case{"foo-bar-1.0.tar.gz", "foo-bar", "1.0", true}, Case{"foo-2-1.0.zip", "foo-2", "1.0", true},
                        Case{"zope.interface-5.0.tar.bz2", "zope-interface", "5.0", true}, Case{"x-1!2.0+a.b.tar.xz", "x", "1!2.0+a.b", true}}) {
    const auto read = read_pypi_file(c.filename, c.package);
    ASSERT_TRUE(read) << c.filename;
    EXPECT_EQ(read->version, c.version);
    EXPECT_EQ(read->is_source, c.is_source);
  }
  for (const auto& [filename, package] : std::initializer_list<std::pair<const char*, const char*>>{
           {"evil-1.0-py3-none-any.whl", "six"}, {"six-1.16.0.egg", "six"}, {"six-1.16.0-py3-none.whl", "six"}, {"six-.tar.gz", "six"},
           {"../six-1.0.tar.gz", "six"}, {"six-1.0%2f.tar.gz", "six"}, {"six-1.0\"x.tar.gz", "six"}, {"six-1 0.tar.gz", "six"},
           {"six-1.0-a b-none-any.whl", "six"}, {"", "six"}, {"six-latest.tar.gz", "six"}, {".whl", "six"}}) {
    EXPECT_FALSE(read_pypi_file(filename, package)) << filename;
  }
}

TEST(NpmFile, GivesTheVersionOfItsPackage) {
  EXPECT_EQ(npm_file_version("left-pad-1.3.0.tgz", "left-pad"), "1.3.0");
  EXPECT_EQ(npm_file_version("node-20.1.0-rc.1.tgz", "@types/node"), "20.1.0-rc.1");
  EXPECT_EQ(npm_file_name("@types/node", "1.0.0"), "node-1.0.0.tgz");
  for (const char* bad : {"left-pad.tgz", "left-pad-.tgz", "right-pad-1.0.0.tgz", "left-pad-1.0.0.tar", "left-pad-../x.tgz", "left-padx1.tgz"}) {
    EXPECT_FALSE(npm_file_version(bad, "left-pad")) << bad;
  }
}

TEST(NpmName, IsWhatCanBeInAnUrl) {
  for (const char* good : {"left-pad", "@types/node", "JSONStream", "a", "_legacy", "@a.b/c_d"}) EXPECT_TRUE(is_npm_name(good)) << good;
  for (const char* bad : {"", "@types", "@/x", "@x/", "@x/y/z", "a/b", ".hidden", "..", "a b", "a%2fb", "@x/..", "-rf", "@../x"}) {
    EXPECT_FALSE(is_npm_name(bad)) << bad;
  }
  EXPECT_FALSE(is_npm_name(std::string(215, 'a')));
}

TEST(DebianFile, GivesNameAndVersion) {
  const auto file = read_debian_file("pool/main/h/hello/hello_2.10-3_amd64.deb");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->package, "hello");
  EXPECT_EQ(file->version, "2.10-3");
  EXPECT_FALSE(read_debian_file("pool/main/h/hello/hello_2.10.orig.tar.gz"));
  EXPECT_FALSE(read_debian_file("pool/x/_1_all.deb"));
}

TEST(Time, IsReadInEveryFormThatRegistriesWrite) {
  EXPECT_EQ(parse_time("1970-01-02T00:00:00Z"), 86'400'000);
  EXPECT_EQ(parse_time("2015-01-02T16:38:06.621099Z"), 1420216686621);
  EXPECT_EQ(parse_time("2015-01-02T16:38:06.621099+00:00"), 1420216686621);
  EXPECT_EQ(parse_time("2015-01-02T18:38:06.6+02:00"), 1420216686600);
  EXPECT_EQ(parse_time("2015-01-02T16:38:06"), 1420216686000);
  for (const char* bad : {"", "2015", "2015-13-02T16:38:06Z", "2015-02-30T00:00:00Z", "2015-01-02T25:00:00Z", "2015-01-02T16:38:06+2", "yesterday",
                          "2015-01-02T16:38:06Zx", "-015-01-02T16:38:06Z"}) {
    EXPECT_FALSE(parse_time(bad)) << bad;
  }
}

TEST(Semver, OrdersAsTheStandardSays) {
  const char* ordered[] = {"garbage", "0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1",
                           "1.0.0", "1.0.1", "1.2.0", "1.10.0", "18446744073709551617.0.0"};
  for (size_t i = 0; i < std::size(ordered); ++i) {
    for (size_t j = 0; j < std::size(ordered); ++j) EXPECT_EQ(semver_less(ordered[i], ordered[j]), i < j) << ordered[i] << " " << ordered[j];
  }
  EXPECT_TRUE(is_prerelease("1.0.0-rc.1"));
  EXPECT_FALSE(is_prerelease("1.0.0+build"));
}

TEST(Path, IsDecodedOnceAndNeverClimbs) {
  using Segments = std::vector<std::string>;
  EXPECT_EQ(path_segments("/pypi/simple/six/"), (Segments{"pypi", "simple", "six"}));
  EXPECT_EQ(path_segments("/npm/@types%2fnode"), (Segments{"npm", "@types", "node"}));
  EXPECT_EQ(path_segments("/npm/@types/node"), (Segments{"npm", "@types", "node"}));
  EXPECT_EQ(path_segments("/a/b%253a"), (Segments{"a", "b%3a"}));
  EXPECT_EQ(path_segments("/"), Segments{});
  for (const char* bad : {"", "x", "//a", "/a//b", "/a/../b", "/a/%2e%2e/b", "/a/.", "/a%2fb", "/@a%2f..", "/@a%2fb%2fc", "/@a%2f", "/a/%00", "/a/%0d%0a",
                          "/a/%5c..", "/a/%zz", "/a/%2"}) {
    EXPECT_FALSE(path_segments(bad)) << bad;
  }
}

}  // namespace
}  // namespace glovebox::registry
