// SPDX-License-Identifier: Apache-2.0
#include "channel/link.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <deque>
#include <memory>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "channel/json_shape.h"

namespace glovebox::channel {
namespace asio = boost::asio;
namespace json = boost::json;
namespace {

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
using Descriptor = asio::posix::stream_descriptor;
constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kRoomBytes = 1 << 20;               // wait_room() waits beyond it
constexpr size_t kMaxQueuedBytes = 16 << 20;
constexpr std::chrono::milliseconds kStall{60'000};  // an agent that reads does so within milliseconds
// After every channel's end something small may still be under way, such as an acknowledgement of input.
constexpr uint64_t kStrayAllowance = 4096;
constexpr uint64_t kMaxStrayBytes = 64 << 20;
constexpr uint64_t kLongestStall = 3'600'000'000;  // µs

// What an agent may answer: what spec/channel.md names, and what errno gives inside a sandbox.
constexpr Code kAgentCodes[] = {
    Code::kInvalidArgument, Code::kInvalidPath,      Code::kPayloadTooLarge, Code::kNotFound,         Code::kExecutionNotFound,
    Code::kAlreadyExists,   Code::kConflict,         Code::kFileNotFound,    Code::kFileExists,       Code::kNotADirectory,
    Code::kIsADirectory,    Code::kDirectoryNotEmpty, Code::kPermissionDenied, Code::kReadOnly,       Code::kTooManyLinks,
    Code::kUserUnknown,     Code::kWorkdirNotFound,  Code::kCommandNotFound, Code::kCommandNotExecutable,
    Code::kArgumentsTooLong, Code::kProcessLimit,    Code::kOpenFileLimit,   Code::kDiskFull,         Code::kMemoryLimit,
    Code::kCapacity,        Code::kTimeout,          Code::kCancelled,       Code::kUnsupported,      Code::kUnavailable,
    Code::kCorrupt,         Code::kIo,               Code::kInternal};

// One buffer for all links: it is filled and emptied without a suspension in between.
std::array<char, kReadBytes>& read_buffer() {
  static std::array<char, kReadBytes> buffer;
  return buffer;
}

}  // namespace

struct Link::Impl {
  Impl(const Executor& executor, UniqueFd to, UniqueFd from, std::function<void(const Error&)> lost)
      : ex(executor), out(std::make_shared<Descriptor>(executor, to.release())),
        in(std::make_shared<Descriptor>(executor, from.release())), on_lost(std::move(lost)) {}

  Executor ex;
  std::shared_ptr<Descriptor> out, in;  // shared with the loops that wait on them
  std::function<void(const Error&)> on_lost;

  std::deque<std::string> queue;  // whole frames, each written by one write(2)
  size_t queued_bytes = 0;
  uint64_t frames_written = 0;
  uint64_t hold_at = UINT64_MAX;  // no frame is written after so many
  bool expects_prepared = false, expects_proceeded = false;
  std::optional<std::string> still_answer;
  Notifier still_changed;
  bool writing = false, watching_stall = false, dropping = false;
  Notifier room_changed;
  uint64_t stray_bytes = 0;       // may still come on channels that are closed

  bool synced = false;
  std::string mark;               // what ends the unsynchronised part
  std::string unsynced;
  Decoder decoder{kMaxPayloadFromAgent, kMaxMessageFromAgent};
  std::map<uint32_t, Receiver*> receivers;
  uint32_t next_channel = 1;
  std::optional<std::string> hello_ok;
  Notifier hello_changed;
  Clock::time_point last_heard = Clock::now();
  int pings = 0;                  // not answered yet
  std::optional<Error> lost_error;

  // True when the frame is in the pipe, false when the pipe is full.
  Result<bool> write_now(const std::string& frame) {
    while (true) {
      const ssize_t n = ::write(out->native_handle(), frame.data(), frame.size());
      if (n == static_cast<ssize_t>(frame.size())) return true;
      GB_ASSERT(n < 0);  // frames are at most PIPE_BUF: all or nothing
      if (errno == EAGAIN) return false;
      if (errno != EINTR) return fail_errno("write to the agent");
    }
  }

  bool is_held() const { return frames_written >= hold_at; }
  bool can_write() const { return !queue.empty() && !is_held(); }

  Result<void> flush() {
    while (can_write()) {
      GB_TRY(const bool written, write_now(queue.front()));
      if (!written) break;
      queued_bytes -= queue.front().size();
      ++frames_written;
      queue.pop_front();
    }
    if (queued_bytes < kRoomBytes) room_changed.notify();
    return {};
  }

