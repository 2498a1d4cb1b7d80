// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>

#include "base/text.h"
#include "runtime/testing/harness.h"
#include "sys/files.h"

// What hostile code may try at the walls of a sandbox, from the strongest position inside: as root,
// in the place of the agent.
namespace glovebox::runtime {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using testing::ask;
using ::testing::HasSubstr;
using testing::Host;
using ::testing::Not;

class BreakoutTest : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    std::string problem = testing::why_not(GetParam());
    if (!problem.empty()) GTEST_SKIP() << tier_name(GetParam()) << ": " << problem;
    host_ = std::make_unique<Host>(GetParam());
    auto spec = host_->spec("box");
    auto started = host_->runtime().start(spec, host_->runtime().plan(spec), after(120s));
    ASSERT_TRUE(started.has_value()) << started.error().message;
    box_ = std::move(*started);
  }
  void TearDown() override {
    if (host_ && !box_.record.id.empty()) EXPECT_TRUE(host_->runtime().destroy(box_.record));
  }

  std::string inside(const std::string& command) {
    return ask(box_.channel, command).value_or("no answer");
  }
  std::string call(long number, const std::string& arguments = "") {
    return inside("call " + std::to_string(number) + (arguments.empty() ? "" : " " + arguments));
  }
  bool is_container() const { return GetParam() == Tier::kContainer; }

  std::unique_ptr<Host> host_;
  Started box_;
};

INSTANTIATE_TEST_SUITE_P(Tiers, BreakoutTest, ::testing::Values(Tier::kContainer, Tier::kGvisor),
                         [](const auto& tier) { return std::string(tier_name(tier.param)); });

TEST_P(BreakoutTest, PowerfulSystemCallsAreRefused) {
  for (long number : {SYS_bpf,          SYS_perf_event_open,
                      SYS_keyctl,       SYS_add_key,
                      SYS_userfaultfd,  SYS_io_uring_setup,
                      SYS_kexec_load,   SYS_init_module,
                      SYS_finit_module, SYS_open_by_handle_at,
                      SYS_mount,        SYS_umount2,
                      SYS_pivot_root,   SYS_setns,
                      SYS_open_tree,    SYS_move_mount,
                      SYS_fsopen,       SYS_mount_setattr,
                      SYS_reboot,       SYS_swapon,
                      SYS_syslog,       SYS_clock_settime,
                      SYS_sethostname,  SYS_iopl}) {
    if (number == SYS_sethostname && !is_container()) continue;  // the agent's, in gvisor's own kernel
    EXPECT_NE(call(number), "ok") << number;
  }
}

TEST_P(BreakoutTest, NoNamespacesOfItsOwn) {
  if (!is_container()) GTEST_SKIP() << "gvisor's namespaces are its own kernel's, not the host's";
  for (long flag : {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWCGROUP}) {
    EXPECT_EQ(call(SYS_unshare, std::to_string(flag)), "EPERM");
    EXPECT_EQ(call(SYS_clone, std::to_string(flag | 17)), "EPERM");
  }
  EXPECT_EQ(call(SYS_clone3), "ENOSYS");
}

TEST_P(BreakoutTest, NoDeviceNodes) {
  for (unsigned long device :
       {0x101ul /* mem */, 0x10bul /* kmsg */, 0x0700ul /* loop0 */, 0x0ae8ul /* kvm */}) {
    for (std::string path : {"/dev/made", "/made"}) {
      std::string outcome = inside("mknod " + path + " " + std::to_string(device));
      if (is_container()) EXPECT_NE(outcome, "ok") << path << " " << device;
      EXPECT_NE(inside("open " + path + " " + std::to_string(O_RDWR)), "ok")
          << path << " " << device;
      inside("unlink " + path);  // gvisor lets nodes be made, but knows no such devices
    }
  }
  std::string devices = inside("list /dev");
  for (const char* name : {"mem", "kmsg", "kvm", "vsock", "loop", "sda", "vda"}) {
    EXPECT_THAT(devices, Not(HasSubstr(std::string("\n") + name))) << devices;
  }
}

