// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/template_run.h"

#include <algorithm>
#include <filesystem>

#include "api/e2b/control.h"
#include "base/log.h"
#include "base/text.h"

namespace glovebox::api::e2b {
namespace {

using sandbox::Millis;

constexpr std::chrono::minutes kPatience{60};       // of a whole build
constexpr std::chrono::minutes kReadyPatience{5};
constexpr Millis kReadyInterval{500}, kLook{250};
constexpr std::chrono::seconds kWithoutReadyCommand{20};  // as long as the vendor waits
constexpr size_t kReadBytes = 64 << 10, kMaxLine = 4096;
constexpr const char* kRoot = "root";

// Puts what an archive holds of $2 where COPY wants it: contents of directories are merged, several files go into a directory.
constexpr std::string_view kCopyScript = R"sh(set -e
shopt -s dotglob nullglob globstar
staging=$1 source=${2#./} target=$3 owner=$4 mode=$5
cd "$staging"
IFS=
found=(${source:-.})
if [ ${#found[@]} = 0 ] || { [ ${#found[@]} = 1 ] && ! [ -e "${found[0]}" ] && ! [ -L "${found[0]}" ]; }; then
  echo "COPY: there is no $2" >&2
  exit 1
fi
chown -hR "$owner" .
[ -z "$mode" ] || chmod -R "$mode" -- "${found[@]}"
make() { [ -d "$1" ] || { make "$(dirname -- "$1")"; mkdir -- "$1"; chown "$owner" -- "$1"; }; }
for one in "${found[@]}"; do
  if [ -d "$one" ] && ! [ -L "$one" ]; then
    make "$target"
    for inner in "$one"/*; do cp -a -- "$inner" "$target/"; done
  elif [ ${#found[@]} -gt 1 ] || [ -d "$target" ] || [[ $target == */ ]]; then
    make "${target%/}"
    cp -a -- "$one" "$target/"
  else
    make "$(dirname -- "$target")"
    cp -a -- "$one" "$target"
  fi
done
rm -rf -- "$staging"
)sh";
constexpr std::string_view kEnterScript = R"sh(set -e
make() { [ -d "$1" ] || { make "$(dirname -- "$1")"; mkdir -- "$1"; chown "$2" -- "$1"; }; }
make "$1" "$2"
)sh";

// Output as lines of the log.
class Lines {
 public:
  Lines(Build& build, std::string level) : build_(build), level_(std::move(level)) {}
  void take(std::string_view text) {
    held_ += text;
    for (size_t end = held_.find('\n'); end != held_.npos || held_.size() > kMaxLine; end = held_.find('\n')) {
      const size_t size = std::min(end, kMaxLine);
      build_.log(level_, std::string_view(held_).substr(0, size));
      held_.erase(0, size + (size == end ? 1 : 0));
    }
  }
  void finish() {
    if (!held_.empty()) build_.log(level_, held_);
  }

 private:
  Build& build_;
  const std::string level_;
  std::string held_;
};

std::string how_it_ended(const sandbox::Outcome& outcome) {
  if (outcome.exit_code) return "exit status " + std::to_string(*outcome.exit_code);
  return outcome.message.empty() ? outcome.type : outcome.type + ": " + outcome.message;
}

}  // namespace

Async<void> TemplateRun::run() {
  deadline_ = after(kPatience);
  auto done = co_await build();
  if (!box_.id.empty()) (void)co_await parts_.service.kill(build_.caller, box_.id);
  co_return done;
}

Async<void> TemplateRun::build() {
  build_.step = "base";
  GB_CO_TRYV(co_await begin());
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    GB_CO_TRYV(may_go_on());
    build_.step = std::to_string(i + 1);
    build_.log("info", "[" + build_.step + "/" + std::to_string(plan_.steps.size()) + "] " + plan_.steps[i].text());
    GB_CO_TRYV(co_await step(plan_.steps[i]));
  }
  build_.step = "finalize";
  GB_CO_TRYV(co_await settle());
  GB_CO_TRYV(co_await start());
  GB_CO_TRYV(may_go_on());
  co_return co_await keep();
}

Result<void> TemplateRun::may_go_on() const {
  if (is_stopping_) return fail(Code::kCancelled, "the server was stopped");
  if (Clock::now() >= deadline_) return fail(Code::kTimeout, "the build took longer than an hour");
  return {};
}

sandbox::CreateSpec TemplateRun::create_spec() const {
  sandbox::CreateSpec spec;
  spec.template_name = plan_.from;
  spec.cpus = build_.cpus;
  spec.memory_bytes = build_.memory_bytes;
  spec.lifetime = kPatience + std::chrono::minutes(10);  // when nobody is left to end it
  spec.metadata = {{"template-build", build_.name.name}};
  spec.attributes = {{kBuildAttribute, "on"}};
  return spec;
}

