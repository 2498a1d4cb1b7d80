// SPDX-License-Identifier: Apache-2.0
#include "sandbox/execution.h"

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/log.h"
#include "metrics/metrics.h"
#include "sandbox/codec.h"

namespace glovebox::sandbox {
using channel::Type;
namespace {

// An execution shorter than this is recorded once, at its end.
constexpr Millis kRecordStartAfter{50};
constexpr uint64_t kWindowSlack = 2 * channel::kMaxPayloadFromAgent;
// What an agent may still send of both streams when it is told to stop.
constexpr uint64_t kOutputUnderWay = 2 * (channel::kWindowBytes + kWindowSlack);

int index_of(uint8_t stream) { return stream == channel::kStderr ? 1 : 0; }
Stream stream_of(int index) { return index == 1 ? Stream::kStderr : Stream::kStdout; }

}  // namespace

RunningExecution::RunningExecution(ExecutionContext context, ExecInfo info, std::string spool_path, Counts counts)
    : context_(context), info_(std::move(info)), spool_(std::move(spool_path)), counts_(std::move(counts)) {}

RunningExecution::~RunningExecution() {
  if (channel_ != 0 && link_) link_->close(channel_, kOutputUnderWay);
}

Async<void> RunningExecution::start(std::shared_ptr<channel::Link> link, std::string message,
                                    std::optional<std::string> stdin_data, bool keep_stdin, Millis limit) {
  static auto& started_histogram = metrics::registry().histogram("glovebox_exec_start_seconds", "Execution request to the program being loaded.");
  const auto self = shared_from_this();
  const auto began = Clock::now();
  const Deadline deadline = after(context_.config->patience.exec_start);
  if (message.size() > channel::kMaxMessageToAgent) {
    co_return fail(Code::kArgumentsTooLong, "arguments and environment are " + std::to_string(message.size()) +
                                                " bytes, at most 1 MiB fits");
  }
  link_ = std::move(link);
  GB_CO_TRYV(co_await link_->wait_room(deadline));
  channel_ = link_->open(this);
  stdin_open_ = keep_stdin || stdin_data.has_value();
  link_->send(channel_, Type::kExec, message);
  if (stdin_data) spawn(context_.executor, "execution.stdin", feed(std::move(*stdin_data), !keep_stdin));
  while (!started_ && !start_error_) {
    const bool woken = co_await changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline && !started_) {
      co_return fail(Code::kTimeout, "the sandbox did not start the command in time");
    }
  }
  if (start_error_) co_return fail(*start_error_);
  started_histogram.observe(std::chrono::duration<double>(Clock::now() - began).count());
  spawn(context_.executor, "execution.record_start", record_start());
  if (limit.count() > 0) {
    spawn(context_.executor, "execution.limit", watch_limit(after(limit + context_.config->patience.exec_end_slack)));
  }
  co_return Result<void>();
}

// The agent ends what runs too long. One that does not would let callers wait for ever.
Awaitable<void> RunningExecution::watch_limit(Deadline deadline) {
  const auto self = shared_from_this();
  const Millis slack = context_.config->patience.exec_end_slack;
  while (!co_await wait(deadline)) {
    // In a paused sandbox the agent cannot end anything; once that runs again it has the same time for it.
    const auto since = awake_since();
    if (since && *since <= Clock::now() - slack) co_return protocol_error("the agent did not end an execution at its timeout");
    deadline = since ? *since + slack : after(slack);
  }
}

Async<bool> RunningExecution::wait_started(Deadline deadline) {
  const auto self = shared_from_this();
  while (!started_ && !abandoned_) {
    const bool woken = co_await changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline) co_return fail(Code::kTimeout, "an earlier call with this key is still starting the command");
  }
  co_return !abandoned_;
}

void RunningExecution::abandon() {
  abandoned_ = true;
  changed_.notify();
  counts_ = {};
  if (channel_ == 0) return;
  link_->send(channel_, Type::kKill, R"({"reason":"killed_by_caller"})");
  link_->send(channel_, Type::kForget, {});
  link_->close(channel_, kOutputUnderWay);
  channel_ = 0;
}

Awaitable<void> RunningExecution::feed(std::string data, bool close) {
  const auto self = shared_from_this();
  auto written = co_await write_stdin(std::move(data));
  if (written && close) co_await close_stdin();
}

