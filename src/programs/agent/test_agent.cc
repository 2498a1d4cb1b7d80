// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/test_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "base/text.h"

namespace glovebox::agent {
namespace {

using channel::Type;
namespace fs = std::filesystem;
constexpr std::chrono::seconds kPatience{60};

[[noreturn]] void child_failed(const char* what) {
  perror(what);
  _exit(99);
}

UniqueFd reopen_both_ways(int fd) {
  return UniqueFd(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC));
}

void bind_mount(const std::string& from, const std::string& to) {
  struct stat st;
  if (::lstat(from.c_str(), &st) != 0) return;
  if (S_ISLNK(st.st_mode)) {
    fs::copy_symlink(from, to);
    return;
  }
  fs::create_directory(to);
  if (::mount(from.c_str(), to.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0)
    child_failed("bind");
}

std::string find_program(const std::string& name) {
  for (const std::string& dir : split(::getenv("PATH") != nullptr ? ::getenv("PATH") : "", ':')) {
    if (::access((dir + "/" + name).c_str(), X_OK) == 0) return dir + "/" + name;
  }
  return {};
}

void write_bundle(const std::string& bundle) {
  json::array capabilities;
  for (const char* name : {"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
                           "CAP_SETGID", "CAP_SETUID", "CAP_MKNOD", "CAP_SYS_CHROOT"}) {
    capabilities.emplace_back(name);
  }
  json::object caps;
  for (const char* set : {"bounding", "effective", "permitted"}) caps[set] = capabilities;
  json::object process{{"args", {"/sbin/glovebox-agent"}},
                       {"cwd", "/"},
                       {"env", {"PATH=/bin"}},
                       {"user", {{"uid", 0}, {"gid", 0}}},
                       {"capabilities", caps}};
  auto mount = [](const char* at, const char* type) {
    return json::object{{"destination", at}, {"type", type}, {"source", type}};
  };
  json::array namespaces;
  for (const char* type : {"pid", "network", "ipc", "uts", "mount"}) {
    namespaces.push_back(json::object{{"type", type}});
  }
  const json::object config{{"ociVersion", "1.0.0"},
                            {"process", process},
                            {"root", {{"path", "root"}}},
                            {"mounts",
                             {mount("/proc", "proc"), mount("/dev", "tmpfs"),
                              mount("/tmp", "tmpfs"), mount("/mnt", "tmpfs")}},
                            {"linux", {{"namespaces", namespaces}}}};
  std::ofstream(bundle + "/config.json") << to_text(config);
}

}  // namespace

std::string text_of(const json::object& object, std::string_view field) {
  return text_field(object, field).value_or("");
}
std::string ExecOutcome::code() const {
  return text_of(failed, "code");
}
std::string ExecOutcome::outcome() const {
  return text_of(exited, "outcome");
}
int64_t ExecOutcome::exit_code() const {
  return int_field(exited, "code", -1, -1, 255).value_or(-1);
}

std::string TestAgent::unusable(Engine engine) {
  if (::geteuid() != 0) return "needs root: makes namespaces and mounts";
  if (engine == Engine::kRunsc && find_program("runsc").empty()) return "needs runsc in PATH";
  return {};
}

TestAgent::TestAgent(Engine engine) : engine_(engine), id_("agent-test-" + random_name(12)) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // processes of an engine that outlive it are ours to reap
  char name[] = "/tmp/glovebox-agent-test-XXXXXX";
  scratch_ = ::mkdtemp(name);
  root_ = scratch_ + "/root";
  int in[2], out[2];
  GB_ASSERT(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0);
  to_agent_.reset(in[1]);
  from_agent_.reset(out[0]);
  const UniqueFd in_read(in[0]), out_write(out[1]);
  keep_in_ = reopen_both_ways(in_read.get());
  keep_out_ = reopen_both_ways(out_write.get());
  child_ = ::fork();
  if (child_ == 0) start_child(engine, keep_in_.get(), keep_out_.get());
}

