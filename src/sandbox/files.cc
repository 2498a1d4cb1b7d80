// SPDX-License-Identifier: Apache-2.0
#include "sandbox/files.h"

#include "sandbox/gzip.h"

namespace glovebox::sandbox::files {
namespace {

constexpr size_t kMaxPathBytes = 4095;

const Patience& patience_of(const Sandbox& box) { return box.config().patience; }

// {"op":…,"user":…,"path":…} with more fields to be appended; close with '}'.
std::string begin_request(const Sandbox& box, std::string_view op, const std::string& user) {
  std::string out = "{\"op\":";
  append_json_string(out, op);
  out += ",\"user\":";
  append_json_string(out, user.empty() ? box.info().user : user);
  return out;
}
void add_bytes(std::string& out, std::string_view name, std::string_view value) {
  out += ",\"" + std::string(name) + "\":";
  codec::append_bytes(out, value);
}
// Relative paths mean the same to files as to executions: they start at the sandbox's working directory.
std::string absolute(const Sandbox& box, const std::string& path) {
  const std::string& workdir = box.info().workdir;
  return path.starts_with('/') || !workdir.starts_with('/') ? path : workdir + "/" + path;
}
void add(std::string& out, std::string_view name, bool value) {
  out += ",\"" + std::string(name) + (value ? "\":true" : "\":false");
}
void add(std::string& out, std::string_view name, uint64_t value) {
  out += ",\"" + std::string(name) + "\":" + std::to_string(value);
}

Async<std::string> ask(std::shared_ptr<Sandbox> box, std::string request, Millis timeout) {
  GB_CO_TRY(auto lease, co_await box->use());
  co_return co_await lease.link()->request(std::move(request), after(timeout));
}

class AgentSource : public ByteSource {
 public:
  AgentSource(Sandbox::Lease lease, const Patience& patience)
      : lease_(std::move(lease)), transfer_(lease_.link()), patience_(patience) {}
  Async<void> start(std::string request) {
    GB_CO_TRY(const std::string answer, co_await transfer_.start(std::move(request), after(patience_.answer)));
    GB_CO_TRY(auto decoded, codec::decode_read(answer));
    entry = std::move(decoded.entry);
    length = decoded.length;
    co_return Result<void>();
  }
  // What was promised is kept, or it is an error: a caller may have passed the length on.
  Async<std::string> read() override {
    GB_CO_TRY(std::string piece, co_await transfer_.read(patience_.idle));
    given_ += piece.size();
    if (length && (given_ > *length || (piece.empty() && given_ < *length))) {
      co_return fail(Code::kAgentProtocol, "the agent sent another number of bytes than it promised");
    }
    co_return piece;
  }

 private:
  Sandbox::Lease lease_;
  channel::Transfer transfer_;
  Patience patience_;
  uint64_t given_ = 0;
};

class AgentSink : public ByteSink {
 public:
  AgentSink(Sandbox::Lease lease, const Patience& patience)
      : lease_(std::move(lease)), transfer_(lease_.link()), patience_(patience) {}
  Async<void> start(std::string request) {
    GB_CO_TRYV(co_await transfer_.start(std::move(request), after(patience_.answer)));
    co_return Result<void>();
  }
  Async<void> write(std::string data) override { co_return co_await transfer_.write(data, patience_.idle); }
  Async<std::optional<FileEntry>> finish() override {
    transfer_.end();
    GB_CO_TRY(const std::string answer, co_await transfer_.finish(after(patience_.long_answer)));
    GB_CO_TRY(auto decoded, codec::decode_read(answer));
    co_return std::move(decoded.entry);
  }

 private:
  Sandbox::Lease lease_;
  channel::Transfer transfer_;
  Patience patience_;
};

Async<std::unique_ptr<ByteSource>> open_source(std::shared_ptr<Sandbox> box, std::string request) {
  GB_CO_TRY(auto lease, co_await box->use());
  auto source = std::make_unique<AgentSource>(std::move(lease), patience_of(*box));
  GB_CO_TRYV(co_await source->start(std::move(request)));
  co_return std::unique_ptr<ByteSource>(std::move(source));
}

Async<std::unique_ptr<ByteSink>> open_sink(std::shared_ptr<Sandbox> box, std::string request) {
  GB_CO_TRY(auto lease, co_await box->use());
  auto sink = std::make_unique<AgentSink>(std::move(lease), patience_of(*box));
  GB_CO_TRYV(co_await sink->start(std::move(request)));
  co_return std::unique_ptr<ByteSink>(std::move(sink));
}

// Callers page by the last name: names that do not rise would keep them paging for ever.
Result<void> check_order(const codec::EntryList& page, const std::string& after_name, size_t limit) {
  const std::string* last = after_name.empty() ? nullptr : &after_name;
  for (const FileEntry& entry : page.entries) {
    const bool is_name = !entry.name.empty() && entry.name.find('/') == std::string::npos;
    if (!is_name || (last != nullptr && entry.name <= *last)) return fail(Code::kAgentProtocol, "a directory's names are not in order");
    last = &entry.name;
  }
  if (page.entries.size() > limit) return fail(Code::kAgentProtocol, "more entries than asked for");
  return {};
}

}  // namespace

Result<void> check_path(const std::string& path) {
  if (path.empty()) return fail(Code::kInvalidPath, "path: is empty", {{"field", "path"}});
  if (path.find('\0') != std::string::npos) return fail(Code::kInvalidPath, "path: holds a NUL byte", {{"field", "path"}});
  if (path.size() > kMaxPathBytes) {
    return fail(Code::kInvalidPath, "path: has " + std::to_string(path.size()) + " bytes, at most 4095 are possible",
                {{"field", "path"}});
  }
  return {};
}

std::string watch_request(const Sandbox& box, const std::string& user, const std::string& path, bool recursive) {
  std::string request = begin_request(box, "watch", user);
  add_bytes(request, "path", absolute(box, path));
  add(request, "recursive", recursive);
  return request + "}";
}

Async<FileEntry> stat(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool follow) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "stat", user);
  add_bytes(request, "path", absolute(*box, path));
  add(request, "follow", follow);
  GB_CO_TRY(const std::string answer, co_await ask(box, request + "}", patience_of(*box).answer));
  co_return codec::decode_entry(answer);
}