TEST_P(BreakoutTest, KernelSettingsCannotBeWritten) {
  for (const char* path :
       {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/release_agent",
        "/proc/sys/net/ipv4/ip_forward", "/sys/fs/cgroup/memory.max",
        "/proc/sys/fs/binfmt_misc/register"}) {
    std::string outcome = inside(std::string("open ") + path + " " + std::to_string(O_WRONLY));
    if (outcome == "ok") {  // the mask over it: an empty device, or gvisor's own kernel
      EXPECT_TRUE(!is_container() || std::string(path) == "/proc/sysrq-trigger") << path;
    }
  }
}

TEST_P(BreakoutTest, SecretsOfTheHostKernelAreMasked) {
  for (const char* path :
       {"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/proc/timer_list", "/proc/modules",
        "/proc/iomem", "/proc/diskstats", "/proc/partitions", "/proc/cmdline"}) {
    std::string text = inside(std::string("read ") + path);
    std::string own = sys::read_file(path, 4096).value_or("");
    EXPECT_TRUE(text.empty() || text == "ENOENT" || text == "EACCES" || !is_container())
        << path << ": " << text.substr(0, 80);
    if (own.size() > 20) EXPECT_NE(text.substr(0, 4096), own) << path;
  }
}

TEST_P(BreakoutTest, ProcessesOfTheHostAreInvisible) {
  std::string names = inside("list /proc");
  int numbers = 0;
  for (const auto& name : split(names, '\n')) numbers += parse_int(name).has_value() ? 1 : 0;
  EXPECT_EQ(numbers, 1) << names;
  EXPECT_EQ(call(SYS_kill, std::to_string(::getpid()) + " 0"), "ESRCH");
}

TEST_P(BreakoutTest, DescriptorsLeadNowhere) {
  for (int fd = 3; fd < 65; ++fd) {
    std::string outcome = inside("list /proc/1/fd/" + std::to_string(fd));
    EXPECT_THAT(outcome, AnyOf("ENOENT", "ENOTDIR", HasSubstr("fd")))
        << fd;  // the listing's own descriptor may show
  }
  EXPECT_THAT(inside("list /proc/1/root"), HasSubstr("etc"));
  EXPECT_EQ(inside("list /proc/1/root/.."), inside("list /"));
  EXPECT_EQ(inside("read /proc/1/root/../../../../etc/passwd"), inside("read /etc/passwd"));
}

TEST_P(BreakoutTest, TheNetworkIsALoopbackOnly) {
  std::string interfaces = inside("read /proc/net/dev");
  EXPECT_THAT(interfaces, HasSubstr("lo:"));
  int count = 0;
  for (const auto& line : split(interfaces, '\n'))
    count += line.find(':') != std::string::npos ? 1 : 0;
  EXPECT_EQ(count, 1) << interfaces;
  EXPECT_THAT(inside("read /proc/net/unix"), Not(HasSubstr("@/")));
}

// The host's user whose number root has inside must not be root, and different for each sandbox.
TEST_P(BreakoutTest, RootInsideIsNobodyOutside) {
  if (!is_container()) GTEST_SKIP() << "gvisor runs the guest in a process without privileges";
  auto spec = host_->spec("other");
  auto other = host_->runtime().start(spec, host_->runtime().plan(spec), after(120s));
  ASSERT_TRUE(other.has_value());
  auto uid_line = [](const Record& record) {
    std::string status = sys::read_file("/proc/" + record.fields.at("pid") + "/status").value();
    size_t at = status.find("\nUid:\t") + 6;
    return std::stoul(status.substr(at));
  };
  EXPECT_GE(uid_line(box_.record), 0x10000000u);
  EXPECT_NE(uid_line(box_.record), uid_line(other->record));
  EXPECT_TRUE(host_->runtime().destroy(other->record));
}

TEST_P(BreakoutTest, AGarbledChannelLeavesTheSandboxManageable) {
  std::string garbage(4096, '\xff');
  for (int i = 0; i < 300; ++i)
    (void)!::write(box_.channel.to_agent.get(), garbage.data(), garbage.size());
  EXPECT_TRUE(host_->runtime().usage(box_.record).has_value());
  EXPECT_TRUE(host_->runtime().freeze(box_.record));
}

}  // namespace
}  // namespace glovebox::runtime