TestAgent::~TestAgent() {
  if (engine_ == Engine::kRunsc) {
    const std::string runsc = find_program("runsc") + " --root " + scratch_ + "/state ";
    [[maybe_unused]] int rc = ::system((runsc + "kill " + id_ + " KILL >/dev/null 2>&1").c_str());
    rc = ::system((runsc + "delete -force " + id_ + " >/dev/null 2>&1").c_str());
  }
  ::kill(child_, SIGKILL);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
  std::error_code ignored;
  fs::remove_all(scratch_, ignored);
}

void TestAgent::build_root() {
  fs::create_directory(root_);
  if (::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr) != 0) child_failed("private");
  if (::mount("tmpfs", root_.c_str(), "tmpfs", 0, "mode=0755") != 0) child_failed("tmpfs");
  for (const char* dir : {"/usr", "/bin", "/lib", "/lib64"}) bind_mount(dir, root_ + dir);
  for (const char* dir :
       {"/etc", "/sbin", "/root", "/home", "/proc", "/dev", "/tmp", "/srv", "/mnt"}) {
    fs::create_directory(root_ + dir);
  }
  fs::copy_file(GLOVEBOX_AGENT, root_ + "/sbin/glovebox-agent");
  fs::copy_file(GLOVEBOX_STATIC_TRUE, root_ + "/sbin/static-true");
  std::ofstream(root_ + "/etc/passwd")
      << "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/home/user:/bin/sh\n"
         "other:x:1001:1001::/home/other:/bin/sh\n";
  std::ofstream(root_ + "/etc/group")
      << "root:x:0:\nuser:x:1000:\nother:x:1001:\nteam:x:2000:other,user\n";
}

// Does not return. For namespaces the agent is the child of what the test sees as child_, because a
// new pid namespace begins with the next process; it dies with it.
void TestAgent::start_child(Engine engine, int in, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int flags = engine == Engine::kRunsc
                        ? CLONE_NEWNS
                        : CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWNET;
  if (::unshare(flags) != 0) child_failed("unshare");
  build_root();
  ::dup2(in, 0);
  ::dup2(out, 1);
  if (engine == Engine::kRunsc) {
    write_bundle(scratch_);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, 2);
    ::execl(find_program("runsc").c_str(), "runsc", "--root", (scratch_ + "/state").c_str(),
            "--network=none", "--ignore-cgroups", "--overlay2=root:memory", "run", "-bundle",
            scratch_.c_str(), id_.c_str(), nullptr);
    child_failed("runsc");
  }
  const pid_t agent = ::fork();
  if (agent != 0) {
    ::waitpid(agent, nullptr, 0);
    _exit(0);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  bind_mount("/dev", root_ + "/dev");
  if (::mount("proc", (root_ + "/proc").c_str(), "proc", 0, nullptr) != 0) child_failed("proc");
  if (::mount("tmpfs", (root_ + "/mnt").c_str(), "tmpfs", 0, nullptr) != 0) child_failed("tmpfs");
  if (::chroot(root_.c_str()) != 0 || ::chdir("/") != 0) child_failed("chroot");
  ::execl("/sbin/glovebox-agent", "glovebox-agent", nullptr);
  child_failed("agent");
}

// ---- Frames ----