Async<void> TemplateRun::begin() {
  build_.log("info", "FROM " + plan_.from);
  GB_CO_TRY(auto created, co_await create_from(parts_, build_.caller, create_spec()));
  box_ = std::move(created.info);
  user_ = box_.user;
  workdir_ = box_.workdir;
  env_ = box_.env;
  co_return Result<void>();
}

// Instructions ------------------------------------------------------------------------------------------------------------

Async<void> TemplateRun::step(const BuildStep& step) {
  using Kind = BuildStep::Kind;
  switch (step.kind) {
    case Kind::kCopy:
      co_return co_await copy(step);
    case Kind::kRun:
      co_return co_await demand(shell(step.args[0], step.args.size() > 1 && !step.args[1].empty() ? step.args[1] : user_), "RUN");
    case Kind::kWorkdir:
      co_return co_await enter(step.args[0]);
    case Kind::kUser:
      co_return co_await become(step.args[0]);
    case Kind::kEnv:
      set_env(step);
      break;
  }
  co_return Result<void>();
}

Async<void> TemplateRun::copy(const BuildStep& step) {
  const auto arg = [&](size_t i) { return i < step.args.size() ? step.args[i] : std::string(); };
  const std::string staging = "/tmp/.copy-" + build_.step + "-" + build_.id;
  GB_CO_TRYV(co_await parts_.service.make_directory(build_.caller, box_.id, kRoot, staging, true, 0700));
  GB_CO_TRY(const auto sink, co_await parts_.service.write_archive(build_.caller, box_.id, kRoot, staging));
  GB_CO_TRYV(co_await files_.send(build_.caller.tenant, step.files_hash, *sink));
  std::string target = expand_variables(arg(1), env_);
  if (!target.starts_with('/')) target = workdir_ + "/" + target;
  const std::string owner = arg(2).empty() ? user_ : arg(2);
  const Command command{.argv = {"/bin/bash", "-c", std::string(kCopyScript), "copy", staging, arg(0), target,
                                 owner.find(':') == owner.npos ? owner + ":" : owner, arg(3)},
                        .user = kRoot,
                        .cwd = "/"};
  co_return co_await demand(command, "COPY");
}

Async<void> TemplateRun::enter(const std::string& path) {
  const auto wanted = std::filesystem::path(workdir_) / expand_variables(path, env_);
  std::string directory = wanted.lexically_normal().string();
  if (directory.size() > 1 && directory.ends_with('/')) directory.pop_back();
  const Command command{.argv = {"/bin/bash", "-c", std::string(kEnterScript), "enter", directory, user_ + ":"}, .user = kRoot, .cwd = "/"};
  GB_CO_TRYV(co_await demand(command, "WORKDIR"));
  workdir_ = std::move(directory);
  co_return Result<void>();
}

Async<void> TemplateRun::become(const std::string& user) {
  GB_CO_TRYV(co_await parts_.service.stat(build_.caller, box_.id, user, "/", true));  // says when there is no such user
  user_ = user;
  co_return Result<void>();
}

void TemplateRun::set_env(const BuildStep& step) {
  const sandbox::StringMap before = env_;
  for (size_t i = 0; i + 1 < step.args.size(); i += 2) {
    const std::string value = expand_variables(step.args[i + 1], before);
    env_[step.args[i]] = value;
    set_env_[step.args[i]] = value;
  }
}

// The end -----------------------------------------------------------------------------------------------------------------

// The last USER, WORKDIR and ENV are the template's own: a sandbox has those that it was made with, so it is made again.
Async<void> TemplateRun::settle() {
  if (user_ == box_.user && workdir_ == box_.workdir && env_ == box_.env) co_return Result<void>();
  GB_CO_TRY(const auto between, co_await parts_.snapshots.snapshot(build_.caller, box_.id, {}));
  auto spec = create_spec();
  spec.snapshot = between.id;
  spec.user = user_;
  spec.workdir = workdir_;
  spec.env = env_;
  auto next = co_await parts_.service.create(build_.caller, std::move(spec));
  if (next) {
    (void)co_await parts_.service.kill(build_.caller, box_.id);
    box_ = std::move(next->info);
  }
  auto removed = co_await parts_.snapshots.delete_snapshot(build_.caller, between.id);
  if (!removed) log::warn("template.snapshot_left", {{"snapshot", between.id}, {"message", removed.error().message}});
  if (!next) co_return fail(std::move(next).error());
  co_return Result<void>();
}

Async<void> TemplateRun::start() {
  sandbox::ExecutionPtr started;
  if (!plan_.start_command.empty()) {
    build_.log("info", "starting: " + plan_.start_command);
    GB_CO_TRY(started, co_await launch(shell(plan_.start_command, user_)));
  }
  if (!started && plan_.ready_command.empty()) co_return Result<void>();
  co_return co_await wait_ready(started);
}

