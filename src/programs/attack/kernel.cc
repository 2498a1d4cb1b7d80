// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

#include "programs/attack/attack.h"

// B04: calls by which a kernel is programmed or another process is reached. Their arguments are
// such that a kernel that carries them out does no harm: invalid ones after the check of rights, or
// the value that is there already.
namespace glovebox::attack {
namespace {

Outcome bpf(const Facts& facts) {
  struct {
    uint32_t type, key_size, value_size, max_entries, flags;
    char rest[100];
  } map{2 /* array */, 4, 4, 1, 0, {}};
  return judge(::syscall(SYS_bpf, 0 /* BPF_MAP_CREATE */, &map, 72), facts, "bpf");
}

Outcome perf_event_open(const Facts& facts) {
  perf_event_attr event{};
  event.type = PERF_TYPE_SOFTWARE;
  event.size = sizeof event;
  event.config = PERF_COUNT_SW_CPU_CLOCK;
  return judge(::syscall(SYS_perf_event_open, &event, 0, -1, -1, 0), facts, "perf_event_open",
               {ENOENT, ENODEV});
}

Outcome keyctl(const Facts& facts) {
  return judge(::syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -3 /* session */, 1, 0, 0), facts,
               "keyctl");
}

Outcome add_key(const Facts& facts) {
  return judge(::syscall(SYS_add_key, "user", "glovebox-attack", "x", 1, -2 /* process keyring */),
               facts, "add_key");
}

Outcome userfaultfd(const Facts& facts) {
  return judge(::syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* USER_MODE_ONLY */), facts,
               "userfaultfd");
}

Outcome io_uring(const Facts& facts) {
  io_uring_params parameters{};
  return judge(::syscall(SYS_io_uring_setup, 1, &parameters), facts, "io_uring_setup");
}

// More segments than any kernel takes: never loaded.
Outcome kexec_load(const Facts& facts) {
  return judge(::syscall(SYS_kexec_load, 0L, 1000000L, nullptr, 0L), facts, "kexec_load");
}

Outcome kexec_file_load(const Facts& facts) {
  return judge(::syscall(SYS_kexec_file_load, -1, -1, 0L, nullptr, 0L), facts, "kexec_file_load");
}

Outcome init_module(const Facts& facts) {
  return judge(::syscall(SYS_init_module, nullptr, 0L, nullptr), facts, "init_module");
}

Outcome finit_module(const Facts& facts) {
  return judge(::syscall(SYS_finit_module, -1, "", 0), facts, "finit_module");
}

Outcome reboot(const Facts& facts) {
  return judge(::syscall(SYS_reboot, 0, 0, 0, nullptr), facts, "reboot with a wrong magic number");
}

Outcome swapon(const Facts& facts) {
  return judge(::syscall(SYS_swapon, "/nowhere", 0), facts, "swapon");
}

Outcome acct(const Facts& facts) {
  return judge(::syscall(SYS_acct, "/nowhere"), facts, "acct");
}

Outcome iopl(const Facts& facts) {
  return judge(::syscall(SYS_iopl, 3), facts, "iopl");
}

Outcome set_clock(const Facts& facts) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return judge(::clock_settime(CLOCK_REALTIME, &now), facts, "clock_settime");
}

Outcome set_hostname(const Facts& facts) {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return judge(::sethostname(name, std::strlen(name)), facts, "sethostname");
}

// "Shocker": any file of the file system below, by its number.
Outcome open_by_handle(const Facts& facts) {
  struct {
    struct {
      unsigned bytes;
      int type;
    } head;
    unsigned char data[128];
  } handle{{128, 0}, {}};
  int mount = 0;
  const long named = ::syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mount, 0);
  const std::string first = named == 0 ? "" : "name_to_handle_at: " + error_name(errno) + "; ";
  if (named != 0) {
    handle.head = {8, 1};
    handle.data[0] = 2;  // the root directory of ext4
  }
  const int root = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  Outcome outcome =
      judge(::syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY), facts, "open_by_handle_at");
  outcome.evidence = first + outcome.evidence;
  return outcome;
}

