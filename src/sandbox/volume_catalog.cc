// SPDX-License-Identifier: Apache-2.0
#include "sandbox/volume_catalog.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <set>

#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "http/json.h"
#include "image/volume_disk.h"
#include "metrics/metrics.h"
#include "sys/ext4.h"
#include "sys/files.h"

namespace glovebox::sandbox {
namespace {

namespace bj = boost::json;
constexpr const char* kKind = "volume";
constexpr std::string_view kReady = "ready", kCreating = "creating", kDeleting = "deleting";
constexpr size_t kMaxName = 64, kMaxPath = 1024, kMaxDepth = 32, kMaxMounts = 8;
constexpr size_t kMaxLabels = 64, kMaxLabelBytes = 16 * 1024;
constexpr uint64_t kMiB = 1 << 20;
constexpr size_t kPiece = 256 << 10;

tl::unexpected<Error> bad_field(const std::string& field, const std::string& what) {
  return fail(Code::kInvalidArgument, field + ": " + what, {{"field", field}});
}

bool is_volume_name(const std::string& name) {
  const auto is_plain = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  const bool is_clean = std::ranges::all_of(name, [&](char c) { return is_plain(c) || c == '-'; });
  return is_clean && !name.empty() && name.size() <= kMaxName && is_plain(name.front()) &&
         is_plain(name.back());
}

bj::object to_json(const StringMap& map) {
  bj::object out;
  for (const auto& [key, value] : map) out[key] = value;
  return out;
}

std::string encode(const VolumeInfo& info, std::string_view state) {
  return json::to_text(bj::object{{"name", info.name},
                                  {"state", state},
                                  {"bytes", info.bytes},
                                  {"labels", to_json(info.labels)},
                                  {"attributes", to_json(info.attributes)}});
}

struct Recorded {
  VolumeInfo info;
  std::string state;
};
Result<Recorded> decode(const store::ObjectRow& row) {
  GB_TRY(const auto document, json::parse_object(row.document));
  json::Reader r(document);
  Recorded out;
  out.info.id = row.id;
  out.info.tenant = row.tenant;
  out.info.created_at = from_unix_millis(row.created_ms);
  GB_TRY(out.info.name, r.string("name").required());
  GB_TRY(out.state, r.string("state").required());
  GB_TRY(const auto bytes, r.integer("bytes", 0, INT64_MAX).required());
  out.info.bytes = static_cast<uint64_t>(bytes);
  GB_TRY(out.info.labels, r.string_map("labels").or_default({}));
  GB_TRY(out.info.attributes, r.string_map("attributes").or_default({}));
  return out;
}

// True when one is the other, or a directory on the way to it.
bool overlaps(const std::string& a, const std::string& b) {
  const std::string x = a + "/", y = b + "/";
  return x.starts_with(y) || y.starts_with(x);
}

std::pair<int64_t, std::string> order_of(const VolumeInfo& info) {
  return {unix_millis(info.created_at), info.id};
}

// An unnamed file of the host: it is gone when nobody uses it any more, whatever happens to the
// daemon.
Result<UniqueFd> unnamed_file(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd) return fail_errno("make a file in " + directory);
  return fd;
}

class FileSource final : public ByteSource {
 public:
  FileSource(BlockingPool& pool, UniqueFd file, uint64_t size)
      : pool_(pool), file_(std::move(file)) {
    length = size;
  }
  Async<std::string> read() override {
    co_return co_await run_blocking(pool_, [this]() -> Result<std::string> {
      std::string piece(kPiece, '\0');
      const ssize_t n = ::pread(file_.get(), piece.data(), piece.size(), static_cast<off_t>(at_));
      if (n < 0) return fail_errno("read the archive");
      piece.resize(static_cast<size_t>(n));
      at_ += piece.size();
      return piece;
    });
  }

 private:
  BlockingPool& pool_;
  UniqueFd file_;
  uint64_t at_ = 0;
};

}  // namespace

std::string volume_disk_path(const Config& config, const std::string& id) {
  return config.data_dir + "/volumes/" + id + "/disk.img";
}

