// SPDX-License-Identifier: Apache-2.0
// A stand-in for the agent in the runtime's own tests: answers HELLO and PING as spec/channel.md
// says, and takes REQUEST frames whose payload is a command line of this file, so that tests can
// look around and misbehave inside a sandbox that has no programs. The answer is one RESPONSE with
// text.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/text.h"
#include "channel/frame.h"

namespace {

using glovebox::channel::Type;
using Words = std::vector<std::string>;

void write_all(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    ssize_t n = ::write(1, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno != EINTR) _exit(90);
    if (n > 0) at += static_cast<size_t>(n);
  }
}

std::string outcome(long rc) {
  return rc >= 0 ? "ok" : std::string(::strerrorname_np(errno));
}

std::string read_all(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return outcome(-1);
  std::string text;
  char buffer[8192];
  for (ssize_t n; (n = ::read(fd, buffer, sizeof buffer)) > 0 && text.size() < 60000;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(fd);
  return text;
}

std::string list(const std::string& path, bool links) {
  DIR* dir = ::opendir(path.c_str());
  if (dir == nullptr) return outcome(-1);
  std::string text;
  while (const dirent* entry = ::readdir(dir)) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    char target[512];
    ssize_t n = links ? ::readlink((path + "/" + name).c_str(), target, sizeof target) : -1;
    text += name + (n >= 0 ? " " + std::string(target, static_cast<size_t>(n)) : "") + "\n";
  }
  ::closedir(dir);
  return text;
}

// Writes until it fails or `mib` are there: "<MiB written> <outcome>".
std::string fill(const std::string& path, int mib) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return "0 " + outcome(-1);
  std::string block(1 << 20, 'x');
  int done = 0;
  std::string result = "ok";
  for (; done < mib; ++done) {
    if (::write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) {
      result = outcome(-1);
      break;
    }
  }
  ::close(fd);
  return std::to_string(done) + " " + result;
}

std::string make_files(const std::string& directory, int count) {
  ::mkdir(directory.c_str(), 0755);
  for (int i = 0; i < count; ++i) {
    int fd =
        ::open((directory + "/" + std::to_string(i)).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return std::to_string(i) + " " + outcome(-1);
    ::close(fd);
  }
  return std::to_string(count) + " ok";
}

void hog(int mib) {
  for (int i = 0; i < mib; ++i) {
    auto* p = static_cast<char*>(
        ::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (p == MAP_FAILED) _exit(91);
    std::memset(p, i + 1, 1 << 20);
  }
}

// Sleeping children until the limit: "<count> <outcome of the last fork>"; they are killed again.
std::string fork_many(int count) {
  std::vector<pid_t> pids;
  std::string result = "ok";
  while (static_cast<int>(pids.size()) < count) {
    pid_t pid = ::fork();
    if (pid == 0) {
      for (;;) ::pause();
    }
    if (pid < 0) {
      result = outcome(-1);
      break;
    }
    pids.push_back(pid);
  }
  for (pid_t pid : pids) ::kill(pid, SIGKILL);
  for (pid_t pid : pids) ::waitpid(pid, nullptr, 0);
  return std::to_string(pids.size()) + " " + result;
}

std::string in_child(const Words& words, std::string (*work)(const Words&)) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) < 0) return outcome(-1);
  pid_t pid = ::fork();
  if (pid == 0) {
    std::string text = work(words);
    (void)!::write(ends[1], text.data(), text.size());
    _exit(0);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) text += "signal " + std::to_string(WTERMSIG(status));
  return text;
}

std::string raw_call(const Words& w) {
  long a[6]{};
  for (size_t i = 2; i < w.size() && i < 8; ++i) a[i - 2] = std::strtol(w[i].c_str(), nullptr, 0);
  return outcome(
      ::syscall(std::strtol(w[1].c_str(), nullptr, 0), a[0], a[1], a[2], a[3], a[4], a[5]));
}

