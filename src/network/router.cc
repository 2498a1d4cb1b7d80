// SPDX-License-Identifier: Apache-2.0
#include "network/router.h"

#include <fcntl.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "base/text.h"
#include "http/json.h"
#include "sys/command.h"
#include "sys/files.h"
#include "sys/netns.h"

namespace glovebox::network {
namespace {

constexpr std::chrono::milliseconds kToolPatience{20'000};
constexpr int kKeptDescriptor = 3;
constexpr const char* kKeeperWord = "internal-keep-network";

// One table for all sandboxes: what comes from a link is TCP or DNS for the proxy, or it is dropped. Nothing is accepted because of
// an address it claims: `fib` drops a source that does not belong to the link it came from. The guard comes before defragmentation
// (-400), so that fragments are seen as what they are.
constexpr std::string_view kFilter = R"(table inet glovebox
delete table inet glovebox
table inet glovebox {
  set half_open { type ipv4_addr; size 65535; flags dynamic; }
  chain guard {
    type filter hook prerouting priority -450; policy accept;
    iifname != "gb*" accept
    meta nfproto != ipv4 drop
    ip hdrlength > 5 drop
    ip frag-off & 0x3fff != 0 drop
    fib saddr . iif oif missing drop
    meta l4proto tcp accept
    udp dport 53 accept
    drop
  }
  chain capture {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "gb*" udp dport 53 redirect to :3053
    iifname "gb*" tcp dport 53 redirect to :3053
    iifname "gb*" meta l4proto tcp redirect to :3129
  }
  chain input {
    type filter hook input priority filter; policy drop;
    iifname "gb*" meta l4proto tcp ct state new add @half_open { ip saddr ct count over 4096 } drop
    iifname "gb*" ct status dnat accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
  }
}
)";

// Of the router namespace. New interfaces take "default".
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"ipv4/ip_forward", "0"},
    {"ipv4/conf/all/rp_filter", "1"},
    {"ipv4/conf/default/rp_filter", "1"},
    {"ipv4/conf/all/arp_ignore", "2"},      // answers only for the link's own address, to the link's own subnet
    {"ipv4/conf/all/accept_redirects", "0"},
    {"ipv4/conf/default/accept_redirects", "0"},
    {"ipv4/conf/all/send_redirects", "0"},
    {"ipv4/conf/default/send_redirects", "0"},
    {"ipv4/conf/all/accept_source_route", "0"},
    {"ipv4/conf/default/accept_source_route", "0"},
};

// Absent where the kernel has no IPv6 at all.
constexpr const char* kIpv6Options[] = {"ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6"};

Result<void> set_up_router() {
  for (const auto& [name, value] : kOptions) GB_TRYV(sys::set_net_option(name, value));
  for (const char* name : kIpv6Options) {
    if (sys::exists(std::string("/proc/sys/net/") + name)) GB_TRYV(sys::set_net_option(name, "1"));
  }
  GB_TRY(auto routes, sys::RouteSocket::open());
  GB_TRY(const uint32_t loopback, routes.index_of("lo"));
  return routes.set_up(loopback);
}

Result<std::string> run_nft(int netns, std::vector<std::string> words, std::string_view input = {}) {
  std::string output;
  words.insert(words.begin(), "nft");
  auto done = sys::in_netns(netns, [&]() -> Result<void> {
    GB_TRY(output, sys::run_command(words, kToolPatience, input));
    return {};
  });
  if (!done && done.error().code == Code::kCommandNotFound) {
    return fail(Code::kUnavailable, "networks need nftables: install the package nftables", {{"remedy", "apt-get install nftables"}});
  }
  if (!done) return fail(done.error());
  return output;
}

// Without what changes by use.
Result<std::string> list_filter(int netns) { return run_nft(netns, {"-s", "-t", "list", "table", "inet", "glovebox"}); }

// Keepers of this directory that no state file names: the daemon died before it wrote one.
void end_strays(const std::string& directory, const sys::ProcessId& ours) {
  const std::string wanted = '\0' + std::string(kKeeperWord) + '\0' + directory + '\0';
  for (const std::string& name : sys::list_directory("/proc")) {
    const auto pid = parse_int(name);
    if (!pid || *pid == ours.pid) continue;
    const auto line = sys::read_file("/proc/" + name + "/cmdline");
    const auto id = line && line->ends_with(wanted) ? sys::identify(static_cast<pid_t>(*pid)) : std::nullopt;
    if (id) sys::kill_process(*id);
  }
}

std::string state_path(const std::string& directory) { return directory + "/router.json"; }

}  // namespace

