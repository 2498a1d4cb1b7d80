// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "api/mcp/conversation.h"
#include "api/mcp/message.h"
#include "api/mcp/stream.h"

namespace glovebox::api::mcp {

// A request under way, and how to stop it.
class Running {
 public:
  bool is_cancelled() const { return is_cancelled_; }
  void cancel();
  // `stop` is called at most once, when the request is cancelled: at once if it has been.
  void on_cancel(std::function<void()> stop);

 private:
  bool is_cancelled_ = false;
  std::function<void()> stop_;
};
using RunningPtr = std::shared_ptr<Running>;

// One client's session. Loop thread only; owned by Sessions and by the requests under way in it.
class Session {
 public:
  Session(std::string id, sandbox::Caller owner, Version version, sandbox::SandboxService& service, const Settings& settings,
          std::string mark)
      : conversation(service, settings, std::move(mark)), id_(std::move(id)), owner_(std::move(owner)), version_(version) {}

  const std::string& id() const { return id_; }
  const sandbox::Caller& owner() const { return owner_; }
  Version version() const { return version_; }
  Clock::time_point last_used = Clock::now();

  // kConflict for an id that is in use, kCapacity for too many at a time.
  Result<RunningPtr> begin_request(const boost::json::value& id);
  void end_request(const boost::json::value& id);
  // Also one whose request has not arrived yet: they come on connections of their own.
  void cancel(const boost::json::value& id);
  void cancel_all();
  bool is_busy() const { return !running_.empty(); }

  StreamPtr open_stream(size_t requests);
  StreamPtr find_stream(const std::string& id) const;
  void close_stream(const std::string& id) { streams_.erase(id); }
  // Complete ones that are kept for a client that comes back.
  const std::map<std::string, StreamPtr>& streams() const { return streams_; }

  Conversation conversation;

 private:
  const std::string id_;
  const sandbox::Caller owner_;
  const Version version_;
  std::map<std::string, RunningPtr> running_;  // by the id's JSON
  std::deque<std::string> cancelled_early_;
  std::map<std::string, StreamPtr> streams_;
  uint64_t last_stream_ = 0;
};
using SessionPtr = std::shared_ptr<Session>;

// All sessions. Loop thread only; outlives the loop's last step.
class Sessions {
 public:
  Sessions(sandbox::SandboxService& service, Settings settings, Executor executor)
      : service_(service), settings_(std::move(settings)), executor_(std::move(executor)) {}

  // kCapacity when there are too many. The caller's longest unused one without sandboxes makes room.
  Result<SessionPtr> begin(const sandbox::Caller& caller, Version version);
  // Null for one that does not exist or belongs to another key. One that the daemon before had is taken up again as long as a
  // sandbox of it lives; it then speaks `version`.
  SessionPtr find(const sandbox::Caller& caller, const std::string& id, Version version);
  // Stops its requests and ends its sandboxes.
  Awaitable<void> end(SessionPtr session);

  // Keeps a stream whose client has gone, or may not have got all of it, for a while and within a bound of bytes.
  void keep(const SessionPtr& session, const StreamPtr& stream);
  size_t size() const { return by_id_.size(); }

 private:
  struct Kept {
    std::weak_ptr<Session> session;
    std::string stream;
    size_t bytes = 0;
    Clock::time_point until;
  };
  SessionPtr add(const sandbox::Caller& caller, std::string id, Version version);
  bool make_room(const sandbox::Caller& caller);
  void drop_oldest_kept();
  Awaitable<void> sweep();

  sandbox::SandboxService& service_;
  const Settings settings_;
  const Executor executor_;
  std::map<std::string, SessionPtr> by_id_;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
  bool is_sweeping_ = false;
  Notifier changed_;
};

}  // namespace glovebox::api::mcp
