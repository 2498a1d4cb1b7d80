// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/vsock.h"

#include <errno.h>
#include <linux/vm_sockets.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

namespace glovebox::agent {
namespace {

constexpr int kTryMs = 100;

long now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

int try_once(const sockaddr_vm& peer) {
  const int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval patience = {0, kTryMs * 1000L};
  setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &patience, sizeof patience);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&peer), sizeof peer) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

int connect_vsock(unsigned cid, unsigned port, int patience_ms) {
  sockaddr_vm peer = {};
  peer.svm_family = AF_VSOCK;
  peer.svm_cid = cid;
  peer.svm_port = port;
  for (const long end = now_ms() + patience_ms;;) {
    const int fd = try_once(peer);
    if (fd >= 0 || now_ms() >= end) return fd;
    usleep(1000);
  }
}

}  // namespace glovebox::agent
