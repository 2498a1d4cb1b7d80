// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>

#include "base/unique_fd.h"
#include "programs/glovebox/fields.h"
#include "programs/glovebox/local_archive.h"
#include "programs/glovebox/transfer.h"

namespace glovebox::cli {
namespace {
namespace fs = std::filesystem;

std::string base_name(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "DIR/." and ".": the contents, not the directory.
bool means_contents(const std::string& path) {
  return path == "." || ends_with(path, "/.");
}

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() || directory.back() == '/' ? directory + name : directory + "/" + name;
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 0777);
  return text;
}

class Copy {
 public:
  Copy(Loop& loop, const ApiClient& api, std::string user)
      : loop_(loop), api_(api), user_(std::move(user)) {}

  Async<CopyResult> upload(Place from, Place to);
  Async<CopyResult> download(Place from, Place to);

 private:
  std::string query(const Place& place, const std::string& call,
                    const std::string& more = "") const;
  // file, directory, …; empty when there is nothing.
  Async<std::string> remote_type(Place place);
  Async<void> put(std::string path, int fd, int64_t length);
  Async<void> put_directory(std::string directory, Place to);
  Async<void> get_file(Place from, std::string to);
  Async<void> get_directory(Place from, std::string to);
  Async<void> pump(http::Connection& connection, int fd);

  Loop& loop_;
  const ApiClient& api_;
  const std::string user_;
  CopyResult result_;
};

std::string Copy::query(const Place& place, const std::string& call,
                        const std::string& more) const {
  std::string out = "/v1/sandboxes/" + http::percent_encode(place.sandbox) + "/" + call +
                    "?path=" + http::percent_encode(place.path);
  if (!user_.empty()) out += "&user=" + http::percent_encode(user_);
  return out + more;
}

Async<std::string> Copy::remote_type(Place place) {
  auto entry = co_await api_.call("GET", query(place, "files/stat", "&follow=true"));
  if (entry) co_return text(*entry, "type");
  if (entry.error().code == Code::kFileNotFound) co_return std::string();
  co_return fail(std::move(entry).error());
}

Async<void> Copy::put(std::string path, int fd, int64_t length) {
  GB_CO_TRY(const uint64_t sent, co_await cli::upload(api_, std::move(path), fd, length));
  result_.bytes += sent;
  co_return Result<void>();
}

Async<void> Copy::put_directory(std::string directory, Place to) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) co_return fail_errno("pipe");
  const UniqueFd out(ends[0]);
  // The packer ends when its pipe does, whatever happens to the request.
  auto packed = std::make_shared<std::optional<Result<std::vector<std::string>>>>();
  auto done = std::make_shared<Notifier>();
  spawn(loop_.executor, "pack",
        [](auto result, auto notifier, BlockingPool& pool, std::string root,
           int fd) -> Awaitable<void> {
          *result = co_await run_blocking(pool, [root, fd] {
            auto packing = pack_directory(root, fd);
            ::close(fd);
            return packing;
          });
          notifier->notify();
        }(packed, done, *loop_.pool, std::move(directory), ends[1]));
  auto sent = co_await put(query(to, "archive"), out.get(), -1);
  if (!sent) co_return fail(std::move(sent).error());
  while (!*packed) co_await done->wait();
  if (!**packed) co_return fail((**packed).error());
  result_.left_out = std::move(***packed);
  co_return Result<void>();
}

