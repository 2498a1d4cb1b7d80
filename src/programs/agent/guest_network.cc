// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/guest_network.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/unique_fd.h"

namespace glovebox::agent {
namespace {

constexpr const char* kCard = "eth0";
constexpr const char* kUnplugged = "unplugged";

UniqueFd any_socket() { return UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

ifreq request_for(const char* name) {
  ifreq request = {};
  strncpy(request.ifr_name, name, IFNAMSIZ - 1);
  return request;
}

bool exists(const UniqueFd& fd, const char* name) {
  ifreq request = request_for(name);
  return ioctl(fd.get(), SIOCGIFINDEX, &request) == 0;
}

sockaddr inet(uint32_t network_order) {
  sockaddr_in in = {};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = network_order;
  sockaddr out;
  memcpy(&out, &in, sizeof out);
  return out;
}

bool set_address(const UniqueFd& fd, unsigned long command, uint32_t network_order) {
  ifreq request = request_for(kCard);
  request.ifr_addr = inet(network_order);
  return ioctl(fd.get(), command, &request) == 0;
}

bool set_mac(const UniqueFd& fd, const std::string& text) {
  unsigned char bytes[6];
  ifreq request = request_for(kCard);
  if (sscanf(text.c_str(), "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", &bytes[0], &bytes[1], &bytes[2], &bytes[3], &bytes[4], &bytes[5]) != 6) {
    errno = EINVAL;
    return false;
  }
  request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
  memcpy(request.ifr_hwaddr.sa_data, bytes, sizeof bytes);
  return ioctl(fd.get(), SIOCSIFHWADDR, &request) == 0;
}

bool set_gateway(const UniqueFd& fd, uint32_t network_order) {
  rtentry route = {};
  route.rt_dst = inet(0);
  route.rt_genmask = inet(0);
  route.rt_gateway = inet(network_order);
  route.rt_flags = RTF_UP | RTF_GATEWAY;
  return ioctl(fd.get(), SIOCADDRT, &route) == 0 || errno == EEXIST;
}

bool rename_card(const UniqueFd& fd, const char* from, const char* to) {
  ifreq request = request_for(from);
  strncpy(request.ifr_newname, to, IFNAMSIZ - 1);
  return ioctl(fd.get(), SIOCSIFNAME, &request) == 0;
}

std::string failed(const char* what) { return std::string("network: ") + what + ": " + strerror(errno); }

}  // namespace

bool set_interface_up(const char* name, bool up) {
  const UniqueFd fd = any_socket();
  ifreq request = request_for(name);
  if (!fd || ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return false;
  if (up) request.ifr_flags |= IFF_UP;
  if (!up) request.ifr_flags = static_cast<short>(request.ifr_flags & ~IFF_UP);
  return ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// Down first: with it go the routes and the neighbours of the link it had.
std::string configure_network(const GuestNetwork& network) {
  const UniqueFd fd = any_socket();
  if (!fd) return failed("socket");
  const bool is_plugged = exists(fd, kCard);
  if (!is_plugged && !exists(fd, kUnplugged)) return network.address.empty() ? "" : failed("card");
  if (is_plugged && !set_interface_up(kCard, false)) return failed("down");
  if (network.address.empty()) {
    if (is_plugged) (void)set_address(fd, SIOCSIFADDR, 0);
    return is_plugged && !rename_card(fd, kCard, kUnplugged) ? failed("name") : "";
  }
  if (!is_plugged && !rename_card(fd, kUnplugged, kCard)) return failed("name");
  in_addr address = {}, gateway = {};
  if (inet_pton(AF_INET, network.address.c_str(), &address) != 1 || network.prefix < 0 || network.prefix > 32) return failed("address");
  if (!network.gateway.empty() && inet_pton(AF_INET, network.gateway.c_str(), &gateway) != 1) return failed("gateway");
  if (!network.mac.empty() && !set_mac(fd, network.mac)) return failed("hardware address");
  if (!set_address(fd, SIOCSIFADDR, address.s_addr)) return failed("address");
  if (!set_address(fd, SIOCSIFNETMASK, htonl(network.prefix == 0 ? 0 : ~0u << (32 - network.prefix)))) return failed("netmask");
  if (!set_interface_up(kCard, true)) return failed("up");
  return gateway.s_addr != 0 && !set_gateway(fd, gateway.s_addr) ? failed("route") : "";
}

GuestNetwork present_network() {
  GuestNetwork present;
  const UniqueFd fd = any_socket();
  ifreq request = request_for(kCard);
  if (!fd || ioctl(fd.get(), SIOCGIFHWADDR, &request) != 0) return present;
  const auto* bytes = reinterpret_cast<const unsigned char*>(request.ifr_hwaddr.sa_data);
  char text[INET_ADDRSTRLEN + 8];
  snprintf(text, sizeof text, "%02x:%02x:%02x:%02x:%02x:%02x", bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]);
  present.mac = text;
  request = request_for(kCard);
  if (ioctl(fd.get(), SIOCGIFADDR, &request) != 0) return present;
  sockaddr_in in;
  memcpy(&in, &request.ifr_addr, sizeof in);
  if (inet_ntop(AF_INET, &in.sin_addr, text, sizeof text) != nullptr) present.address = text;
  return present;
}

}  // namespace glovebox::agent
