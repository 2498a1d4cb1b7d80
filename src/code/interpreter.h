// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/async.h"
#include "code/events.h"
#include "http/stream.h"
#include "sandbox/service.h"
#include "sandbox/warmth.h"

// Code that runs cell by cell in contexts that keep their state. A runner of ours works inside the
// sandbox (runner/server.py); it is started when it is first needed and spoken to over a port of
// the sandbox's loopback. Loop thread only.
namespace glovebox::code {

// On the sandbox's loopback. Not a port of any dialect: what listens there speaks to the daemon
// alone.
constexpr uint16_t kRunnerPort = 49998;

constexpr std::array<std::string_view, 3> kLanguages = {"python", "javascript", "bash"};

// A name that every language can set: letters, digits and _, no digit first.
bool is_variable_name(std::string_view name);

struct RunSpec {
  std::string code;
  std::string language;    // python, javascript, bash and their short names; empty: python. Without
                           // meaning when there is a context
  std::string context;     // empty: the language's default context, made when it is not there
  sandbox::StringMap env;  // for this cell only
  std::string cwd;         // changed to first; empty: where the context is
  sandbox::Millis timeout{0};  // then it is interrupted, and the state is kept; 0: none
};

class Interpreter;

// A request line and its answer's lines. A connection that ends early is kSandboxEnded or
// kSandboxIo.
class Conversation {
 public:
  explicit Conversation(std::unique_ptr<http::Stream> stream) : stream_(std::move(stream)) {}
  Async<void> send(const std::string& line) { return stream_->write(line); }
  // The next line without its end; nullopt at the end of the stream.
  Async<std::optional<std::string>> line();
  // Until the other side ends it.
  Awaitable<void> rest();
  void close() { stream_->close(); }

 private:
  std::unique_ptr<http::Stream> stream_;
  std::string held_;
  size_t at_ = 0;
};

// A cell under way.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(Interpreter& interpreter, sandbox::Caller caller, std::string sandbox, RunSpec spec);
  ~Run();
  // The next event; the last one is kEnd. Keepalives come every ten seconds, while it waits for its
  // turn, too. Errors before the first event: kNotFound (no such context), kInvalidArgument,
  // kUnsupported (the template has no such language), and those of the sandbox. A kernel or sandbox
  // that ends under a cell is an event.
  Async<Event> next();
  // In place of the first next(), for an answer that an error can only cut off once it has begun:
  // keepalives are withheld up to `patience`, so that it begins with the first thing to say, or
  // when its client would give up.
  Async<Event> first(sandbox::Millis patience);
  // The cell is interrupted; a next() under way fails with kCancelled. Dropping a run that has not
  // ended does the same.
  void stop();

 private:
  Async<Event> take();
  Async<Event> broken(Error why);
  Async<Event> explained(Event event);

  Interpreter& interpreter_;
  const sandbox::Caller caller_;
  const std::string sandbox_;
  RunSpec spec_;
  std::shared_ptr<Conversation> conversation_;
  Clock::time_point shown_ = Clock::now();
  bool has_begun_ = false, is_stopped_ = false, has_ended_ = false, is_broken_ = false;
};

class Interpreter {
 public:
  // `service` outlives it.
  explicit Interpreter(sandbox::SandboxService& service);

  std::shared_ptr<Run> run(const sandbox::Caller& caller, const std::string& sandbox, RunSpec spec);
  Async<std::vector<Context>> contexts(const sandbox::Caller& caller, const std::string& sandbox);
  Async<Context> create(const sandbox::Caller& caller, const std::string& sandbox,
                        const std::string& language, const std::string& cwd);
  Async<void> remove(const sandbox::Caller& caller, const std::string& sandbox,
                     const std::string& context);
  // A new kernel: what runs ends, what waits for its turn runs in the new one.
  Async<Context> restart(const sandbox::Caller& caller, const std::string& sandbox,
                         const std::string& context);
  // True when something ran.
  Async<bool> interrupt(const sandbox::Caller& caller, const std::string& sandbox,
                        const std::string& context);

  // A sandbox::Warmer: starts the runner, and the kernel of each language's default context.
  Async<void> warm(sandbox::Inside& inside, std::vector<std::string> languages);

  // Lets go of the connections that are held for what cells left running.
  void stop();

 private:
  friend class Run;
  struct Starting;

  Async<std::string> ask(const sandbox::Caller& caller, const std::string& sandbox,
                         const std::string& request);
  struct Opened {
    std::shared_ptr<Conversation> conversation;
    std::string first;  // line of the answer
  };
  // Starts the runner when it is not there.
  Async<Opened> open(const sandbox::Caller& caller, const std::string& sandbox, std::string request,
                     std::shared_ptr<Conversation>* place);
  static Async<std::string> answer(Conversation& conversation);
  static Async<Opened> open_once(sandbox::Inside& inside, const std::string& request,
                                 std::shared_ptr<Conversation>* place);
  // A request with what the runner must know of its owner, where it may not have been told.
  // `is_asked`: it has said that it was not.
  Async<std::string> introduced(const sandbox::Caller& caller, const std::string& sandbox,
                                const std::string& request, bool is_asked);
  Async<bool> has_runner(const sandbox::Caller& caller, const std::string& sandbox, bool is_asked);
  Async<void> start_once(const sandbox::Caller& caller, const std::string& sandbox);
  Async<void> start(const sandbox::Caller& caller, const std::string& sandbox);
  // Keeps the sandbox awake as long as the runner holds the connection: something that a cell
  // started goes on.
  void linger(std::shared_ptr<Conversation> conversation, const Executor& executor);
  // Whether the kernel's OOM killer has run in the sandbox since the last time.
  Async<bool> was_oom(const sandbox::Caller& caller, const std::string& sandbox);
  void forget_ended();
  Error without_language(Error error, const std::string& sandbox) const;

  sandbox::SandboxService& service_;
  std::map<std::string, std::shared_ptr<Starting>> starting_;  // by sandbox
  std::map<std::string, uint64_t> oom_kills_;                  // seen, by sandbox
  std::set<std::string> introduced_;  // sandboxes whose runner has answered
  std::list<std::weak_ptr<Conversation>> lingering_;
};

}  // namespace glovebox::code