void RunningExecution::attach(std::shared_ptr<channel::Link> link) {
  GB_ASSERT(channel_ == 0);
  link_ = std::move(link);
  channel_ = link_->open(this);
  agent_exited_ = start_answered_ = false;
  started_ = attached_ = true;
  stdin_open_ = true;  // the agent knows better and ignores what cannot be written
  open_kept_output();
  for (int i : {0, 1}) seen_[i] = acknowledged_[i] = spool_.stream_end(stream_of(i));
  std::string message = "{\"id\":";
  append_json_string(message, info_.id);
  message += ",\"stdout\":" + std::to_string(seen_[0]) + ",\"stderr\":" + std::to_string(seen_[1]) + "}";
  link_->send(channel_, Type::kAttach, message);
  if (draining_) drain();
  update_counts();
}

void RunningExecution::open_kept_output() {
  if (std::exchange(kept_opened_, true)) return;
  const auto opened = spool_.open_existing();
  if (opened) return;
  log::warn("execution.output_unreadable", {{"execution", info_.id}, {"message", opened.error().message}});
  draining_ = true;
}

void RunningExecution::restore_running() {
  started_ = true;
  open_kept_output();
  info_.kept_bytes = info_.next_cursor = spool_.end();
}

void RunningExecution::attach_to_forget(std::shared_ptr<channel::Link> link, std::shared_ptr<void> alive) {
  GB_ASSERT(channel_ == 0);
  link_ = std::move(link);
  channel_ = link_->open(this);
  agent_exited_ = start_answered_ = false;
  forget_counts();
  counts_.alive = std::move(alive);
  gone_ = false;
  attached_ = true;
  std::string message = "{\"id\":";
  append_json_string(message, info_.id);
  link_->send(channel_, Type::kAttach, message + ",\"stdout\":0,\"stderr\":0}");
  link_->send(channel_, Type::kForget, {});
}

Awaitable<void> RunningExecution::settle_output() {
  const auto self = shared_from_this();
  while (writing_) co_await changed_.wait();
  if (exited_ || write_failed_ || draining_ || spool_.unwritten() == 0) co_return;
  writing_ = true;
  co_await write_loop();
}

// As after a restart of the daemon: what the agent says next is said to somebody new.
void RunningExecution::detach() {
  if (channel_ != 0 && link_) link_->close(channel_, kOutputUnderWay);
  channel_ = 0;
  link_.reset();
  kept_opened_ = true;
  forget_counts();
  changed_.notify();
}

// What was said on the last channel.
void RunningExecution::forget_counts() {
  unkept_[0] = unkept_[1] = 0;
  stdin_sent_ = stdin_taken_ = stdin_acked_ = stdin_extra_ = 0;
  stdin_base_.reset();
}

Result<void> RunningExecution::remove_files() {
  for (const char* suffix : {".out", ".idx"}) {
    if (::unlink((spool_.path() + suffix).c_str()) != 0 && errno != ENOENT) return fail_errno(spool_.path() + suffix);
  }
  return {};
}

void RunningExecution::restore_ended() {
  started_ = exited_ = gone_ = released_ = true;
  auto opened = spool_.open_existing();
  if (!opened) log::warn("execution.output_unreadable", {{"execution", info_.id}, {"message", opened.error().message}});
  spool_.close_files();
  if (opened && !*opened) return;  // all of it is in the store
  // What its record says and what could be written in the end may differ: a full disk, files that were damaged.
  if (spool_.end() < info_.kept_bytes) update_counts();
}

void RunningExecution::on_frame(channel::Frame& frame) {
  switch (frame.type) {
    case Type::kStarted:
      return take_started(frame.payload);
    case Type::kFailed:
      return take_failed(frame.payload);
    case Type::kOutput:
      return take_output(frame);
    case Type::kStdinAck:
      return take_stdin_ack(frame.payload);
    case Type::kExited:
      return take_exited(frame.payload);
    case Type::kGone:
      if (!agent_exited_ || !frame.payload.empty()) return protocol_error("GONE before EXITED");
      link_->close(channel_);
      channel_ = 0;
      return mark_gone();
    default:
      return protocol_error("unexpected frame for an execution");
  }
}

