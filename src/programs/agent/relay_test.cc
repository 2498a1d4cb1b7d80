// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace glovebox::agent {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr int kPipeBytes = 64 << 10;

bool is_ready(int fd, short events, std::chrono::milliseconds patience = 60s) {
  pollfd p{fd, events, 0};
  return ::poll(&p, 1, static_cast<int>(patience.count())) == 1;
}

// At most `bytes`, or what there is before the end.
std::string take(int fd, size_t bytes) {
  std::string out;
  char part[65536];
  while (out.size() < bytes && is_ready(fd, POLLIN)) {
    const ssize_t n = ::read(fd, part, std::min(sizeof part, bytes - out.size()));
    if (n <= 0) break;
    out.append(part, static_cast<size_t>(n));
  }
  return out;
}

void give(int fd, std::string_view bytes) {
  while (!bytes.empty() && is_ready(fd, POLLOUT)) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    ASSERT_TRUE(n > 0 || errno == EAGAIN) << std::strerror(errno);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// As many bytes as fit without anybody reading.
size_t stuff(int fd) {
  const std::string part(4096, 's');
  size_t total = 0;
  while (is_ready(fd, POLLOUT, 300ms)) {
    const ssize_t n = ::write(fd, part.data(), part.size());
    if (n > 0) total += static_cast<size_t>(n);
  }
  return total;
}

std::string pattern(size_t bytes) {
  std::string out(bytes, '\0');
  uint32_t state = 1;
  for (char& c : out) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return out;
}

class Relay : public ::testing::Test {
 protected:
  struct Pipe {
    UniqueFd inner, outer;  // open both ways for the relay, one way for the daemon
  };

  void SetUp() override {
    char name[] = "/tmp/relay-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    directory_ = name;
    ASSERT_NO_FATAL_FAILURE(make(&to_agent_, true));
    ASSERT_NO_FATAL_FAILURE(make(&from_agent_, false));
    listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un place = address();
    ASSERT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    ASSERT_EQ(::listen(listener_.get(), 1), 0);
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    console_read_ = UniqueFd(ends[0]);
    console_ = UniqueFd(ends[1]);
    log_ = UniqueFd(
        ::open((directory_ + "/log").c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    start_monitor();
    start();
  }
  void TearDown() override {
    for (const pid_t pid : {monitor_, relay_}) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
    for (const char* name : {"/log", "/s"}) ::unlink((directory_ + name).c_str());
    ::rmdir(directory_.c_str());
  }

  sockaddr_un address() const {
    sockaddr_un out{};
    out.sun_family = AF_UNIX;
    std::strcpy(out.sun_path, (directory_ + "/s").c_str());
    return out;
  }
  void make(Pipe* pipe, bool is_down) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    ASSERT_GE(::fcntl(ends[0], F_SETPIPE_SZ, kPipeBytes), kPipeBytes);
    pipe->inner =
        UniqueFd(::open(("/proc/self/fd/" + std::to_string(ends[0])).c_str(), O_RDWR | O_CLOEXEC));
    pipe->outer = UniqueFd(is_down ? ends[1] : ends[0]);
    ::close(is_down ? ends[0] : ends[1]);
  }
  // A process whose end is the machine's end.
  void start_monitor() {
    monitor_ = ::fork();
    ASSERT_GE(monitor_, 0);
    if (monitor_ == 0) {
      ::syscall(SYS_close_range, 3, ~0u, 0);
      ::pause();
      ::_exit(0);
    }
    monitor_fd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, monitor_, 0)));
    ASSERT_TRUE(monitor_fd_);
  }
  void start() {
    relay_ = ::fork();
    ASSERT_GE(relay_, 0);
    if (relay_ != 0) return;
    const int given[] = {to_agent_.inner.get(), from_agent_.inner.get(), log_.get(),
                         listener_.get(),       monitor_fd_.get(),       console_read_.get()};
    int aside[6];
    for (int i = 0; i < 6; ++i) aside[i] = ::fcntl(given[i], F_DUPFD, 100);
    for (int i = 0; i < 6; ++i) ::dup2(aside[i], i);
    ::syscall(SYS_close_range, 6, ~0u, 0);
    ::execl(GLOVEBOX_AGENT, "glovebox-agent", "--relay", nullptr);
    ::_exit(127);
  }
  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un place = address();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0)
      return {};
    EXPECT_EQ(::fcntl(socket.get(), F_SETFL, O_NONBLOCK), 0);
    return socket;
  }
  int wait_for_end() {
    int status = -1;
    for (const auto end = steady_clock::now() + 60s; steady_clock::now() < end;
         std::this_thread::sleep_for(2ms)) {
      if (::waitpid(relay_, &status, WNOHANG) == relay_) {
        relay_ = -1;
        return status;
      }
    }
    return -1;
  }
  bool is_running() const {
    siginfo_t ended{};
    return ::waitid(P_PID, static_cast<id_t>(relay_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
  }
  void end_monitor() {
    ::kill(monitor_, SIGKILL);
    ::waitpid(monitor_, nullptr, 0);
    monitor_ = -1;
  }
  std::string log() const {
    std::ifstream in(directory_ + "/log");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // "VmRSS" and the like, KiB.
  long memory(const std::string& name) const {
    std::ifstream in("/proc/" + std::to_string(relay_) + "/status");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with(name + ":")) return std::atol(line.c_str() + name.size() + 1);
    }
    return -1;
  }
  double cpu_seconds() const {
    std::ifstream in("/proc/" + std::to_string(relay_) + "/stat");
    std::string word;
    long ticks = 0;
    for (int i = 1; i <= 15 && in >> word; ++i) {
      if (i >= 14) ticks += std::atol(word.c_str());
    }
    return static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  std::string directory_;
  Pipe to_agent_, from_agent_;
  UniqueFd listener_, console_read_, console_, log_, monitor_fd_;
  pid_t monitor_ = -1, relay_ = -1;
};

TEST_F(Relay, CarriesBothWaysAndWhatWasSentBeforeTheGuestCame) {
  give(to_agent_.outer.get(), "early ");
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  give(to_agent_.outer.get(), "late");
  EXPECT_EQ(take(guest.get(), 10), "early late");
  give(guest.get(), "answer");
  EXPECT_EQ(take(from_agent_.outer.get(), 6), "answer");
}

TEST_F(Relay, CarriesMuchAtOnceInBothDirectionsUnchanged) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  const std::string down = pattern(8 << 20), up = pattern((8 << 20) + 77);
  std::string down_seen, up_seen;
  std::thread a([&] { give(to_agent_.outer.get(), down); }), b([&] { give(guest.get(), up); });
  std::thread c([&] { down_seen = take(guest.get(), down.size()); });
  up_seen = take(from_agent_.outer.get(), up.size());
  a.join(), b.join(), c.join();
  EXPECT_TRUE(down_seen == down);
  EXPECT_TRUE(up_seen == up);
  EXPECT_LT(memory("VmHWM"), 4096);
}