void TestAgent::send_raw(std::string_view bytes) {
  GB_ASSERT(::write(to_agent_.get(), bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
}

void TestAgent::send(uint32_t channel, Type type, std::string_view payload) {
  do {
    const auto part = payload.substr(0, channel::kMaxPayloadToAgent);
    payload.remove_prefix(part.size());
    std::string frame;
    channel::append_frame(frame, channel, type, part, payload.empty() ? 0 : channel::kFlagMore);
    send_raw(frame);
  } while (!payload.empty());
}

std::string TestAgent::receive_raw(size_t at_most) {
  std::string bytes(at_most, '\0');
  const ssize_t n = ::read(from_agent_.get(), bytes.data(), bytes.size());
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

size_t TestAgent::pipe_holds() const {
  int held = 0;
  ::ioctl(from_agent_.get(), FIONREAD, &held);
  return static_cast<size_t>(held);
}

bool TestAgent::read_more(std::chrono::milliseconds limit) {
  pollfd poller{from_agent_.get(), POLLIN, 0};
  if (::poll(&poller, 1, static_cast<int>(limit.count())) <= 0) return false;
  const std::string bytes = receive_raw(1 << 20);
  if (synced_) {
    decoder_.feed(bytes);
  } else {
    before_sync_ += bytes;
  }
  return !bytes.empty();
}

std::optional<channel::Frame> TestAgent::receive_within(uint32_t channel,
                                                        std::chrono::milliseconds limit) {
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->channel != channel) continue;
    channel::Frame frame = std::move(*kept);
    kept_.erase(kept);
    return frame;
  }
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    channel::Frame frame;
    while (decoder_.next(&frame).value()) {
      if (frame.channel == channel) return frame;
      kept_.push_back(std::move(frame));
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !read_more(left)) return std::nullopt;
  }
}

channel::Frame TestAgent::receive(uint32_t channel) {
  auto frame = receive_within(channel, kPatience);
  if (frame) return *std::move(frame);
  ADD_FAILURE() << "nothing came on channel " << channel;
  return {};
}

json::object TestAgent::hello(json::object extra) {
  const std::string nonce = random_bytes(16);
  json::object message{{"version", 1},
                       {"nonce", hex(nonce)},
                       {"unix_time_ns", 0},
                       {"sandbox", "sb-1"},
                       {"hostname", "box"},
                       {"env", json::object{}},
                       {"default_user", "user"},
                       {"limits", {{"open_files", 1024}, {"processes", 0}}},
                       {"seed", std::string(64, '7')}};
  for (auto& [key, value] : extra) message[key] = value;
  synced_ = false;
  before_sync_.clear();
  decoder_.reset();
  kept_.clear();
  send(0, Type::kHello, message);
  const std::string mark = channel::sync_mark(nonce);
  size_t at;
  while ((at = before_sync_.find(mark)) == std::string::npos) {
    if (!read_more(kPatience)) {
      ADD_FAILURE() << "no answer to HELLO";
      return {};
    }
  }
  synced_ = true;
  decoder_.feed(std::string_view(before_sync_).substr(at + mark.size()));
  return receive_json(0, Type::kHelloOk);
}

// ---- Executions ----

uint32_t TestAgent::exec(json::object request) {
  if (!request.contains("id")) request["id"] = "e" + std::to_string(++last_execution_);
  const uint32_t channel = next_channel();
  send(channel, Type::kExec, request);
  return channel;
}

ExecOutcome TestAgent::finish(uint32_t channel, bool until_gone, size_t read_before) {
  ExecOutcome result;
  for (;;) {
    const channel::Frame frame = receive(channel);
    switch (frame.type) {
      case Type::kStarted:
        result.started = parse_object(frame.payload).value();
        break;
      case Type::kFailed:
        result.failed = parse_object(frame.payload).value();
        return result;
      case Type::kOutput: {
        const auto stream = static_cast<uint8_t>(frame.payload[0]);
        std::string& text = stream == channel::kStdout ? result.out : result.err;
        const uint64_t offset = text.size() + (stream == channel::kStdout ? read_before : 0);
        EXPECT_EQ(channel::get_u64(frame.payload.data() + 8), offset);
        text += frame.payload.substr(channel::kStreamHeaderBytes);
        send(channel, Type::kAck,
             channel::stream_header(stream,
                                    offset + frame.payload.size() - channel::kStreamHeaderBytes));
        break;
      }
      case Type::kExited:
        result.exited = parse_object(frame.payload).value();
        if (!until_gone) return result;
        send(channel, Type::kForget);
        break;
      case Type::kGone:
        EXPECT_FALSE(result.exited.empty());
        result.gone = true;
        return result;
      case Type::kStdinAck:
        break;
      default:
        ADD_FAILURE() << "unexpected frame " << static_cast<int>(frame.type);
        return result;
    }
  }
}

