// SPDX-License-Identifier: Apache-2.0
#include "sandbox/sandbox.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/random.h"
#include "policy/egress.h"
#include "sandbox/image_files.h"
#include "sandbox/volume_catalog.h"
#include "sys/ext4.h"

namespace glovebox::sandbox {
namespace {

constexpr size_t kMaxWatches = 64;

constexpr Millis kFirstDestroyRetry{50}, kLastDestroyRetry{10'000};
constexpr Millis kFlushPatience{10'000};  // for what a machine has written to its volumes
constexpr Millis kEndWait{30'000};
constexpr Millis kUsageSaved{3'000};

std::string spool_directory(const Config& config, const std::string& id) { return config.data_dir + "/spool/" + id; }

// How the kernel's word becomes a reason of ours.
std::string reason_of(runtime::EndReason reason) { return reason == runtime::EndReason::kOom ? "oom" : "crashed"; }

}  // namespace

Sandbox::Sandbox(Context context, codec::SandboxDocument document)
    : context_(std::move(context)), document_(std::move(document)) {
  Networking::Parts parts;
  parts.network = context_.network;
  parts.executor = context_.execution.executor;
  parts.pool = context_.execution.pool;
  parts.config = context_.execution.config;
  parts.sandbox = info().id;
  parts.log_directory = spool_directory(*parts.config, info().id) + "/network";
  networking_ = std::make_shared<Networking>(std::move(parts));
  document_.info.frozen = info().state == State::kPaused;
  if (is_hibernated()) document_.info.link.reset();  // of a resume that was not finished: it may be somebody else's by now
  if (is_live() && info().link && info().network) {
    networking_->adopt(*info().link, *info().network, {info().network_in, info().network_out, 0});
  }
}

SandboxInfo Sandbox::snapshot_info() const {
  SandboxInfo info = document_.info;
  info.running_executions = running_executions_;
  if (info.tier == runtime::Tier::kMicrovm) {
    const StringMap& facts = document_.record.fields;
    if (const auto engine = facts.find("engine"); engine != facts.end()) info.engine = engine->second;
    if (const auto accel = facts.find("accel"); accel != facts.end()) info.accel = accel->second;
  }
  return info;
}

Async<void> Sandbox::save(const codec::SandboxDocument& document) {
  const SandboxInfo& i = document.info;
  store::SandboxRow row{i.id, i.tenant, std::string(state_name(i.state)), unix_millis(i.created_at), codec::encode(document)};
  return context_.execution.store->put_sandbox(std::move(row));
}

Error Sandbox::ended_error() const {
  return Error{Code::kSandboxEnded, "the sandbox was ended while it started", {{"reason", end_wanted_ ? end_wanted_->first : ""}}};
}

Async<void> Sandbox::start(Deadline deadline, Clock::time_point began) {
  const auto self = shared_from_this();
  if (end_wanted_) co_return fail(ended_error());  // while it waited for its turn: nothing may be made any more
  starting_ = true;
  auto started = co_await start_engine(deadline);
  if (started) started = co_await become_ready(began);
  starting_ = false;
  if (origin_) origin_->hold.reset();  // it has all that it needs of its snapshot
  changed_.notify();
  if (started) co_return started;
  co_await end("start_failed", started.error().message, after(kEndWait));
  co_return started;
}

Async<void> Sandbox::become_ready(Clock::time_point began) {
  if (end_wanted_) co_return fail(ended_error());
  document_.info.ready_ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  codec::SandboxDocument ready = document_;
  ready.info.state = State::kReady;
  GB_CO_TRYV(co_await save(ready));
  if (end_wanted_) co_return fail(ended_error());
  document_.info.state = State::kReady;
  connected_ = held_ = true;
  go_on();
  co_return Result<void>();
}

Awaitable<void> Sandbox::wait_started(Deadline deadline) {
  const auto self = shared_from_this();
  while (info().state == State::kCreating && Clock::now() < deadline) co_await changed_.wait_until(deadline);
}

Async<void> Sandbox::start_engine(Deadline deadline) {
  auto* runtime = context_.runtime;
  auto& pool = *context_.execution.pool;
  const SandboxInfo& i = document_.info;
  runtime::StartSpec spec{i.id, document_.record.directory, document_.rootfs, i.limits, i.id};
  spec.volumes = volume_disks(i.volumes, config());
  const std::optional<codec::StoredImage> image = image_to_start();
  if (image) {
    GB_CO_TRYV(co_await check_start(*image));
    spec.snapshot = image->directory;
    spec.snapshot_kept = image->content.kept;
  }
  GB_CO_TRY(spec.netns_fd, co_await connect_network());
  document_.record = runtime->plan(spec);
  document_.unowned_cpu_us = 0;  // it counts from nothing
  GB_CO_TRYV(co_await save(document_));  // what start() will make is known before it is made
  auto started = co_await run_blocking(pool, [&]() -> Result<runtime::Started> {
    if (::mkdir(spec.directory.c_str(), 0700) != 0) return fail_errno(spec.directory);
    GB_TRYV(runtime->prepare(spec.rootfs));
    return runtime->start(spec, document_.record, deadline);
  });
  networking_->release_namespace();  // it lives in the sandbox's processes now
  if (!started) co_return fail(started.error());
  document_.record = std::move(started->record);
  auto death = runtime->death_fd(document_.record);
  if (!death) co_return fail(death.error());
  death_fd_ = std::move(*death);
  if (end_wanted_) co_return fail(ended_error());
  std::vector<codec::AgentExecution> known;
  const bool has_memory = image && image->content.kept == runtime::Kept::kMemoryAndFiles;
  Identity identity = image && document_.image && image->is_own ? Identity{} : new_identity(has_memory);
  const auto network = document_.record.fields.find("guest_network");
  if (has_memory && network != document_.record.fields.end()) identity.network = network->second;
  auto connected = co_await connect(std::move(started->channel), deadline, image ? &identity : nullptr, &known);
  if (!connected && connected.error().code == Code::kStartFailed) co_return connected;  // it says what was not confirmed
  if (!connected) {
    auto death_note = co_await run_blocking(pool, [&] { return Result<runtime::Death>(runtime->death(document_.record)); });
    co_return fail(Code::kStartFailed, connected.error().message + (death_note ? ". " + death_note->message : ""));
  }
  // HELLO waited for a machine to boot or to be taken up: its time was old when it was read.
  if (i.tier == runtime::Tier::kMicrovm) {
    auto told = co_await link_->go_on(deadline);
    if (!told) co_return fail(told.error());
  }
  if (has_memory) {
    GB_CO_TRYV(co_await adopt_executions(known, image->directory));
  } else if (!known.empty()) {
    co_return fail(Code::kAgentProtocol, "the agent of a new sandbox knows executions");
  }
  if (i.network) GB_CO_TRYV(co_await networking_->write_files(link_, *i.network));
  co_return co_await check_user(deadline);
}

// A hibernated one goes on from where it was laid down; a new one may start from a snapshot.
std::optional<codec::StoredImage> Sandbox::image_to_start() const {
  if (document_.image) return document_.image;
  return origin_ ? std::optional(origin_->image) : std::nullopt;
}

// Nothing is made for an image that cannot be started.
Async<void> Sandbox::check_start(const codec::StoredImage& image) {
  return run_blocking(*context_.execution.pool, [this, &image]() -> Result<void> {
    GB_TRYV(context_.runtime->check_needs(image.content.needs));
    return check_image(image.directory, image.content.parts, Reading::kIfChanged);
  });
}

// A sandbox without a policy has no link: -1.
Async<int> Sandbox::connect_network() {
  if (!info().network) co_return -1;
  if (context_.network == nullptr) co_return fail(Code::kUnavailable, "this host has no networks for sandboxes");
  GB_CO_TRY(const int netns, co_await networking_->connect(*info().network, {info().network_in, info().network_out, 0}));
  document_.info.link = networking_->link();
  co_return netns;
}

Async<void> Sandbox::set_network(NetworkPolicyPtr policy) {
  const auto self = shared_from_this();
  GB_CO_TRYV(check_usable());
  if (is_hibernated()) GB_CO_TRYV(co_await use());  // it has no link before
  GB_CO_TRYV(co_await networking_->set_policy(*policy));
  GB_CO_TRYV(co_await wait_settled());
  document_.info.network = policy;
  GB_CO_TRYV(co_await save(document_));
  GB_CO_TRY(const auto lease, co_await use());
  co_return co_await networking_->write_files(lease.link(), *policy);
}

void Sandbox::take_network_usage(const network::Usage& usage) {
  if (!is_live() || end_wanted_) return;
  document_.info.network_in = usage.bytes_in;
  document_.info.network_out = usage.bytes_out;
  if (saving_usage_ || info().state != State::kReady) return;
  saving_usage_ = true;
  // The last bytes count too, though no report may follow theirs: what comes while this waits is in what it saves.
  const auto task = [](std::shared_ptr<Sandbox> self) -> Awaitable<void> {
    while (Clock::now() < self->next_usage_save_ && self->is_live()) {
      if (!co_await sleep_for(Millis(200))) break;  // the daemon stops
    }
    self->saving_usage_ = false;
    self->next_usage_save_ = Clock::now() + kUsageSaved;
    if (!self->is_live() || self->end_wanted_ || !co_await self->wait_settled()) co_return;
    auto saved = co_await self->save(self->document_);
    if (!saved) log::warn("sandbox.usage_not_recorded", {{"sandbox", self->info().id}, {"message", saved.error().message}});
  };
  spawn(context_.execution.executor, "sandbox.usage", task(shared_from_this()));
}

void Sandbox::take_network_event(bool is_package, boost::json::object event) {
  networking_->take_event(is_package ? network::EventKind::kPackage : network::EventKind::kConnection, std::move(event));
  if (noting_denials_ || !connected_ || !is_live()) return;
  noting_denials_ = true;
  spawn(context_.execution.executor, "sandbox.note_denials", note_denials());
}

// A flood of denials costs its sandbox a few writes a second. What is frozen made none.
Awaitable<void> Sandbox::note_denials() {
  const auto self = shared_from_this();
  while (!end_wanted_ && !info().frozen && !freezing_) {
    auto text = networking_->changed_denials();
    if (!text) break;
    auto written = co_await put_file(link_, config().patience, std::string(kDenialsPath), std::move(*text));
    if (!written) log::debug("sandbox.denials_not_noted", {{"sandbox", info().id}, {"message", written.error().message}});
    co_await sleep_for(Millis(200));
  }
  noting_denials_ = false;
}

Async<void> Sandbox::connect(runtime::ChannelFds fds, Deadline deadline, const Identity* identity, std::vector<codec::AgentExecution>* known) {
  std::weak_ptr<Sandbox> weak = weak_from_this();
  auto on_lost = [weak](const Error& error) {
    const auto self = weak.lock();
    if (!self || self->end_wanted_ || self->resting_) return;
    log::warn("sandbox.channel_lost", {{"sandbox", self->info().id}, {"message", error.message}});
    // The death watcher knows better why, if the sandbox is dying; give it the first word.
    auto task = [](std::shared_ptr<Sandbox> s, std::weak_ptr<channel::Link> lost, std::string message) -> Awaitable<void> {
      co_await sleep_for(s->context_.execution.config->patience.lost_note);
      // One that goes on from an image has it still when that does not succeed.
      while ((s->resuming_ || s->resting_) && !s->end_wanted_) co_await s->changed_.wait();
      if (lost.lock() != s->link_ || !s->link_) co_return;
      co_await s->end("crashed", message, after(kEndWait));
    };
    spawn(self->context_.execution.executor, "sandbox.lost", task(self, self->link_, error.message));
  };
  link_ = channel::Link::create(context_.execution.executor, std::move(fds.to_agent), std::move(fds.from_agent), on_lost);
  const auto sent = std::chrono::system_clock::now();
  GB_CO_TRY(const std::string answer,
            co_await link_->hello(codec::hello_fields(info(), info().id, hex(random_bytes(32)), identity), deadline));
  if (identity != nullptr) GB_CO_TRYV(check_confirmation(answer, *identity, info().id, sent, std::chrono::system_clock::now()));
  GB_CO_TRY(*known, codec::decode_hello(answer));
  co_return Result<void>();
}

// A user or workdir that the caller named must exist: better told at create than at the first command.
Async<void> Sandbox::check_user(Deadline deadline) {
  std::string request = R"({"op":"stat","path":".","follow":true,"user":)";
  append_json_string(request, info().user);
  auto answer = co_await link_->request(request + "}", deadline);
  if (!answer && answer.error().code == Code::kUserUnknown) co_return fail(answer.error());
  co_return Result<void>();
}

void Sandbox::go_on() {
  last_activity_ = Clock::now();
  const Executor& executor = context_.execution.executor;
  spawn(executor, "sandbox.watch_time", watch_time());
  watch_death_once();
}

void Sandbox::watch_death_once() {
  if (death_fd_ && !std::exchange(death_is_watched_, true)) spawn(context_.execution.executor, "sandbox.watch_death", watch_death());
}

Awaitable<void> Sandbox::adopt() {
  const auto self = shared_from_this();
  const State state = info().state;
  if (state != State::kReady && state != State::kPaused) {
    const bool starting = state == State::kCreating;
    auto why = info().ended.value_or(Ended{{}, starting ? "start_failed" : "killed",
                                           starting ? "the daemon stopped while the sandbox started" : ""});
    co_await end(why.reason, why.message, Deadline::max());
    co_return;
  }
  if (end_wanted_) co_return;  // a caller was faster
  starting_ = true;
  Result<void> held;
  if (state == State::kPaused) {
    held = co_await find_paused();
  } else {
    held = co_await reconnect();
  }
  starting_ = false;
  changed_.notify();
  if (!held) {
    co_await end("host_lost", "it could not be taken over after a restart of the daemon: " + held.error().message, Deadline::max());
    co_return;
  }
  if (end_wanted_) co_return;
  held_ = true;
  go_on();
  metrics::registry().counter("glovebox_adopted_total", "Sandboxes taken over from an earlier daemon.").add();
  log::info("sandbox.adopted", {{"sandbox", info().id}, {"state", state_name(info().state)}, {"executions", executions_.size()}});
}

// It goes on standing still, and its agent is not spoken to before it is resumed. One that is hibernated has nothing that runs: what
// may be left of it is from before, or from a resume that was not finished.
Async<void> Sandbox::find_paused() {
  if (is_hibernated()) {
    co_await remove_engine();
    co_return co_await run_blocking(*context_.execution.pool, [this] { return check_image(document_.image->directory, document_.image->content.parts, Reading::kIfChanged); });
  }
  GB_CO_TRYV(co_await run_blocking(*context_.execution.pool, [this]() -> Result<void> {
    GB_TRYV(context_.runtime->adopt(document_.record));
    return context_.runtime->freeze(document_.record);
  }));
  GB_CO_TRY(death_fd_, context_.runtime->death_fd(document_.record));
  co_return Result<void>();
}

Async<void> Sandbox::reconnect() {
  GB_CO_TRY(const auto known, co_await take_over());
  if (end_wanted_) co_return fail(ended_error());
  connected_ = true;
  resume_executions(known);
  co_return Result<void>();
}

Async<std::vector<codec::AgentExecution>> Sandbox::take_over() {
  auto* runtime = context_.runtime;
  GB_CO_TRY(auto fds, co_await run_blocking(*context_.execution.pool, [&]() -> Result<runtime::ChannelFds> {
    GB_TRYV(runtime->thaw(document_.record));  // it may have been frozen when the daemon died
    if (auto channel = std::exchange(waiting_channel_, std::nullopt)) return std::move(*channel);
    // What the OOM killer did before says nothing about executions that end from now on.
    if (const auto usage = runtime->usage(document_.record)) seen_oom_kills_ = usage->oom_kills;
    return runtime->adopt(document_.record);
  }));
  if (!death_fd_) {  // else it is being watched already
    GB_CO_TRY(death_fd_, runtime->death_fd(document_.record));
  }
  if (end_wanted_) co_return fail(ended_error());
  std::vector<codec::AgentExecution> known;
  GB_CO_TRYV(co_await connect(std::move(fds), after(context_.execution.config->patience.adopt), nullptr, &known));
  co_return known;
}

void Sandbox::resume_executions(const std::vector<codec::AgentExecution>& known) {
  for (const codec::AgentExecution& agent : known) {
    auto found = executions_.find(agent.id);
    if (found != executions_.end() && found->second->ended()) {
      // Recorded, but the agent was not told. Binding to it again lets it be forgotten.
      found->second->attach_to_forget(link_, found->second->info().background ? nullptr : count(&Sandbox::alive_executions_));
      continue;
    }
    std::shared_ptr<RunningExecution> execution;
    if (found == executions_.end()) {
      ExecInfo info;
      info.id = agent.id;
      info.sandbox_id = document_.info.id;
      info.pid = agent.pid;
      info.started_at = std::chrono::system_clock::now();
      execution = add_execution(std::move(info));
    } else {
      execution = found->second;
    }
    execution->attach(link_);
  }
  for (const auto& [id, execution] : executions_) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const auto& k) { return k.id == id; });
    if (!execution->ended() && !is_known) {
      execution->finish_without_agent("interrupted", "the sandbox's agent does not know it any more");
    }
  }
}

Awaitable<void> Sandbox::watch_death() {
  const auto self = shared_from_this();
  const bool died = co_await wait_readable(death_fd_.get());
  if (resting_) {
    death_is_watched_ = false;
    changed_.notify();
    co_return;
  }
  if (!died || end_wanted_) co_return;
  auto death = co_await run_blocking(*context_.execution.pool, [this, record = document_.record] {  // its end may be under way
    return Result<runtime::Death>(context_.runtime->death(record));
  });
  co_await end(reason_of(death->reason), death->message, Deadline::max());
}

Awaitable<void> Sandbox::end(std::string reason, std::string message, Deadline deadline) {
  const auto self = shared_from_this();
  if (!end_wanted_ && info().state != State::kEnded) {
    end_wanted_ = {reason, message};
    spawn(context_.execution.executor, "sandbox.finish", finish(std::move(reason), std::move(message)));
    changed_.notify();
  }
  while (info().state != State::kEnded) {
    const bool woken = co_await changed_.wait_until(deadline);
    if (!woken && Clock::now() >= deadline) co_return;
  }
}

bool Sandbox::writes_volumes_by_itself() const {
  const auto& volumes = info().volumes;
  return info().tier == runtime::Tier::kMicrovm &&
         std::any_of(volumes.begin(), volumes.end(), [](const VolumeMount& volume) { return !volume.read_only; });
}

// A kernel of its own holds what was written and not yet put on the volumes: it is asked for it, once, and not for long.
Awaitable<void> Sandbox::flush_volumes() {
  const auto self = shared_from_this();
  const Deadline deadline = after(kFlushPatience);
  while ((freezing_ || thawing_) && Clock::now() < deadline) co_await changed_.wait_until(deadline);
  if (is_hibernated() || starting_ || imaging_ || resting_ || !link_) co_return;
  const auto awake = co_await run_blocking(*context_.execution.pool, [this] { return context_.runtime->thaw(document_.record); });
  if (!awake || !link_) co_return;
  const auto flushed = co_await link_->request(R"({"op":"sync"})", deadline);
  if (!flushed) log::warn("sandbox.volumes_not_flushed", {{"sandbox", info().id}, {"message", flushed.error().message}});
}

// So that the next one finds a whole file system, and its use can be told.
Result<void> Sandbox::recover_volumes() const {
  for (const auto& disk : volume_disks(info().volumes, config())) {
    if (!disk.read_only) GB_TRYV(sys::recover_ext4(disk.image_path));
  }
  return {};
}

Awaitable<void> Sandbox::finish(std::string reason, std::string message) {
  const auto self = shared_from_this();
  document_.info.state = State::kEnding;
  document_.info.secrets.clear();
  document_.info.ended = Ended{std::chrono::system_clock::now(), reason, message};
  auto saved = co_await save(document_);
  if (!saved) log::error("sandbox.not_recorded", {{"sandbox", info().id}, {"message", saved.error().message}});
  for (const auto& [id, execution] : executions_) {
    execution->finish_without_agent("sandbox_ended", "the sandbox ended: " + reason);
  }
  const bool is_orderly = reason == "killed" || reason == "lifetime" || reason == "idle";
  if (is_orderly && writes_volumes_by_itself()) co_await flush_volumes();
  if (link_) link_->drop(Error{Code::kSandboxEnded, "the sandbox ended: " + reason, {{"reason", reason}}});
  while (starting_ || freezing_ || thawing_ || imaging_ || resting_) co_await changed_.wait();
  for (Millis pause = kFirstDestroyRetry;; pause = std::min(pause * 2, kLastDestroyRetry)) {
    auto destroyed = co_await run_blocking(*context_.execution.pool, [this]() -> Result<void> {
      GB_TRYV(context_.runtime->destroy(document_.record));
      const std::string& directory = document_.record.directory;
      if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) return fail_errno(directory);
      const auto recovered = writes_volumes_by_itself() ? recover_volumes() : Result<void>{};
      if (!recovered) log::warn("sandbox.volumes_not_recovered", {{"sandbox", info().id}, {"message", recovered.error().message}});
      return remove_image(own_image_directory());
    });
    if (destroyed) break;
    log::error("sandbox.destroy_failed", {{"sandbox", info().id}, {"message", destroyed.error().message}});
    co_await sleep_for(pause);
  }
  death_fd_.reset();
  networking_->release();
  // Who sees that it has ended finds its place free, and finds it ended after a restart, too.
  codec::SandboxDocument over = document_;
  over.info.state = State::kEnded;
  over.info.frozen = false;
  over.info.paused.reset();
  over.info.link.reset();
  over.image.reset();
  over.info.ended->at = std::chrono::system_clock::now();
  saved = co_await save(over);
  document_ = std::move(over);
  if (!saved) log::error("sandbox.not_recorded", {{"sandbox", info().id}, {"message", saved.error().message}});
  log::info("sandbox.ended", {{"sandbox", info().id}, {"reason", reason}, {"message", message}});
  image_hold_.reset();
  origin_.reset();
  if (context_.on_ended) context_.on_ended(*this);
  changed_.notify();
}

Async<UniqueFd> Sandbox::open_template() const {
  co_return co_await run_blocking(pool(), [runtime = context_.runtime, rootfs = document_.rootfs] { return runtime->open_rootfs(rootfs); });
}

Async<void> Sandbox::update(Update update) {
  const auto self = shared_from_this();
  GB_CO_TRYV(co_await wait_settled());
  const auto now = std::chrono::system_clock::now();
  if (update.lifetime) document_.info.lifetime = *update.lifetime;
  if (update.lifetime && update.lifetime->count() == 0) document_.info.expires_at.reset();
  if (update.lifetime && update.lifetime->count() > 0) document_.info.expires_at = now + *update.lifetime;
  if (update.idle_timeout) document_.info.idle_timeout = *update.idle_timeout;
  if (update.metadata) document_.info.metadata = std::move(*update.metadata);
  for (auto& [name, value] : update.attributes) {
    if (value.empty()) document_.info.attributes.erase(name);
    else document_.info.attributes[name] = std::move(value);
  }
  GB_CO_TRYV(co_await save(document_));
  changed_.notify();
  co_return Result<void>();
}

std::shared_ptr<void> Sandbox::count(int Sandbox::*which) {
  ++(this->*which);
  return std::shared_ptr<void>(this, [weak = weak_from_this(), which](void*) {
    const auto self = weak.lock();
    if (!self) return;
    --(self.get()->*which);
    self->last_activity_ = Clock::now();
  });
}

Result<std::shared_ptr<void>> Sandbox::hold_watch(CutWatch cut) {
  if (watches_.size() >= kMaxWatches) {
    const std::string limit = std::to_string(kMaxWatches);
    return fail(Code::kCapacity, limit + " watches of this sandbox are open", {{"limit", limit}, {"used", limit}});
  }
  const auto at = watches_.insert(watches_.end(), std::move(cut));
  return std::shared_ptr<void>(this, [weak = weak_from_this(), at](void*) {
    if (const auto self = weak.lock()) self->watches_.erase(at);
  });
}

std::shared_ptr<void> Sandbox::hold_awake() {
  ++holds_awake_;
  return std::shared_ptr<void>(this, [weak = weak_from_this()](void*) {
    if (const auto self = weak.lock()) --self->holds_awake_;
  });
}

void Sandbox::cut_watches(const Error& error) {
  for (const CutWatch& cut : std::list(watches_)) cut(error);
}

std::shared_ptr<RunningExecution> Sandbox::add_execution(ExecInfo info) {
  std::weak_ptr<Sandbox> weak = weak_from_this();
  RunningExecution::Counts counts;
  if (!info.outcome) counts = {count(&Sandbox::running_executions_), count(&Sandbox::alive_executions_)};
  const std::string id = info.id;
  const std::string spool = spool_directory(*context_.execution.config, document_.info.id) + "/" + id;
  auto execution = std::make_shared<RunningExecution>(context_.execution, std::move(info), spool, std::move(counts));
  execution->oom_ends_sandbox = document_.info.tier == runtime::Tier::kGvisor;
  execution->on_oom_inside = [weak] {
    if (const auto self = weak.lock()) ++self->oom_kills_inside_;
  };
  execution->was_oom = [weak]() -> Awaitable<bool> {
    const auto self = weak.lock();
    if (!self) co_return false;
    auto usage = co_await run_blocking(*self->context_.execution.pool,
                                       [&self, record = self->document_.record] { return self->context_.runtime->usage(record); });
    co_return usage && std::exchange(self->seen_oom_kills_, usage->oom_kills) < usage->oom_kills;
  };
  execution->wake = [weak]() -> Async<std::shared_ptr<void>> {
    const auto self = weak.lock();
    if (!self) co_return fail(Code::kSandboxEnded, "the sandbox has ended");
    GB_CO_TRY(Lease lease, co_await self->use());
    co_return std::make_shared<Lease>(std::move(lease));
  };
  execution->awake_since = [weak]() -> std::optional<Clock::time_point> {
    const auto self = weak.lock();
    return self ? self->awake_since() : std::nullopt;
  };
  executions_[id] = execution;
  execution_order_.push_back(id);
  return execution;
}

void Sandbox::restore_execution(ExecInfo info) {
  auto execution = add_execution(std::move(info));
  if (execution->ended()) {
    execution->restore_ended();
  } else {
    execution->restore_running();
  }
}

void Sandbox::prune_executions() {
  const size_t keep = context_.execution.config->kept_executions;
  for (auto id = execution_order_.begin(); id != execution_order_.end() && executions_.size() > keep;) {
    const auto& execution = executions_.at(*id);
    if (!execution->ended() || !execution->is_gone()) {
      ++id;
      continue;
    }
    spawn(context_.execution.executor, "execution.forget", forget_execution(execution));
    executions_.erase(*id);
    id = execution_order_.erase(id);
  }
}

Awaitable<void> Sandbox::forget_execution(std::shared_ptr<RunningExecution> execution) {
  const auto self = shared_from_this();
  auto* store = context_.execution.store;
  auto removed = co_await run_blocking(*context_.execution.pool, [&] { return execution->remove_files(); });
  auto deleted = co_await store->delete_execution(info().id, execution->info().id);
  if (removed) removed = deleted;
  if (!removed) log::warn("execution.not_forgotten", {{"execution", execution->info().id}, {"message", removed.error().message}});
}

Async<ExecutionPtr> Sandbox::execute(ExecSpec spec) {
  const auto self = shared_from_this();
  GB_CO_TRY(Lease lease, co_await use());
  co_return co_await start_execution(std::move(lease), std::move(spec));
}

// The execution that an earlier call with this key started, or is starting; null when there was none.
Result<std::shared_ptr<RunningExecution>> Sandbox::find_earlier(const ExecSpec& spec) const {
  if (spec.idempotency_key.empty()) return nullptr;
  for (const auto& [id, execution] : executions_) {
    const ExecInfo& i = execution->info();
    if (i.idempotency_key != spec.idempotency_key) continue;
    if (i.request_hash == codec::request_hash(spec.request)) return execution;
    return fail(Code::kConflict, "this idempotency key was used for another request", {{"execution", id}, {"state", "key_used"}});
  }
  return nullptr;
}

Async<SandboxService::Started> Sandbox::execute_once(ExecSpec spec) {
  const auto self = shared_from_this();
  (void)co_await wait_held();
  while (true) {
    GB_CO_TRY(auto earlier, find_earlier(spec));
    if (earlier) {
      GB_CO_TRY(const bool runs, co_await earlier->wait_started(after(config().patience.exec_start)));
      if (runs) co_return SandboxService::Started{earlier, true};
      continue;
    }
    GB_CO_TRY(Lease lease, co_await use());
    GB_CO_TRY(earlier, find_earlier(spec));
    if (earlier) continue;
    GB_CO_TRY(auto started, co_await start_execution(std::move(lease), std::move(spec)));
    co_return SandboxService::Started{std::move(started), false};
  }
}

Async<ExecutionPtr> Sandbox::start_execution(Lease lease, ExecSpec spec) {
  ExecInfo info;
  info.id = "ex-" + random_name(12);
  info.sandbox_id = document_.info.id;
  info.name = spec.name;
  info.argv = spec.argv;
  info.command = spec.command;
  info.cwd = spec.cwd.empty() ? document_.info.workdir : spec.cwd;
  info.user = spec.user.empty() ? document_.info.user : spec.user;
  info.pty = spec.pty.has_value();
  info.background = spec.background;
  info.started_at = std::chrono::system_clock::now();
  const bool is_once = !spec.idempotency_key.empty();
  info.idempotency_key = spec.idempotency_key;
  if (is_once) info.request_hash = codec::request_hash(spec.request);
  std::string message = codec::exec_message(info.id, spec, document_.info);
  auto execution = add_execution(std::move(info));
  const Millis limit = spec.timeout.count() > 0 ? spec.timeout + spec.kill_grace : Millis(0);
  const auto link = lease.link();  // it may be another one, or none, after a wait
  Result<void> started;
  if (is_once) started = co_await execution->record_running();
  if (started) started = co_await execution->start(link, std::move(message), std::move(spec.stdin_data), spec.keep_stdin, limit);
  if (!started) {
    co_await drop_execution(execution);
    co_return fail(started.error());
  }
  prune_executions();
  if (spec.detached) {
    auto recorded = co_await execution->record_running();
    if (!recorded) (void)co_await execution->kill();  // an id that may be forgotten is worse than none
    if (!recorded) co_return fail(recorded.error());
  }
  co_return std::static_pointer_cast<Execution>(execution);
}

// One that was never started leaves no trace.
Awaitable<void> Sandbox::drop_execution(std::shared_ptr<RunningExecution> execution) {
  const auto self = shared_from_this();
  const std::string id = execution->info().id;
  const bool is_recorded = !execution->info().idempotency_key.empty();
  execution->abandon();
  executions_.erase(id);
  std::erase(execution_order_, id);
  if (is_recorded) co_await forget_execution(std::move(execution));
}

Async<ExecutionPtr> Sandbox::execution(std::string id) {
  const auto self = shared_from_this();
  (void)co_await wait_held();  // before, it could be neither read to its end nor killed; a sandbox that ended has its own
  const auto found = executions_.find(id);
  if (found == executions_.end()) co_return fail(Code::kExecutionNotFound, "no execution '" + id + "' in " + info().id);
  co_return std::static_pointer_cast<Execution>(found->second);
}

std::vector<ExecInfo> Sandbox::executions() const {
  std::vector<ExecInfo> out;
  for (auto id = execution_order_.rbegin(); id != execution_order_.rend(); ++id) out.push_back(executions_.at(*id)->info());
  return out;
}

Async<runtime::Usage> Sandbox::usage() {
  const auto self = shared_from_this();
  GB_CO_TRYV(check_usable());
  if (is_hibernated()) {
    runtime::Usage usage;
    usage.disk_bytes = co_await run_blocking(pool(), [directory = document_.image->directory] { return disk_bytes(directory); });
    co_return usage;
  }
  // Its own copy: the sandbox may end, or be laid down, meanwhile.
  const auto unowned = document_.unowned_cpu_us;
  GB_CO_TRY(auto usage, co_await run_blocking(pool(), [this, record = document_.record] { return context_.runtime->usage(record); }));
  usage.cpu_us -= std::min(usage.cpu_us, unowned);
  usage.oom_kills += oom_kills_inside_;
  co_return usage;
}

}  // namespace glovebox::sandbox
