// SPDX-License-Identifier: Apache-2.0
#include "sandbox/testing/world.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/log.h"

namespace glovebox::sandbox::testing {
namespace {

constexpr int kThreads = 16;

// The manager owns its runtimes; this one's state must outlive it.
class SharedRuntime : public runtime::Runtime {
 public:
  explicit SharedRuntime(std::shared_ptr<FakeRuntime> inner) : inner_(std::move(inner)) {}
  runtime::Tier tier() const override { return inner_->tier(); }
  runtime::Capability probe(const runtime::Rootfs& r) override { return inner_->probe(r); }
  Result<void> prepare(const runtime::Rootfs& r) override { return inner_->prepare(r); }
  void forget(const runtime::Rootfs& r) override { inner_->forget(r); }
  runtime::Record plan(const runtime::StartSpec& s) override { return inner_->plan(s); }
  Result<runtime::Started> start(const runtime::StartSpec& s, const runtime::Record& r, Deadline d) override { return inner_->start(s, r, d); }
  Result<runtime::ChannelFds> adopt(const runtime::Record& r) override { return inner_->adopt(r); }
  Result<void> freeze(const runtime::Record& r) override { return inner_->freeze(r); }
  Result<void> thaw(const runtime::Record& r) override { return inner_->thaw(r); }
  runtime::Kept keeps() const override { return inner_->keeps(); }
  Result<runtime::SnapshotImage> snapshot(const runtime::Record& r, const std::string& d, Afterwards a, Deadline e) override { return inner_->snapshot(r, d, a, e); }
  Result<void> check_needs(const std::map<std::string, std::string>& needs) override { return inner_->check_needs(needs); }
  Result<runtime::Usage> usage(const runtime::Record& r) override { return inner_->usage(r); }
  Result<UniqueFd> death_fd(const runtime::Record& r) override { return inner_->death_fd(r); }
  runtime::Death death(const runtime::Record& r) override { return inner_->death(r); }
  Result<void> destroy(const runtime::Record& r) override { return inner_->destroy(r); }
  std::vector<std::string> sweep(const std::vector<std::string>& known) override { return inner_->sweep(known); }
  std::vector<runtime::HostObject> host_objects() override { return inner_->host_objects(); }

 private:
  std::shared_ptr<FakeRuntime> inner_;
};

}  // namespace

DataDirectory::DataDirectory() {
  const char* parent = ::getenv("TMPDIR");
  path_ = std::string(parent != nullptr ? parent : "/tmp") + "/glovebox-sandbox-XXXXXX";
  GB_ASSERT(::mkdtemp(path_.data()) != nullptr);
  for (const char* name : {"/sandboxes", "/spool"}) GB_ASSERT(::mkdir((path_ + name).c_str(), 0700) == 0);
}

DataDirectory::~DataDirectory() {
  std::error_code ec;
  std::filesystem::remove_all(path_, ec);
}

void add_template(const std::string& data_dir, const std::string& image) {
  const std::string version(64, 'a'), at = data_dir + "/templates/versions/" + version;
  std::filesystem::create_directories(at);
  std::filesystem::create_directories(data_dir + "/templates/names");
  if (image.empty()) {
    std::ofstream(at + "/rootfs.erofs") << "";
  } else {
    std::filesystem::copy_file(image, at + "/rootfs.erofs");
  }
  std::ofstream(at + "/manifest.json")
      << R"({"schema":1,"name":"base","version":")" << version << R"(","kind":"debian","created_at":"2026-01-01T00:00:00.000Z",)"
      << R"("image":{"file":"rootfs.erofs","sha256":")" << std::string(64, 'b') << R"(","bytes":0},"config":{"env":{},"user":"root",)"
      << R"("workdir":"/","entrypoint":[],"cmd":[],"exposed_ports":[]},"inputs":"","suites":[],"tools":{},"source":{},"packages":[]})";
  std::ofstream(data_dir + "/templates/names/base") << version << "\n";
}

World::World(Config config, runtime::Tier tier) : config_(std::move(config)), runtime_(std::make_shared<FakeRuntime>(tier)) {
  log::set_level(log::Level::kError);
  add_template(data_.path(), "");
  config_.data_dir = data_.path();
  make();
}

World::~World() {
  runtime_->release_starts();
  pool_.reset();  // waits for what blocks; its answers go to the loop, which goes last, as in the daemon
  manager_.reset();
  store_.reset();
  loop_.reset();
}

void World::make() {
  loop_ = std::make_unique<channel::testing::TestLoop>();
  pool_ = std::make_unique<BlockingPool>(kThreads);
  store_ = store::open_sqlite(config_.data_dir + "/glovebox.db").value();
  templates_ = std::make_unique<image::Templates>(config_.data_dir);
  ManagerParts parts;
  parts.executor = loop_->executor();
  parts.pool = pool_.get();
  parts.store = store_.get();
  parts.templates = templates_.get();
  parts.network = network;
  parts.runtimes.push_back(std::make_unique<SharedRuntime>(runtime_));
  parts.capabilities.push_back({runtime_->tier(), {true, "fake", "", "", {}}});
  manager_ = Manager::create(config_, std::move(parts));
  const auto loaded = manager_->load();
  GB_ASSERT(loaded.has_value());
  running_agents_.clear();
  spawn(loop_->executor(), "agents", keep_agents());
  if (recover_next_) spawn(loop_->executor(), "recover", manager_->recover());
}

void World::restart() {
  runtime_->release_starts();
  pool_.reset();
  manager_.reset();
  store_.reset();  // its thread, too, answers to the loop
  loop_.reset();
  make();
}

void World::restart_without_recovery() {
  recover_next_ = false;
  restart();
  recover_next_ = true;
}

Awaitable<void> World::keep_agents() {
  while (true) {
    for (const std::string& id : runtime_->ids()) {
      const auto box = runtime_->box(id);  // it may be gone by now
      if (!box || !running_agents_.insert({id, box}).second) continue;
      auto& agent = agents_[id];
      if (!agent || agent->box() != box) agent = std::make_shared<FakeAgent>(box, intercept);
      auto run = [](std::shared_ptr<FakeAgent> one) -> Awaitable<void> { co_await one->run(); };
      spawn(loop_->executor(), "agent", run(agent));
    }
    co_await sleep_for(std::chrono::milliseconds(1));
  }
}

void World::run(std::function<Awaitable<void>()> task) { loop_->run(task()); }

FakeAgent* World::agent(const std::string& id) {
  const auto found = agents_.find(id);
  return found == agents_.end() ? nullptr : found->second.get();
}

Awaitable<Result<SandboxInfo>> World::create(CreateSpec spec) {
  auto created = co_await static_cast<SandboxService&>(*manager_).create(caller, std::move(spec));
  if (!created) co_return fail(created.error());
  co_return created->info;
}

Awaitable<ExecutionPtr> World::exec(std::string id, std::string command) {
  ExecSpec spec;
  spec.command = std::move(command);
  auto started = co_await manager_->execute(caller, id, std::move(spec));
  if (!started) std::fprintf(stderr, "exec: %s\n", started.error().message.c_str());
  GB_ASSERT(started.has_value());
  co_return *started;
}

SandboxInfo World::info(const std::string& id) { return manager_->get(caller, id).value(); }

}  // namespace glovebox::sandbox::testing
