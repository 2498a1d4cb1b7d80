// SPDX-License-Identifier: Apache-2.0
#include "programs/agent/requests.h"

#include "programs/agent/worker_thread.h"

namespace glovebox::agent {

using channel::Type;

Requests::Requests(Loop& loop, Outbox& outbox, Context context)
    : loop_(loop), outbox_(outbox), context_(std::move(context)), dials_(loop, outbox) {
  // One thread from the start: files can be looked at even when the sandbox's process limit is
  // reached.
  threads_ = start_thread([this] { work(); }) ? 1 : 0;
}

void Requests::restart(uint64_t connection) {
  connection_ = connection;
  for (auto& [channel, request] : requests_) request->cancel();
  requests_.clear();
  waiting_.clear();
  dials_.clear();
}

void Requests::refuse(uint32_t channel, const Error& error) {
  outbox_.send(channel, Type::kResponse, error_response(error));
}

void Requests::open(uint32_t channel, const Inbox::Message& message) {
  if (message.too_long)
    return refuse(channel, Error{Code::kPayloadTooLarge, "request too long", {}});
  auto fields = parse_object(message.payload);
  if (!fields) return refuse(channel, fields.error());
  const auto op = text_field(*fields, "op");
  if (op && *op == "dial") {
    auto dialled = dials_.open(channel, *fields);
    if (!dialled) refuse(channel, dialled.error());
    return;
  }
  if (!op || find_operation(*op) == nullptr) {
    return refuse(channel, Error{Code::kInvalidArgument, "op: unknown", {}});
  }
  if (waiting_.size() >= kMaxWaiting) {
    return refuse(channel, Error{Code::kCapacity, "too many requests are waiting", {}});
  }
  requests_[channel] = std::make_shared<Request>(outbox_, connection_, channel, *std::move(fields));
  waiting_.push_back(channel);
  start_waiting();
}

void Requests::start_waiting() {
  while (running_ < kMaxRunning && !waiting_.empty()) {
    const uint32_t channel = waiting_.front();
    waiting_.pop_front();
    auto found = requests_.find(channel);
    if (found == requests_.end()) continue;  // cancelled while it waited
    size_t& running = running_like(*found->second);
    if (&running == &open_ended_ && open_ended_ >= kMaxOpenEnded) {
      refuse(channel, Error{Code::kCapacity, "64 watches are open", {}});
      requests_.erase(channel);
      continue;
    }
    std::function<void()> job;
    auto prepared = prepare(found->second, &job);
    if (prepared && give_to_worker(std::move(job))) {
      ++running;
      continue;
    }
    refuse(channel, prepared ? Error{Code::kProcessLimit, "no thread for the request", {}}
                             : prepared.error());
    requests_.erase(channel);
  }
}

Result<void> Requests::prepare(const std::shared_ptr<Request>& request,
                               std::function<void()>* job) {
  const json::object& fields = request->fields();
  GB_TRY(const std::string name, text_field(fields, "op"));
  GB_TRY(const std::string user_name, text_field(fields, "user", context_.default_user));
  GB_TRY(User user, context_.users.find(user_name));
  const OperationKind* kind = find_operation(name);
  auto op = std::make_shared<Operation>(
      Operation{*request, fields, context_.users, std::move(user), {}, {}});
  if (!kind->as_user) {
    op->own = context_.own_processes();
    op->roots = context_.execution_roots();
  }
  *job = [this, request, kind, op, connection = connection_] {
    serve(*request, *kind, *op);
    loop_.post([this, connection, request] {
      on_served(connection, request->channel(), running_like(*request));
    });
  };
  return {};
}

void Requests::serve(Request& request, const OperationKind& kind, Operation& op) {
  if (request.is_cancelled()) return;
  Result<void> result;
  if (kind.as_user) {
    const ActAs rights(op.user);
    result = rights.failed() ? fail(Code::kPermissionDenied, "cannot act as " + op.user.name)
                             : kind.run(op);
  } else {
    result = kind.run(op);
  }
  if (!result) request.fail(result.error());
}

size_t& Requests::running_like(const Request& request) {
  const OperationKind* kind = find_operation(text_field(request.fields(), "op").value_or(""));
  return kind != nullptr && kind->is_open_ended ? open_ended_ : running_;
}

void Requests::on_served(uint64_t connection, uint32_t channel, size_t& running) {
  --running;
  if (connection == connection_) requests_.erase(channel);
  start_waiting();
}

bool Requests::give_to_worker(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  const bool needs_thread = idle_threads_ <= jobs_.size();
  if (needs_thread && start_thread([this] { work(); })) ++threads_;
  if (threads_ == 0) return false;
  jobs_.push_back(std::move(job));
  work_there_.notify_one();
  return true;
}

void Requests::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_threads_;
    while (jobs_.empty()) {
      if (idle_threads_ > kKeptThreads) {
        --idle_threads_;
        --threads_;
        return;
      }
      work_there_.wait(lock);
    }
    --idle_threads_;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

void Requests::handle(Inbox::Message& message) {
  auto found = requests_.find(message.channel);
  if (found == requests_.end()) return dials_.handle(message);
  Request& request = *found->second;
  switch (message.type) {
    case Type::kDataToAgent:
      return request.on_data(std::move(message.payload));
    case Type::kEndToAgent:
      return request.on_end();
    case Type::kWindowToAgent:
      if (message.payload.size() >= 8) request.on_window(channel::get_u64(message.payload.data()));
      return;
    case Type::kCancel:
      request.cancel();
      requests_.erase(found);  // the thread holds its own reference
      return;
    default:
      return;
  }
}

}  // namespace glovebox::agent
