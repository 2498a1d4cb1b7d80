// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/vsock.h"

#include <gtest/gtest.h>
#include <linux/vm_sockets.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/unique_fd.h"

namespace glovebox::agent {
namespace {

// The kernel's own transport between programs of one host. Without it a connect goes to whatever is
// above this machine, which is none of a test's business.
bool has_loopback() {
  return ::access("/sys/module/vsock_loopback", F_OK) == 0;
}

struct Listener {
  UniqueFd socket{::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  unsigned port = 0;

  Listener() {
    sockaddr_vm address{};
    address.svm_family = AF_VSOCK;
    address.svm_cid = VMADDR_CID_LOCAL;
    address.svm_port = VMADDR_PORT_ANY;
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = address.svm_port;
  }
};

TEST(Vsock, ReachesAPortThatListens) {
  if (!has_loopback())
    GTEST_SKIP() << "needs the kernel module vsock_loopback: a guest's connect is not proven here";
  const Listener listener;
  ASSERT_EQ(::listen(listener.socket.get(), 1), 0);
  const UniqueFd ours(connect_vsock(VMADDR_CID_LOCAL, listener.port, 2000));
  ASSERT_TRUE(ours);
  const UniqueFd theirs(::accept(listener.socket.get(), nullptr, nullptr));
  ASSERT_EQ(::write(ours.get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(::read(theirs.get(), &got, 1), 1);
  EXPECT_EQ(got, 'x');
}

TEST(Vsock, GivesUpWhenItsPatienceIsOver) {
  if (!has_loopback()) GTEST_SKIP() << "needs the kernel module vsock_loopback";
  const Listener deaf;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(connect_vsock(VMADDR_CID_LOCAL, deaf.port, 150), -1);
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(150));
  EXPECT_LT(took, std::chrono::seconds(5));
}

}  // namespace
}  // namespace glovebox::agent