void RunningExecution::take_started(const std::string& payload) {
  if (std::exchange(start_answered_, true)) return protocol_error("STARTED out of turn");
  auto pid = codec::decode_pid(payload);
  if (!pid) return protocol_error(pid.error().message);
  info_.pid = *pid;
  started_ = true;
  changed_.notify();
}

void RunningExecution::take_failed(const std::string& payload) {
  if (std::exchange(start_answered_, true)) return protocol_error("FAILED out of turn");
  start_error_ = channel::error_from_agent(payload);
  link_->close(channel_);
  channel_ = 0;
  // After an ATTACH this means that the agent no longer knows it: nobody can tell how it ended.
  if (started_ && !exited_) finish_without_agent("interrupted", "the sandbox's agent lost the execution");
  mark_gone();
}

void RunningExecution::take_stdin_ack(const std::string& payload) {
  const uint64_t total = payload.size() == 8 ? channel::get_u64(payload.data()) : 0;
  const bool is_first = stdin_acked_ == 0;
  if (total <= stdin_acked_) return protocol_error("impossible STDIN_ACK");
  if (attached_ && is_first && total > stdin_sent_) stdin_base_ = total;  // an earlier daemon's input
  const uint64_t base = stdin_base_.value_or(0);
  const uint64_t most = stdin_sent_ + stdin_extra_;
  if (!attached_ && total > most) return protocol_error("impossible STDIN_ACK");
  stdin_acked_ = total;
  stdin_taken_ = std::max(stdin_taken_, std::min(total - base, stdin_sent_));
  changed_.notify();
}

void RunningExecution::protocol_error(std::string message) {
  if (link_) link_->drop(Error{Code::kAgentProtocol, std::move(message), {}});
}

void RunningExecution::take_output(const channel::Frame& frame) {
  if ((!started_ && !attached_) || agent_exited_) return protocol_error("OUTPUT out of turn");
  if (frame.payload.size() <= channel::kStreamHeaderBytes) return protocol_error("short OUTPUT");
  start_answered_ = true;
  const auto stream = static_cast<uint8_t>(frame.payload[0]);
  if (stream != channel::kStdout && stream != channel::kStderr) return protocol_error("OUTPUT of an unknown stream");
  const int i = index_of(stream);
  const uint64_t offset = channel::get_u64(frame.payload.data() + 8);
  const std::string_view bytes = std::string_view(frame.payload).substr(channel::kStreamHeaderBytes);
  if (exited_ || draining_) {  // its end is recorded already, or the agent was told to send no more
    unkept_[i] += bytes.size();
    if (unkept_[i] > channel::kWindowBytes + kWindowSlack) return protocol_error("OUTPUT beyond the window");
    if (exited_) return;
  }
  if (offset < seen_[i] || offset > INT64_MAX / 2) return protocol_error("OUTPUT repeats bytes");
  if (offset > seen_[i] && !attached_) return protocol_error("OUTPUT leaves bytes out");
  // Bytes are missing: an earlier daemon had them dropped. Nothing after the gap is kept either.
  if (offset > seen_[i] && !draining_) drain();
  seen_[i] = offset + bytes.size();
  static auto& output_bytes = metrics::registry().counter("glovebox_output_bytes_total", "Output received from executions.");
  output_bytes.add(bytes.size());
  if (!draining_) keep_output(i, bytes);
  update_counts();
  changed_.notify();
}

void RunningExecution::keep_output(int i, std::string_view bytes) {
  const uint64_t kept_of_stream = spool_.stream_end(stream_of(i));
  if (kept_of_stream + bytes.size() > acknowledged_[i] + channel::kWindowBytes + kWindowSlack) {
    return protocol_error("OUTPUT beyond the window");
  }
  const uint64_t room = context_.config->output_file_bytes - std::min(context_.config->output_file_bytes, spool_.end());
  spool_.append(stream_of(i), bytes.substr(0, room));
  if (bytes.size() > room || spool_.index_full()) drain();
  if (writing_ || write_failed_) return;
  if (!spool_.has_file() && spool_.unwritten() <= context_.config->output_memory_bytes) return;
  writing_ = true;
  spawn(context_.executor, "execution.write", write_loop());
}

void RunningExecution::drain() {
  draining_ = true;
  for (const uint8_t stream : {channel::kStdout, channel::kStderr}) {
    link_->send(channel_, Type::kDrain, std::string(1, static_cast<char>(stream)));
  }
}

