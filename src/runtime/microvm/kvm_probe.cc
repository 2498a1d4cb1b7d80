// SPDX-License-Identifier: Apache-2.0
#include "runtime/microvm/kvm_probe.h"

#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/async.h"
#include "sys/files.h"
#include "sys/process.h"

namespace glovebox::runtime::microvm {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 1000ms;
constexpr int kRounds = 100;  // of 100,000 loops
constexpr uint64_t kPage = 4096;
constexpr uint16_t kPort = 0x10;

// Real mode: mov ecx, 100000; again: dec ecx; jnz again; out 0x10, al; jmp start
constexpr unsigned char kGuest[] = {0x66, 0xb9, 0xa0, 0x86, 0x01,  0x00, 0x66,
                                    0x49, 0x75, 0xfc, 0xe6, kPort, 0xeb, 0xf2};

enum Step : int { kOk = 0, kOpen, kCreateVm, kMemory, kCreateCpu, kRegisters, kRun, kUnexpected };
constexpr const char* kSteps[] = {"",
                                  "open /dev/kvm",
                                  "KVM_CREATE_VM",
                                  "KVM_SET_USER_MEMORY_REGION",
                                  "KVM_CREATE_VCPU",
                                  "KVM_SET_REGS",
                                  "KVM_RUN",
                                  "an exit that the guest did not ask for"};

// Only system calls: it runs in a copy of a process with many threads.
Step run_guest() {
  const int kvm = ::open("/dev/kvm", O_RDWR | O_CLOEXEC);
  if (kvm < 0) return kOpen;
  const int vm = ::ioctl(kvm, KVM_CREATE_VM, 0);
  if (vm < 0) return kCreateVm;
  void* page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return kMemory;
  std::memcpy(page, kGuest, sizeof kGuest);
  kvm_userspace_memory_region region{0, 0, kPage, kPage, reinterpret_cast<uint64_t>(page)};
  if (::ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0) return kMemory;
  const int cpu = ::ioctl(vm, KVM_CREATE_VCPU, 0);
  const int size = ::ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
  if (cpu < 0 || size < static_cast<int>(sizeof(kvm_run))) return kCreateCpu;
  auto* run = static_cast<kvm_run*>(
      ::mmap(nullptr, static_cast<size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, cpu, 0));
  if (run == MAP_FAILED) return kCreateCpu;
  kvm_sregs segments{};
  if (::ioctl(cpu, KVM_GET_SREGS, &segments) < 0) return kRegisters;
  segments.cs.base = 0;
  segments.cs.selector = 0;
  kvm_regs registers{};
  registers.rip = kPage;
  registers.rflags = 2;
  if (::ioctl(cpu, KVM_SET_SREGS, &segments) < 0 || ::ioctl(cpu, KVM_SET_REGS, &registers) < 0)
    return kRegisters;
  for (int round = 0; round < kRounds;) {
    if (::ioctl(cpu, KVM_RUN, 0) < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return kRun;
    }
    if (run->exit_reason != KVM_EXIT_IO || run->io.port != kPort) return kUnexpected;
    ++round;
  }
  return kOk;
}

KvmFinding try_guest() {
  const pid_t child = ::fork();
  if (child < 0) return {false, "no process for a trial"};
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(run_guest());
  }
  const auto id = sys::identify(child);
  const auto end = id ? sys::open_pidfd(*id) : fail(Code::kNotFound, "");
  const bool ended = end && sys::wait_readable(end->get(), kPatience);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return {false,
            "/dev/kvm opens, but its guests do not run on the processor: ten million instructions "
            "took more than a second "
            "(a nested or paravirtual host that emulates them)"};
  }
  if (!WIFEXITED(status))
    return {false, "a trial guest died of signal " + std::to_string(WTERMSIG(status))};
  if (WEXITSTATUS(status) == kOk) return {true, ""};
  const auto step = static_cast<size_t>(WEXITSTATUS(status));
  return {false, "KVM does not work here: " +
                     std::string(step < std::size(kSteps) ? kSteps[step] : "a trial guest") +
                     " failed"};
}

}  // namespace

KvmFinding probe_kvm(const std::string& directory) {
  if (!sys::exists("/dev/kvm")) return {false, "this host has no /dev/kvm"};
  if (directory.empty()) return try_guest();
  const std::string path = directory + "/kvm-probe", head = sys::boot_id() + "\n";
  if (const auto known = sys::read_file(path); known && known->starts_with(head)) {
    const std::string problem = known->substr(head.size());
    return {problem.empty(), problem};
  }
  KvmFinding found = try_guest();
  (void)sys::put_file(path, head + found.problem, 0600);
  return found;
}

}  // namespace glovebox::runtime::microvm
