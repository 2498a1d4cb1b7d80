// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite.h"

#include <sqlite3.h>

namespace glovebox::store {
namespace {

tl::unexpected<Error> sqlite_error(sqlite3* db, int rc) {
  const int primary = rc & 0xFF;
  const Code code = primary == SQLITE_FULL                                      ? Code::kDiskFull
                    : primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB ? Code::kCorrupt
                                                                                : Code::kIo;
  const char* text = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  return fail(code, std::string("database: ") + text);
}

}  // namespace

Statement::~Statement() { sqlite3_finalize(stmt_); }

Statement& Statement::bind(int index, std::string_view text) {
  sqlite3_bind_text64(stmt_, index, text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  return *this;
}
Statement& Statement::bind_blob(int index, std::string_view bytes) {
  sqlite3_bind_blob64(stmt_, index, bytes.data(), bytes.size(), SQLITE_TRANSIENT);
  return *this;
}
Statement& Statement::bind(int index, int64_t number) {
  sqlite3_bind_int64(stmt_, index, number);
  return *this;
}

Result<bool> Statement::step() {
  const int rc = sqlite3_step(stmt_);
  if (rc == SQLITE_ROW) return true;
  auto result = rc == SQLITE_DONE ? Result<bool>(false) : sqlite_error(sqlite3_db_handle(stmt_), rc);
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
  return result;
}

Result<void> Statement::run() {
  GB_TRY(const bool row, step());
  GB_ASSERT(!row);
  return {};
}

std::string Statement::text(int column) const {
  // Blobs and texts alike: column_blob first, then its size.
  const void* data = sqlite3_column_blob(stmt_, column);
  const int size = sqlite3_column_bytes(stmt_, column);
  return data != nullptr ? std::string(static_cast<const char*>(data), static_cast<size_t>(size)) : std::string();
}
int64_t Statement::number(int column) const { return sqlite3_column_int64(stmt_, column); }

Result<Database> Database::open(const std::string& path) {
  Database database;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int rc = sqlite3_open_v2(path.c_str(), &database.db_, flags, nullptr);
  if (rc != SQLITE_OK) return sqlite_error(database.db_, rc);
  sqlite3_busy_timeout(database.db_, 5000);
  return database;
}

Database::~Database() { sqlite3_close_v2(db_); }

Result<void> Database::exec(const char* sql) {
  const int rc = sqlite3_exec(db_, sql, nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK) return sqlite_error(db_, rc);
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  Statement statement;
  const int rc = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                    &statement.stmt_, nullptr);
  if (rc != SQLITE_OK) return sqlite_error(db_, rc);
  return statement;
}

}  // namespace glovebox::store
