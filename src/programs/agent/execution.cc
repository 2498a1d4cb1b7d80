// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/execution.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "channel/frame.h"
#include "programs/agent/pty.h"

namespace glovebox::agent {
namespace {

using channel::Type;

// A terminal's last bytes arrive through a queue of the kernel's, a moment after the process has
// ended.
constexpr std::chrono::milliseconds kPtyQuiet{100};
constexpr uint64_t kPtyRestBytes = 64 * 1024;
constexpr uint64_t kStdinAckStep = 32 * 1024;
constexpr int kMaxLaunches = 20;
constexpr size_t kDiscardedPerMs = 256 * 1024;

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

Execution::Execution(ExecutionServices& services, ExecRequest request)
    : services_(services), request_(std::move(request)) {}

Execution::~Execution() {
  *alive_ = false;
  for (auto& timer : {deadline_, grace_, quiet_, rest_}) {
    if (timer) services_.loop.cancel(*timer);
  }
  close_stdin();
  close_stream(out_);
  close_stream(err_);
}

// ---- Start ----

Result<void> Execution::open_pipes() {
  int fds[2];
  for (OutputStream* out : {&out_, &err_}) {
    if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno("pipe");
    out->open(UniqueFd(fds[0]), false);
    child_fds_[out == &out_ ? 1 : 2].reset(fds[1]);
    ::fcntl(fds[0], F_SETFL, O_NONBLOCK);  // our end only: the child's stays blocking
  }
  if (!request_.wants_stdin) return {};
  if (::pipe2(fds, O_CLOEXEC) != 0) return fail_errno("pipe");
  child_fds_[0].reset(fds[0]);
  stdin_.reset(fds[1]);
  ::fcntl(fds[1], F_SETFL, O_NONBLOCK);
  return {};
}

Result<void> Execution::open_terminal() {
  GB_TRY(Pty pty, open_pty(request_.user, request_.pty->columns, request_.pty->rows));
  stdin_.reset(::fcntl(pty.master.get(), F_DUPFD_CLOEXEC, 3));
  if (!stdin_) return fail_errno("duplicating the pty");
  out_.open(std::move(pty.master), true);
  child_fds_[0] = std::move(pty.slave);
  return {};
}

void Execution::prepare_launch() {
  argv_ = pointers(request_.argv);
  envp_ = pointers(request_.env);
  candidates_ = pointers(request_.candidates);
  launch_.argv = argv_.data();
  launch_.envp = envp_.data();
  launch_.candidates = candidates_.data();
  launch_.directory = request_.directory.c_str();
  launch_.directory_is_default = request_.directory_is_default;
  launch_.uid = request_.user.uid;
  launch_.gid = request_.user.gid;
  launch_.groups = request_.user.groups.data();
  launch_.group_count = request_.user.groups.size();
  launch_.terminal = request_.pty.has_value();
  launch_.open_files = request_.open_files;
  launch_.set_processes = request_.processes.has_value();
  launch_.processes = request_.processes.value_or(rlimit64{});
  for (int i = 0; i < 3; ++i) {
    launch_.stdio[i] = request_.pty ? child_fds_[0].get() : child_fds_[i].get();
  }
  if (launch_.stdio[0] < 0) launch_.stdio[0] = services_.dev_null;
}

Result<void> Execution::start(uint32_t channel) {
  channel_ = channel;
  if (request_.pty) {
    GB_TRYV(open_terminal());
  } else {
    GB_TRYV(open_pipes());
  }
  prepare_launch();
  GB_TRY(supervisor_, services_.supervisors.acquire());
  supervisor_->owner = this;
  if (request_.timeout.count() > 0) {
    deadline_ = services_.loop.in(request_.timeout, [this] {
      deadline_.reset();
      on_deadline();
    });
  }
  services_.supervisors.start(*supervisor_, &launch_);
  return {};
}

void Execution::on_supervisor(Supervisor& supervisor) {
  const Phase phase = supervisor.phase.load(std::memory_order_acquire);
  if (phase == Phase::kFailed) return fail_start(launch_error(launch_));
  if (phase >= Phase::kRunning && stage_ == Stage::kLaunching) on_running();
  if (phase >= Phase::kEnded && !main_ended_) {
    on_main_ended(supervisor.wait_status, supervisor.usage, supervisor.had_children);
  }
  if (phase == Phase::kGone) on_tree_empty();
}

void Execution::fail_start(const Error& error) {
  services_.supervisors.release(*supervisor_);
  supervisor_ = nullptr;
  give_up(error);
}

void Execution::on_running() {
  stage_ = Stage::kRunning;
  main_pid_ = supervisor_->main_pid.load();
  for (UniqueFd& fd : child_fds_) fd.reset();
  if (channel_ != 0) {
    services_.outbox.send(channel_, Type::kStarted, to_text({{"pid", main_pid_}}));
  }
  watch(out_);
  watch(err_);
  if (!stdin_queue_.empty() || stdin_eof_) write_stdin();
  if (outcome_ != Outcome::kExited) kill_now();  // decided while it was being started
}

// ---- End ----

void Execution::on_deadline() {
  if (main_ended_ || outcome_ != Outcome::kExited) return;
  outcome_ = Outcome::kTimedOut;
  if (stage_ == Stage::kLaunching) return;
  if (request_.kill_grace.count() == 0 || supervisor_ == nullptr) return kill_now();
  services_.killer.signal_tree(*supervisor_, SIGTERM, [] {});
  grace_ = services_.loop.in(request_.kill_grace, [this] {
    grace_.reset();
    kill_now();
  });
}

void Execution::kill(Outcome reason) {
  if (!main_ended_ && outcome_ == Outcome::kExited) outcome_ = reason;
  if (stage_ != Stage::kLaunching) kill_now();
}

void Execution::kill_now() {
  if (kill_started_ || gone_ || supervisor_ == nullptr) return;
  kill_started_ = true;
  services_.killer.kill_tree(*supervisor_, [this, alive = alive_](bool empty) {
    if (!*alive || empty) return;  // the supervisor tells when the tree is empty
    kill_gave_up_ = true;
    begin_ending();
  });
}

void Execution::on_main_ended(int status, const struct rusage& usage, bool children) {
  main_ended_ = true;
  status_ = status;
  usage_ = usage;
  had_children_ = children;
  const bool is_unhappy = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  had_oom_ = is_unhappy && services_.oom.has_killed();
  if (deadline_) services_.loop.cancel(*deadline_);
  if (grace_) services_.loop.cancel(*grace_);
  deadline_.reset();
  grace_.reset();
  close_stdin();
  if (outcome_ != Outcome::kExited) kill_now();  // what is left of the tree goes with it
  begin_ending();
}

void Execution::on_tree_empty() {
  if (gone_) return;
  gone_ = true;
  if (supervisor_ != nullptr) services_.supervisors.release(*supervisor_);
  supervisor_ = nullptr;
  begin_ending();
  pump();
  remove_if_done();
}

void Execution::begin_ending() {
  if (stage_ != Stage::kRunning || !main_ended_) return;
  if (outcome_ != Outcome::kExited && !gone_ && !kill_gave_up_) return;
  if (outcome_ != Outcome::kExited) had_children_ = !gone_;
  stage_ = Stage::kEnding;
  if (out_.is_pty()) {
    quiet_ = services_.loop.in(kPtyQuiet, [this] {
      quiet_.reset();
      out_.end_after(kPtyRestBytes);
      update_interest(out_);
      if (out_.is_open()) on_readable(out_);
    });
  } else {
    out_.end_after(std::nullopt);
    err_.end_after(std::nullopt);
  }
  update_interest(out_);
  update_interest(err_);
  finish_if_collected();
}

void Execution::finish_if_collected() {
  if (stage_ != Stage::kEnding || !out_.is_collected() || !err_.is_collected()) return;
  stage_ = Stage::kEnded;
  if (quiet_) services_.loop.cancel(*quiet_);
  quiet_.reset();
  request_.env.clear();  // the launch is over: what remains of it need not be kept
  request_.argv.clear();
  argv_ = envp_ = candidates_ = {};
  pump();
}

json::object Execution::exit_record() const {
  json::object record;
  const bool signalled = WIFSIGNALED(status_);
  switch (outcome_) {
    case Outcome::kExited:
      record["outcome"] = signalled ? "signalled" : "exited";
      break;
    case Outcome::kTimedOut:
      record["outcome"] = "timed_out";
      break;
    case Outcome::kKilledByCaller:
      record["outcome"] = "killed_by_caller";
      break;
  }
  if (signalled) {
    record["signal"] = WTERMSIG(status_);
    record["core"] = WCOREDUMP(status_) != 0;
  } else if (outcome_ == Outcome::kExited) {
    record["code"] = WEXITSTATUS(status_);
  }
  if (had_oom_) record["oom"] = true;
  record["children"] = had_children_;
  record["stdout_bytes"] = out_.end();
  record["stderr_bytes"] = err_.end();
  record["dropped"] = {{"stdout", out_.dropped()}, {"stderr", err_.dropped()}};
  auto micros = [](const timeval& t) { return t.tv_sec * 1000000 + t.tv_usec; };
  record["usage"] = {{"user_us", micros(usage_.ru_utime)},
                     {"system_us", micros(usage_.ru_stime)},
                     {"max_rss_kb", usage_.ru_maxrss}};
  return record;
}

json::object Execution::summary() const {
  auto range = [](const OutputStream& out) {
    return json::object{{"start", out.start()}, {"end", out.end()}};
  };
  json::object object{{"id", request_.id},
                      {"state", stage_ == Stage::kEnded ? "exited" : "running"},
                      {"pid", main_pid_},
                      {"stdout", range(out_)},
                      {"stderr", range(err_)}};
  if (stage_ == Stage::kEnded) object["exit"] = exit_record();
  return object;
}

void Execution::on_forget() {
  forgotten_ = true;
  pump();
  remove_if_done();
}

void Execution::remove_if_done() {
  if (!is_done() || removal_posted_) return;
  removal_posted_ = true;  // later: callers up the stack are still using us
  services_.loop.post([&services = services_, id = request_.id, alive = alive_] {
    if (*alive) services.on_removable(id);
  });
}

// ---- The agent as the supervisor's stand-in ----

bool Execution::on_supervisor_lost() {
  supervisor_->owner = nullptr;
  if (stage_ == Stage::kLaunching) {
    const bool forked = supervisor_->main_pid.load() != 0;
    if (!forked && launch_.failed_errno == 0) {
      supervisor_ = nullptr;
      services_.loop.post([this, alive = alive_] {
        if (*alive) launch_again();
      });
      return false;
    }
    if (launch_.failed_errno != 0) {
      supervisor_ = nullptr;
      give_up(launch_error(launch_));
      return false;
    }
    on_running();  // it was killed before it could say so, by its own child
  }
  supervisor_ = nullptr;
  return true;
}

// Nothing of it has begun: the one that was to do it died of what killed all that there was, perhaps before it was asked.
void Execution::launch_again() {
  if (++launches_ > kMaxLaunches) {
    return give_up({Code::kInternal, "supervisors are killed from inside the sandbox again and again", {}});
  }
  auto supervisor = services_.supervisors.acquire();
  if (!supervisor) return give_up(supervisor.error());
  supervisor_ = *supervisor;
  supervisor_->owner = this;
  services_.supervisors.start(*supervisor_, &launch_);
}

void Execution::give_up(const Error& error) {
  if (channel_ != 0) services_.outbox.send(channel_, Type::kFailed, failed_payload(error));
  services_.on_removable(request_.id);
}

void Execution::on_orphan_reaped(pid_t pid, int status, const struct rusage& usage) {
  if (pid == main_pid_ && !main_ended_) on_main_ended(status, usage, false);
}

void Execution::on_orphans_gone() {
  if (!main_ended_) on_main_ended(SIGKILL, usage_, false);  // its status died with the supervisor
  on_tree_empty();
}

// ---- Output ----

OutputStream* Execution::stream(uint8_t number) {
  if (number == channel::kStdout) return &out_;
  if (number == channel::kStderr) return &err_;
  return nullptr;
}

void Execution::watch(OutputStream& out) {
  if (!out.is_open()) return;
  services_.loop.watch(out.fd(), EPOLLIN, [this, &out](uint32_t) { on_readable(out); });
}

void Execution::update_interest(OutputStream& out) {
  if (!out.is_open()) return;
  const bool blocked_by_daemon = channel_ != 0 && out.has_unsent();
  if (rest_ && out.is_discarded()) return services_.loop.change(out.fd(), 0);
  const bool wanted = out.is_collected() || (out.wants_bytes() && !blocked_by_daemon);
  services_.loop.change(out.fd(), wanted ? EPOLLIN : 0);
}

void Execution::close_stream(OutputStream& out) {
  if (!out.is_open()) return;
  services_.loop.unwatch(out.fd());
  out.close();
}

// What nobody will get is taken in large pieces with rests in between: a program that writes
// without end would otherwise keep two cores of its sandbox's, or of a neighbour's, busy with
// nothing. It can still write 256 MB in a second.
void Execution::discard(OutputStream& out) {
  const size_t size = out.widen_pipe();
  auto result = OutputStream::ReadResult::kBytes;
  for (size_t at = 0; at < size && result == OutputStream::ReadResult::kBytes;
       at += channel::kMaxPayloadFromAgent) {
    result = out.read_some();
  }
  if (result == OutputStream::ReadResult::kEnd) close_stream(out);
  if (rest_) return;
  rest_ = services_.loop.in(std::chrono::milliseconds(std::max<size_t>(1, size / kDiscardedPerMs)),
                            [this] {
                              rest_.reset();
                              update_interest(out_);
                              update_interest(err_);
                            });
}

void Execution::on_readable(OutputStream& out) {
  if (out.is_discarded()) {
    discard(out);
    update_interest(out);
    return finish_if_collected();
  }
  if (out.read_some() == OutputStream::ReadResult::kEnd) close_stream(out);
  if (channel_ != 0 && out.has_unsent() && services_.outbox.has_room()) {
    services_.outbox.send(channel_, Type::kOutput, out.next_payload());
  }
  update_interest(out);
  finish_if_collected();
}

void Execution::pump() {
  if (channel_ == 0 || stage_ == Stage::kLaunching) return;
  for (OutputStream* out : {&out_, &err_}) {
    while (out->has_unsent()) {
      if (!services_.outbox.has_room()) return;
      services_.outbox.send(channel_, Type::kOutput, out->next_payload());
    }
    update_interest(*out);
  }
  if (stage_ != Stage::kEnded) return;
  if (!exit_sent_) services_.outbox.send(channel_, Type::kExited, to_text(exit_record()));
  exit_sent_ = true;
  if (gone_ && forgotten_ && !gone_sent_) {
    gone_sent_ = true;
    services_.outbox.send(channel_, Type::kGone);
    remove_if_done();
  }
}

void Execution::attach(uint32_t channel, uint64_t stdout_offset, uint64_t stderr_offset) {
  channel_ = channel;
  exit_sent_ = gone_sent_ = false;
  out_.rewind(stdout_offset);
  err_.rewind(stderr_offset);
  stdin_acknowledged_ = 0;  // so that the new daemon learns where standard input is
  if (stage_ == Stage::kRunning) acknowledge_stdin();
  pump();
  update_interest(out_);
  update_interest(err_);
}

void Execution::on_ack(uint8_t number, uint64_t offset) {
  OutputStream* out = stream(number);
  if (out == nullptr) return;
  out->acknowledge(offset);
  update_interest(*out);
}

void Execution::on_drain(uint8_t number) {
  OutputStream* out = stream(number);
  if (out == nullptr) return;
  out->drain();
  update_interest(*out);
  pump();
}

// ---- Input and control ----

void Execution::on_stdin(std::string_view bytes) {
  if (stdin_eof_) return;
  if (!stdin_ && stage_ != Stage::kLaunching) {
    stdin_done_ += bytes.size();  // nobody reads any more
    return acknowledge_stdin();
  }
  stdin_queue_.append(bytes);
  if (stage_ != Stage::kLaunching && !stdin_watched_) write_stdin();
}

void Execution::on_stdin_eof() {
  if (stdin_eof_) return;
  stdin_eof_ = true;
  if (request_.pty && stdin_) {
    const char end = pty_eof_character(stdin_.get());
    if (end != 0) stdin_queue_.push_back(end);
    // A terminal can be written to after its end of file: the next program reads on.
    stdin_eof_ = false;
  }
  if (stage_ != Stage::kLaunching && !stdin_watched_) write_stdin();
}

void Execution::write_stdin() {
  while (stdin_ && stdin_at_ < stdin_queue_.size()) {
    const ssize_t n =
        ::write(stdin_.get(), stdin_queue_.data() + stdin_at_, stdin_queue_.size() - stdin_at_);
    if (n > 0) {
      stdin_at_ += static_cast<size_t>(n);
      stdin_done_ += static_cast<uint64_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      if (stdin_done_ - stdin_acknowledged_ >= kStdinAckStep) acknowledge_stdin();
      if (!stdin_watched_) {
        stdin_watched_ = true;
        services_.loop.watch(stdin_.get(), EPOLLOUT, [this](uint32_t) { write_stdin(); });
      }
      return;
    }
    return close_stdin();  // the reader is gone
  }
  stdin_queue_ = std::string();
  stdin_at_ = 0;
  if (stdin_watched_) services_.loop.unwatch(stdin_.get());
  stdin_watched_ = false;
  acknowledge_stdin();
  if (stdin_eof_) close_stdin();
}

void Execution::close_stdin() {
  if (stdin_watched_) services_.loop.unwatch(stdin_.get());
  stdin_watched_ = false;
  stdin_.reset();
  stdin_done_ += stdin_queue_.size() - stdin_at_;
  stdin_queue_ = std::string();
  stdin_at_ = 0;
  acknowledge_stdin();
}

void Execution::acknowledge_stdin() {
  if (channel_ == 0 || gone_sent_ || stdin_acknowledged_ == stdin_done_) return;
  stdin_acknowledged_ = stdin_done_;
  std::string payload;
  channel::append_u64(payload, stdin_done_);
  services_.outbox.send(channel_, Type::kStdinAck, payload);
}

void Execution::on_resize(uint16_t columns, uint16_t rows) {
  if (!out_.is_pty() || !out_.is_open()) return;
  if (!resize_pty(out_.fd(), columns, rows))
    signal(SIGWINCH, true);  // ignored by all who do not ask for it
}

void Execution::signal(int number, bool tree) {
  if (supervisor_ == nullptr || main_pid_ == 0) return;
  if (tree) {
    services_.killer.signal_tree(*supervisor_, number, [] {});
  } else if (supervisor_->phase.load(std::memory_order_acquire) == Phase::kRunning) {
    ::kill(main_pid_, number);
  }
}

}  // namespace glovebox::agent
