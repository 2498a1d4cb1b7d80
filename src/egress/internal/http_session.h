// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "egress/internal/flow.h"
#include "http/framing.h"

namespace glovebox::egress {

// HTTP/1.1 on a sandbox's connection: each request is read, judged and passed on by itself; the
// response's framing is followed, so that the next request starts where the sandbox and we agree
// that it does.
class HttpSession {
 public:
  enum class End {
    kClosed,
    kTunnel,  // a CONNECT was accepted: flow.destination() is what it named
    kRaw,  // the first request is allowed by no rule about HTTP, but as raw TCP; nothing was taken
           // from flow.input()
  };
  // `raw`: what the policy says to raw TCP here.
  HttpSession(Flow& flow, policy::Verdict raw) : flow_(flow), raw_(std::move(raw)) {}
  Awaitable<End> run();

 private:
  enum class Next { kRequest, kClose, kTunnel, kRaw };
  struct Exchange {
    http::Request request;
    std::string head;  // the bytes it was read from
    std::unique_ptr<http::BodyDecoder> body;
    RequestPlan plan;
    policy::Verdict verdict;
    std::optional<policy::Address>
        address;             // where it went or would have gone, when that was found out
    bool is_reused = false;  // goes over a connection that has served a request before
    bool is_broken = false;  // its body is malformed
  };
  enum class Answer {
    kKeep,     // complete; both sides may go on
    kClose,    // complete, or the connection has become something else and is over
    kNothing,  // the server went away without a byte
    kBroken,
  };

  Awaitable<bool> read_head(Exchange& exchange);
  Awaitable<Next> serve(Exchange& exchange);
  Awaitable<Next> serve_connect(Exchange& exchange);
  Awaitable<Next> pass_on(Exchange& exchange, policy::Attempt attempt);
  // Nothing when the upstream is open; else what the refusal that was sent means for the session.
  Awaitable<std::optional<Next>> open_upstream(Exchange& exchange, policy::Attempt attempt);
  Awaitable<std::optional<Next>> open_registry(Exchange& exchange);
  bool can_reuse(Exchange& exchange, policy::Attempt& attempt);
  void close_upstream();

  Awaitable<Answer> exchange_messages(Exchange& exchange);
  // Ends an upload whose answer is complete.
  Awaitable<void> stop_upload(Notifier& done, const bool& has_ended);
  Awaitable<void> upload(Exchange& exchange);
  Awaitable<bool> upload_body(Exchange& exchange);
  Awaitable<bool> upload_chunks(Exchange& exchange);
  Awaitable<Answer> relay_response(const Exchange& exchange);
  Awaitable<size_t>
  read_response_head();  // its length in buffer_; 0 when the server went away or speaks no HTTP
  Awaitable<Answer> relay_body(std::string text, const http::ResponseHead& head,
                               http::BodyDecoder& body, bool keeps);
  Awaitable<bool> relay_chunks(std::string unsent, http::BodyDecoder& body);
  Awaitable<bool> relay_exactly(std::string text, uint64_t bytes);
  Awaitable<bool> send_in(std::string bytes);
  Awaitable<bool> read_upstream();

  Awaitable<Next> refuse(const Exchange& exchange, int status, const policy::Verdict& verdict,
                         const std::string& host);
  Awaitable<Next> report_failure(const Exchange& exchange, std::string reason);
  Awaitable<Next> answer(const Exchange& exchange, int status, const std::string& body);
  Event request_event(const Exchange& exchange) const;
  // The request did not pass. A connection that has led nowhere so far gets an entry, too.
  void record_end(const Exchange& exchange, const Event& request);

  Flow& flow_;
  policy::Verdict raw_;
  std::string buffer_;                   // from the upstream
  Event upstream_event_;                 // of the open connection
  uint64_t base_out_ = 0, base_in_ = 0;  // the flow's traffic when it was opened
  bool is_first_ = true;
  bool has_connection_entry_ = false;
  bool has_stopped_upload_ = false;
};

}  // namespace glovebox::egress