void RunningExecution::update_counts() {
  info_.stdout_bytes = std::max(info_.stdout_bytes, seen_[0]);
  info_.stderr_bytes = std::max(info_.stderr_bytes, seen_[1]);
  info_.kept_bytes = info_.next_cursor = spool_.end();
  info_.dropped_stdout = info_.stdout_bytes - std::min(info_.stdout_bytes, spool_.stream_end(Stream::kStdout));
  info_.dropped_stderr = info_.stderr_bytes - std::min(info_.stderr_bytes, spool_.stream_end(Stream::kStderr));
  if (info_.background && info_.stdout_bytes > 0) counts_ = {};
}

Awaitable<void> RunningExecution::write_loop() {
  const auto self = shared_from_this();
  while (spool_.unwritten() > 0) {
    const auto batch = spool_.take_batch();
    auto written = co_await run_blocking(*context_.pool, [this, &batch] { return spool_.write(batch); });
    if (!written) {
      log::error("execution.output_not_kept", {{"execution", info_.id}, {"message", written.error().message}});
      write_failed_ = true;
      if (channel_ != 0 && !draining_) drain();
      break;
    }
    spool_.batch_written(batch);
    static auto& spooled = metrics::registry().counter("glovebox_spooled_bytes_total", "Output written to spool files.");
    spooled.add(batch.bytes.size());
    if (channel_ != 0) acknowledge(batch);
  }
  writing_ = false;
  changed_.notify();
}

void RunningExecution::acknowledge(const Spool::Batch& batch) {
  for (int i : {0, 1}) {
    if (batch.stream_ends[i] <= acknowledged_[i]) continue;
    acknowledged_[i] = batch.stream_ends[i];
    link_->send(channel_, Type::kAck, channel::stream_header(i == 1 ? channel::kStderr : channel::kStdout, acknowledged_[i]));
  }
}

void RunningExecution::take_exited(const std::string& payload) {
  if ((!started_ && !attached_) || std::exchange(agent_exited_, true)) return protocol_error("EXITED out of turn");
  start_answered_ = true;
  if (exited_) return;  // its end is recorded already
  ExecInfo ended = info_;
  auto decoded = codec::decode_exited(payload, &ended);
  if (!decoded) return protocol_error(decoded.error().message);
  const bool is_complete = ended.stdout_bytes == seen_[0] && ended.stderr_bytes == seen_[1];
  if (!attached_ && !draining_ && !is_complete) return protocol_error("EXITED counts other bytes than were sent");
  exited_ = true;
  spawn(context_.executor, "execution.settle", settle(std::move(ended), *decoded));
}

Awaitable<void> RunningExecution::settle(ExecInfo ended, bool had_oom) {
  const auto self = shared_from_this();
  const bool unhappy = ended.outcome->type == "signalled" || ended.outcome->exit_code.value_or(0) != 0;
  if (had_oom && on_oom_inside) on_oom_inside();
  if (unhappy && !had_oom && was_oom) had_oom = co_await was_oom();
  if (unhappy && had_oom) {
    // The main process itself, when it died of SIGKILL; a guest kernel in user space ends it with a status of its own making.
    if (ended.outcome->signal == SIGKILL || oom_ends_sandbox) {
      ended.outcome->type = "oom_killed";
      ended.outcome->exit_code.reset();
      ended.outcome->message = "the sandbox's memory limit was reached and the kernel killed the process";
    } else {
      ended.outcome->message = "the sandbox's memory limit was reached meanwhile, and the kernel killed a process in it";
    }
  }
  if (!info_.outcome) end_now(std::move(ended));
  co_await record_end();
}

void RunningExecution::end_now(ExecInfo ended) {
  info_.outcome = std::move(ended.outcome);
  metrics::registry().counter("glovebox_executions_ended_total", "Executions that ended, by outcome.", {{"outcome", info_.outcome->type}}).add();
  info_.children_left = ended.children_left && !gone_;
  info_.stdout_bytes = std::max(ended.stdout_bytes, seen_[0]);
  info_.stderr_bytes = std::max(ended.stderr_bytes, seen_[1]);
  info_.user_us = ended.user_us;
  info_.system_us = ended.system_us;
  info_.max_rss_bytes = ended.max_rss_bytes;
  info_.ended_at = std::chrono::system_clock::now();
  stdin_open_ = false;
  update_counts();
  counts_.running.reset();
  changed_.notify();
  end_changed_.notify();
}