std::vector<runtime::VolumeDisk> volume_disks(const std::vector<VolumeMount>& mounts,
                                              const Config& config) {
  std::vector<runtime::VolumeDisk> disks;
  for (const VolumeMount& m : mounts)
    disks.push_back({volume_disk_path(config, m.volume), m.path, m.read_only});
  return disks;
}

// Where the system or the agent put files of their own, a volume would hide them or get them.
Result<void> check_mount_path(const std::string& path) {
  const auto wrong = [&](const std::string& what) {
    return fail(Code::kInvalidPath, "a volume's path " + what,
                {{"path", utf8_lossy(path.substr(0, 200))}});
  };
  if (!path.starts_with('/')) return wrong("must begin with '/'");
  if (path.size() > kMaxPath || !is_utf8(path))
    return wrong("must be UTF-8, at most " + std::to_string(kMaxPath) + " bytes");
  if (std::ranges::any_of(path, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return wrong("must not hold control characters");
  const auto parts = split(std::string_view(path).substr(1), '/');
  if (parts.size() > kMaxDepth) return wrong("is too deep");
  for (const std::string& part : parts) {
    if (part.empty() || part == "." || part == ".." || part.size() > 255)
      return wrong("must be plain: no '//', '.', '..' or '/' at its end");
  }
  for (const char* own : {"/proc", "/sys", "/dev", "/etc", "/run", "/tmp", "/.glovebox"}) {
    if (overlaps(path, own)) return wrong(std::string("must not be in ") + own);
  }
  for (const char* own : {"/usr", "/bin", "/sbin", "/lib", "/lib64"}) {
    if (path == own) return wrong(std::string("must not be ") + own);
  }
  return {};
}

// Keeps sandboxes and other work away while it lives.
class VolumeCatalog::Hold {
 public:
  Hold(VolumePtr volume, Work work) : volume_(std::move(volume)) { volume_->work = work; }
  Hold(Hold&&) noexcept = default;
  Hold& operator=(Hold&&) = delete;
  ~Hold() {
    if (volume_) volume_->work = Work::kNone;
  }

 private:
  VolumePtr volume_;
};

VolumeCatalog::VolumeCatalog(Parts parts) : parts_(std::move(parts)) {
  metrics::registry().gauge("glovebox_volumes", "Volumes there are.", [this] {
    return metrics::Registry::Samples{{{}, static_cast<double>(volumes_.size())}};
  });
}

VolumeCatalog::~VolumeCatalog() {
  metrics::registry().gauge("glovebox_volumes", "Volumes there are.", nullptr);
}

std::string VolumeCatalog::directory(const std::string& id) const {
  return parts_.config->data_dir + "/volumes/" + id;
}

void VolumeCatalog::remove_files(const std::string& id) const {
  auto removed = sys::remove_tree(directory(id));
  if (!removed)
    log::error("volume.files_left", {{"volume", id}, {"message", removed.error().message}});
}

Result<void> VolumeCatalog::load() {
  const std::string all = parts_.config->data_dir + "/volumes";
  GB_TRYV(sys::make_directories(all, 0700));
  GB_TRY(const auto rows, parts_.store->load_objects(kKind));
  std::set<std::string> known, unreadable;
  for (const store::ObjectRow& row : rows) {
    auto recorded = decode(row);
    if (!recorded) {
      log::error("volume.record_unreadable",
                 {{"volume", row.id}, {"message", recorded.error().message}});
      unreadable.insert(row.id);  // its files are somebody's data: for a person to look at
      continue;
    }
    auto volume = std::make_shared<Volume>();
    volume->info = std::move(recorded->info);
    // A daemon that died while it grew may have done so without a word.
    struct stat st{};
    if (::stat(volume_disk_path(*parts_.config, row.id).c_str(), &st) == 0) {
      volume->info.bytes = std::max(volume->info.bytes, static_cast<uint64_t>(st.st_size));
    }
    // Half made or half removed: the row goes when the files have, see create_volume() and
    // delete_volume().
    if (recorded->state != kReady) volume->work = Work::kDelete;
    known.insert(row.id);
    volumes_[row.id] = std::move(volume);
  }
  for (const std::string& name : sys::list_directory(all)) {
    const bool is_whole = known.contains(name) && volumes_[name]->work == Work::kNone;
    if (is_whole) (void)::unlink((all + "/" + name + "/disk.img.new").c_str());
    if (is_whole || unreadable.contains(name)) continue;
    if (!known.contains(name) && sys::exists(all + "/" + name + "/disk.img")) {  // of another ledger: somebody's data all the same
      log::error("volume.unknown_disk", {{"path", all + "/" + name}});
      continue;
    }
    log::warn("volume.swept", {{"volume", name}});
    remove_files(name);
  }
  return {};
}

Awaitable<void> VolumeCatalog::recover() {
  for (const auto& [id, volume] : std::map(volumes_)) {
    if (volume->work != Work::kDelete) continue;
    auto deleted = co_await parts_.store->delete_object(kKind, id);
    if (!deleted)
      log::error("volume.not_forgotten", {{"volume", id}, {"message", deleted.error().message}});
    volumes_.erase(id);
    changed_.notify();
  }
}

VolumeCatalog::VolumePtr VolumeCatalog::find_name(const std::string& tenant,
                                                  const std::string& name) const {
  const auto found = std::ranges::find_if(volumes_, [&](const auto& v) {
    return v.second->info.tenant == tenant && v.second->info.name == name;
  });
  return found == volumes_.end() ? nullptr : found->second;
}

// An id first: a name that looks like another volume's id does not hide it.
Result<VolumeCatalog::VolumePtr> VolumeCatalog::find(const Caller& caller,
                                                     const std::string& ref) const {
  const auto by_id = volumes_.find(ref);
  VolumePtr found = by_id != volumes_.end() && by_id->second->info.tenant == caller.tenant
                        ? by_id->second
                        : find_name(caller.tenant, ref);
  if (found && found->work != Work::kCreate && found->work != Work::kDelete) return found;
  return fail(Code::kVolumeNotFound, "no volume '" + utf8_lossy(ref.substr(0, 64)) + "'");
}

VolumeInfo VolumeCatalog::view(const Volume& volume) const {
  VolumeInfo info = volume.info;
  for (const Use& use : parts_.uses(info.id)) {
    if (use.read_only)
      info.readers.push_back(use.sandbox);
    else
      info.writer = use.sandbox;
  }
  if (info.writer.empty())
    info.used_bytes = sys::ext4_use(volume_disk_path(*parts_.config, info.id));
  return info;
}

Result<void> VolumeCatalog::check_free(const Volume& volume, bool readers_may) const {
  static constexpr const char* kNames[] = {
      "free",          "being created",       "being resized",
      "being deleted", "being imported into", "being exported"};
  if (volume.work != Work::kNone) {
    const std::string state = kNames[static_cast<int>(volume.work)];
    return fail(Code::kVolumeInUse, "volume '" + volume.info.name + "' is " + state,
                {{"state", state}});
  }
  for (const Use& use : parts_.uses(volume.info.id)) {
    if (use.read_only && readers_may) continue;
    return fail(Code::kVolumeInUse,
                "volume '" + volume.info.name + "' is attached to sandbox " + use.sandbox +
                    (use.read_only ? ", read-only" : ""),
                {{"sandbox", use.sandbox}, {"mode", use.read_only ? "read-only" : "read-write"}});
  }
  return {};
}

Result<std::vector<VolumeMount>> VolumeCatalog::mounts_for(const Caller& caller,
                                                           std::vector<VolumeMount> wanted) const {
  if (wanted.size() > kMaxMounts)
    return bad_field("volumes", "has more than " + std::to_string(kMaxMounts) + " entries");
  for (size_t i = 0; i < wanted.size(); ++i) {
    GB_TRYV(check_mount_path(wanted[i].path));
    GB_TRY(const auto volume, find(caller, wanted[i].volume));
    GB_TRYV(check_free(*volume, wanted[i].read_only));
    wanted[i].volume = volume->info.id;
    for (size_t k = 0; k < i; ++k) {
      if (wanted[k].volume == wanted[i].volume)
        return bad_field("volumes", "names '" + volume->info.name + "' twice");
      if (overlaps(wanted[k].path, wanted[i].path))
        return bad_field("volumes", "has paths that lie in one another");
    }
  }
  return wanted;
}

Result<void> VolumeCatalog::check_quota(const std::string& tenant, uint64_t more_bytes,
                                        bool is_new) const {
  const VolumeLimits& limits = parts_.config->volumes;
  uint64_t bytes = more_bytes;
  size_t count = is_new ? 1 : 0;
  for (const auto& [id, volume] : volumes_) {
    if (volume->info.tenant != tenant) continue;
    bytes += volume->info.bytes;
    ++count;
  }
  const auto over = [](const char* what, uint64_t size, uint64_t use) {
    return fail(Code::kCapacity, std::string("the tenant's limit of volumes is reached: ") + what,
                {{"limit", what}, {"size", std::to_string(size)}, {"use", std::to_string(use)}});
  };
  if (count > limits.count) return over("volumes.max_per_tenant", limits.count, count - 1);
  if (bytes > limits.total_bytes)
    return over("volumes.max_total_mb", limits.total_bytes / kMiB, (bytes - more_bytes) / kMiB);
  return {};
}

Result<void> VolumeCatalog::check_spec(const Caller& caller, const VolumeSpec& spec) const {
  if (!is_volume_name(spec.name))
    return bad_field("name",
                     "must be lower-case letters and digits with dashes between, at most 64");
  const uint64_t max = parts_.config->volumes.bytes;
  if (spec.bytes < image::kMinVolumeBytes || spec.bytes > max || spec.bytes % kMiB != 0) {
    return bad_field("size_mb", "must be between " + std::to_string(image::kMinVolumeBytes / kMiB) +
                                    " and " + std::to_string(max / kMiB) + " here");
  }
  size_t bytes = 0;
  for (const auto& [key, value] : spec.labels) {
    bytes += key.size() + value.size();
    if (key.empty() || !is_utf8(key) || !is_utf8(value))
      return bad_field("labels", "must be UTF-8, with names");
  }
  if (spec.labels.size() > kMaxLabels || bytes > kMaxLabelBytes)
    return bad_field("labels", "are too many");
  return check_quota(caller.tenant, spec.bytes, true);
}

Async<void> VolumeCatalog::record(const Volume& volume, std::string_view state) const {
  const VolumeInfo& i = volume.info;
  return parts_.store->put_object(
      {kKind, i.id, i.tenant, unix_millis(i.created_at), encode(i, state)});
}

Async<void> VolumeCatalog::make(VolumePtr volume) {
  GB_CO_TRYV(co_await record(*volume, kCreating));
  const std::string path = volume_disk_path(*parts_.config, volume->info.id),
                    place = directory(volume->info.id);
  auto made = co_await run_blocking(*parts_.pool, [&]() -> Result<void> {
    GB_TRYV(sys::make_directory(place, 0700));
    return image::make_volume_disk(path, volume->info.bytes);
  });
  if (made) made = co_await record(*volume, kReady);
  if (made) co_return made;
  co_await run_blocking(*parts_.pool, [&] {
    remove_files(volume->info.id);
    return Result<void>();
  });
  auto forgotten = co_await parts_.store->delete_object(kKind, volume->info.id);
  if (!forgotten)
    log::error("volume.not_forgotten",
               {{"volume", volume->info.id}, {"message", forgotten.error().message}});
  co_return made;
}

Async<Volumes::Made> VolumeCatalog::create_volume(const Caller& caller, VolumeSpec spec,
                                                  bool get_or_create) {
  while (const auto there = find_name(caller.tenant, spec.name)) {
    if (there->work == Work::kDelete ||
        (get_or_create && there->work == Work::kCreate)) {  // in a moment it is gone, or there
      co_await changed_.wait();
      continue;
    }
    if (get_or_create) co_return Made{view(*there), true};
    co_return fail(Code::kAlreadyExists, "there is a volume '" + spec.name + "'",
                   {{"volume", there->info.id}});
  }
  GB_CO_TRYV(check_spec(caller, spec));
  auto volume = std::make_shared<Volume>();
  VolumeInfo& info = volume->info;
  info.id = "vol-" + random_name(12);
  info.tenant = caller.tenant;
  info.name = std::move(spec.name);
  info.bytes = spec.bytes;
  info.labels = std::move(spec.labels);
  info.attributes = std::move(spec.attributes);
  info.created_at = std::chrono::system_clock::now();
  volume->work = Work::kCreate;
  volumes_[info.id] = volume;  // its name and its part of the quota are taken from now on
  auto made = co_await make(volume);
  volume->work = Work::kNone;
  if (!made) volumes_.erase(info.id);
  changed_.notify();
  if (!made) co_return fail(made.error());
  log::info("volume.created",
            {{"volume", info.id}, {"name", info.name}, {"mb", info.bytes / kMiB}});
  co_return Made{view(*volume), false};
}

Result<VolumeInfo> VolumeCatalog::get_volume(const Caller& caller, const std::string& ref) const {
  GB_TRY(const auto volume, find(caller, ref));
  return view(*volume);
}

Result<Page<VolumeInfo>> VolumeCatalog::list_volumes(const Caller& caller, size_t limit,
                                                     const std::string& cursor) const {
  std::vector<VolumePtr> all;
  for (const auto& [id, volume] : volumes_) {
    if (volume->info.tenant == caller.tenant && volume->work != Work::kCreate &&
        volume->work != Work::kDelete)
      all.push_back(volume);
  }
  std::ranges::sort(
      all, [](const auto& a, const auto& b) { return order_of(a->info) > order_of(b->info); });
  if (!cursor.empty()) {
    const size_t dot = cursor.find('.');
    const auto ms = parse_int(std::string_view(cursor).substr(0, dot));
    if (!ms || dot == std::string::npos) return bad_field("cursor", "is not one of ours");
    const std::pair<int64_t, std::string> last(*ms, cursor.substr(dot + 1));
    std::erase_if(all, [&](const auto& v) { return order_of(v->info) >= last; });
  }
  Page<VolumeInfo> page;
  if (all.size() > limit) {
    all.resize(limit);
    const auto [ms, id] = order_of(all.back()->info);
    page.next_cursor = std::to_string(ms) + "." + id;
  }
  for (const auto& volume : all) page.items.push_back(view(*volume));
  return page;
}

Async<VolumeInfo> VolumeCatalog::grow_volume(const Caller& caller, const std::string& ref,
                                             uint64_t bytes) {
  GB_CO_TRY(const auto volume, find(caller, ref));
  const uint64_t max = parts_.config->volumes.bytes;
  if (bytes < volume->info.bytes)
    co_return bad_field("size_mb", "is smaller than the volume; it can only grow");
  if (bytes > max || bytes % kMiB != 0)
    co_return bad_field("size_mb", "must be at most " + std::to_string(max / kMiB) + " here");
  if (bytes == volume->info.bytes) co_return view(*volume);
  GB_CO_TRYV(check_free(*volume, false));
  GB_CO_TRYV(check_quota(caller.tenant, bytes - volume->info.bytes, false));
  const Hold hold(volume, Work::kGrow);
  const uint64_t before = std::exchange(volume->info.bytes, bytes);  // of the quota, from now on
  const std::string path = volume_disk_path(*parts_.config, volume->info.id);
  const auto place = co_await gate_->enter();
  auto grown =
      co_await run_blocking(*parts_.pool, [&] { return image::grow_volume_disk(path, bytes); });
  if (!grown) volume->info.bytes = before;
  if (grown) grown = co_await record(*volume, kReady);
  if (!grown) co_return fail(grown.error());
  log::info("volume.resized", {{"volume", volume->info.id}, {"mb", bytes / kMiB}});
  co_return view(*volume);
}

Async<void> VolumeCatalog::delete_volume(const Caller& caller, const std::string& ref) {
  GB_CO_TRY(const auto volume, find(caller, ref));
  GB_CO_TRYV(check_free(*volume, false));
  volume->work = Work::kDelete;  // for good, once it is recorded
  auto deleted = co_await record(*volume, kDeleting);
  if (!deleted) {
    volume->work = Work::kNone;
    changed_.notify();
    co_return deleted;
  }
  const std::string id = volume->info.id;
  co_await run_blocking(*parts_.pool, [&] {
    remove_files(id);
    return Result<void>();
  });
  deleted = co_await parts_.store->delete_object(kKind, id);
  if (!deleted)
    log::error("volume.not_forgotten",
               {{"volume", id}, {"message", deleted.error().message}});  // the next start does
  volumes_.erase(id);
  changed_.notify();
  log::info("volume.deleted", {{"volume", id}, {"name", volume->info.name}});
  co_return Result<void>();
}

Async<std::unique_ptr<ByteSource>> VolumeCatalog::export_volume(const Caller& caller,
                                                                const std::string& ref) {
  GB_CO_TRY(const auto volume, find(caller, ref));
  GB_CO_TRYV(check_free(*volume, true));
  const Hold hold(volume, Work::kExport);
  const std::string path = volume_disk_path(*parts_.config, volume->info.id),
                    directory = parts_.config->data_dir + "/volumes";
  const auto place = co_await gate_->enter();
  auto packed = co_await run_blocking(*parts_.pool, [&]() -> Result<std::pair<UniqueFd, uint64_t>> {
    GB_TRY(auto file, unnamed_file(directory));
    GB_TRYV(image::export_volume_disk(path, file.get()));
    const off_t size = ::lseek(file.get(), 0, SEEK_END);
    if (size < 0) return fail_errno("measure the archive");
    return std::pair(std::move(file), static_cast<uint64_t>(size));
  });
  if (!packed) co_return fail(packed.error());
  co_return std::make_unique<FileSource>(*parts_.pool, std::move(packed->first), packed->second);
}

// Kept aside until all of it is there: a caller who goes away in the middle has changed nothing.
class VolumeCatalog::ImportSink final : public ByteSink {
 public:
  ImportSink(VolumeCatalog& catalog, VolumePtr volume, UniqueFd file)
      : catalog_(catalog),
        volume_(volume),
        hold_(std::move(volume), Work::kImport),
        file_(std::move(file)) {
    most_ = 2 * volume_->info.bytes + (64 << 20);  // headers and padding
  }
  Async<void> write(std::string data) override {
    size_ += data.size();
    if (size_ > most_)
      co_return fail(Code::kPayloadTooLarge, "the archive is much larger than the volume",
                     {{"limit", "archive_bytes"}});
    co_return co_await run_blocking(*catalog_.parts_.pool, [&]() -> Result<void> {
      for (std::string_view rest = data; !rest.empty();) {
        const ssize_t n = ::write(file_.get(), rest.data(), rest.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("keep the archive");
        rest.remove_prefix(static_cast<size_t>(n));
      }
      return {};
    });
  }
  Async<std::optional<FileEntry>> finish() override {
    const std::string path = volume_disk_path(*catalog_.parts_.config, volume_->info.id);
    const auto place = co_await catalog_.gate_->enter();
    auto done = co_await run_blocking(*catalog_.parts_.pool, [&]() -> Result<void> {
      if (::lseek(file_.get(), 0, SEEK_SET) != 0) return fail_errno("rewind the archive");
      return image::import_volume_disk(path, file_.get());
    });
    if (done) co_return std::optional<FileEntry>();
    if (done.error().code != Code::kCorrupt) co_return fail(done.error());
    co_return bad_field("archive", done.error().message);  // nothing of ours is
  }

 private:
  VolumeCatalog& catalog_;
  VolumePtr volume_;
  Hold hold_;
  UniqueFd file_;
  uint64_t size_ = 0, most_ = 0;
};

Async<std::unique_ptr<ByteSink>> VolumeCatalog::import_volume(const Caller& caller,
                                                              const std::string& ref) {
  GB_CO_TRY(const auto volume, find(caller, ref));
  GB_CO_TRYV(check_free(*volume, false));
  GB_CO_TRY(auto file, unnamed_file(parts_.config->data_dir + "/volumes"));
  co_return std::make_unique<ImportSink>(*this, volume, std::move(file));
}

}  // namespace glovebox::sandbox
