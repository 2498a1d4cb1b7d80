// SPDX-License-Identifier: Apache-2.0
#include "programs/glovebox/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "base/rollback.h"
#include "base/unique_fd.h"

namespace glovebox::cli {
namespace {

constexpr auto kPatience = std::chrono::minutes(30);
constexpr size_t kBlock = 256 << 10;

}  // namespace

Async<uint64_t> upload(const ApiClient& api, std::string path, int fd, int64_t length) {
  GB_CO_TRY(auto connection, co_await api.connect(kPatience));
  GB_CO_TRYV(co_await connection->start("PUT", api.target(path), api.headers(),
                                        length < 0 ? http::Connection::kChunked : length));
  uint64_t sent = 0;
  for (int64_t left = length; left != 0;) {
    std::string data;
    if (length < 0) {
      data = co_await read_input(fd);
    } else {
      data.resize(static_cast<size_t>(std::min<int64_t>(left, kBlock)));
      const ssize_t got = ::read(fd, data.data(), data.size());
      if (got <= 0) co_return fail(Code::kIo, "the file became shorter while it was sent");
      data.resize(static_cast<size_t>(got));
      left -= got;
    }
    if (data.empty()) break;
    sent += data.size();
    if (!co_await connection->write(data)) break;  // finish() knows why
  }
  GB_CO_TRY(auto head, co_await connection->finish());
  GB_CO_TRY(head, co_await ApiClient::check(*connection, std::move(head)));
  co_return sent;
}

Async<std::unique_ptr<http::Connection>> start_download(const ApiClient& api, std::string path) {
  GB_CO_TRY(auto connection, co_await api.connect(kPatience));
  GB_CO_TRYV(co_await connection->start("GET", api.target(path), api.headers(),
                                        http::Connection::kNoBody));
  GB_CO_TRY(auto head, co_await connection->finish());
  GB_CO_TRY(head, co_await ApiClient::check(*connection, std::move(head)));
  co_return std::move(connection);
}

Async<uint64_t> save_body(Loop& loop, http::Connection& connection, int fd) {
  for (uint64_t saved = 0;;) {
    GB_CO_TRY(const std::string data, co_await connection.read_some(kBlock));
    if (data.empty()) co_return saved;
    GB_CO_TRYV(co_await run_blocking(*loop.pool, [&] { return write_fully(fd, data); }));
    saved += data.size();
  }
}

Async<uint64_t> save_file(Loop& loop, http::Connection& connection, std::string to, mode_t mode) {
  struct stat info{};
  if (::stat(to.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {  // /dev/null, a named pipe
    const UniqueFd special(::open(to.c_str(), O_WRONLY | O_CLOEXEC));
    if (!special) co_return fail_errno(to);
    co_return co_await save_body(loop, connection, special.get());
  }
  const std::string temporary = to + ".glovebox-" + random_name(8);
  UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file) co_return fail_errno(to);
  Rollback undo;
  undo.add([temporary] { ::unlink(temporary.c_str()); });
  GB_CO_TRY(const uint64_t saved, co_await save_body(loop, connection, file.get()));
  if (::close(file.release()) != 0 || ::rename(temporary.c_str(), to.c_str()) != 0)
    co_return fail_errno(to);
  undo.dismiss();
  co_return saved;
}

}  // namespace glovebox::cli