  Result<void> take(std::string_view bytes);
  Result<void> dispatch(Frame& frame);
};

namespace {

Error protocol_error(std::string message) { return Error{Code::kAgentProtocol, std::move(message), {}}; }

}  // namespace

Result<void> Link::Impl::take(std::string_view bytes) {
  last_heard = Clock::now();
  if (!synced) {
    if (mark.empty()) return {};  // before HELLO: an earlier daemon's frames
    unsynced.append(bytes);
    const size_t at = unsynced.find(mark);
    if (at == std::string::npos) {
      if (unsynced.size() > kSyncBytes) unsynced.erase(0, unsynced.size() - kSyncBytes + 1);
      return {};
    }
    synced = true;
    const std::string rest = unsynced.substr(at + mark.size());
    unsynced.clear();
    return take(rest);
  }
  decoder.feed(bytes);
  Frame frame;
  while (true) {
    GB_TRY(const bool whole, decoder.next(&frame));
    if (!whole) return {};
    GB_TRYV(dispatch(frame));
    if (lost_error) return {};  // a receiver dropped the link
  }
}

Result<void> Link::Impl::dispatch(Frame& frame) {
  if (frame.channel == 0) {
    if (frame.type == Type::kHelloOk && !hello_ok) {
      hello_ok = std::move(frame.payload);
      hello_changed.notify();
      return {};
    }
    if ((frame.type == Type::kPrepared && std::exchange(expects_prepared, false)) ||
        (frame.type == Type::kProceeded && std::exchange(expects_proceeded, false))) {
      still_answer = std::move(frame.payload);
      still_changed.notify();
      return {};
    }
    if (frame.type == Type::kPong && pings > 0) {
      --pings;
      return {};
    }
    return fail(protocol_error("unexpected frame on channel 0"));
  }
  const auto receiver = receivers.find(frame.channel);
  if (receiver != receivers.end()) {
    receiver->second->on_frame(frame);
    return {};
  }
  if (frame.channel >= next_channel) return fail(protocol_error("frame for a channel that was never opened"));
  // Closed by us while it was under way. Without a bound this would be a way to keep us busy for nothing.
  const uint64_t size = kHeaderBytes + frame.payload.size();
  if (size > stray_bytes) return fail(protocol_error("frames for a channel that has ended"));
  stray_bytes -= size;
  return {};
}

Link::Link(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Link::~Link() {
  boost::system::error_code ignored;
  impl_->in->close(ignored);
  impl_->out->close(ignored);
}

std::shared_ptr<Link> Link::create(const Executor& executor, UniqueFd to_agent, UniqueFd from_agent,
                                   std::function<void(const Error&)> on_lost) {
  auto impl = std::make_unique<Impl>(executor, std::move(to_agent), std::move(from_agent), std::move(on_lost));
  auto link = std::shared_ptr<Link>(new Link(std::move(impl)));
  spawn(executor, "channel.read", read_loop(link));
  return link;
}

// The loops hold the link only while they have something to do, so that its last user ends them.
Awaitable<void> Link::read_loop(std::weak_ptr<Link> weak) {
  const auto in = weak.lock()->impl_->in;
  while (true) {
    auto [ec] = co_await in->async_wait(Descriptor::wait_read, kTuple);
    const auto self = weak.lock();
    if (!self || ec || self->is_lost()) co_return;
    auto& buffer = read_buffer();
    const ssize_t n = ::read(in->native_handle(), buffer.data(), buffer.size());
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) {
      self->drop(Error{Code::kSandboxEnded, "the agent's channel ended", {}});
      co_return;
    }
    auto taken = self->impl_->take(std::string_view(buffer.data(), static_cast<size_t>(n)));
    if (!taken) self->drop(taken.error());
  }
}

Awaitable<void> Link::write_loop(std::weak_ptr<Link> weak) {
  const auto out = weak.lock()->impl_->out;
  while (true) {
    auto [ec] = co_await out->async_wait(Descriptor::wait_write, kTuple);
    const auto self = weak.lock();
    if (!self || ec || self->is_lost()) co_return;
    auto flushed = self->impl_->flush();
    if (!flushed) self->drop(Error{Code::kSandboxEnded, flushed.error().message, {}});
    if (self->impl_->can_write()) continue;
    self->impl_->writing = false;
    co_return;
  }
}

void Link::ping() {
  ++impl_->pings;  // each may be answered once
  send(0, Type::kPing, "alive?");
}
Clock::time_point Link::last_heard() const { return impl_->last_heard; }
void Link::touch() { impl_->last_heard = Clock::now(); }

bool Link::is_lost() const { return impl_->lost_error.has_value(); }

void Link::drop(const Error& error) {
  if (is_lost()) return;
  const auto self = shared_from_this();
  impl_->lost_error = error;
  boost::system::error_code ignored;
  impl_->in->close(ignored);
  impl_->out->close(ignored);
  impl_->queue.clear();
  impl_->queued_bytes = 0;
  impl_->hello_changed.notify();
  impl_->still_changed.notify();
  impl_->room_changed.notify();
  const auto receivers = std::move(impl_->receivers);
  impl_->receivers.clear();
  for (const auto& [channel, receiver] : receivers) receiver->on_lost(error);
  if (const auto on_lost = std::move(impl_->on_lost)) on_lost(error);
}

Async<std::string> Link::hello(std::string hello_fields, Deadline deadline) {
  const auto self = shared_from_this();
  const std::string nonce = random_bytes(16);
  impl_->mark = sync_mark(nonce);
  std::string message = R"({"version":1,"nonce":")" + hex(nonce) + "\"";
  if (hello_fields.size() > 2) message += "," + hello_fields.substr(1, hello_fields.size() - 2);
  message += "}";
  if (message.size() > kMaxMessageToAgent) co_return fail(Code::kPayloadTooLarge, "env: does not fit the agent's 1 MiB");
  send(0, Type::kHello, message);
  while (!impl_->hello_ok && !is_lost()) {
    if (!co_await impl_->hello_changed.wait_until(deadline) && Clock::now() >= deadline) {
      co_return fail(Code::kTimeout, "the sandbox's agent did not answer in time");
    }
  }
  if (is_lost()) co_return fail(*impl_->lost_error);
  co_return std::move(*impl_->hello_ok);
}

uint32_t Link::open(Receiver* receiver) {
  GB_ASSERT(impl_->next_channel != UINT32_MAX);
  const uint32_t channel = impl_->next_channel++;
  impl_->receivers[channel] = receiver;
  return channel;
}

void Link::close(uint32_t channel, uint64_t under_way) {
  if (impl_->receivers.erase(channel) == 0) return;
  impl_->stray_bytes = std::min(impl_->stray_bytes + under_way + kStrayAllowance, kMaxStrayBytes);
}

void Link::send(uint32_t channel, Type type, std::string_view payload) {
  if (is_lost()) return;
  GB_ASSERT(payload.size() <= kMaxMessageToAgent);
  do {
    const std::string_view part = payload.substr(0, kMaxPayloadToAgent);
    payload.remove_prefix(part.size());
    std::string frame;
    frame.reserve(kHeaderBytes + part.size());
    append_frame(frame, channel, type, part, payload.empty() ? 0 : kFlagMore);
    impl_->queued_bytes += frame.size();
    impl_->queue.push_back(std::move(frame));
  } while (!payload.empty());
  if (impl_->dropping) return;
  Error problem{Code::kAgentProtocol, "the agent does not read its channel", {}};
  bool is_broken = impl_->queued_bytes > kMaxQueuedBytes;
  if (!impl_->writing && !is_broken) {
    auto flushed = impl_->flush();
    if (!flushed) problem = Error{Code::kSandboxEnded, flushed.error().message, {}};
    is_broken = !flushed;
  }
  if (is_broken) {  // not here: the receivers, who hear of it, are our callers
    impl_->dropping = true;
    spawn(impl_->ex, "channel.drop", drop_later(weak_from_this(), std::move(problem)));
    return;
  }
  start_writing();
}

void Link::start_writing() {
  if (!impl_->can_write()) return;
  if (!impl_->writing) spawn(impl_->ex, "channel.write", write_loop(weak_from_this()));
  impl_->writing = true;
  if (!impl_->watching_stall) spawn(impl_->ex, "channel.stall", watch_stall(weak_from_this()));
  impl_->watching_stall = true;
}

Awaitable<void> Link::drop_later(std::weak_ptr<Link> weak, Error error) {
  co_await sleep_for(std::chrono::milliseconds(0));
  if (const auto self = weak.lock()) self->drop(error);
}

// One for a link, as long as something is queued.
Awaitable<void> Link::watch_stall(std::weak_ptr<Link> weak) {
  while (true) {
    Deadline deadline;
    uint64_t before = 0;
    {
      const auto self = weak.lock();
      if (!self || self->is_lost()) co_return;
      before = self->impl_->frames_written;
      deadline = after(kStall);
    }
    co_await sleep_until(deadline);
    const auto self = weak.lock();
    if (!self || self->is_lost()) co_return;
    if (self->impl_->queue.empty()) {
      self->impl_->watching_stall = false;
      co_return;
    }
    if (self->impl_->frames_written == before && !self->impl_->is_held()) {
      self->drop(Error{Code::kAgentProtocol, "the agent does not read its channel", {}});
      co_return;
    }
  }
}

Async<void> Link::hold_still(Deadline deadline) {
  const auto self = shared_from_this();
  impl_->still_answer.reset();
  impl_->expects_prepared = true;
  impl_->hold_at = impl_->frames_written + impl_->queue.size() + 1;
  send(0, Type::kPrepare, {});
  GB_CO_TRYV(co_await still_answer(deadline));
  co_return Result<void>();
}

Async<std::chrono::microseconds> Link::go_on(Deadline deadline) {
  const auto self = shared_from_this();
  impl_->still_answer.reset();
  impl_->expects_proceeded = true;
  release();
  GB_CO_TRY(const auto answer, co_await still_answer(deadline));
  const uint64_t stall = answer.size() == 8 ? get_u64(answer.data()) : 0;
  co_return std::chrono::microseconds(std::min<uint64_t>(stall, kLongestStall));
}

Async<std::string> Link::still_answer(Deadline deadline) {
  while (!impl_->still_answer && !is_lost()) {
    if (!co_await impl_->still_changed.wait_until(deadline) && Clock::now() >= deadline) {
      co_return fail(Code::kTimeout, "the sandbox's agent did not answer in time");
    }
  }
  if (is_lost()) co_return fail(*impl_->lost_error);
  co_return std::move(*impl_->still_answer);
}

// Ahead of what was queued meanwhile. Behind frames of before the hold, when those could not even be written.
void Link::release() {
  if (is_lost()) return;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string frame, time;
  append_u64(time, static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  append_frame(frame, 0, Type::kProceed, time);
  impl_->queued_bytes += frame.size();
  if (impl_->is_held()) {
    impl_->queue.push_front(std::move(frame));
  } else {
    impl_->queue.push_back(std::move(frame));
  }
  impl_->hold_at = UINT64_MAX;
  touch();
  auto flushed = impl_->flush();
  if (!flushed) drop(Error{Code::kSandboxEnded, flushed.error().message, {}});
  start_writing();
}

Async<void> Link::wait_room(Deadline deadline) {
  const auto self = shared_from_this();
  while (!is_lost() && impl_->queued_bytes >= kRoomBytes) {
    const bool woken = co_await impl_->room_changed.wait_until(deadline);
    if (!woken && Clock::now() >= deadline && impl_->queued_bytes >= kRoomBytes) {
      co_return fail(Code::kTimeout, "the sandbox's agent took nothing in time");
    }
  }
  if (is_lost()) co_return fail(*impl_->lost_error);
  co_return Result<void>();
}

Async<std::string> Link::request(std::string request_json, Deadline deadline) {
  Transfer transfer(shared_from_this());
  co_return co_await transfer.ask(std::move(request_json), deadline);
}

Error error_from_agent(std::string_view text) {
  if (const auto fits = check_json_shape(text); !fits) return fits.error();
  boost::system::error_code ec;
  json::parse_options options;
  options.max_depth = 8;
  options.allow_invalid_utf8 = true;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), ec, {}, options);
  const auto* object = ec ? nullptr : value.if_object();
  const auto* name = object != nullptr ? object->if_contains("code") : nullptr;
  const auto* message = object != nullptr ? object->if_contains("message") : nullptr;
  if (name == nullptr || !name->is_string()) return protocol_error("the agent sent an error without a code");
  Error error;
  error.code = code_from_name(std::string_view(name->get_string()));
  if (std::find(std::begin(kAgentCodes), std::end(kAgentCodes), error.code) == std::end(kAgentCodes)) {
    return protocol_error("the agent sent an error that is not its own");
  }
  // A sandbox cannot claim that the platform failed.
  const bool blames_us = info(error.code).fault == Fault::kPlatform && error.code != Code::kCapacity;
  if (blames_us) error.code = Code::kSandboxIo;
  if (message != nullptr && message->is_string()) error.message = utf8_lossy(message->get_string()).substr(0, 4096);
  return error;
}

}  // namespace glovebox::channel
