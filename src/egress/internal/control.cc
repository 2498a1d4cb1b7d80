// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/control.h"

#include <sys/socket.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cerrno>

#include "base/log.h"
#include "base/text.h"
#include "http/json.h"

namespace glovebox::egress {
namespace {

namespace bj = boost::json;

constexpr size_t kMaxLine = 1 << 20, kMaxPending = 8 << 20;

Result<std::string> text_field(const bj::object& message, std::string_view name) {
  const auto* value = message.if_contains(name);
  if (!value || !value->is_string())
    return fail(Code::kInvalidArgument, std::string(name) + ": must be a string");
  return std::string(value->get_string());
}

Result<policy::Address> address_field(const bj::object& message) {
  GB_TRY(const auto text, text_field(message, "address"));
  const auto address = policy::parse_address(text);
  if (!address || address->is_v6)
    return fail(Code::kInvalidArgument, "address: must be an IPv4 address");
  return *address;
}

}  // namespace

ControlWriter::ControlWriter(const Executor& executor, UniqueFd fd)
    : executor_(executor), stream_(std::make_shared<Watched>(executor, std::move(fd))) {}

void ControlWriter::write_event(std::string line) {
  if (pending_.size() > kMaxPending) {
    ++dropped_;
  } else {
    write(std::move(line));
  }
}

void ControlWriter::write(std::string line) {
  pending_ += line;
  if (is_draining_) return;
  is_draining_ = true;
  spawn(executor_, "egress.control_writer", drain());
}

// Started by the first line that is written, so lines of one turn leave in one call.
Awaitable<void> ControlWriter::drain() {
  while (!pending_.empty()) {
    const std::string out = std::exchange(pending_, {});
    if (!co_await send_own(*stream_, out)) break;
    if (dropped_ > 0) log::warn("egress.events_dropped", {{"count", std::exchange(dropped_, 0)}});
  }
  is_draining_ = false;
}

Awaitable<bool> Control::run() {
  std::string input;
  char buffer[16 << 10];
  while (true) {
    const ssize_t n = ::recv(writer_.stream().fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0) co_return input.empty();
    if (n < 0 && errno != EAGAIN && errno != EINTR) co_return false;
    if (n < 0) {
      if (!co_await writer_.stream().readable()) co_return false;
      continue;
    }
    input.append(buffer, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = input.find('\n', begin)) != input.npos; begin = end + 1) {
      if (!take(std::string_view(input).substr(begin, end - begin))) co_return false;
    }
    input.erase(0, begin);
    if (input.size() > kMaxLine) co_return false;
  }
}

bool Control::take(std::string_view line) {
  const auto message = json::parse_object(line);
  if (!message) {
    log::error("egress.control_broken", {{"reason", message.error().message}});
    return false;
  }
  const auto& object = message->get_object();
  const auto op = text_field(object, "op");
  const auto done = op ? apply(object, *op) : fail(op.error());
  if (!done) log::warn("egress.control_refused", {{"reason", done.error().message}});
  const auto* seq = object.if_contains("seq");
  if (!seq || !seq->is_int64()) return true;
  bj::object answer{{"op", done ? "done" : "failed"}, {"seq", seq->get_int64()}};
  if (!done) answer["message"] = done.error().message;
  writer_.write(json::to_text(answer) + "\n");
  return true;
}

Result<void> Control::apply(const bj::object& message, const std::string& op) {
  if (op == "ping") return {};
  if (op == "config") return configure(message);
  if (op == "link") return set_link(message);
  if (op == "unlink") {
    GB_TRY(const auto address, address_field(message));
    core_.links.remove(address);
    return {};
  }
  return fail(Code::kInvalidArgument, "op: \"" + op + "\" is unknown");
}

Result<void> Control::configure(const bj::object& message) {
  const auto* op = message.if_contains("operator");
  if (!op) return fail(Code::kInvalidArgument, "operator: is required");
  GB_TRY(auto settings, policy::parse_operator(*op, "operator"));
  std::vector<ServerAddress> servers;
  const auto* resolvers = message.if_contains("resolvers");
  if (!resolvers || !resolvers->is_array())
    return fail(Code::kInvalidArgument, "resolvers: must be an array");
  for (const auto& item : resolvers->get_array()) {
    if (!item.is_string()) return fail(Code::kInvalidArgument, "resolvers: must be strings");
    GB_TRY(auto server, parse_server(item.get_string()));
    servers.push_back(server);
  }
  GB_TRY(core_.registry_socket, text_field(message, "registry_socket"));
  core_.resolver.set_servers(std::move(servers));
  core_.links.set_operator(std::move(settings));
  return {};
}

namespace {
uint64_t count_field(const bj::object& message, std::string_view name) {
  const auto* value = message.if_contains(name);
  return value && value->is_int64() && value->get_int64() > 0 ? static_cast<uint64_t>(value->get_int64()) : 0;
}
}  // namespace

Result<void> Control::set_link(const bj::object& message) {
  GB_TRY(const auto address, address_field(message));
  GB_TRY(const auto sandbox, text_field(message, "sandbox"));
  // It goes into a header of requests to the registry proxy.
  const bool is_plain =
      !sandbox.empty() && sandbox.size() <= 128 &&
      std::all_of(sandbox.begin(), sandbox.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (!is_plain) return fail(Code::kInvalidArgument, "sandbox: is no sandbox id");
  const auto* value = message.if_contains("policy");
  if (!value) return fail(Code::kInvalidArgument, "policy: is required");
  GB_TRY(auto network, policy::parse_network_policy(*value, "policy"));
  core_.links.set(address, sandbox, std::move(network), {count_field(message, "bytes_in"), count_field(message, "bytes_out")});
  return {};
}

Awaitable<void> Control::report_usage() {
  while (co_await sleep_for(std::chrono::seconds(1))) {
    bj::object links;
    for (const auto& [address, link] : core_.links.all()) {
      if (!link->take_changed()) continue;
      links[address.text()] =
          bj::object{{"in", link->bytes_in()}, {"out", link->bytes_out()}, {"open", link->open()}};
    }
    if (!links.empty())
      writer_.write(json::to_text(bj::object{{"op", "usage"}, {"links", std::move(links)}}) + "\n");
  }
}

}  // namespace glovebox::egress
