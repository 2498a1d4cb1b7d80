// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "http/json.h"
#include "policy/egress.h"

namespace glovebox {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class ConfigFile : public testing::Test {
 protected:
  ConfigFile() : path_(std::filesystem::temp_directory_path() / ("glovebox-config-" + std::to_string(::getpid()) + ".toml")) {}
  ~ConfigFile() override { std::filesystem::remove(path_); }

  Result<void> read(const std::string& text) {
    std::ofstream(path_) << text;
    config_ = {};
    network_ = {};
    api::preview::Settings preview;
    mcp_ = {};
    microvm_ = {};
    return read_config_file(path_.string(), &config_, &preview, &network_, &mcp_, &microvm_);
  }
  // What is said about a file, without its path.
  std::string refusal(const std::string& text) {
    const auto done = read(text);
    if (done) return "accepted";
    EXPECT_EQ(done.error().code, Code::kInvalidArgument) << text;
    EXPECT_TRUE(done.error().message.starts_with(path_.string() + ":")) << done.error().message;
    return done.error().message.substr(path_.string().size() + 1);
  }

  const std::filesystem::path path_;
  sandbox::Config config_;
  network::Config network_;
  api::mcp::Settings mcp_;
  runtime::MicrovmConfig microvm_;
};

TEST_F(ConfigFile, NamesTheEngineOfMachines) {
  using Engine = runtime::MicrovmConfig::Engine;
  ASSERT_TRUE(read("max_sandboxes = 5\n"));
  EXPECT_EQ(microvm_.engine, Engine::kAuto);
  ASSERT_TRUE(read("[microvm]\nengine = \"firecracker\"\nfirecracker = \"/opt/fc/firecracker\"\njailer = \"/opt/fc/jailer\"\n"));
  EXPECT_EQ(microvm_.engine, Engine::kFirecracker);
  EXPECT_EQ(microvm_.firecracker_path, "/opt/fc/firecracker");
  EXPECT_EQ(microvm_.jailer_path, "/opt/fc/jailer");
  ASSERT_TRUE(read("[microvm]\nengine = \"qemu\"\n"));
  EXPECT_EQ(microvm_.engine, Engine::kQemu);
  for (const char* bad : {"\"Firecracker\"", "\"\"", "1", "true"}) {
    const std::string said = refusal(std::string("[microvm]\nengine = ") + bad + "\n");
    EXPECT_NE(said.find("must be auto, qemu or firecracker"), std::string::npos) << said;
  }
  EXPECT_NE(refusal("[microvm]\njailer = \"jailer\"\n").find("absolute path"), std::string::npos);
}

TEST_F(ConfigFile, WithoutWordsAboutTheNetworkTheDefaultsHold) {
  ASSERT_TRUE(read("max_sandboxes = 5\n"));
  EXPECT_EQ(config_.max_sandboxes, 5u);
  EXPECT_TRUE(network_.is_enabled);
  EXPECT_TRUE(network_.resolvers.empty() && network_.upstreams.empty() && network_.file_hosts.empty());
  EXPECT_EQ(network_.limits, policy::Operator{});
  EXPECT_EQ(config_.default_network, nullptr);
  EXPECT_EQ(network_.cache_bytes, 4ull << 30);
  EXPECT_EQ(network_.ready_links, 4u);
}

TEST_F(ConfigFile, ReadsTheMcpSection) {
  ASSERT_TRUE(read("[mcp]\nsession_timeout_ms = 60000\nmax_sessions = 3\ntemplate = \"interpreter\"\n"));
  EXPECT_EQ(mcp_.session_timeout, std::chrono::minutes(1));
  EXPECT_EQ(mcp_.max_sessions, 3u);
  EXPECT_EQ(mcp_.template_name, "interpreter");
  EXPECT_THAT(refusal("[mcp]\nsession_timeout_ms = 5\n"), HasSubstr("mcp.session_timeout_ms"));
}

TEST_F(ConfigFile, ReadsTheWholeNetwork) {
  const auto done = read(R"(
[network]
enabled = true
resolvers = ["192.0.2.53", "198.51.100.1:5353", "2001:db8::53", "[2001:db8::54]:5353"]
ready_links = 9
max_egress = "allowlist"
deny = [{host = "*.tracker.example"}, {cidr = "20.0.0.0/8", ports = [25]}]
internal = [{host = "git.corp.example", cidr = "10.1.2.0/24", ports = [443, "8000-8100"]}]

[network.max_limits]
bandwidth = 1000000
connections = 64

[network.default]
presets = ["python-packages"]
allow = [{host = "api.example.com"}]

[registry]
pypi = "https://pypi.corp.example/simple"
npm = "http://npm.corp.example"
debian = "http://mirror.corp.example/debian"
debian_security = "http://mirror.corp.example/debian-security"
file_hosts = ["Files.Corp.Example"]
cache_mb = 100
)");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(network_.resolvers, ElementsAre("192.0.2.53:53", "198.51.100.1:5353", "[2001:db8::53]:53", "[2001:db8::54]:5353"));
  EXPECT_EQ(network_.ready_links, 9u);
  EXPECT_EQ(network_.limits.max_egress, policy::Egress::kAllowlist);
  ASSERT_EQ(network_.limits.deny.size(), 2u);
  EXPECT_EQ(network_.limits.deny[0].host, "*.tracker.example");
  EXPECT_EQ(network_.limits.deny[1].cidr->text(), "20.0.0.0/8");
  ASSERT_EQ(network_.limits.internal.size(), 1u);
  EXPECT_EQ(network_.limits.internal[0].ports.size(), 2u);
  EXPECT_EQ(network_.limits.max_limits.bandwidth, 1000000u);
  EXPECT_EQ(network_.limits.max_limits.connections, 64u);
  ASSERT_NE(config_.default_network, nullptr);
  EXPECT_EQ(config_.default_network->egress, policy::Egress::kAllowlist);
  EXPECT_THAT(config_.default_network->presets, ElementsAre("python-packages"));
  EXPECT_THAT(network_.upstreams,
              ElementsAre(Pair("debian", "http://mirror.corp.example/debian"), Pair("debian_security", "http://mirror.corp.example/debian-security"),
                          Pair("npm", "http://npm.corp.example"), Pair("pypi", "https://pypi.corp.example/simple")));
  EXPECT_THAT(network_.file_hosts, ElementsAre("files.corp.example"));
  EXPECT_EQ(network_.cache_bytes, 100ull << 20);
}

TEST_F(ConfigFile, WhatIsWrongIsNamedWithLineAndColumn) {
  const struct {
    const char* text;
    const char* said;
  } table[] = {
      {"[network]\nenabeld = true\n", "2:1: network.enabeld is not a known key"},
      {"[network]\n  enabled = 1\n", "2:3: network.enabled must be true or false"},
      {"[network]\nresolvers = \"192.0.2.53\"\n", "2:1: network.resolvers must be an array of addresses"},
      {"[network]\nresolvers = [\"dns.example\"]\n", "2:1: network.resolvers must be an array of addresses"},
      {"[network]\nresolvers = [\"192.0.2.53:0\"]\n", "2:1: network.resolvers must be an array of addresses"},
      {"[network]\nready_links = 257\n", "2:1: network.ready_links must be an integer between 0 and 256"},
      {"[network]\n\nmax_egress = \"some\"\n", "3:1: network.max_egress"},
      {"[network]\ndeny = [{host = \"a.*.example\"}]\n", "2:1: network.deny[0].host"},
      {"[network]\ndeny = [{hots = \"a.example\"}]\n", "2:1: network.deny[0]"},
      {"[network]\ninternal = [{host = \"git.corp.example\", cidr = \"10.1.2.0/24\"}]\n", "2:1: network.internal[0].ports"},
      {"[network]\ninternal = [{host = \"git.corp.example\", cidr = \"10.1.2.1/24\", ports = [443]}]\n", "2:1: network.internal[0].cidr"},
      {"[network.max_limits]\nbandwidth = -1\n", "network.max_limits.bandwidth"},
      {"[network]\ndefault = \"open\"\n", "2:1: network.default must be a table"},
      {"[network.default]\negress = \"none\"\nallow = [{host = \"a.example\"}]\n", "1:10: network.default.allow"},
      {"[network.default]\npresets = [\"everything\"]\n", "1:10: network.default.presets"},
      {"[registry]\npypi = \"pypi.example\"\n", "2:1: registry.pypi must be an http or https URL"},
      {"[registry]\nruby = \"https://gems.example\"\n", "2:1: registry.ruby is not a known key"},
      {"[registry]\nfile_hosts = [\"https://files.example\"]\n", "2:1: registry.file_hosts must be an array of host names"},
      {"[registry]\ncache_mb = 0\n", "2:1: registry.cache_mb must be an integer between 1 and"},
      {"[network\n", "1:"},
  };
  for (const auto& row : table) EXPECT_THAT(refusal(row.text), HasSubstr(row.said)) << row.text;
}

TEST_F(ConfigFile, NothingIsSaidTwiceInARefusal) {
  EXPECT_EQ(refusal("[network]\ndeny = [{host = \"a.*.example\"}]\n").find("network.deny", 6 + 12), std::string::npos);
}

TEST_F(ConfigFile, ADefaultThatNoSandboxCouldGetStopsTheStart) {
  EXPECT_THAT(refusal("[network]\nmax_egress = \"allowlist\"\n[network.default]\negress = \"open\"\n"), HasSubstr("operator.max_egress"));
  EXPECT_THAT(refusal("[network]\nenabled = false\n[network.default]\negress = \"open\"\n"), HasSubstr("network.enabled"));
  EXPECT_TRUE(read("[network.default]\negress = \"open\"\n"));
  EXPECT_TRUE(read("[network.default]\nallow = [{cidr = \"20.0.0.0/8\", ports = [53000], protocols = [\"udp\"]}]\n"));
}

}  // namespace
}  // namespace glovebox