Awaitable<void> RunningExecution::record_end() {
  while (writing_) co_await changed_.wait();  // settle_output() makes the file of what would stay in memory, too
  if (spool_.has_file() || spool_.unwritten() > context_.config->output_memory_bytes) {
    writing_ = true;
    if (!write_failed_) co_await write_loop();
    writing_ = false;
  }
  spool_.close_files();
  const bool in_file = spool_.has_file();
  store::ExecutionRow row{info_.id, info_.sandbox_id, unix_millis(info_.started_at), codec::encode(info_),
                          in_file ? std::string() : spool_.to_blob()};
  auto recorded = co_await context_.store->put_execution(std::move(row));
  if (!recorded) {
    log::error("execution.not_recorded", {{"execution", info_.id}, {"message", recorded.error().message}});
    co_return;
  }
  if (!in_file) {
    released_ = true;
    spool_.release_memory();
  }
  if (channel_ != 0) link_->send(channel_, Type::kForget, {});
}

// Nothing once its end is known: that record says more.
Async<void> RunningExecution::record_running() {
  if (exited_ || ended()) co_return Result<void>();
  store::ExecutionRow row{info_.id, info_.sandbox_id, unix_millis(info_.started_at), codec::encode(info_), {}};
  co_return co_await context_.store->put_execution(std::move(row));
}

Awaitable<void> RunningExecution::record_start() {
  const auto self = shared_from_this();
  co_await sleep_for(kRecordStartAfter);
  co_await note_running();
}

Awaitable<void> RunningExecution::note_running() {
  const auto self = shared_from_this();
  auto recorded = co_await record_running();
  if (!recorded) log::warn("execution.not_recorded", {{"execution", info_.id}, {"message", recorded.error().message}});
}

void RunningExecution::mark_gone() {
  if (gone_) return;
  gone_ = true;
  info_.children_left = false;
  counts_.alive.reset();
  changed_.notify();
}

void RunningExecution::finish_without_agent(const std::string& type, const std::string& message) {
  if (channel_ != 0 && link_) link_->close(channel_);
  channel_ = 0;
  if (!started_ && !attached_ && link_) {  // start() is waiting, and its caller drops it
    if (!start_error_) start_error_ = Error{Code::kSandboxEnded, message, {}};
    counts_.running.reset();
    return mark_gone();
  }
  if (!info_.outcome && !exited_) {
    exited_ = true;
    ExecInfo ended = info_;
    ended.outcome = Outcome{type, {}, {}, message};
    ended.children_left = false;
    spawn(context_.executor, "execution.settle", settle(std::move(ended), false));
  }
  mark_gone();
}

void RunningExecution::on_lost(const Error& error) {
  channel_ = 0;
  if (!started_ && !start_error_) start_error_ = error;
  changed_.notify();  // the sandbox follows with finish_without_agent()
}

Awaitable<bool> RunningExecution::wait(Deadline deadline) {
  const auto self = shared_from_this();
  while (!ended()) {
    const bool woken = co_await end_changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline) break;
  }
  co_return ended();
}

Awaitable<bool> RunningExecution::wait_output(uint64_t cursor, Deadline deadline) {
  const auto self = shared_from_this();
  while (!ended() && kept() <= cursor) {
    const bool woken = co_await changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline) break;
  }
  co_return ended() || kept() > cursor;
}

Async<std::vector<Chunk>> RunningExecution::read(uint64_t cursor, size_t max_bytes) {
  const auto self = shared_from_this();
  if (cursor >= kept()) co_return std::vector<Chunk>();
  if (released_ && !spool_.has_file()) {
    GB_CO_TRY(auto row, co_await context_.store->get_execution(info_.sandbox_id, info_.id));
    if (!row) co_return fail(Code::kExecutionNotFound, info_.id + ": its output is no longer kept");
    Spool stored("");
    GB_CO_TRYV(stored.from_blob(row->output));
    co_return stored.read_memory(cursor, max_bytes);
  }
  if (spool_.in_memory(cursor)) co_return spool_.read_memory(cursor, max_bytes);
  const auto plan = spool_.plan_file_read(cursor, max_bytes);
  const std::string path = spool_.path();
  GB_CO_TRY(std::string bytes, co_await run_blocking(*context_.pool, [&] { return Spool::read_file(path, plan); }));
  co_return spool_.cut(cursor, std::move(bytes));
}