void TestAgent::forget_until_gone(uint32_t channel) {
  send(channel, Type::kForget);
  EXPECT_EQ(static_cast<int>(receive(channel).type), static_cast<int>(Type::kGone));
}

void TestAgent::kill(uint32_t channel, const char* reason) {
  send(channel, Type::kKill, json::object{{"reason", reason}});
}

// ---- Requests ----

json::object TestAgent::receive_json(uint32_t channel, Type type) {
  const channel::Frame frame = receive(channel);
  EXPECT_EQ(static_cast<int>(frame.type), static_cast<int>(type));
  auto object = parse_object(frame.payload);
  return object ? *std::move(object) : json::object();
}

json::object TestAgent::request(json::object fields) {
  const uint32_t channel = next_channel();
  send(channel, Type::kRequest, fields);
  return receive_json(channel, Type::kResponse);
}

void TestAgent::send_data(uint32_t channel, std::string_view bytes) {
  uint64_t allowed = channel::kWindowBytes, sent = 0;
  while (!bytes.empty()) {
    while (sent == allowed) {
      const channel::Frame frame = receive(channel);
      if (frame.type != Type::kWindow) {
        kept_.push_front(frame);  // the operation broke off; the caller reads why
        return;
      }
      allowed = channel::get_u64(frame.payload.data());
    }
    const size_t n =
        std::min<uint64_t>({bytes.size(), allowed - sent, channel::kMaxPayloadToAgent});
    send(channel, Type::kDataToAgent, bytes.substr(0, n));
    bytes.remove_prefix(n);
    sent += n;
  }
  send(channel, Type::kEndToAgent);
}

json::object TestAgent::write(const std::string& content, json::object fields) {
  const uint32_t channel = next_channel();
  if (!fields.contains("op")) fields["op"] = "write";
  send(channel, Type::kRequest, fields);
  json::object answer = receive_json(channel, Type::kResponse);
  if (!answer["ok"].as_bool()) return answer;
  send_data(channel, content);
  for (;;) {
    const channel::Frame frame = receive(channel);
    if (frame.type == Type::kWindow) continue;
    EXPECT_EQ(static_cast<int>(frame.type), static_cast<int>(Type::kResponse));
    return parse_object(frame.payload).value_or(json::object());
  }
}

std::string TestAgent::receive_data(uint32_t channel, std::string* end) {
  std::string all;
  for (;;) {
    const channel::Frame frame = receive(channel);
    if (frame.type == Type::kData) {
      all += frame.payload;
      std::string window;
      channel::append_u64(window, all.size() + channel::kWindowBytes);
      send(channel, Type::kWindowToAgent, window);
      continue;
    }
    EXPECT_EQ(static_cast<int>(frame.type), static_cast<int>(Type::kEnd));
    if (end != nullptr) *end = frame.payload;
    return all;
  }
}

std::string TestAgent::read(const std::string& path, json::object* answer) {
  const uint32_t channel = next_channel();
  send(channel, Type::kRequest, json::object{{"op", "read"}, {"path", json_bytes(path)}});
  json::object response = receive_json(channel, Type::kResponse);
  const bool ok = response["ok"].as_bool();
  if (answer != nullptr) *answer = response;
  return ok ? receive_data(channel) : std::string();
}

std::set<pid_t> TestAgent::pids() {
  std::set<pid_t> out;
  const json::object answer = request({{"op", "processes"}});
  for (const json::value& process : answer.at("processes").as_array()) {
    out.insert(static_cast<pid_t>(process.at("pid").as_int64()));
  }
  return out;
}

void AgentTest::SetUp() {
  const std::string problem = TestAgent::unusable(GetParam());
  if (!problem.empty()) GTEST_SKIP() << problem;
  agent_ = std::make_unique<TestAgent>(GetParam());
  const json::object answer = agent_->hello();
  ASSERT_EQ(answer.at("version").as_int64(), 1);
}

std::string test_name(const testing::TestParamInfo<Engine>& info) {
  return info.param == Engine::kRunsc ? "Gvisor" : "Namespaces";
}

}  // namespace glovebox::agent
