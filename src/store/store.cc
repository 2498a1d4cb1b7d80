// SPDX-License-Identifier: Apache-2.0
#include "store/store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/unique_fd.h"
#include "store/sqlite.h"

namespace glovebox::store {
namespace {

// Each entry brings the schema from version i to i + 1. Never edit one that was released: append.
constexpr const char* kMigrations[] = {
    R"(
    CREATE TABLE sandboxes (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, state TEXT NOT NULL,
                            created_ms INTEGER NOT NULL, document TEXT NOT NULL) STRICT, WITHOUT ROWID;
    CREATE TABLE executions (sandbox_id TEXT NOT NULL, id TEXT NOT NULL, started_ms INTEGER NOT NULL,
                             document TEXT NOT NULL, output BLOB NOT NULL,
                             PRIMARY KEY (sandbox_id, id)) STRICT;
    CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, tenant TEXT NOT NULL, role TEXT NOT NULL,
                       hash TEXT NOT NULL UNIQUE, document TEXT NOT NULL, created_ms INTEGER NOT NULL) STRICT;
    )",
    R"(
    CREATE TABLE settings (tenant TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
                           PRIMARY KEY (tenant, name)) STRICT, WITHOUT ROWID;
    )",
    R"(
    CREATE TABLE objects (kind TEXT NOT NULL, id TEXT NOT NULL, tenant TEXT NOT NULL, created_ms INTEGER NOT NULL,
                          document TEXT NOT NULL, PRIMARY KEY (kind, id)) STRICT, WITHOUT ROWID;
    )",
};
constexpr int64_t kSchemaVersion = std::size(kMigrations);

Result<void> migrate(Database& db) {
  int64_t version = 0;
  {
    GB_TRY(auto query, db.prepare("PRAGMA user_version"));
    GB_TRYV(query.step());
    version = query.number(0);
  }
  if (version > kSchemaVersion) {
    return fail(Code::kConflict, "the database has schema version " + std::to_string(version) + ", this program knows " +
                                     std::to_string(kSchemaVersion) + ": use the newer program");
  }
  for (; version < kSchemaVersion; ++version) {
    const std::string sql = std::string("BEGIN IMMEDIATE;") + kMigrations[version] +
                            "PRAGMA user_version = " + std::to_string(version + 1) + "; COMMIT;";
    GB_TRYV(db.exec(sql.c_str()));
  }
  return {};
}

struct Statements {
  Statement put_sandbox, delete_sandbox, delete_sandbox_executions, put_execution, delete_execution, get_execution,
      put_key, delete_key, put_setting, delete_setting, put_object, delete_object;
};