// Process 1 is the agent. To root inside it is a process of its own sandbox; to others it is
// root's.
Outcome reached_init(const Facts& facts, const std::string& what) {
  if (!is_root()) return got_through(what + " as an ordinary user");
  if (!is_own_pid_namespace(facts)) return got_through(what + ", the host's");
  return harmless(what + ", which is the sandbox's own (pid namespace " +
                  read_link("/proc/self/ns/pid") + ", not the host's)");
}

Outcome trace_init(const Facts& facts) {
  if (::ptrace(PTRACE_SEIZE, 1, 0, 0) != 0) return judge(-1, facts, "ptrace of process 1", {ESRCH});
  ::ptrace(PTRACE_DETACH, 1, 0, 0);
  return reached_init(facts, "traced process 1");
}

Outcome read_init_memory(const Facts& facts) {
  const std::string maps = read_file("/proc/1/maps", 200);
  unsigned long address = std::strtoul(maps.c_str(), nullptr, 16);
  if (address == 0) address = 0x400000;
  char buffer[8] = {};
  const iovec local{buffer, sizeof buffer}, remote{reinterpret_cast<void*>(address), sizeof buffer};
  if (::process_vm_readv(1, &local, 1, &remote, 1, 0) > 0)
    return reached_init(facts, "read memory of process 1");
  return refused("process_vm_readv: " + error_name(errno) +
                 (errno == EFAULT ? " at the start of its program" : ""));
}

int sleeping_process_of(unsigned id) {
  int ready[2];
  if (::pipe(ready) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(id) != 0 || ::setuid(id) != 0) ::_exit(1);
    [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  ::close(ready[1]);
  if (::read(ready[0], &byte, 1) != 1) return -1;
  ::close(ready[0]);
  return child;
}

volatile char g_secret[16] = "another user's";

// Between two ordinary users of the sandbox: root makes a process of one and then becomes the
// other.
Outcome read_other_users_memory(const Facts&) {
  if (!is_root())
    return not_applicable(
        "only root can make the other user's process; process 1 stands for it in read_init_memory");
  const int victim = sleeping_process_of(4001);
  if (victim < 0) return not_applicable("no process of another user could be made");
  static int pid;
  pid = victim;
  const int status = in_child(
      [](void*) {
        if (::setgid(4002) != 0 || ::setuid(4002) != 0) return 250;
        char buffer[16] = {};
        const iovec local{buffer, sizeof buffer},
            remote{const_cast<char*>(g_secret), sizeof buffer};
        return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) > 0 ? 0 : errno;
      },
      nullptr);
  ::kill(victim, SIGKILL);
  ::waitpid(victim, nullptr, 0);
  if (status == 0) return got_through("user 4002 read the memory of user 4001");
  return status == 250 ? not_applicable("setuid does not work")
                       : refused("process_vm_readv: " + error_name(status));
}

}  // namespace

std::vector<Attempt> kernel_attempts() {
  return {{"B04", "bpf", bpf},
          {"B04", "perf_event_open", perf_event_open},
          {"B04", "keyctl", keyctl},
          {"B04", "add_key", add_key},
          {"B04", "userfaultfd", userfaultfd},
          {"B04", "io_uring", io_uring},
          {"B04", "kexec_load", kexec_load},
          {"B04", "kexec_file_load", kexec_file_load},
          {"B04", "init_module", init_module},
          {"B04", "finit_module", finit_module},
          {"B04", "reboot", reboot},
          {"B04", "swapon", swapon},
          {"B04", "acct", acct},
          {"B04", "iopl", iopl},
          {"B04", "set_clock", set_clock},
          {"B04", "set_hostname", set_hostname},
          {"B04", "open_by_handle", open_by_handle},
          {"B04", "trace_init", trace_init},
          {"B04", "read_init_memory", read_init_memory},
          {"B04", "read_other_users_memory", read_other_users_memory}};
}

}  // namespace glovebox::attack