Result<Router> Router::open(const std::string& directory, const std::string& program) {
  Router router;
  router.directory_ = directory;
  router.program_ = program;
  GB_TRYV(sys::make_directories(directory, 0711));
  // The registry proxy goes through to its cache.
  if (::chmod(directory.c_str(), 0711) != 0) return fail_errno(directory);
  const bool adopted = router.adopt().has_value();
  end_strays(directory, adopted ? router.keeper_ : sys::ProcessId{});
  if (!adopted) GB_TRYV(router.make());
  auto loaded = router.load_filter();
  if (!loaded && !adopted) router.leave();  // nobody would end its keeper
  if (!loaded) return fail(std::move(loaded).error());
  return router;
}

Result<void> Router::adopt() {
  GB_TRY(const std::string text, sys::read_file(state_path(directory_)));
  GB_TRY(const auto value, json::parse_object(text));
  json::Reader reader(value);
  GB_TRY(const std::string boot, reader.string("boot").required());
  GB_TRY(const int64_t pid, reader.integer("pid", 1, 1 << 30).required());
  GB_TRY(const int64_t start_time, reader.integer("start_time", 0).required());
  if (boot != sys::boot_id()) return fail(Code::kNotFound, "the host has been started since");
  keeper_ = {static_cast<pid_t>(pid), static_cast<uint64_t>(start_time)};
  if (!sys::is_alive(keeper_)) return fail(Code::kNotFound, "the keeper is gone");
  GB_TRY(netns_, sys::open_fd("/proc/" + std::to_string(pid) + "/ns/net", O_RDONLY));
  if (!sys::is_alive(keeper_)) return fail(Code::kNotFound, "the keeper is gone");
  was_adopted_ = true;
  return {};
}

Result<void> Router::make() {
  GB_TRY(netns_, sys::in_new_netns(set_up_router));
  return start_keeper();
}

Result<void> Router::start_keeper() {
  pid_t pid = 0;
  GB_TRYV(sys::in_netns(netns_.get(), [&]() -> Result<void> {
    GB_TRY(pid, sys::start_program(program_, {"glovebox", kKeeperWord, directory_}, {{netns_.get(), kKeptDescriptor}}));
    return {};
  }));
  const auto id = sys::identify(pid);
  if (!id) return fail(Code::kInternal, "the process that keeps the router namespace ended at once");
  keeper_ = *id;
  std::string state = "{\"boot\":";
  append_json_string(state, sys::boot_id());
  state += ",\"pid\":" + std::to_string(keeper_.pid) + ",\"start_time\":" + std::to_string(keeper_.start_time) + "}\n";
  return sys::put_file(state_path(directory_), state, 0600);
}

Result<bool> Router::ensure_keeper() {
  if (sys::is_alive(keeper_)) return false;
  ::waitpid(keeper_.pid, nullptr, WNOHANG);
  GB_TRYV(start_keeper());
  return true;
}

Result<void> Router::load_filter() {
  GB_TRYV(run_nft(netns_.get(), {"-f", "-"}, kFilter));
  GB_TRY(expected_filter_, list_filter(netns_.get()));
  return {};
}

Result<void> Router::check_filter() const {
  auto now = list_filter(netns_.get());
  if (!now) return fail(Code::kCorrupt, "the packet filter is gone: " + now.error().message);
  if (*now != expected_filter_) return fail(Code::kCorrupt, "the packet filter was changed");
  return {};
}

Result<UniqueFd> Router::watch_filter() const {
  UniqueFd fd;
  GB_TRYV(sys::in_netns(netns_.get(), [&]() -> Result<void> {
    fd = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER));
    if (!fd) return fail_errno("netlink socket");
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return fail_errno("netlink bind");
    const int group = NFNLGRP_NFTABLES;
    if (::setsockopt(fd.get(), SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) != 0) return fail_errno("netlink group");
    return {};
  }));
  return fd;
}

void Router::leave() {
  sys::kill_process(keeper_);
  ::waitpid(keeper_.pid, nullptr, 0);  // not ours after a restart: returns at once
  (void)::unlink(state_path(directory_).c_str());
  netns_.reset();
}

void end_left_routers(const std::string& directory) {
  end_strays(directory, {});
  (void)::unlink(state_path(directory).c_str());
}

int keep_network() {
  ::prctl(PR_SET_NAME, "glovebox-net");
  ::setsid();  // a signal to the daemon's terminal group is not for this process
  (void)::chdir("/");
  for (const int number : {SIGINT, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  while (true) ::pause();
}

}  // namespace glovebox::network
