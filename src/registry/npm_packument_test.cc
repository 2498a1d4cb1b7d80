// SPDX-License-Identifier: Apache-2.0
#include "registry/npm_packument.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "http/json.h"

namespace glovebox::registry {
namespace {

constexpr std::string_view kPackage = R"({"name":"@s/p","dist-tags":{"latest":"2.0.0","old":"1.0.0"},"readme":"long",
  "time":{"created":"2020-01-01T00:00:00Z","1.0.0":"2020-01-01T00:00:00Z","2.0.0":"2021-01-01T00:00:00.000Z"},
  "versions":{
   "1.0.0":{"name":"@s/p","version":"1.0.0","main":"x.js","dependencies":{"a":"^1"},
            "dist":{"tarball":"https://up.example/@s/p/-/p-1.0.0.tgz","shasum":"a9993e364706816aba3e25717850c26c9cd0d89d"}},
   "2.0.0":{"name":"@s/p","version":"2.0.0","scripts":{"postinstall":"evil","test":"t"},
            "dist":{"tarball":"https://up.example/@s/p/-/p-2.0.0.tgz","integrity":"sha512-3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw=="}},
   "3.0.0-rc.1":{"name":"@s/p","version":"3.0.0-rc.1","dist":{"tarball":"https://up.example/x.tgz"}},
   "4.0.0":{"name":"other","version":"4.0.0","dist":{"tarball":"https://up.example/x.tgz"}},
   "5.0.0":{"name":"@s/p","version":"5.0.0"},
   "../6":{"name":"@s/p","version":"../6","dist":{"tarball":"https://up.example/x.tgz"}}}})";

Packument package() { return std::move(*Packument::parse(kPackage, "@s/p")); }

boost::json::object rendered(const Packument::View& view) { return json::parse(package().render(view))->as_object(); }

TEST(Packument, KeepsVersionsThatAreWhatTheySay) {
  const auto p = package();
  ASSERT_EQ(p.versions().size(), 3u);
  EXPECT_EQ(p.find("1.0.0")->uploaded_at_ms, 1577836800000);
  EXPECT_FALSE(p.find("1.0.0")->integrity.is_strong());
  EXPECT_TRUE(p.find("2.0.0")->integrity.is_strong());
  EXPECT_TRUE(p.find("2.0.0")->has_install_script);
  EXPECT_FALSE(p.find("3.0.0-rc.1")->integrity.is_given());
  EXPECT_EQ(p.resolve("latest"), "2.0.0");
  EXPECT_EQ(p.resolve("5.0.0"), "");
  EXPECT_FALSE(Packument::parse(kPackage, "p"));
  EXPECT_FALSE(Packument::parse("{\"name\":\"p\"}", "p"));
  EXPECT_FALSE(Packument::parse("[", "p"));
}

TEST(Packument, LeavesRefusedVersionsOutAndSaysWhy) {
  Packument::View view;
  view.base_url = "http://host/npm";
  view.refused["2.0.0"] = {false, "packages.deny[0]", "No."};
  const auto out = rendered(view);
  EXPECT_FALSE(out.at("versions").as_object().contains("2.0.0"));
  EXPECT_FALSE(out.at("time").as_object().contains("2.0.0"));
  EXPECT_EQ(out.at("dist-tags"), boost::json::value({{"old", "1.0.0"}, {"latest", "1.0.0"}}));
  const auto& restrictions = out.at("policyRestrictions").as_object();
  EXPECT_TRUE(restrictions.at("versions").as_object().contains("2.0.0"));
  EXPECT_EQ(restrictions.at("message"), "packages.deny[0] refuses 1 version of @s/p: No.");
  EXPECT_EQ(out.at("versions").at("1.0.0").at("dist").at("tarball"), "http://host/npm/@s/p/-/p-1.0.0.tgz");
  EXPECT_EQ(package().render(view).find("up.example"), std::string::npos);
}

TEST(Packument, TheShortFormHasWhatAnInstallNeeds) {
  Packument::View view;
  view.is_abbreviated = true;
  const auto out = rendered(view);
  const auto& versions = out.at("versions");
  EXPECT_TRUE(versions.at("2.0.0").as_object().contains("hasInstallScript"));
  EXPECT_FALSE(versions.at("2.0.0").as_object().contains("scripts"));
  EXPECT_FALSE(versions.at("1.0.0").as_object().contains("main"));
  EXPECT_TRUE(versions.at("1.0.0").as_object().contains("dependencies"));
  EXPECT_FALSE(out.contains("readme"));
}

TEST(Packument, WithoutScriptsAlsoDropsTheHashesThatNoLongerHold) {
  Packument::View view;
  view.without_scripts = true;
  const auto out = rendered(view);
  const auto& changed = out.at("versions").at("2.0.0").as_object();
  EXPECT_FALSE(changed.at("scripts").as_object().contains("postinstall"));
  EXPECT_TRUE(changed.at("scripts").as_object().contains("test"));
  EXPECT_EQ(changed.at("gypfile"), false);
  EXPECT_FALSE(changed.at("dist").as_object().contains("integrity"));
  EXPECT_TRUE(out.at("versions").at("1.0.0").at("dist").as_object().contains("shasum"));
}

TEST(Manifest, LosesWhatAnInstallerWouldRun) {
  EXPECT_FALSE(without_install_scripts(R"({"name":"p","scripts":{"test":"t","prepare":"husky"}})", false).value());
  EXPECT_FALSE(without_install_scripts(R"({"name":"p","gypfile":false})", true).value());
  const auto gyp = without_install_scripts(R"({"name":"p"})", true).value();
  ASSERT_TRUE(gyp);
  EXPECT_EQ(json::parse(*gyp)->at("gypfile"), false);
  for (const char* name : {"preinstall", "install", "postinstall"}) {
    const auto changed = without_install_scripts("{\"scripts\":{\"" + std::string(name) + "\":\"x\",\"test\":\"t\"}}", false).value();
    ASSERT_TRUE(changed) << name;
    EXPECT_EQ(json::parse(*changed)->at("scripts"), boost::json::value({{"test", "t"}}));
  }
  EXPECT_FALSE(without_install_scripts("not json", false));
}

TEST(Integrity, TakesTheStrongestThatIsWellFormed) {
  const auto both = npm_integrity("sha1-qZk+NkcGgWq6PiVxeFDCbJzQ2J0= sha512-AAAA sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=?opt", "");
  EXPECT_EQ(both.text(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_FALSE(npm_integrity("md5-AAAA sha512-", "zz").is_given());
}

}  // namespace
}  // namespace glovebox::registry
