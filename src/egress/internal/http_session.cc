// SPDX-License-Identifier: Apache-2.0
#include "egress/internal/http_session.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "egress/internal/http_answer.h"

namespace glovebox::egress {
namespace {

using policy::Protocol;

constexpr http::HeadLimits kRequestLimits{48 << 10, 16 << 10, 200};
constexpr http::HeadLimits kResponseLimits{64 << 10, 64 << 10, 500};
constexpr auto kFirstHeadTime = std::chrono::seconds(10), kHeadTime = std::chrono::seconds(30);
constexpr auto kIdleTime = std::chrono::minutes(5);
constexpr size_t kReadBytes = 64 << 10;

bool keeps_alive(const http::Request& request) {
  return !request.method.empty() && !request.is_http10 &&
         !http::header_lists(request.headers, "Connection", "close");
}

// What can be sent again when a connection turns out to have been closed at the other end.
bool is_repeatable(const http::Request& request) {
  return !request.has_body &&
         (request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS");
}

bool is_bodiless(const http::Request& request, int status) {
  return request.method == "HEAD" || status == 204 || status == 304 || status / 100 == 1;
}

size_t count(const http::Headers& headers, std::string_view name) {
  return static_cast<size_t>(std::count_if(headers.begin(), headers.end(), [&](const auto& header) {
    return http::same_name(header.first, name);
  }));
}

// The response's end could be seen in two places.
bool is_ambiguous(const http::ResponseHead& head) {
  const size_t lengths = count(head.headers, "Content-Length"),
               codings = count(head.headers, "Transfer-Encoding");
  return lengths > 1 || codings > 1 || (lengths == 1 && (codings == 1 || !head.content_length));
}

}  // namespace

Awaitable<HttpSession::End> HttpSession::run() {
  Next next = Next::kRequest;
  while (next == Next::kRequest) {
    Exchange exchange;
    if (!co_await read_head(exchange)) break;
    next = co_await serve(exchange);
    if (next == Next::kRaw) {
      flow_.input().insert(0, exchange.head);
      co_return End::kRaw;
    }
    is_first_ = false;
  }
  close_upstream();
  co_return next == Next::kTunnel ? End::kTunnel : End::kClosed;
}

// False when there is no further request, or none that can be read; the latter has been answered.
Awaitable<bool> HttpSession::read_head(Exchange& exchange) {
  http::HeadScanner scanner(kRequestLimits);
  bool has_begun = false;
  flow_.set_deadline(Clock::now() +
                     (is_first_ ? Clock::duration(kFirstHeadTime) : Clock::duration(kIdleTime)));
  while (true) {
    const auto length = scanner.scan(flow_.input());
    if (!length) {
      co_await refuse(
          exchange, length.error().status,
          {false, "protocol:http", length.error().error.message, "Send a well-formed request."},
          {});
      co_return false;
    }
    if (*length > 0) {
      exchange.head = flow_.input().substr(0, *length);
      break;
    }
    if (!has_begun && !flow_.input().empty()) {
      has_begun = true;
      flow_.set_deadline(Clock::now() + kHeadTime);
    }
    if (!co_await flow_.read_more()) co_return false;
  }
  flow_.set_deadline(Deadline::max());
  flow_.input().erase(0, exchange.head.size());
  auto parsed = http::parse_request_head(exchange.head, exchange.request);
  if (!parsed) {
    co_await refuse(
        exchange, parsed.error().status,
        {false, "protocol:http", parsed.error().error.message, "Send a well-formed request."}, {});
    co_return false;
  }
  exchange.body = *std::move(parsed);
  co_return true;
}

Awaitable<HttpSession::Next> HttpSession::serve(Exchange& exchange) {
  const bool may_be_raw = is_first_ && raw_.allowed;
  auto plan = plan_request(exchange.request, flow_.destination());
  if (!plan) {
    if (may_be_raw) co_return Next::kRaw;
    const policy::Verdict verdict{false, plan.error().rule, plan.error().reason,
                                  "It is never passed on."};
    co_return co_await refuse(exchange, plan.error().status, verdict, plan.error().host);
  }
  exchange.plan = *std::move(plan);
  if (exchange.plan.kind == RequestKind::kConnect) co_return co_await serve_connect(exchange);
  policy::Attempt attempt{Protocol::kHttp,    exchange.plan.host,      exchange.plan.address,
                          exchange.plan.port, exchange.request.method, exchange.request.path};
  if (!flow_.serves_packages()) {
    exchange.verdict = flow_.judge_named(attempt);
    if (!exchange.verdict.allowed) {
      if (may_be_raw && is_default(exchange.verdict)) co_return Next::kRaw;
      co_return co_await refuse(exchange, 403, exchange.verdict, exchange.plan.host);
    }
  }
  co_return co_await pass_on(exchange, std::move(attempt));
}

// Accepted when anything could be allowed inside; what comes then is judged as a connection of its
// own.
Awaitable<HttpSession::Next> HttpSession::serve_connect(Exchange& exchange) {
  const RequestPlan& plan = exchange.plan;
  if (flow_.serves_packages()) {
    const policy::Verdict verdict{false, "default:service",
                                  "the registry proxy is no general proxy",
                                  "Connect to the host itself."};
    co_return co_await refuse(exchange, 403, verdict, plan.host);
  }
  policy::Verdict first;
  for (const auto protocol : {plan.port == 80 ? Protocol::kHttp : Protocol::kTls, Protocol::kTls,
                              Protocol::kHttp, Protocol::kTcp}) {
    exchange.verdict =
        flow_.link().evaluator().decide({protocol, plan.host, plan.address, plan.port, {}, {}});
    if (exchange.verdict.allowed) break;
    if (first.rule.empty()) first = exchange.verdict;
  }
  if (!exchange.verdict.allowed) co_return co_await refuse(exchange, 403, first, plan.host);
  close_upstream();
  Event event = request_event(exchange);
  set_verdict(event, exchange.verdict);
  flow_.record(event);
  flow_.enter_tunnel({plan.host, plan.address, plan.port});
  co_return co_await send_own(flow_.client(), "HTTP/1.1 200 Connection established\r\n\r\n")
      ? Next::kTunnel
      : Next::kClose;
}

Awaitable<HttpSession::Next> HttpSession::pass_on(Exchange& exchange, policy::Attempt attempt) {
  for (int tries = 0;; ++tries) {
    exchange.is_reused = can_reuse(exchange, attempt);
    if (exchange.is_reused && flow_.serves_packages()) exchange.verdict = {true, "packages", "", ""};
    if (!exchange.is_reused) {
      close_upstream();
      const auto refused = flow_.serves_packages() ? co_await open_registry(exchange)
                                                   : co_await open_upstream(exchange, attempt);
      if (refused) co_return *refused;
    }
    const Answer answer = co_await exchange_messages(exchange);
    if (flow_.traffic().is_cut) co_return Next::kClose;
    if (answer == Answer::kNothing && exchange.is_reused && tries == 0 &&
        is_repeatable(exchange.request)) {
      close_upstream();
      continue;
    }
    if (exchange.is_broken && answer == Answer::kNothing) {
      co_return co_await refuse(exchange, 400,
                                {false, "protocol:http", "the body's chunks are malformed",
                                 "Send a well-formed request."},
                                exchange.plan.host);
    }
    if (answer == Answer::kNothing)
      co_return co_await report_failure(exchange,
                                        "the server closed the connection without an answer");
    if (answer == Answer::kBroken) flow_.abort();
    co_return answer == Answer::kKeep ? Next::kRequest : Next::kClose;
  }
}

bool HttpSession::can_reuse(Exchange& exchange, policy::Attempt& attempt) {
  auto& upstream = flow_.upstream();
  if (!upstream || upstream->is_cancelled() || !buffer_.empty()) return false;
  char byte;
  if (::recv(upstream->fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN)
    return false;
  if (flow_.serves_packages()) return true;
  if (upstream_event_.host != exchange.plan.host || upstream_event_.port != exchange.plan.port)
    return false;
  auto same = attempt;
  same.address = policy::parse_address(upstream_event_.address);
  if (attempt.address && attempt.address != same.address) return false;
  const auto verdict = flow_.link().evaluator().decide(same);
  if (!verdict.allowed) return false;
  exchange.verdict = verdict;
  flow_.set_attempt(std::move(same));
  return true;
}

Awaitable<std::optional<HttpSession::Next>> HttpSession::open_upstream(Exchange& exchange,
                                                                       policy::Attempt attempt) {
  auto dialed =
      co_await dial(flow_.core(), flow_.shared_link(), attempt, flow_.destination().address);
  if (flow_.traffic().is_cut) co_return Next::kClose;
  exchange.verdict = dialed.verdict;
  exchange.address = dialed.address;
  if (!dialed.verdict.allowed)
    co_return co_await refuse(exchange, 403, dialed.verdict, exchange.plan.host);
  if (!dialed.stream) co_return co_await report_failure(exchange, dialed.failure);
  attempt.address = dialed.address;
  flow_.set_attempt(std::move(attempt));
  flow_.upstream() = std::move(dialed.stream);
  upstream_event_ = flow_.event("connection", "http");
  if (!is_first_) upstream_event_.flow = flow_.core().journal.next_flow();
  upstream_event_.host = exchange.plan.host;
  upstream_event_.address = dialed.address->text();
  upstream_event_.phase = "open";
  set_verdict(upstream_event_, dialed.verdict);
  base_out_ = flow_.traffic().out;
  base_in_ = flow_.traffic().in;
  flow_.record(upstream_event_);
  has_connection_entry_ = true;
  co_return std::nullopt;
}

Awaitable<std::optional<HttpSession::Next>> HttpSession::open_registry(Exchange& exchange) {
  const bool is_ours = exchange.plan.host == kPackagesHost ||
                       (exchange.plan.address && exchange.plan.address->v4() == kPackagesAddress);
  exchange.verdict = {is_ours, is_ours ? "packages" : "default:service",
                      is_ours ? "" : "this address serves packages only",
                      "Use http://packages.glovebox.internal/."};
  if (!is_ours) co_return co_await refuse(exchange, 403, exchange.verdict, exchange.plan.host);
  auto stream = co_await dial_unix(flow_.core(), flow_.core().registry_socket);
  if (flow_.traffic().is_cut) co_return Next::kClose;
  if (!stream) co_return co_await report_failure(exchange, "the registry proxy does not answer");
  flow_.upstream() = std::move(stream);
  upstream_event_ = {};
  co_return std::nullopt;
}

void HttpSession::close_upstream() {
  buffer_.clear();
  if (!flow_.upstream()) return;
  flow_.upstream().reset();
  if (upstream_event_.flow.empty()) return;
  upstream_event_.phase = "close";
  upstream_event_.bytes_out = flow_.traffic().out - base_out_;
  upstream_event_.bytes_in = flow_.traffic().in - base_in_;
  flow_.record(upstream_event_);
  upstream_event_ = {};
}

// Body and response run at the same time: a server may answer before it has read all.
Awaitable<HttpSession::Answer> HttpSession::exchange_messages(Exchange& exchange) {
  const std::string extra =
      flow_.serves_packages() ? "X-Glovebox-Sandbox: " + flow_.link().sandbox() + "\r\n" : "";
  const std::string head = forward_head(exchange.request, exchange.plan, extra);
  if (!co_await send_all(flow_.traffic(), Way::kOut, *flow_.upstream(), head))
    co_return Answer::kNothing;
  if (!exchange.request.has_body) co_return co_await relay_response(exchange);
  Notifier done;
  bool has_ended = false;
  spawn(flow_.core().executor, "egress.upload",
        [](HttpSession* self, Exchange* e, Notifier* n, bool* ended) -> Awaitable<void> {
          co_await self->upload(*e);
          *ended = true;
          n->notify();
        }(this, &exchange, &done, &has_ended));
  auto answer = co_await relay_response(exchange);
  if (!has_ended) {
    co_await stop_upload(done, has_ended);
    if (answer == Answer::kKeep) answer = Answer::kClose;
    if (answer == Answer::kClose) co_await flow_.linger();
  }
  co_return answer;
}

// What is left of the body has no reader any more.
Awaitable<void> HttpSession::stop_upload(Notifier& done, const bool& has_ended) {
  has_stopped_upload_ = true;
  flow_.upstream()->cancel();
  while (!has_ended) {
    flow_.client().interrupt();
    co_await done.wait_until(after(std::chrono::milliseconds(50)));
  }
  has_stopped_upload_ = false;
}

Awaitable<void> HttpSession::upload(Exchange& exchange) {
  if (co_await upload_body(exchange)) co_return;
  // The server takes no more of it but may be answering, so the sandbox must not be stuck in
  // sending.
  while (!has_stopped_upload_ && !flow_.traffic().is_cut && co_await flow_.read_more())
    flow_.input().clear();
  if (flow_.upstream()) flow_.upstream()->abort();
}

Awaitable<bool> HttpSession::upload_body(Exchange& exchange) {
  if (!exchange.request.content_length) co_return co_await upload_chunks(exchange);
  uint64_t left = *exchange.request.content_length;
  const std::string early = flow_.input().substr(0, std::min<uint64_t>(left, flow_.input().size()));
  flow_.input().erase(0, early.size());
  if (!co_await send_all(flow_.traffic(), Way::kOut, *flow_.upstream(), early)) co_return false;
  left -= early.size();
  if (left == 0) co_return true;
  const auto end = co_await pump(flow_.core().pipes, flow_.traffic(), Way::kOut, flow_.client(),
                                 *flow_.upstream(), left);
  co_return end == PumpEnd::kLimit;
}

// Chunks are written anew, so that the server cannot read them differently.
Awaitable<bool> HttpSession::upload_chunks(Exchange& exchange) {
  http::BodyDecoder& body = *exchange.body;
  std::string content;
  while (!body.is_done()) {
    content.clear();
    const auto used = body.decode(flow_.input(), content, kReadBytes);
    if (!used) {
      exchange.is_broken = true;
      flow_.upstream()->abort();
      co_return false;
    }
    flow_.input().erase(0, *used);
    if (!content.empty() &&
        !co_await send_all(flow_.traffic(), Way::kOut, *flow_.upstream(), chunk(content)))
      co_return false;
    if (*used == 0 && !body.is_done() && !co_await flow_.read_more()) co_return false;
  }
  co_return co_await send_all(flow_.traffic(), Way::kOut, *flow_.upstream(), "0\r\n\r\n");
}

Awaitable<bool> HttpSession::read_upstream() {
  const size_t before = buffer_.size();
  while (!flow_.traffic().is_cut) {
    buffer_.resize(before + kReadBytes);
    const ssize_t n =
        ::recv(flow_.upstream()->fd(), buffer_.data() + before, kReadBytes, MSG_DONTWAIT);
    const int error = errno;
    buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n > 0) co_return true;
    if (n == 0 || (error != EAGAIN && error != EINTR)) co_return false;
    if (!co_await flow_.upstream()->readable()) co_return false;
  }
  co_return false;
}

Awaitable<size_t> HttpSession::read_response_head() {
  http::HeadScanner scanner(kResponseLimits);
  while (true) {
    const auto length = scanner.scan(buffer_);
    if (!length) co_return 0;
    if (*length > 0) co_return *length;
    if (!co_await read_upstream()) co_return 0;
  }
}

Awaitable<HttpSession::Answer> HttpSession::relay_response(const Exchange& exchange) {
  while (true) {
    const size_t length = co_await read_response_head();
    if (length == 0) co_return buffer_.empty() ? Answer::kNothing : Answer::kBroken;
    http::ResponseHead head;
    const std::string text = buffer_.substr(0, length);
    const auto body = http::parse_response_head(text, exchange.request.method == "HEAD", head);
    if (!body || is_ambiguous(head) ||
        (head.status == 101 && exchange.plan.kind != RequestKind::kWebSocket))
      co_return Answer::kBroken;
    buffer_.erase(0, length);
    if (head.status == 101 || head.status / 100 != 1) {
      Event event = request_event(exchange);
      set_verdict(event, exchange.verdict);
      flow_.record(event);
    }
    if (head.status == 101) {
      if (!co_await send_in(text + std::exchange(buffer_, {}))) co_return Answer::kBroken;
      co_await flow_.relay(false);
      co_return Answer::kClose;
    }
    if (head.status / 100 == 1) {
      if (!co_await send_in(text)) co_return Answer::kBroken;
      continue;
    }
    const bool keeps = text.starts_with("HTTP/1.1") &&
                       !http::header_lists(head.headers, "Connection", "close") &&
                       keeps_alive(exchange.request);
    if (!is_bodiless(exchange.request, head.status))
      co_return co_await relay_body(text, head, **body, keeps);
    if (!co_await send_in(text)) co_return Answer::kBroken;
    co_return keeps ? Answer::kKeep : Answer::kClose;
  }
}

Awaitable<bool> HttpSession::send_in(std::string bytes) {
  co_return co_await send_all(flow_.traffic(), Way::kIn, flow_.client(), bytes);
}

// The head goes out together with what is there of the body.
Awaitable<HttpSession::Answer> HttpSession::relay_body(std::string text,
                                                       const http::ResponseHead& head,
                                                       http::BodyDecoder& body, bool keeps) {
  const Answer complete = keeps ? Answer::kKeep : Answer::kClose;
  if (count(head.headers, "Transfer-Encoding") > 0)
    co_return co_await relay_chunks(std::move(text), body) ? complete : Answer::kBroken;
  if (head.content_length)
    co_return co_await relay_exactly(std::move(text), *head.content_length) ? complete
                                                                            : Answer::kBroken;
  // It ends with the connection.
  if (!co_await send_in(text + std::exchange(buffer_, {}))) co_return Answer::kBroken;
  const auto end = co_await pump(flow_.core().pipes, flow_.traffic(), Way::kIn, *flow_.upstream(),
                                 flow_.client());
  co_return end == PumpEnd::kEof ? Answer::kClose : Answer::kBroken;
}

Awaitable<bool> HttpSession::relay_chunks(std::string unsent, http::BodyDecoder& body) {
  std::string content;
  while (!body.is_done()) {
    content.clear();
    const auto used = body.decode(buffer_, content, buffer_.size() + 1);
    if (!used) co_return false;
    unsent.append(buffer_, 0, *used);
    buffer_.erase(0, *used);
    if (*used > 0 && !body.is_done()) continue;
    if (!co_await send_in(std::exchange(unsent, {}))) co_return false;
    if (!body.is_done() && !co_await read_upstream()) co_return false;
  }
  co_return co_await send_in(std::move(unsent));
}

Awaitable<bool> HttpSession::relay_exactly(std::string text, uint64_t bytes) {
  const size_t early = static_cast<size_t>(std::min<uint64_t>(bytes, buffer_.size()));
  text.append(buffer_, 0, early);
  buffer_.erase(0, early);
  if (!co_await send_in(std::move(text))) co_return false;
  const uint64_t left = bytes - early;
  if (left == 0) co_return true;
  const auto end = co_await pump(flow_.core().pipes, flow_.traffic(), Way::kIn, *flow_.upstream(),
                                 flow_.client(), left);
  co_return end == PumpEnd::kLimit;
}

Event HttpSession::request_event(const Exchange& exchange) const {
  Event event = flow_.event("request", "http");
  if (!upstream_event_.flow.empty()) {
    event.flow = upstream_event_.flow;
    event.address = upstream_event_.address;
  }
  if (exchange.address) event.address = exchange.address->text();
  event.host = exchange.plan.host;
  if (exchange.plan.port != 0) event.port = exchange.plan.port;
  event.method = exchange.request.method;
  event.path = exchange.request.path;
  return event;
}

void HttpSession::record_end(const Exchange& exchange, const Event& request) {
  flow_.record(request);
  if (std::exchange(has_connection_entry_, true)) return;
  Event connection = request;
  connection.kind = "connection";
  connection.method.clear();
  connection.path.clear();
  if (exchange.plan.target.empty() && flow_.destination().address) {
    // It names nothing that could be judged: what counts is where it was sent.
    const auto& to = flow_.destination();
    const auto verdict =
        flow_.link().evaluator().decide({Protocol::kHttp, {}, to.address, to.port, {}, {}});
    if (!verdict.allowed) set_verdict(connection, verdict);
  }
  flow_.record(connection);
}

Awaitable<HttpSession::Next> HttpSession::refuse(const Exchange& exchange, int status,
                                                 const policy::Verdict& verdict,
                                                 const std::string& host) {
  Event event = request_event(exchange);
  event.host = host;
  set_verdict(event, verdict);
  record_end(exchange, event);
  co_return co_await answer(exchange, status,
                            denial_body(host.empty() ? event.address : host, verdict));
}

Awaitable<HttpSession::Next> HttpSession::report_failure(const Exchange& exchange,
                                                         std::string reason) {
  Event event = request_event(exchange);
  const std::string body =
      failure_body(exchange.plan.host.empty() ? event.address : exchange.plan.host, reason);
  set_failed(event, exchange.verdict, std::move(reason));
  record_end(exchange, event);
  close_upstream();
  co_return co_await answer(exchange, 502, body);
}

Awaitable<HttpSession::Next> HttpSession::answer(const Exchange& exchange, int status,
                                                 const std::string& body) {
  const bool keeps = keeps_alive(exchange.request) && !exchange.request.has_body &&
                     exchange.plan.kind != RequestKind::kWebSocket && exchange.body != nullptr;
  const std::string text = answer_text(status, body, exchange.request.method == "HEAD", keeps);
  if (!co_await send_own(flow_.client(), text)) co_return Next::kClose;
  if (keeps) co_return Next::kRequest;
  co_await flow_.linger();
  co_return Next::kClose;
}

}  // namespace glovebox::egress
