// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

// A thin owner for SQLite's C API: return codes become Result, nothing throws. One thread at a time.
namespace glovebox::store {

class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept : stmt_(std::exchange(other.stmt_, nullptr)) {}
  Statement& operator=(Statement&& other) noexcept {
    std::swap(stmt_, other.stmt_);
    return *this;
  }
  ~Statement();

  // Parameters are numbered from 1.
  Statement& bind(int index, std::string_view text);
  Statement& bind_blob(int index, std::string_view bytes);
  Statement& bind(int index, int64_t number);
  // True: a row is there. False: done; the statement is reset and its bindings are cleared.
  Result<bool> step();
  Result<void> run();  // for statements without rows
  std::string text(int column) const;
  int64_t number(int column) const;

 private:
  friend class Database;
  sqlite3_stmt* stmt_ = nullptr;
};

class Database {
 public:
  static Result<Database> open(const std::string& path);
  Database() = default;
  Database(Database&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}
  Database& operator=(Database&& other) noexcept {
    std::swap(db_, other.db_);
    return *this;
  }
  ~Database();

  Result<void> exec(const char* sql);  // one or more statements without parameters
  Result<Statement> prepare(std::string_view sql);

 private:
  sqlite3* db_ = nullptr;
};

}  // namespace glovebox::store