Async<CopyResult> Copy::upload(Place from, Place to) {
  GB_CO_TRY(const std::string there, co_await remote_type(to));
  const bool into = there == "directory" || ends_with(to.path, "/");
  if (from.is_stdio) {
    if (into)
      co_return fail(Code::kIsADirectory,
                     to.path + " is a directory: name the file that standard input becomes");
    GB_CO_TRYV(co_await put(query(to, "files"), STDIN_FILENO, -1));
    co_return std::move(result_);
  }
  struct stat info{};
  if (::stat(from.path.c_str(), &info) != 0) co_return fail_errno(from.path);
  std::string name = base_name(from.path);
  if (S_ISDIR(info.st_mode)) {
    std::error_code ec;
    if (name == "." || name == "..") name = fs::canonical(from.path, ec).filename().string();
    if (into && !means_contents(from.path)) to.path = join(to.path, name);
    GB_CO_TRYV(co_await put_directory(from.path, to));
    co_return std::move(result_);
  }
  if (into) to.path = join(to.path, name);
  const UniqueFd file(::open(from.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file || ::fstat(file.get(), &info) != 0) co_return fail_errno(from.path);
  const int64_t length = S_ISREG(info.st_mode) ? info.st_size : -1;
  GB_CO_TRYV(co_await put(query(to, "files", "&mode=" + octal(info.st_mode)), file.get(), length));
  co_return std::move(result_);
}

Async<void> Copy::pump(http::Connection& connection, int fd) {
  GB_CO_TRY(const uint64_t saved, co_await save_body(loop_, connection, fd));
  result_.bytes += saved;
  co_return Result<void>();
}

Async<void> Copy::get_file(Place from, std::string to) {
  GB_CO_TRY(const auto entry, co_await api_.call("GET", query(from, "files/stat", "&follow=true")));
  mode_t mode = 0644;
  const std::string octal_mode = text(entry, "mode");
  if (!octal_mode.empty())
    mode = static_cast<mode_t>(std::strtoul(octal_mode.c_str(), nullptr, 8)) & 0777;
  GB_CO_TRY(auto connection, co_await start_download(api_, query(from, "files")));
  GB_CO_TRY(const uint64_t saved, co_await save_file(loop_, *connection, std::move(to), mode));
  result_.bytes += saved;
  co_return Result<void>();
}

Async<void> Copy::get_directory(Place from, std::string to) {
  GB_CO_TRY(auto connection, co_await start_download(api_, query(from, "archive")));
  std::error_code ec;
  fs::create_directories(to, ec);
  if (ec) co_return fail(Code::kIo, to + ": " + ec.message());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) co_return fail_errno("pipe");
  UniqueFd in(ends[1]);
  auto unpacked = std::make_shared<std::optional<Result<std::vector<std::string>>>>();
  auto done = std::make_shared<Notifier>();
  spawn(loop_.executor, "unpack",
        [](auto result, auto notifier, BlockingPool& pool, std::string root,
           int fd) -> Awaitable<void> {
          *result = co_await run_blocking(pool, [root, fd] {
            auto unpacking = unpack_into(root, fd);
            ::close(fd);  // the pump sees EPIPE when this is early
            return unpacking;
          });
          notifier->notify();
        }(unpacked, done, *loop_.pool, to, ends[0]));
  auto pumped = co_await pump(*connection, in.get());
  in.reset();
  while (!*unpacked) co_await done->wait();
  // A broken stream explains a broken archive; a refused archive explains a closed pipe.
  if (!pumped && pumped.error().code != Code::kCancelled) co_return fail(std::move(pumped).error());
  if (!**unpacked) co_return fail((**unpacked).error());
  result_.left_out = std::move(***unpacked);
  co_return Result<void>();
}

Async<CopyResult> Copy::download(Place from, Place to) {
  GB_CO_TRY(const std::string type, co_await remote_type(from));
  if (type.empty())
    co_return fail(Code::kFileNotFound,
                   from.sandbox + ":" + from.path + ": no such file or directory");
  const bool is_directory = type == "directory";
  if (to.is_stdio) {
    GB_CO_TRY(auto connection, co_await start_download(api_, query(from, is_directory ? "archive" : "files")));
    GB_CO_TRYV(co_await pump(*connection, STDOUT_FILENO));
    co_return std::move(result_);
  }
  struct stat info{};
  const bool into =
      (::stat(to.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) || ends_with(to.path, "/");
  const std::string name = base_name(from.path);
  // A name from the sandbox's side is never a way out of the directory that the user named.
  if (into && !(is_directory && means_contents(from.path))) {
    if (name == ".." || name == "." || name == "/" || name.empty())
      co_return fail(Code::kInvalidPath, "name the target's full path");
    to.path = join(to.path, name);
  }
  if (is_directory) {
    GB_CO_TRYV(co_await get_directory(from, to.path));
  } else {
    GB_CO_TRYV(co_await get_file(from, to.path));
  }
  co_return std::move(result_);
}

}  // namespace

Place parse_place(const std::string& text) {
  if (text == "-") return {"", "", true};
  const size_t colon = text.find(':');
  const bool has_id = colon != std::string::npos && colon > 0 &&
                      text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_") == colon;
  if (!has_id) return {"", text, false};
  return {text.substr(0, colon), text.size() == colon + 1 ? "." : text.substr(colon + 1), false};
}

Async<CopyResult> copy(Loop& loop, const ApiClient& api, Place from, Place to, std::string user) {
  if (from.is_remote() == to.is_remote()) {
    co_return fail(
        Code::kInvalidArgument,
        "one side must be in a sandbox, the other on this host: `glovebox cp FILE ID:PATH`");
  }
  Copy work(loop, api, std::move(user));
  if (to.is_remote()) co_return co_await work.upload(std::move(from), std::move(to));
  co_return co_await work.download(std::move(from), std::move(to));
}

}  // namespace glovebox::cli
