// SPDX-License-Identifier: Apache-2.0
#include "network/links.h"

#include <optional>

#include "network/router.h"
#include "sys/files.h"
#include "sys/netns.h"

namespace glovebox::network {
namespace {

constexpr int kPrefix = 31;  // RFC 3021: two addresses, both for hosts
constexpr const char* kInside = "eth0";

// In the sandbox's namespace. IPv6 is off: the policy knows no addresses of it, so there are none.
Result<void> quiet_ipv6() {
  for (const char* name : {"ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6"}) {
    if (sys::exists(std::string("/proc/sys/net/") + name)) GB_TRYV(sys::set_net_option(name, "1"));
  }
  return {};
}

Result<void> configure_inside(sys::RouteSocket& routes, uint32_t number) {
  GB_TRY(const uint32_t loopback, routes.index_of("lo"));
  GB_TRYV(routes.set_up(loopback));
  GB_TRY(const uint32_t index, routes.index_of(kInside));
  GB_TRYV(routes.add_address(index, sandbox_address(number), kPrefix));
  GB_TRYV(routes.set_up(index));
  return routes.add_default_route(index, router_address(number));
}

}  // namespace

struct Links::Wires {
  std::mutex mutex;
  sys::RouteSocket routes;
};

Result<std::unique_ptr<Links>> Links::open(int router_netns) {
  std::unique_ptr<Links> links(new Links);
  GB_TRYV(sys::in_netns(router_netns, [&]() -> Result<void> {
    GB_TRY(auto routes, sys::RouteSocket::open());
    links->wires_ = std::shared_ptr<Wires>(new Wires{{}, std::move(routes)});
    return {};
  }));
  links->next_ = kFirstLink;
  return links;
}

Result<uint32_t> Links::claim_number() {
  std::lock_guard lock(mutex_);
  for (uint32_t tried = kFirstLink; tried < kEndLink; ++tried) {
    const uint32_t number = next_;
    next_ = next_ + 1 < kEndLink ? next_ + 1 : kFirstLink;
    if (taken_.insert(number).second) return number;
  }
  return fail(Code::kCapacity, "every network link of this host is in use",
              {{"limit", "links"}, {"size", std::to_string(kEndLink - kFirstLink)}, {"use", std::to_string(taken_.size())}});
}

Result<Link> Links::make() {
  std::optional<sys::RouteSocket> inside;
  GB_TRY(UniqueFd netns, sys::in_new_netns([&]() -> Result<void> {
    GB_TRYV(quiet_ipv6());
    GB_TRY(inside, sys::RouteSocket::open());
    return {};
  }));
  while (true) {
    GB_TRY(const uint32_t number, claim_number());
    Result<void> made;
    {
      std::lock_guard lock(wires_->mutex);
      made = wires_->routes.add_veth(link_name(number), kInside, netns.get());
      if (made) {
        auto index = wires_->routes.index_of(link_name(number));
        made = index ? wires_->routes.add_address(*index, router_address(number), kPrefix) : fail(index.error());
        if (made) made = wires_->routes.set_up(*index);
      }
    }
    // The name may belong to a link whose end the kernel is still about to remove, or which a lost record knew.
    if (!made && made.error().code == Code::kAlreadyExists) {
      release(number);
      continue;
    }
    if (made) made = configure_inside(*inside, number);
    if (made) made = inside->wait_running(kInside);
    if (made) {
      std::lock_guard lock(wires_->mutex);
      made = wires_->routes.wait_running(link_name(number));
    }
    if (made) return Link{number, std::move(netns)};
    release(number);
    return fail(made.error());
  }
}

Result<Link> Links::take() {
  {
    std::lock_guard lock(mutex_);
    if (!ready_.empty()) {
      Link link = std::move(ready_.front());
      ready_.pop_front();
      return link;
    }
  }
  return make();
}

Result<size_t> Links::prepare(size_t count) {
  size_t made = 0;
  while (ready() < count) {
    GB_TRY(Link link, make());
    std::lock_guard lock(mutex_);
    ready_.push_back(std::move(link));
    ++made;
  }
  return made;
}

void Links::adopt(uint32_t number) {
  std::lock_guard lock(mutex_);
  taken_.insert(number);
}

void Links::release(uint32_t number) {
  std::lock_guard lock(mutex_);
  taken_.erase(number);
}

size_t Links::taken() const {
  std::lock_guard lock(mutex_);
  return taken_.size() - ready_.size();
}

size_t Links::ready() const {
  std::lock_guard lock(mutex_);
  return ready_.size();
}

}  // namespace glovebox::network
