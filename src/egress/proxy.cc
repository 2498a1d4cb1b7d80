// SPDX-License-Identifier: Apache-2.0
#include "egress/proxy.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <csignal>

#include "base/log.h"
#include "egress/internal/acceptor.h"
#include "egress/internal/control.h"
#include "egress/internal/dns_server.h"
#include "egress/internal/jail.h"
#include "egress/internal/observer.h"
#include "egress/internal/sockets.h"

namespace glovebox::egress {
namespace {

constexpr size_t kDescriptors = 65536;
// For pipes, name servers and what the process has anyway; a connection needs two, and a third for
// moments.
constexpr size_t kOtherDescriptors = 2048, kDescriptorsPerFlow = 3;

size_t flows_for(size_t descriptors) {
  return descriptors > 2 * kOtherDescriptors
             ? (descriptors - kOtherDescriptors) / kDescriptorsPerFlow
             : descriptors / 6;
}

// Once privileges are gone: everything that reads what others wrote.
int serve(boost::asio::io_context& loop, UniqueFd control_fd, RouterSockets sockets,
          size_t descriptors) {
  const Executor executor = loop.get_executor();
  ControlWriter writer(executor, std::move(control_fd));
  Core core(executor, [&](std::string line) { writer.write_event(std::move(line)); });
  core.max_flows = flows_for(descriptors);
  Control control(core, writer);
  DnsServer dns(core, std::move(sockets.dns_udp));
  PacketObserver observer(core, std::move(sockets.observed));
  spawn(executor, "egress.observer", observer.run());
  spawn(executor, "egress.observer_sweep", observer.sweep());
  spawn(executor, "egress.echo", observer.relay().take_echo_replies());
  spawn(executor, "egress.accept", accept_flows(core, std::move(sockets.tcp)));
  spawn(executor, "egress.accept_dns", accept_flows(core, std::move(sockets.dns_tcp)));
  spawn(executor, "egress.dns", dns.run());
  spawn(executor, "egress.deadlines", watch_deadlines(core));
  spawn(executor, "egress.usage", control.report_usage());
  spawn(executor, "egress.control", [](Control& c) -> Awaitable<void> {
    // Without the daemon nobody can say what is allowed: end at once, with everything that is open.
    ::_exit(co_await c.run() ? 0 : 1);
  }(control));
  writer.write("{\"op\":\"ready\"}\n");
  loop.run();
  return 1;
}

Result<RouterSockets> prepare(const EgressOptions& options) {
  GB_TRY(auto sockets,
         open_router_sockets(options.router_netns_fd, options.tcp_port, options.dns_port));
  ::close(options.router_netns_fd);
  GB_TRYV(enter_jail(options.root_directory, options.uid, options.gid));
  return sockets;
}

}  // namespace

int run_egress_proxy(const EgressOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  const size_t descriptors = raise_descriptor_limit(kDescriptors);
  boost::asio::io_context loop(1);
  auto sockets = prepare(options);
  if (!sockets) {
    log::error("egress.start_failed", {{"reason", sockets.error().message}});
    return 1;
  }
  ::fcntl(options.control_fd, F_SETFL, ::fcntl(options.control_fd, F_GETFL) | O_NONBLOCK);
  return serve(loop, UniqueFd(options.control_fd), *std::move(sockets), descriptors);
}

}  // namespace glovebox::egress
