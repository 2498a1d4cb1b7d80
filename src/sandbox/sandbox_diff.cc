// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "sandbox/diff.h"
#include "sandbox/diff_record.h"
#include "sandbox/files.h"
#include "sandbox/snapshots_impl.h"
#include "sys/files.h"

// What is different in a running sandbox, asked of its agent.
namespace glovebox::sandbox {
namespace {

constexpr size_t kPageEntries = 1000;
constexpr Millis kLongestPage{5'000}, kLongestRecord{1'000};
constexpr size_t kMostRecorded = 50'000, kMaxRecordBytes = 512u << 20;
constexpr const char* kRecord = "changes";  // in a snapshot's directory
constexpr const char* kRoot = "0";  // sees everything

// Kernel interfaces, and what the platform itself writes in every sandbox.
constexpr const char* kLeftOut[] = {"/dev", "/proc", "/sys", "/.glovebox", "/run/glovebox", "/etc/hostname", "/etc/hosts", "/etc/machine-id", "/etc/resolv.conf"};

class LiveTree : public diff::Tree {
 public:
  explicit LiveTree(std::shared_ptr<Sandbox> box) : box_(std::move(box)) {}

  Async<Listing> list(const std::string& directory, const std::string& after) override {
    auto page = co_await files::list(box_, kRoot, directory, after, kPageEntries);
    if (!page && is_missing(page.error().code)) co_return Listing();  // it went meanwhile
    if (!page) co_return fail(page.error());
    co_return Listing{std::move(page->entries), page->more};
  }
  Async<std::optional<FileEntry>> find(const std::string& path) override {
    auto entry = co_await files::stat(box_, kRoot, path, false);
    if (!entry && is_missing(entry.error().code)) co_return std::optional<FileEntry>();
    if (!entry) co_return fail(entry.error());
    co_return std::optional<FileEntry>(std::move(*entry));
  }

 private:
  static bool is_missing(Code code) { return code == Code::kFileNotFound || code == Code::kNotADirectory; }

  std::shared_ptr<Sandbox> box_;
};

diff::Options usual_options(const Sandbox& box) {
  diff::Options options;
  options.left_out.insert(std::begin(kLeftOut), std::end(kLeftOut));
  for (const VolumeMount& volume : box.info().volumes) options.left_out.insert(volume.path);
  options.not_itself = {"/home", "/home/" + box.info().user, "/tmp", "/workspace"};  // the agent makes them the user's
  return options;
}

// All changes of a sandbox; nothing when they are too many to be had quickly.
Async<std::optional<std::vector<FileChange>>> all_changes(std::shared_ptr<Sandbox> box, BlockingPool& pool) {
  GB_CO_TRY(UniqueFd root, co_await box->open_template());
  const auto before = diff::directory_tree(std::move(root), pool);
  LiveTree now(box);
  diff::Options options = usual_options(*box);
  options.limit = kMostRecorded;
  options.deadline = after(kLongestRecord);
  GB_CO_TRY(auto page, co_await diff::compare(*before, now, options));
  if (!page.next_cursor.empty()) co_return std::optional<std::vector<FileChange>>();
  co_return std::optional(std::move(page.items));
}

}  // namespace

// One that stands still is not woken for it.
Awaitable<void> SnapshotsImpl::record_changes(Box box, std::string directory) {
  if (box->info().state != State::kReady) co_return;
  const auto changes = co_await all_changes(box, *host_.pool);
  if (!changes || !*changes) co_return;
  auto written = co_await run_blocking(*host_.pool, [&] { return sys::put_file(directory + "/" + kRecord, diff::encode(**changes), 0600); });
  if (!written) log::warn("snapshot.changes_not_recorded", {{"message", written.error().message}});
}

Async<std::vector<FileChange>> SnapshotsImpl::recorded_changes(const Caller& caller, const SandboxInfo& sandbox, const std::string& id) {
  GB_CO_TRY(const auto entry, find_ready(caller.tenant, id));
  const SnapshotInfo& snapshot = entry->document.info;
  const auto hold = SnapshotCatalog::hold(entry);
  const bool is_related = snapshot.template_version == sandbox.template_version && snapshot.tier == sandbox.tier &&
                          (snapshot.source_sandbox == sandbox.id || sandbox.snapshot_id == id);
  if (!is_related) {
    co_return fail(Code::kInvalidArgument, "against: the snapshot is neither of this sandbox nor what it was started from", {{"field", "against"}});
  }
  const auto text = co_await run_blocking(*host_.pool, [&] { return sys::read_file(catalog_.directory(id) + "/" + kRecord, kMaxRecordBytes); });
  if (!text) co_return fail(Code::kUnsupported, "against: what had changed was not recorded with this snapshot", {{"field", "against"}});
  co_return diff::decode(*text);
}

Async<Page<FileChange>> SnapshotsImpl::diff(const Caller& caller, const std::string& sandbox, const std::string& against, size_t limit,
                                            const std::string& cursor) {
  GB_CO_TRY(const Box box, host_.find(caller, sandbox));
  GB_CO_TRY(UniqueFd root, co_await box->open_template());
  const auto tmpl = diff::directory_tree(std::move(root), *host_.pool);
  LiveTree now(box);
  diff::Options options = usual_options(*box);
  options.limit = limit;
  options.cursor = cursor;
  options.deadline = after(kLongestPage);
  if (against.empty()) co_return co_await diff::compare(*tmpl, now, options);
  GB_CO_TRY(auto changes, co_await recorded_changes(caller, box->info(), against));
  const auto before = diff::changed_tree(*tmpl, std::move(changes));
  co_return co_await diff::compare(*before, now, options);
}

}  // namespace glovebox::sandbox