TEST_F(Relay, CarriesSingleBytesAsTheyCome) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  for (const char c : std::string("slowly")) {
    give(guest.get(), std::string(1, c));
    EXPECT_EQ(take(from_agent_.outer.get(), 1), std::string(1, c));
    give(to_agent_.outer.get(), std::string(1, c));
    EXPECT_EQ(take(guest.get(), 1), std::string(1, c));
  }
}

TEST_F(Relay, TakesNoMoreFromTheGuestThanTheDaemonTakes) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  const size_t fitted = stuff(guest.get());
  EXPECT_LT(fitted, 4u << 20);
  EXPECT_LT(memory("VmHWM"), 4096);
  give(to_agent_.outer.get(), "the other way is open");
  EXPECT_EQ(take(guest.get(), 21), "the other way is open");
  EXPECT_EQ(take(from_agent_.outer.get(), fitted).size(), fitted);
}

TEST_F(Relay, TakesNoMoreFromTheDaemonThanTheGuestTakes) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  const size_t fitted = stuff(to_agent_.outer.get());
  EXPECT_LT(fitted, 4u << 20);
  give(guest.get(), "the other way is open");
  EXPECT_EQ(take(from_agent_.outer.get(), 21), "the other way is open");
  EXPECT_EQ(take(guest.get(), fitted).size(), fitted);
}

TEST_F(Relay, WaitsWithoutUsingTheProcessor) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  (void)stuff(guest.get());
  console_.reset();
  const double before = cpu_seconds();
  std::this_thread::sleep_for(500ms);
  EXPECT_LT(cpu_seconds() - before, 0.1);
}

