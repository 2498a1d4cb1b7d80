// SPDX-License-Identifier: Apache-2.0
#include "sandbox/networking.h"

#include "base/text.h"
#include "http/json.h"
#include "network/router.h"
#include "policy/egress.h"
#include "registry/registry.h"

namespace glovebox::sandbox {
namespace {

constexpr size_t kKeptDenials = 100;

// What `os-release` says of a Debian, or nothing.
Async<std::string> codename(const std::shared_ptr<channel::Link>& agent, const Patience& patience) {
  channel::Transfer transfer(agent);
  auto started = co_await transfer.start(R"({"op":"read","user":"root","path":"/etc/os-release"})", after(patience.answer));
  if (!started) co_return std::string();
  std::string text;
  while (true) {
    auto piece = co_await transfer.read(patience.idle);
    if (!piece || piece->empty() || text.size() > 16384) break;
    text += *piece;
  }
  for (const std::string& line : split(text, '\n')) {
    constexpr std::string_view kName = "VERSION_CODENAME=";
    if (!line.starts_with(kName)) continue;
    std::string name = line.substr(kName.size());
    const bool is_word = !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string::npos;
    co_return is_word ? name : std::string();
  }
  co_return std::string();
}

}  // namespace

std::string link_address(uint32_t number) { return policy::address_v4(network::sandbox_address(number)).text(); }

Async<void> put_file(std::shared_ptr<channel::Link> agent, const Patience& patience, std::string path, std::string content) {
  channel::Transfer transfer(agent);
  std::string request = R"({"op":"write","user":"root","mode":420,"parents":true,"exclusive":false,"append":false,"path":)";
  append_json_string(request, path);
  GB_CO_TRYV(co_await transfer.start(request + "}", after(patience.answer)));
  GB_CO_TRYV(co_await transfer.write(content, patience.idle));
  transfer.end();
  GB_CO_TRYV(co_await transfer.finish(after(patience.answer)));
  co_return Result<void>();
}

Networking::Networking(Parts parts) : parts_(std::move(parts)) {
  connections_ = std::make_shared<EventLog>(parts_.log_directory, "connections", parts_.executor, parts_.pool);
  packages_ = std::make_shared<EventLog>(parts_.log_directory, "packages", parts_.executor, parts_.pool);
}

Async<int> Networking::connect(const policy::NetworkPolicy& policy, const network::Usage& used) {
  const auto self = shared_from_this();
  GB_CO_TRY(network::Link link, co_await parts_.network->acquire());
  number_ = link.number;
  held_ = std::move(link.netns);
  if (used.bytes_in + used.bytes_out > 0) parts_.network->adopt(*number_, parts_.sandbox, policy, used);
  GB_CO_TRYV(co_await parts_.network->set_policy(*number_, parts_.sandbox, policy));
  co_return held_.get();
}

void Networking::adopt(uint32_t number, const policy::NetworkPolicy& policy, const network::Usage& used) {
  number_ = number;
  parts_.network->adopt(number, parts_.sandbox, policy, used);
}

Async<void> Networking::set_policy(const policy::NetworkPolicy& policy) {
  const auto self = shared_from_this();
  if (!number_) {
    co_return fail(Code::kConflict, "the sandbox has no link: create it with \"network\" to be able to change its policy", {{"state", "no_link"}});
  }
  co_return co_await parts_.network->set_policy(*number_, parts_.sandbox, policy);
}

void Networking::release() {
  held_.reset();
  if (number_) parts_.network->release(*number_);
  number_.reset();
}

Async<void> Networking::write_files(std::shared_ptr<channel::Link> agent, const policy::NetworkPolicy& policy) {
  const auto self = shared_from_this();
  const Patience& patience = parts_.config->patience;
  std::string resolver = "nameserver " + policy::address_v4(network::kResolverAddress).text() + "\noptions timeout:5 attempts:2\n";
  GB_CO_TRYV(co_await put_file(agent, patience, "/etc/resolv.conf", std::move(resolver)));
  co_return co_await write_package_files(std::move(agent), policy);
}

Async<void> Networking::learn_release(std::shared_ptr<channel::Link> agent) {
  const auto self = shared_from_this();
  GB_CO_TRY(release_, co_await codename(agent, parts_.config->patience));
  co_return Result<void>();
}

Async<void> Networking::write_package_files(std::shared_ptr<channel::Link> agent, const policy::NetworkPolicy& policy) {
  const auto self = shared_from_this();
  const Patience& patience = parts_.config->patience;
  const auto packages = policy::Evaluator(policy, parts_.network->limits()).packages();
  if (!packages) co_return Result<void>();
  if (!release_) GB_CO_TRYV(co_await learn_release(agent));
  for (const auto& [path, content] : registry::client_configuration(*packages, *release_)) {
    GB_CO_TRYV(co_await put_file(agent, patience, path, content));
  }
  co_return Result<void>();
}

void Networking::take_event(network::EventKind kind, boost::json::object event) {
  const std::string line = json::to_text(event);
  log(kind).append(line);
  const auto* verdict = event.if_contains(kind == network::EventKind::kConnection ? "verdict" : "outcome");
  if (verdict == nullptr || *verdict != "denied") return;
  denials_.push_back(line);
  if (denials_.size() > kKeptDenials) denials_.pop_front();
  denials_changed_ = true;
}

std::optional<std::string> Networking::changed_denials() {
  if (!std::exchange(denials_changed_, false)) return std::nullopt;
  std::string out;
  for (const std::string& line : denials_) out += line + "\n";
  return out;
}

EventLog& Networking::log(network::EventKind kind) {
  return kind == network::EventKind::kConnection ? *connections_ : *packages_;
}

network::Usage Networking::usage() const { return number_ ? parts_.network->usage(*number_) : network::Usage{}; }

std::string Networking::effective(const policy::NetworkPolicy& policy) const {
  return json::to_text(policy::Evaluator(policy, parts_.network->limits()).effective());
}

}  // namespace glovebox::sandbox
