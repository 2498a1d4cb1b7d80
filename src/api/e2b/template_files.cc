// SPDX-License-Identifier: Apache-2.0
#include "api/e2b/template_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>

#include "base/unique_fd.h"
#include "image/digest.h"

namespace glovebox::api::e2b {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxArchive = 1ull << 30, kMaxTenant = 4ull << 30;
constexpr uint64_t kLeftForOthers = 1ull << 30;  // of the disk
constexpr std::chrono::hours kKept{24};
constexpr size_t kPiece = 1 << 20;

Result<void> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("keep an archive");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

Result<std::string> read_piece(int fd) {
  std::string piece(kPiece, '\0');
  ssize_t n = -1;
  do n = ::read(fd, piece.data(), piece.size());
  while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno("read an archive");
  piece.resize(static_cast<size_t>(n));
  return piece;
}

}  // namespace

std::string TemplateFiles::folder(const std::string& tenant) const {
  return directory_ + "/" + image::sha256_hex(tenant).substr(0, 32);
}

Awaitable<bool> TemplateFiles::has(const std::string& tenant, const std::string& hash) {
  const std::string path = folder(tenant) + "/" + hash;
  co_return co_await run_blocking(pool_, [path] {  // counts as a use
    return ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) == 0;
  });
}

// Removes what nobody has used for long. Unfinished uploads of a daemon that died are among it.
Result<void> TemplateFiles::make_room(const std::string& folder, uint64_t wanted) const {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) fs::permissions(directory_, fs::perms::owner_all, error);
  if (error) return fail(errno_code(error.value()), "make " + folder + ": " + error.message());
  uint64_t used = 0;
  const auto oldest = fs::file_time_type::clock::now() - kKept;
  for (const auto& tenant : fs::directory_iterator(directory_, error)) {
    for (const auto& file : fs::directory_iterator(tenant.path(), error)) {
      std::error_code gone;
      const auto when = file.last_write_time(gone);
      const uint64_t size = gone ? 0 : file.file_size(gone);
      if (gone) continue;
      if (when < oldest)
        fs::remove(file.path(), gone);
      else if (tenant.path() == folder && file.path().extension() != ".new")
        used += size;
    }
  }
  if (used + wanted > kMaxTenant)
    return fail(Code::kCapacity, "the archives sent for templates have more than 4 GiB together; they are kept for a day");
  const auto space = fs::space(directory_, error);
  if (!error && space.available < wanted + kLeftForOthers) return fail(Code::kCapacity, "the server's disk has no room for the archive");
  return {};
}

Async<void> TemplateFiles::write(const std::string& path, http::BodyReader& body, uint64_t size) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) co_return fail_errno("make " + path);
  for (uint64_t left = size;;) {
    GB_CO_TRY(const std::string piece, co_await body.read_some());
    if (piece.empty()) break;
    if (piece.size() > left) co_return fail(Code::kPayloadTooLarge, "the archive is longer than its Content-Length");
    left -= piece.size();
    GB_CO_TRYV(co_await run_blocking(pool_, [&] { return write_all(fd.get(), piece); }));
  }
  co_return Result<void>();
}

Async<void> TemplateFiles::put(const std::string& tenant, const std::string& hash, http::BodyReader& body, uint64_t size) {
  if (size > kMaxArchive) co_return fail(Code::kPayloadTooLarge, "an archive for COPY may have 1 GiB", {{"limit", std::to_string(kMaxArchive)}});
  const std::string directory = folder(tenant), path = directory + "/" + hash, aside = path + "." + std::to_string(++uploads_) + ".new";
  uint64_t& coming = coming_[tenant];
  coming += size;
  const uint64_t wanted = coming;
  auto done = co_await run_blocking(pool_, [this, directory, wanted] { return make_room(directory, wanted); });
  if (done) done = co_await write(aside, body, size);
  if (done && ::rename(aside.c_str(), path.c_str()) != 0) done = fail_errno("keep " + path);
  if (!done) ::unlink(aside.c_str());
  coming -= size;
  co_return done;
}

Async<void> TemplateFiles::send(const std::string& tenant, const std::string& hash, sandbox::ByteSink& sink) {
  UniqueFd fd(::open((folder(tenant) + "/" + hash).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) co_return fail(Code::kNotFound, "the files of this COPY were not sent, or are gone: they are kept for a day");
  for (;;) {
    GB_CO_TRY(std::string piece, co_await run_blocking(pool_, [&] { return read_piece(fd.get()); }));
    if (piece.empty()) break;
    GB_CO_TRYV(co_await sink.write(std::move(piece)));
  }
  GB_CO_TRYV(co_await sink.finish());
  co_return Result<void>();
}

}  // namespace glovebox::api::e2b