Result<Statements> prepare_all(Database& db) {
  Statements s;
  const std::pair<Statement*, const char*> wanted[] = {
      {&s.put_sandbox, "INSERT INTO sandboxes VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (id) DO UPDATE SET "
                       "tenant = ?2, state = ?3, created_ms = ?4, document = ?5"},
      {&s.delete_sandbox, "DELETE FROM sandboxes WHERE id = ?1"},
      {&s.delete_sandbox_executions, "DELETE FROM executions WHERE sandbox_id = ?1"},
      {&s.put_execution, "INSERT OR REPLACE INTO executions VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&s.delete_execution, "DELETE FROM executions WHERE sandbox_id = ?1 AND id = ?2"},
      {&s.get_execution, "SELECT started_ms, document, output FROM executions WHERE sandbox_id = ?1 AND id = ?2"},
      {&s.put_key, "INSERT OR REPLACE INTO keys VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"},
      {&s.delete_key, "DELETE FROM keys WHERE id = ?1"},
      {&s.put_setting, "INSERT OR REPLACE INTO settings VALUES (?1, ?2, ?3)"},
      {&s.delete_setting, "DELETE FROM settings WHERE tenant = ?1 AND name = ?2"},
      {&s.put_object, "INSERT OR REPLACE INTO objects VALUES (?1, ?2, ?3, ?4, ?5)"},
      {&s.delete_object, "DELETE FROM objects WHERE kind = ?1 AND id = ?2"},
  };
  for (const auto& [statement, sql] : wanted) {
    GB_TRY(*statement, db.prepare(sql));
  }
  return s;
}

// A queued change: `apply` runs inside the transaction on the store's thread, `done` after its commit (or with the failure).
struct Job {
  std::function<Result<void>()> apply;
  std::function<void(Result<void>)> done;
};

class SqliteStore : public Store {
 public:
  SqliteStore(Database db, Statements statements)
      : db_(std::move(db)), statements_(std::move(statements)), thread_([this] { work(); }) {}

  ~SqliteStore() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Async<void> put_sandbox(SandboxRow row) override {
    return change([this, row = std::move(row)] {
      auto& s = statements_.put_sandbox;
      return s.bind(1, row.id).bind(2, row.tenant).bind(3, row.state).bind(4, row.created_ms).bind(5, row.document).run();
    });
  }

  Async<void> delete_sandbox(std::string id) override {
    return change([this, id = std::move(id)]() -> Result<void> {
      GB_TRYV(statements_.delete_sandbox_executions.bind(1, id).run());
      return statements_.delete_sandbox.bind(1, id).run();
    });
  }

  Async<void> put_execution(ExecutionRow row) override {
    return change([this, row = std::move(row)] {
      auto& s = statements_.put_execution;
      return s.bind(1, row.sandbox_id).bind(2, row.id).bind(3, row.started_ms).bind(4, row.document)
          .bind_blob(5, row.output).run();
    });
  }

  Async<void> delete_execution(std::string sandbox_id, std::string id) override {
    return change([this, sandbox_id = std::move(sandbox_id), id = std::move(id)] {
      return statements_.delete_execution.bind(1, sandbox_id).bind(2, id).run();
    });
  }

  Async<std::optional<ExecutionRow>> get_execution(std::string sandbox_id, std::string id) override {
    auto row = std::make_shared<std::optional<ExecutionRow>>();
    std::function<Result<void>()> query = [this, row, sandbox_id, id]() -> Result<void> {
      auto& s = statements_.get_execution;
      s.bind(1, sandbox_id).bind(2, id);
      GB_TRY(const bool found, s.step());
      if (!found) return {};
      *row = ExecutionRow{id, sandbox_id, s.number(0), s.text(1), s.text(2)};
      GB_TRYV(s.step());
      return {};
    };
    GB_CO_TRYV(co_await change(std::move(query)));
    co_return std::move(*row);
  }

  Async<void> put_key(KeyRow row) override {
    return change([this, row = std::move(row)] {
      auto& s = statements_.put_key;
      return s.bind(1, row.id).bind(2, row.name).bind(3, row.tenant).bind(4, row.role).bind(5, row.hash)
          .bind(6, row.document).bind(7, row.created_ms).run();
    });
  }

  Async<void> delete_key(std::string id) override {
    return change([this, id = std::move(id)] { return statements_.delete_key.bind(1, id).run(); });
  }

  Async<void> put_setting(SettingRow row) override {
    return change([this, row = std::move(row)] {
      return statements_.put_setting.bind(1, row.tenant).bind(2, row.name).bind(3, row.document).run();
    });
  }

  Async<void> delete_setting(std::string tenant, std::string name) override {
    return change([this, tenant = std::move(tenant), name = std::move(name)] {
      return statements_.delete_setting.bind(1, tenant).bind(2, name).run();
    });
  }

  Async<void> put_object(ObjectRow row) override {
    return change([this, row = std::move(row)] {
      auto& s = statements_.put_object;
      return s.bind(1, row.kind).bind(2, row.id).bind(3, row.tenant).bind(4, row.created_ms).bind(5, row.document).run();
    });
  }

  Async<void> delete_object(std::string kind, std::string id) override {
    return change([this, kind = std::move(kind), id = std::move(id)] {
      return statements_.delete_object.bind(1, kind).bind(2, id).run();
    });
  }

  Result<std::vector<ObjectRow>> load_objects(const std::string& kind) override {
    std::vector<ObjectRow> rows;
    GB_TRY(auto s, db_.prepare("SELECT id, tenant, created_ms, document FROM objects WHERE kind = ?1 ORDER BY created_ms, id"));
    s.bind(1, kind);
    while (true) {
      GB_TRY(const bool more, s.step());
      if (!more) return rows;
      rows.push_back({kind, s.text(0), s.text(1), s.number(2), s.text(3)});
    }
  }

  Result<std::vector<SettingRow>> load_settings() override {
    std::vector<SettingRow> rows;
    GB_TRY(auto s, db_.prepare("SELECT tenant, name, document FROM settings"));
    while (true) {
      GB_TRY(const bool more, s.step());
      if (!more) return rows;
      rows.push_back({s.text(0), s.text(1), s.text(2)});
    }
  }

  Result<std::vector<SandboxRow>> load_sandboxes() override {
    std::vector<SandboxRow> rows;
    GB_TRY(auto s, db_.prepare("SELECT id, tenant, state, created_ms, document FROM sandboxes ORDER BY created_ms"));
    while (true) {
      GB_TRY(const bool more, s.step());
      if (!more) return rows;
      rows.push_back({s.text(0), s.text(1), s.text(2), s.number(3), s.text(4)});
    }
  }

  Result<std::vector<ExecutionRow>> load_executions(const std::string& sandbox_id) override {
    std::vector<ExecutionRow> rows;
    GB_TRY(auto s, db_.prepare("SELECT id, started_ms, document FROM executions WHERE sandbox_id = ?1 ORDER BY started_ms"));
    s.bind(1, sandbox_id);
    while (true) {
      GB_TRY(const bool more, s.step());
      if (!more) return rows;
      rows.push_back({s.text(0), sandbox_id, s.number(1), s.text(2), {}});
    }
  }

  Result<std::vector<KeyRow>> load_keys() override {
    std::vector<KeyRow> rows;
    GB_TRY(auto s, db_.prepare("SELECT id, name, tenant, role, hash, document, created_ms FROM keys ORDER BY created_ms"));
    while (true) {
      GB_TRY(const bool more, s.step());
      if (!more) return rows;
      rows.push_back({s.text(0), s.text(1), s.text(2), s.text(3), s.text(4), s.text(5), s.number(6)});
    }
  }

 private:
  Async<void> change(std::function<Result<void>()> apply) {
    auto result = std::make_shared<Result<void>>();
    std::function<void(std::function<void()>)> start = [this, result, apply = std::move(apply)](
                                                           std::function<void()> resume) mutable {
      enqueue(Job{std::move(apply), [result, resume = std::move(resume)](Result<void> r) {
                    *result = std::move(r);
                    resume();
                  }});
    };
    co_await resume_from_thread(std::move(start));
    co_return std::move(*result);
  }

  void enqueue(Job job) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(job));
    }
    wake_.notify_one();
  }

  void work() {
    while (true) {
      std::deque<Job> jobs;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;  // stopping, and everything is written
        jobs.swap(queue_);
      }
      commit(jobs);
    }
  }

  // All of the queue in one transaction: under load the cost of a commit is shared.
  void commit(std::deque<Job>& jobs) {
    std::vector<Result<void>> results;
    Result<void> transaction = db_.exec("BEGIN IMMEDIATE");
    for (Job& job : jobs) results.push_back(transaction ? job.apply() : transaction);
    if (transaction) {
      transaction = db_.exec("COMMIT");
      if (!transaction) (void)db_.exec("ROLLBACK");
    }
    if (!transaction) log::error("store.commit_failed", {{"message", transaction.error().message}});
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].done(transaction ? std::move(results[i]) : transaction);
  }

  Database db_;
  Statements statements_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite(const std::string& path) {
  // It holds environment values of sandboxes: private from its first moment. SQLite gives its other files the same mode.
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file || ::fchmod(file.get(), 0600) != 0) return fail_errno(path);
  GB_TRY(auto db, Database::open(path));
  GB_TRYV(db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -2000;"
                  "PRAGMA wal_autocheckpoint = 2000"));
  GB_TRYV(migrate(db));
  GB_TRY(auto statements, prepare_all(db));
  return std::unique_ptr<Store>(std::make_unique<SqliteStore>(std::move(db), std::move(statements)));
}

}  // namespace glovebox::store
