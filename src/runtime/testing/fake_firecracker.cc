// SPDX-License-Identifier: Apache-2.0
#include "runtime/testing/fake_firecracker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstring>
#include <functional>
#include <map>

#include "http/framing.h"
#include "http/json.h"

namespace glovebox::runtime::testing {
namespace {

namespace bj = boost::json;
using json::Reader;
using Check = std::function<Result<void>(Reader&)>;

constexpr const char* kFresh = "Not started";
constexpr const char* kRunning = "Running";
constexpr const char* kPaused = "Paused";

struct Call {
  std::vector<std::string_view> states;  // in which it is allowed
  Check check;
};

template <class T>
Result<void> seen(const Result<T>& field) {
  return field ? Result<void>{} : fail(field.error());
}

// A field that has to be there, and those that may be.
Result<void> text(Reader& r, std::string_view name) {
  return seen(r.string(name, 1).required());
}
Result<void> flag(Reader& r, std::string_view name) {
  return seen(r.boolean(name).optional());
}

Result<void> machine(Reader& r) {
  GB_TRYV(seen(r.integer("vcpu_count", 1, 32).required()));
  GB_TRYV(seen(r.integer("mem_size_mib", 1).required()));
  GB_TRYV(flag(r, "smt"));
  GB_TRYV(flag(r, "track_dirty_pages"));
  return seen(r.one_of("huge_pages", {"None", "2M"}).optional());
}
Result<void> boot_source(Reader& r) {
  GB_TRYV(text(r, "kernel_image_path"));
  GB_TRYV(seen(r.string("initrd_path", 1).optional()));
  return seen(r.string("boot_args", 0, 2048).optional());
}
Result<void> drive(Reader& r) {
  GB_TRYV(text(r, "drive_id"));
  GB_TRYV(text(r, "path_on_host"));
  GB_TRYV(seen(r.boolean("is_root_device").required()));
  GB_TRYV(flag(r, "is_read_only"));
  GB_TRYV(seen(r.one_of("cache_type", {"Unsafe", "Writeback"}).optional()));
  return seen(r.one_of("io_engine", {"Sync", "Async"}).optional());
}
Result<void> card(Reader& r) {
  GB_TRYV(text(r, "iface_id"));
  GB_TRYV(text(r, "host_dev_name"));
  return seen(r.string("guest_mac", 17, 17).optional());
}
Result<void> vsock(Reader& r) {
  GB_TRYV(seen(r.integer("guest_cid", 3, 0xFFFFFFFF).required()));
  return text(r, "uds_path");
}
Result<void> action(Reader& r) {
  return seen(
      r.one_of("action_type", {"InstanceStart", "FlushMetrics", "SendCtrlAltDel"}).required());
}
Result<void> state_change(Reader& r) {
  return seen(r.one_of("state", {"Paused", "Resumed"}).required());
}
Result<void> create(Reader& r) {
  GB_TRYV(text(r, "snapshot_path"));
  GB_TRYV(text(r, "mem_file_path"));
  return seen(r.one_of("snapshot_type", {"Full", "Diff"}).optional());
}
Result<void> load(Reader& r) {
  GB_TRYV(text(r, "snapshot_path"));
  GB_TRY(auto memory, r.object("mem_backend"));
  GB_TRYV(seen(memory.one_of("backend_type", {"File", "Uffd"}).required()));
  GB_TRYV(text(memory, "backend_path"));
  GB_TRYV(memory.done());
  for (const auto name : {"resume_vm", "track_dirty_pages", "clock_realtime"})
    GB_TRYV(flag(r, name));
  GB_TRY(auto overrides, r.objects("network_overrides").or_default({}));
  for (auto& item : overrides) {
    GB_TRYV(text(item, "iface_id"));
    GB_TRYV(text(item, "host_dev_name"));
    GB_TRYV(item.done());
  }
  if (!r.has("vsock_override")) return {};
  GB_TRY(auto override, r.object("vsock_override"));
  GB_TRYV(text(override, "uds_path"));
  return override.done();
}

// By method and the first part of the target.
const std::map<std::string, Call>& calls() {
  static const std::map<std::string, Call> table = {
      {"PUT /machine-config", {{kFresh}, machine}},
      {"PUT /boot-source", {{kFresh}, boot_source}},
      {"PUT /drives", {{kFresh}, drive}},
      {"PUT /network-interfaces", {{kFresh}, card}},
      {"PUT /vsock", {{kFresh}, vsock}},
      {"PUT /entropy", {{kFresh}, [](Reader&) { return Result<void>{}; }}},
      {"PUT /actions", {{kFresh, kRunning}, action}},
      {"PATCH /vm", {{kRunning, kPaused}, state_change}},
      {"PUT /snapshot/create", {{kPaused}, create}},
      {"PUT /snapshot/load", {{kFresh}, load}},
  };
  return table;
}

std::pair<int, std::string> refuse(const std::string& why) {
  return {400, json::to_text(bj::object{{"fault_message", why}})};
}

// With Firecracker's header fields: no reason phrase, and no length where there is no body.
void reply(int socket, int status, const std::string& body) {
  std::string out = "HTTP/1.1 " + std::to_string(status) +
                    " \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n";
  if (!body.empty())
    out +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  out += "\r\n" + body;
  (void)::send(socket, out.data(), out.size(), MSG_NOSIGNAL);
}

// "/drives/a" is about "a"; the body has to agree.
std::string id_in(const std::string& target) {
  for (const std::string prefix : {"/drives/", "/network-interfaces/"}) {
    if (target.starts_with(prefix)) return target.substr(prefix.size());
  }
  return "";
}

}  // namespace

FakeFirecracker::FakeFirecracker(std::string path, std::string version, Misbehaviour what,
                                 std::string when)
    : path_(std::move(path)),
      version_(std::move(version)),
      what_(what),
      when_(std::move(when)),
      listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      stop_(::eventfd(0, EFD_CLOEXEC)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  GB_ASSERT(path_.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
  GB_ASSERT(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  GB_ASSERT(::listen(listener_.get(), 4) == 0);
  thread_ = std::thread([this] { serve(); });
}

FakeFirecracker::~FakeFirecracker() {
  const uint64_t one = 1;
  GB_ASSERT(::write(stop_.get(), &one, sizeof one) == sizeof one);
  thread_.join();
  ::unlink(path_.c_str());
}

std::vector<std::string> FakeFirecracker::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::string FakeFirecracker::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

bool FakeFirecracker::has_answered_start() const {
  const std::lock_guard lock(mutex_);
  return answered_start_;
}

void FakeFirecracker::serve() {
  while (true) {
    pollfd p[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    (void)::poll(p, 2, -1);
    if (p[1].revents != 0) return;
    if (p[0].revents == 0) continue;
    const UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket) converse(socket.get());
  }
}

void FakeFirecracker::converse(int socket) {
  std::string bytes;
  while (true) {
    pollfd p[] = {{socket, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    (void)::poll(p, 2, -1);
    char chunk[4096];
    const ssize_t n = p[1].revents != 0 ? 0 : ::recv(socket, chunk, sizeof chunk, 0);
    if (n <= 0) return;
    bytes.append(chunk, static_cast<size_t>(n));
    const size_t head_end = bytes.find("\r\n\r\n");
    if (head_end == std::string::npos) continue;
    http::Request request;
    auto decoder =
        http::parse_request_head(std::string_view(bytes).substr(0, head_end + 4), request);
    const size_t length = decoder ? request.content_length.value_or(0) : 0;
    if (decoder && bytes.size() < head_end + 4 + length) continue;
    const std::string body = bytes.substr(head_end + 4, length);
    bytes.erase(0, head_end + 4 + length);
    const auto [status, text] =
        decoder ? answer(request.method, request.target, body) : refuse("Invalid request.");
    if (what_ != Misbehaviour::kNone && request.method + " " + request.target == when_) {
      if (!misbehave(socket)) return;
    } else {
      reply(socket, status, text);
      const std::lock_guard lock(mutex_);
      answered_start_ = answered_start_ || state_ == kRunning;
    }
  }
}

bool FakeFirecracker::misbehave(int socket) const {
  const auto say = [&](std::string_view text) {
    return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL) > 0;
  };
  const auto wait = [&](int ms) {
    pollfd p{stop_.get(), POLLIN, 0};
    return ::poll(&p, 1, ms) == 0;
  };
  switch (what_) {
    case Misbehaviour::kNone:
      return true;
    case Misbehaviour::kHangUp:
      return false;
    case Misbehaviour::kSilence:
      (void)wait(-1);
      return false;
    case Misbehaviour::kTrickle:
      while (say("x") && wait(5)) {
      }
      return false;
    case Misbehaviour::kFlood:
      say("HTTP/1.1 400 \r\nContent-Length: 1000000000\r\n\r\n");
      while (say(std::string(4096, ' '))) {
      }
      return false;
    case Misbehaviour::kNonsense:
      return say("\x16\x03\x01 what\r\n\r\n");
    case Misbehaviour::kTwoAnswers:
      return say("HTTP/1.1 204 \r\n\r\nHTTP/1.1 204 \r\n\r\n");
    case Misbehaviour::kRefusal:
      return say("HTTP/1.1 400 \r\nContent-Length: 12\r\n\r\n[\"no object\"");
  }
  return false;
}

std::pair<int, std::string> FakeFirecracker::answer(const std::string& method,
                                                    const std::string& target,
                                                    const std::string& body) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(method + " " + target + (body.empty() ? "" : " " + body));
  if (method == "GET" && target == "/version")
    return {200, json::to_text(bj::object{{"firecracker_version", version_}})};
  if (method == "GET" && target == "/") {
    return {200, json::to_text(bj::object{{"id", "fake"},
                                          {"state", state_},
                                          {"vmm_version", version_},
                                          {"app_name", "Firecracker"}})};
  }
  const std::string id = id_in(target);
  const auto call =
      calls().find(method + " " + (id.empty() ? target : target.substr(0, target.rfind('/'))));
  if (call == calls().end())
    return refuse("Invalid request method and/or path: " + method + " " + target + ".");
  const auto value = json::parse_object(body);
  if (!value)
    return refuse("An error occurred when deserializing the json body of a request: " +
                  value.error().message);
  Reader reader(*value);
  auto checked = call->second.check(reader);
  if (checked) checked = reader.done();
  if (!checked)
    return refuse("An error occurred when deserializing the json body of a request: " +
                  checked.error().message);
  const auto& object = value->get_object();
  const auto* named = object.if_contains(target.starts_with("/drives/") ? "drive_id" : "iface_id");
  if (!id.empty() &&
      (named == nullptr || !named->is_string() || named->get_string() != bj::string_view(id)))
    return refuse("The id from the path does not match the id from the body!");
  const auto& states = call->second.states;
  if (std::find(states.begin(), states.end(), state_) == states.end()) {
    return refuse(state_ == kFresh
                      ? "The requested operation is not supported before starting the microVM."
                      : "The requested operation is not supported after starting the microVM.");
  }
  const auto is_set = [&](const std::string& what) {
    return std::find(configured_.begin(), configured_.end(), what) != configured_.end();
  };
  if (target == "/snapshot/load") {
    if (!configured_.empty())
      return refuse(
          "Loading a microVM snapshot not allowed after configuring boot-specific resources.");
    const auto* resume = object.if_contains("resume_vm");
    state_ = resume != nullptr && *resume == true ? kRunning : kPaused;
  } else if (target == "/actions" && object.at("action_type") == "InstanceStart") {
    if (state_ != kFresh)
      return refuse("The requested operation is not supported after starting the microVM.");
    if (!is_set("/boot-source"))
      return refuse("Cannot start microvm without kernel configuration.");
    state_ = kRunning;
  } else if (target == "/actions" && state_ == kFresh) {
    return refuse("The requested operation is not supported before starting the microVM.");
  } else if (target == "/vm") {
    state_ = object.at("state") == "Paused" ? kPaused : kRunning;
  } else {
    configured_.push_back(target);
  }
  return {204, ""};
}

}  // namespace glovebox::runtime::testing