TEST_F(Relay, OutlivesTheDaemon) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  // A daemon of its own, with the pipes' outer ends, killed in the middle of a write.
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    const std::string part(4096, 'd');
    while (true) {
      [[maybe_unused]] const ssize_t n = ::write(to_agent_.outer.get(), part.data(), part.size());
    }
  }
  to_agent_.outer.reset();
  from_agent_.outer.reset();
  EXPECT_EQ(take(guest.get(), 100'000).size(), 100'000u);
  ::kill(daemon, SIGKILL);
  ::waitpid(daemon, nullptr, 0);
  give(guest.get(), "meanwhile");
  EXPECT_TRUE(is_running());
  // The next one opens its ends through the process that holds the pipes.
  const std::string fds = "/proc/" + std::to_string(relay_) + "/fd/";
  const UniqueFd from(::open((fds + "1").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const UniqueFd to(::open((fds + "0").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(from && to);
  EXPECT_EQ(take(from.get(), 9), "meanwhile");
  // What the first one had written before it was killed may fill all there is.
  while (::write(to.get(), "!", 1) != 1) {
    ASSERT_EQ(errno, EAGAIN);
    ASSERT_EQ(take(guest.get(), 4096).size(), 4096u);
  }
  std::string got = "d";
  while (got == "d") got = take(guest.get(), 1);
  EXPECT_EQ(got, "!");
}

TEST_F(Relay, EndsWithTheMonitorAndPassesItsLastWords) {
  UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  give(guest.get(), "x");
  ASSERT_EQ(take(from_agent_.outer.get(), 1), "x");
  give(guest.get(), "last words");
  give(console_.get(), "Kernel panic - not syncing\n");
  guest.reset();
  end_monitor();
  const int status = wait_for_end();
  ASSERT_TRUE(WIFEXITED(status)) << status;
  to_agent_.inner.reset();
  from_agent_.inner.reset();
  EXPECT_EQ(take(from_agent_.outer.get(), 100), "last words");
}

// A process that ends closes its descriptors before others can see that it ended.
TEST_F(Relay, AMonitorThatHangsUpAMomentBeforeItEndsHasEnded) {
  // Where this test itself stands still for longer than the relay waits, its monitor did not end in time.
  for (auto took = steady_clock::duration::max(); took > 800ms;) {
    if (took != steady_clock::duration::max()) TearDown(), SetUp();
    UniqueFd guest = connect();
    ASSERT_TRUE(guest);
    give(guest.get(), "last words");
    const auto began = steady_clock::now();
    guest.reset();
    std::this_thread::sleep_for(50ms);
    const bool was_running = is_running();
    give(console_.get(), "Kernel panic\n");
    end_monitor();
    took = steady_clock::now() - began;
    if (took <= 800ms) EXPECT_TRUE(was_running);
  }
  EXPECT_EQ(wait_for_end(), 0);
  EXPECT_EQ(take(from_agent_.outer.get(), 10), "last words");
  EXPECT_EQ(log(), "Kernel panic\n");
}

TEST_F(Relay, AMonitorThatEndsBeforeItsGuestCameEndsTheRelayToo) {
  give(console_.get(), "no guest\n");
  end_monitor();
  EXPECT_EQ(wait_for_end(), 0);
  EXPECT_EQ(log(), "no guest\n");
}

TEST_F(Relay, AnAgentThatHangsUpIsAnEndToo) {
  UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  give(guest.get(), "bye");
  guest.reset();
  const int status = wait_for_end();
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_EQ(take(from_agent_.outer.get(), 3), "bye");
  EXPECT_NE(log().find("channel ended"), std::string::npos);
}

TEST_F(Relay, AGuestThatHangsUpWhileTheDaemonReadsNothingLosesNothing) {
  UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  const size_t fitted = stuff(guest.get());
  guest.reset();
  give(to_agent_.outer.get(), "nobody hears this");
  EXPECT_EQ(take(from_agent_.outer.get(), fitted).size(), fitted);
  EXPECT_NE(wait_for_end(), -1);
}

TEST_F(Relay, OnlyTheFirstConnectionIsTheAgents) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  give(guest.get(), "x");
  ASSERT_EQ(take(from_agent_.outer.get(), 1), "x");
  listener_.reset();
  // The monitor's process may still be about to close what it was born with.
  for (const auto end = steady_clock::now() + 60s; connect() && steady_clock::now() < end;)
    std::this_thread::sleep_for(2ms);
  EXPECT_FALSE(connect());
}

TEST_F(Relay, KeepsWhatTheConsoleSays) {
  give(console_.get(), "a line\n");
  for (const auto end = steady_clock::now() + 60s; log().empty() && steady_clock::now() < end;)
    std::this_thread::sleep_for(2ms);
  EXPECT_EQ(log(), "a line\n");
  console_.reset();
  const UniqueFd guest = connect();
  give(guest.get(), "x");
  EXPECT_EQ(take(from_agent_.outer.get(), 1), "x");
}

TEST_F(Relay, CannotMakeOtherSystemCalls) {
  const UniqueFd guest = connect();
  ASSERT_TRUE(guest);
  give(guest.get(), "x");
  ASSERT_EQ(take(from_agent_.outer.get(), 1), "x");
  EXPECT_EQ(memory("Seccomp"), 2);
  EXPECT_EQ(memory("NoNewPrivs"), 1);
}

TEST(RelayProgram, RefusesToStartWithoutItsDescriptors) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::syscall(SYS_close_range, 3, ~0u, 0);
    ::execl(GLOVEBOX_AGENT, "glovebox-agent", "--relay", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

}  // namespace
}  // namespace glovebox::agent