Async<void> TemplateRun::wait_ready(const sandbox::ExecutionPtr& started) {
  const bool has_command = !plan_.ready_command.empty();
  const Deadline until = after(has_command ? Millis(kReadyPatience) : Millis(kWithoutReadyCommand));
  while (true) {
    GB_CO_TRYV(may_go_on());
    if (started && started->ended() && (started->info().outcome->exit_code != 0 || !has_command))
      co_return fail(Code::kInvalidArgument, "the start command ended: " + how_it_ended(*started->info().outcome));
    if (has_command) {
      auto command = shell(plan_.ready_command, user_);
      command.is_logged = false;
      GB_CO_TRY(const auto outcome, co_await execute(command));
      if (outcome.exit_code == 0) co_return Result<void>();
    }
    if (Clock::now() >= until) {
      if (!has_command) co_return Result<void>();
      co_return fail(Code::kTimeout, "the ready command did not succeed in 5 minutes");
    }
    co_await sleep_for(kReadyInterval);
  }
}

// A start command is of no use without the memory that it has made.
Async<void> TemplateRun::keep() {
  build_.log("info", "keeping the result");
  sandbox::SnapshotSpec spec;
  spec.name = build_.name.name;
  spec.labels = {{kTemplateLabel, build_.template_id}, {kBuildLabel, build_.id}};
  for (const auto& tag : build_.name.tags) spec.labels[kTagLabel + tag] = "on";
  if (!plan_.start_command.empty()) spec.require = runtime::Kept::kMemoryAndFiles;
  const auto made = co_await parts_.snapshots.snapshot(build_.caller, box_.id, std::move(spec));
  if (!made && made.error().code == Code::kUnsupported)
    co_return fail(Code::kUnsupported, "this server does not have startCmd here: " + made.error().message);
  if (!made) co_return fail(made.error());
  co_await replace_older(*made);
  co_return Result<void>();
}

// Tags move on; a build without any is not needed any more.
Awaitable<void> TemplateRun::replace_older(const sandbox::SnapshotInfo& made) {
  sandbox::SnapshotFilter filter;
  filter.labels = {{kTemplateLabel, build_.template_id}};
  const auto older = parts_.snapshots.list_snapshots(build_.caller, filter);
  if (!older) co_return;
  for (const auto& info : older->items) {
    if (info.id == made.id || info.state == "building") continue;  // of another build, which comes here when it is done
    sandbox::StringMap labels = info.labels;
    for (const auto& tag : build_.name.tags) labels.erase(kTagLabel + tag);
    const bool is_used = std::ranges::any_of(labels, [](const auto& label) { return label.first.starts_with(kTagLabel); });
    if (is_used) {
      (void)co_await parts_.snapshots.update_snapshot(build_.caller, info.id, std::nullopt, std::move(labels));
    } else {
      auto removed = co_await parts_.snapshots.delete_snapshot(build_.caller, info.id);
      if (!removed) log::warn("template.snapshot_left", {{"snapshot", info.id}, {"message", removed.error().message}});
    }
  }
}

// Commands ----------------------------------------------------------------------------------------------------------------

TemplateRun::Command TemplateRun::shell(const std::string& line, const std::string& user) const {
  return {.argv = {"/bin/bash", "-l", "-c", line}, .user = user, .cwd = workdir_};
}

Async<sandbox::ExecutionPtr> TemplateRun::launch(const Command& command) {
  sandbox::ExecSpec spec;
  spec.argv = command.argv;
  spec.user = command.user;
  spec.cwd = command.cwd;
  spec.env = set_env_;
  co_return co_await parts_.service.execute(build_.caller, box_.id, std::move(spec));
}

Async<sandbox::Outcome> TemplateRun::execute(const Command& command) {
  GB_CO_TRY(const auto execution, co_await launch(command));
  Lines out(build_, "info"), err(build_, "warn");
  for (uint64_t cursor = 0;;) {
    const bool has_ended = execution->ended();
    GB_CO_TRY(const auto chunks, co_await execution->read(cursor, kReadBytes));
    for (const auto& chunk : chunks) {
      cursor = chunk.cursor + chunk.data.size();
      if (command.is_logged) (chunk.stream == sandbox::Stream::kStdout ? out : err).take(chunk.data);
    }
    if (!chunks.empty()) continue;
    if (has_ended) break;
    if (auto may = may_go_on(); !may) {
      (void)co_await execution->kill();
      co_return fail(std::move(may).error());
    }
    co_await execution->wait_output(cursor, after(kLook));
  }
  out.finish();
  err.finish();
  co_return *execution->info().outcome;
}

Async<void> TemplateRun::demand(const Command& command, const std::string& what) {
  GB_CO_TRY(const auto outcome, co_await execute(command));
  if (outcome.exit_code == 0) co_return Result<void>();
  co_return fail(Code::kInvalidArgument, what + " failed: " + how_it_ended(outcome));
}

}  // namespace glovebox::api::e2b