Async<codec::EntryList> list(std::shared_ptr<Sandbox> box, std::string user, std::string path, std::string after_name,
                             size_t limit) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "list", user);
  add_bytes(request, "path", absolute(*box, path));
  if (!after_name.empty()) add_bytes(request, "after", after_name);
  add(request, "limit", static_cast<uint64_t>(limit));
  GB_CO_TRY(const std::string answer, co_await ask(box, request + "}", patience_of(*box).answer));
  GB_CO_TRY(auto page, codec::decode_entries(answer));
  GB_CO_TRYV(check_order(page, after_name, limit));
  co_return page;
}

Async<bool> make_directory(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool parents, uint32_t mode) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "mkdir", user);
  add_bytes(request, "path", absolute(*box, path));
  add(request, "parents", parents);
  add(request, "mode", static_cast<uint64_t>(mode));
  GB_CO_TRY(const std::string answer, co_await ask(box, request + "}", patience_of(*box).answer));
  co_return codec::decode_bool(answer, "created");
}

Async<void> remove(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool recursive) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "remove", user);
  add_bytes(request, "path", absolute(*box, path));
  add(request, "recursive", recursive);
  GB_CO_TRYV(co_await ask(box, request + "}", patience_of(*box).long_answer));
  co_return Result<void>();
}

Async<void> move(std::shared_ptr<Sandbox> box, std::string user, std::string from, std::string to, bool parents,
                 bool overwrite) {
  GB_CO_TRYV(check_path(from));
  GB_CO_TRYV(check_path(to));
  std::string request = begin_request(*box, "move", user);
  add_bytes(request, "from", absolute(*box, from));
  add_bytes(request, "to", absolute(*box, to));
  add(request, "parents", parents);
  add(request, "overwrite", overwrite);
  GB_CO_TRYV(co_await ask(box, request + "}", patience_of(*box).answer));
  co_return Result<void>();
}

Async<std::unique_ptr<ByteSource>> read(std::shared_ptr<Sandbox> box, std::string user, std::string path, uint64_t offset,
                                        std::optional<uint64_t> length) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "read", user);
  add_bytes(request, "path", absolute(*box, path));
  add(request, "offset", offset);
  if (length) add(request, "length", *length);
  co_return co_await open_source(box, request + "}");
}

Async<std::unique_ptr<ByteSink>> write(std::shared_ptr<Sandbox> box, std::string user, std::string path,
                                       WriteOptions options) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "write", user);
  add_bytes(request, "path", absolute(*box, path));
  if (options.mode) add(request, "mode", static_cast<uint64_t>(*options.mode));
  add(request, "parents", options.parents);
  add(request, "exclusive", options.exclusive);
  add(request, "append", options.append);
  co_return co_await open_sink(box, request + "}");
}

Async<std::unique_ptr<ByteSource>> read_archive(std::shared_ptr<Sandbox> box, std::string user, std::string path, bool gzip) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "tar_out", user);
  add_bytes(request, "path", absolute(*box, path));
  GB_CO_TRY(auto archive, co_await open_source(box, request + "}"));
  co_return gzip ? gzip_source(box->pool(), std::move(archive)) : std::move(archive);
}

Async<std::unique_ptr<ByteSink>> write_archive(std::shared_ptr<Sandbox> box, std::string user, std::string path) {
  GB_CO_TRYV(check_path(path));
  std::string request = begin_request(*box, "tar_in", user);
  add_bytes(request, "path", absolute(*box, path));
  GB_CO_TRY(auto archive, co_await open_sink(box, request + "}"));
  co_return gunzip_sink(box->pool(), std::move(archive));
}

Async<std::vector<ProcessInfo>> processes(std::shared_ptr<Sandbox> box) {
  GB_CO_TRY(const std::string answer, co_await ask(box, "{\"op\":\"processes\"}", patience_of(*box).answer));
  co_return codec::decode_processes(answer);
}

Async<void> signal_process(std::shared_ptr<Sandbox> box, int64_t pid, int signal, bool tree) {
  std::string request = "{\"op\":\"signal\",\"pid\":" + std::to_string(pid);
  add(request, "signal", static_cast<uint64_t>(signal));
  add(request, "tree", tree);
  GB_CO_TRYV(co_await ask(box, request + "}", patience_of(*box).answer));
  co_return Result<void>();
}

}  // namespace glovebox::sandbox::files
