// SPDX-License-Identifier: Apache-2.0
#include "registry/pypi_index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "registry/bounded_json.h"

namespace glovebox::registry {
namespace {

const std::string kHash(64, 'a');

Url base() { return *parse_url("https://index.example/simple/six/"); }

TEST(PypiIndex, ReadsJsonAndKeepsWhatBelongsToThePackage) {
  const auto index = parse_index_json(R"({"meta":{"api-version":"1.1"},"files":[
    {"filename":"six-1.0-py3-none-any.whl","url":"../../files/six-1.0-py3-none-any.whl","hashes":{"sha256":")" + kHash + R"("},"size":7,
     "upload-time":"2020-01-01T00:00:00Z","requires-python":">=3.6","yanked":"broken","core-metadata":{"sha256":")" + kHash + R"("}},
    {"filename":"evil-1.0-py3-none-any.whl","url":"https://x.example/evil-1.0-py3-none-any.whl"},
    {"filename":"six-2.0.tar.gz","url":"https://files.example/six-2.0.tar.gz","hashes":{"md5":"00"},"yanked":false},
    {"filename":"six-3.0.tar.gz","url":"file:///etc/passwd"}, {"filename":7}, null, {"filename":"six-4.0.tar.gz","url":"ht tp://x"}]})",
                                      base(), "six");
  ASSERT_TRUE(index);
  ASSERT_EQ(index->files.size(), 2u);
  const IndexFile& wheel = index->files[0];
  EXPECT_EQ(wheel.url, "https://index.example/files/six-1.0-py3-none-any.whl");
  EXPECT_EQ(wheel.sha256, kHash);
  EXPECT_EQ(wheel.version, "1.0");
  EXPECT_EQ(wheel.size, 7u);
  EXPECT_EQ(wheel.uploaded_at_ms, 1577836800000);
  EXPECT_EQ(wheel.yanked, "broken");
  EXPECT_EQ(wheel.metadata_sha256, kHash);
  EXPECT_TRUE(index->files[1].is_source);
  EXPECT_EQ(index->files[1].sha256, "");
  EXPECT_FALSE(index->files[1].yanked);
}

TEST(PypiIndex, ReadsHtml) {
  const auto index = parse_index_html(
      "<!DOCTYPE html><html><!-- <a href='six-0.1.tar.gz'>no</a> --><body><A\n HREF='six-1.0.tar.gz#sha256=" + kHash +
          "' data-requires-python=\"&gt;=3.6\" data-yanked>six</A><a href=https://files.example/six-2.0-py3-none-any.whl "
          "data-core-metadata=true>x</a><a href=\"/six-3.0.tar.gz\" data-yanked=\"a &quot;b&quot;\">x</a><a href='javascript:1'>x</a><a",
      base(), "six");
  ASSERT_TRUE(index);
  ASSERT_EQ(index->files.size(), 3u);
  EXPECT_EQ(index->files[0].url, "https://index.example/simple/six/six-1.0.tar.gz");
  EXPECT_EQ(index->files[0].sha256, kHash);
  EXPECT_EQ(index->files[0].requires_python, ">=3.6");
  EXPECT_EQ(index->files[0].yanked, "");
  EXPECT_TRUE(index->files[1].has_metadata);
  EXPECT_EQ(index->files[2].yanked, "a \"b\"");
}

TEST(PypiIndex, WhatIsNoIndexIsCorrupt) {
  for (const char* body : {"", "{}", "[]", "{\"files\":{}}", "nonsense", "{\"files\":[}"}) {
    const auto index = parse_index_json(body, base(), "six");
    ASSERT_FALSE(index) << body;
    EXPECT_EQ(index.error().code, Code::kCorrupt);
  }
  EXPECT_FALSE(parse_index_html("no markup", base(), "six"));
  EXPECT_FALSE(parse_index_json(std::string(100, '['), base(), "six"));
}

TEST(BoundedJson, ASmallTextThatTakesMuchMemoryIsRefused) {
  std::string text = "[";
  for (int i = 0; i < 10'000; ++i) text += "{},";
  text += "0]";
  EXPECT_TRUE(parse_bounded_json(text, 4 << 20));
  const auto value = parse_bounded_json(text, 100 << 10);
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code, Code::kCorrupt);
  EXPECT_TRUE(parse_bounded_json(std::string(60, '[') + std::string(60, ']'), 1 << 20));
  EXPECT_FALSE(parse_bounded_json(std::string(70, '[') + std::string(70, ']'), 1 << 20));
}

TEST(PypiIndex, RendersOwnAddressesOnlyAndEscapes) {
  Index index{"six", {}};
  IndexFile file;
  file.filename = "six-1.0+l-py3-none-any.whl";
  file.url = "https://files.example/secret-token/six.whl";
  file.sha256 = kHash;
  file.version = "1.0+l";
  file.yanked = "<b>\"&";
  file.requires_python = ">=3";
  index.files.push_back(file);
  const std::string html = render_index_html(index), text = render_index_json(index);
  EXPECT_NE(html.find("href=\"/pypi/files/six/" + kHash + "/six-1.0%2Bl-py3-none-any.whl#sha256=" + kHash + "\""), html.npos) << html;
  EXPECT_NE(html.find("data-yanked=\"&lt;b&gt;&quot;&amp;\""), html.npos);
  EXPECT_EQ((html + text).find("secret-token"), html.npos);
  // What is rendered reads back as the same.
  for (const bool is_json : {true, false}) {
    const auto again = is_json ? parse_index_json(text, base(), "six") : parse_index_html(html, base(), "six");
    ASSERT_TRUE(again);
    ASSERT_EQ(again->files.size(), 1u);
    EXPECT_EQ(again->files[0].filename, file.filename);
    EXPECT_EQ(again->files[0].sha256, kHash);
    EXPECT_EQ(again->files[0].yanked, file.yanked);
  }
}

TEST(Url, OneParserDecides) {
  EXPECT_EQ(parse_url("HTTPS://User:pa%20ss@Index.Example:8443/simple?x=1#f")->text, "https://index.example:8443/simple?x=1");
  EXPECT_EQ(parse_url("https://u:pa%20ss@h/")->password, "pa ss");
  EXPECT_EQ(resolve_url(base(), "//evil.example/x")->origin.host, "evil.example");
  EXPECT_EQ(resolve_url(base(), "?a")->path, "/simple/six/");
  for (const char* bad : {"", "ftp://x/", "file:///etc/passwd", "https://", "https://a b/", "https://a/\r\nX: 1", "gopher://x", "x", "https://a/\x01"}) {
    EXPECT_FALSE(parse_url(bad)) << bad;
  }
}

}  // namespace
}  // namespace glovebox::registry