std::string spin(const Words& w) {
  timespec begin{}, now{};
  ::clock_gettime(CLOCK_MONOTONIC, &begin);
  do {
    ::clock_gettime(CLOCK_MONOTONIC, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 <
           std::atol(w[1].c_str()));
  timespec cpu{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  return std::to_string(cpu.tv_sec * 1000 + cpu.tv_nsec / 1000000);
}

std::string open_pty() {
  int fd = ::open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  int number = -1, unlock = 0;
  if (fd < 0 || ::ioctl(fd, TIOCSPTLCK, &unlock) < 0 || ::ioctl(fd, TIOCGPTN, &number) < 0)
    return outcome(-1);
  int other = ::open(("/dev/pts/" + std::to_string(number)).c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
  std::string result = outcome(other);
  ::close(other);
  ::close(fd);
  return result;
}

std::string inspect(const Words& w) {
  struct stat st{};
  struct statvfs fs{};
  struct sysinfo info{};
  if (w[0] == "stat") {
    if (::stat(w[1].c_str(), &st) < 0) return outcome(-1);
    return std::to_string(st.st_uid) + ":" + std::to_string(st.st_gid) + " " +
           std::to_string(st.st_mode & 07777);
  }
  if (w[0] == "df") {
    if (::statvfs(w[1].c_str(), &fs) < 0) return outcome(-1);
    return std::to_string(fs.f_blocks * fs.f_frsize >> 20);
  }
  if (w[0] == "memory")
    return ::sysinfo(&info) < 0 ? outcome(-1) : std::to_string(info.totalram * info.mem_unit >> 20);
  if (w[0] == "cpus") return std::to_string(::sysconf(_SC_NPROCESSORS_ONLN));
  return "?";
}

std::string command(const Words& w) {
  const std::string& verb = w[0];
  auto number = [&](size_t i) { return std::atoi(w[i].c_str()); };
  if (verb == "read") return read_all(w[1]);
  if (verb == "list") return list(w[1], false);
  if (verb == "links") return list(w[1], true);
  if (verb == "open") return outcome(::open(w[1].c_str(), number(2) | O_CLOEXEC));
  if (verb == "mkdir") return outcome(::mkdir(w[1].c_str(), 0755));
  if (verb == "unlink") return outcome(::unlink(w[1].c_str()));
  if (verb == "mknod")
    return outcome(::mknod(w[1].c_str(), S_IFCHR | 0666, static_cast<dev_t>(number(2))));
  if (verb == "chown")
    return outcome(
        ::chown(w[1].c_str(), static_cast<uid_t>(number(2)), static_cast<gid_t>(number(2))));
  if (verb == "fill") return fill(w[1], number(2));
  if (verb == "files") return make_files(w[1], number(2));
  if (verb == "fork") return fork_many(number(1));
  if (verb == "pty") return open_pty();
  if (verb == "call") return in_child(w, raw_call);
  if (verb == "spin") return in_child(w, spin);
  if (verb == "hog-child")
    return in_child(w, [](const Words& v) {
      hog(std::atoi(v[1].c_str()));
      return std::string("ok");
    });
  if (verb == "hog") hog(number(1));
  if (verb == "exit") ::_exit(number(1));
  if (verb == "crash") ::abort();
  return inspect(w);
}

void answer(const glovebox::channel::Frame& frame) {
  std::string out;
  if (frame.type == Type::kHello) {
    size_t at = frame.payload.find("\"nonce\":\"");
    std::string nonce;
    for (size_t i = 0; at != std::string::npos && i < 32; i += 2) {
      nonce += static_cast<char>(std::stoi(frame.payload.substr(at + 9 + i, 2), nullptr, 16));
    }
    out = glovebox::channel::sync_mark(nonce);
    glovebox::channel::append_frame(out, 0, Type::kHelloOk,
                                    "{\"version\":1,\"agent\":\"test\",\"executions\":[]}");
  } else if (frame.type == Type::kPing) {
    glovebox::channel::append_frame(out, 0, Type::kPong, frame.payload);
  } else if (frame.type == Type::kRequest) {
    glovebox::channel::append_frame(out, frame.channel, Type::kResponse,
                                    command(glovebox::split(frame.payload, ' ')));
  }
  write_all(out);
}

}  // namespace

int main() {
  glovebox::channel::Decoder decoder(glovebox::channel::kMaxPayloadToAgent,
                                     glovebox::channel::kMaxMessageToAgent);
  char buffer[4096];
  for (;;) {
    ssize_t n = ::read(0, buffer, sizeof buffer);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) continue;
      return 80;
    }
    decoder.feed(std::string_view(buffer, static_cast<size_t>(n)));
    glovebox::channel::Frame frame;
    for (auto got = decoder.next(&frame); got && *got; got = decoder.next(&frame)) answer(frame);
  }
}