Result<void> RunningExecution::check_running(std::string_view what) const {
  if (ended() || exited_) return fail(Code::kConflict, std::string(what) + ": the execution has ended", {{"state", "ended"}});
  if (channel_ == 0) return fail(Code::kSandboxEnded, std::string(what) + ": the sandbox has ended");
  return {};
}

Async<std::shared_ptr<void>> RunningExecution::wake_for(std::string what) {
  if (ended() || exited_) GB_CO_TRYV(check_running(what));
  GB_CO_TRY(auto awake, co_await wake());
  GB_CO_TRYV(check_running(what));
  co_return awake;
}

Async<void> RunningExecution::write_stdin(std::string data) {
  const auto self = shared_from_this();
  GB_CO_TRYV(co_await wake_for("standard input"));  // not held: a program that does not read would keep its sandbox from being paused
  std::string_view rest = data;
  do {
    GB_CO_TRYV(check_running("standard input"));
    if (!stdin_open_) {
      co_return fail(Code::kConflict, "standard input is not open: start the execution with stdin, and do not close it",
                     {{"state", "stdin_closed"}});
    }
    const uint64_t room = channel::kWindowBytes - (stdin_sent_ - stdin_taken_);
    if (room == 0) {
      co_await changed_.wait();
      continue;
    }
    const std::string_view part = rest.substr(0, std::min<uint64_t>({rest.size(), room, channel::kMaxPayloadToAgent}));
    if (!part.empty()) link_->send(channel_, Type::kStdin, part);
    stdin_sent_ += part.size();
    rest.remove_prefix(part.size());
  } while (!rest.empty());
  co_return Result<void>();
}

Async<void> RunningExecution::close_stdin() {
  const auto self = shared_from_this();
  GB_CO_TRY(const auto awake, co_await wake_for("standard input"));
  if (stdin_open_) link_->send(channel_, Type::kStdinEof, {});
  if (!info_.pty) {
    stdin_open_ = false;
  } else {
    ++stdin_extra_;
  }
  co_return Result<void>();
}

Async<void> RunningExecution::signal(int number, bool tree) {
  const auto self = shared_from_this();
  GB_CO_TRY(const auto awake, co_await wake_for("signal"));
  GB_CO_TRYV(co_await link_->wait_room(after(context_.config->patience.answer)));
  GB_CO_TRYV(check_running("signal"));
  link_->send(channel_, Type::kSignal,
              "{\"signal\":" + std::to_string(number) + ",\"tree\":" + (tree ? "true" : "false") + "}");
  co_return Result<void>();
}

Async<void> RunningExecution::kill() {
  const auto self = shared_from_this();
  std::shared_ptr<void> awake;
  if (!gone_) {
    GB_CO_TRY(awake, co_await wake());
  }
  const Deadline deadline = after(context_.config->patience.exec_kill);
  if (!gone_ && channel_ != 0) link_->send(channel_, Type::kKill, R"({"reason":"killed_by_caller"})");
  while (!gone_ && channel_ != 0) {
    const bool woken = co_await changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline) break;
  }
  if (co_await wait(deadline) && (gone_ || channel_ == 0)) co_return Result<void>();
  co_return fail(Code::kTimeout, "the sandbox did not end the execution in time");
}

Async<void> RunningExecution::resize(int cols, int rows) {
  const auto self = shared_from_this();
  GB_CO_TRY(const auto awake, co_await wake_for("resize"));
  if (!info_.pty) co_return fail(Code::kConflict, "the execution has no terminal", {{"state", "no_pty"}});
  GB_CO_TRYV(co_await link_->wait_room(after(context_.config->patience.answer)));
  GB_CO_TRYV(check_running("resize"));
  const char payload[4] = {static_cast<char>(cols & 0xFF), static_cast<char>(cols >> 8), static_cast<char>(rows & 0xFF),
                           static_cast<char>(rows >> 8)};
  link_->send(channel_, Type::kResize, std::string_view(payload, sizeof payload));
  co_return Result<void>();
}

}  // namespace glovebox::sandbox
