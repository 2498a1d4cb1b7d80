// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "programs/agent/dial.h"
#include "programs/agent/inbox.h"
#include "programs/agent/operations.h"

namespace glovebox::agent {

// All requests of the present connection, and the threads that serve them: one each, so that a slow
// download stalls nobody else. Loop thread.
class Requests {
 public:
  using ExecutionRoots = agent::ExecutionRoots;
  struct Context {
    Users& users;
    const std::string& default_user;
    std::function<ExecutionRoots()> execution_roots;
    std::function<std::vector<pid_t>()> own_processes;
  };
  Requests(Loop& loop, Outbox& outbox, Context context);

  // A new connection: gives up everything of the old one.
  void restart(uint64_t connection);
  void open(uint32_t channel, const Inbox::Message& message);
  // DATA, END, WINDOW, CANCEL. Ignores channels that it does not know.
  void handle(Inbox::Message& message);
  void pump() { dials_.pump(); }

 private:
  static constexpr size_t kMaxRunning = 64;
  static constexpr size_t kMaxWaiting = 4096;
  static constexpr size_t kMaxOpenEnded = 64;
  static constexpr size_t kKeptThreads = 2;

  void refuse(uint32_t channel, const Error& error);
  void start_waiting();
  bool give_to_worker(std::function<void()> job);
  void work();
  void serve(Request& request, const OperationKind& kind, Operation& op);
  Result<void> prepare(const std::shared_ptr<Request>& request, std::function<void()>* job);
  void on_served(uint64_t connection, uint32_t channel, size_t& running);
  size_t& running_like(const Request& request);

  Loop& loop_;
  Outbox& outbox_;
  Context context_;
  Dials dials_;
  uint64_t connection_ = 0;
  std::unordered_map<uint32_t, std::shared_ptr<Request>> requests_;
  std::deque<uint32_t> waiting_;
  // On threads, those of a former connection included.
  size_t running_ = 0, open_ended_ = 0;

  std::mutex mutex_;
  std::condition_variable work_there_;
  std::deque<std::function<void()>> jobs_;
  size_t threads_ = 0, idle_threads_ = 0;
};

}  // namespace glovebox::agent
