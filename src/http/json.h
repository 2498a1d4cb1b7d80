// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

// Strict JSON in, typed fields out.
//
//   GB_TRY(const auto body, json::parse(text));
//   json::Reader r(body);
//   GB_TRY(auto name, r.string("template").or_default("base"));
//   GB_TRY(auto argv, r.strings("command").required());
//   GB_TRY(auto timeout, r.integer("timeout_ms", 1, 86'400'000).optional());   //
//   std::optional<int64_t> GB_TRY(auto limits, r.object("limits")); // a Reader; an absent object
//   reads as {} GB_TRY(auto cpus, limits.number("cpus", 0.05, 64).or_default(2));
//   GB_TRYV(limits.done());                                                    // refuses fields
//   nobody asked for GB_TRYV(r.done());
//
// Errors are kInvalidArgument with details.field: "limits.cpus: must be a number between 0.05 and
// 64".
namespace glovebox::json {

// Refuses (naming line and column): anything but one value, duplicate keys, numbers outside int64 /
// finite double, invalid UTF-8, lone surrogates, more than 64 levels. Numbers are int64 or double.
Result<boost::json::value> parse(std::string_view text);
// As parse(), and the value is an object.
Result<boost::json::value> parse_object(std::string_view text);
std::string to_text(const boost::json::value& value);

// A field that has been looked at. null counts as absent.
template <class T>
class Field {
 public:
  Field(std::string path, Result<std::optional<T>> value)
      : path_(std::move(path)), value_(std::move(value)) {}
  Result<T> required() && {
    GB_TRY(auto value, std::move(value_));
    if (!value) return fail(Code::kInvalidArgument, path_ + ": is required", {{"field", path_}});
    return std::move(*value);
  }
  Result<T> or_default(T otherwise) && {
    GB_TRY(auto value, std::move(value_));
    return value ? std::move(*value) : std::move(otherwise);
  }
  Result<std::optional<T>> optional() && { return std::move(value_); }

 private:
  std::string path_;
  Result<std::optional<T>> value_;
};

// Reads the fields of one object. Keeps a reference: the value must outlive it. `path` names the
// object in messages.
class Reader {
 public:
  using StringMap = std::map<std::string, std::string>;
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  // A value that is no object fails in every accessor and in done().
  explicit Reader(const boost::json::value& value, std::string path = "");

  // Text without NUL: names, paths, arguments. Lengths in bytes.
  Field<std::string> string(std::string_view name, size_t min_bytes = 0,
                            size_t max_bytes = kNoLimit);
  // Any text, NUL included: contents.
  Field<std::string> content(std::string_view name, size_t max_bytes = kNoLimit);
  // A string that is one of `allowed`.
  Field<std::string> one_of(std::string_view name, const std::vector<std::string_view>& allowed);
  // An integer; 2.0 counts, 2.5 does not.
  Field<int64_t> integer(std::string_view name, int64_t min = std::numeric_limits<int64_t>::min(),
                         int64_t max = std::numeric_limits<int64_t>::max());
  Field<double> number(std::string_view name, double min = std::numeric_limits<double>::lowest(),
                       double max = std::numeric_limits<double>::max());
  Field<bool> boolean(std::string_view name);
  // Arrays of strings and objects of strings, all without NUL.
  Field<std::vector<std::string>> strings(std::string_view name, size_t max_count = kNoLimit);
  Field<StringMap> string_map(std::string_view name, size_t max_count = kNoLimit);
  // Each item as a Reader ("mounts[2]"); every item must be an object. Call done() on each.
  Field<std::vector<Reader>> objects(std::string_view name, size_t max_count = kNoLimit);
  // A nested object; absent reads as empty. has() tells the two apart.
  Result<Reader> object(std::string_view name);
  // Whatever it is (null included), for fields that take several types.
  const boost::json::value* any(std::string_view name);

  bool has(std::string_view name) const;  // present and not null
  const std::string& path() const { return path_; }
  // "limits.cpus", for messages of the caller's own checks.
  std::string path_of(std::string_view name) const;
  // kInvalidArgument "<path>: <what>", for the caller's own checks.
  Error error(std::string_view name, std::string_view what) const;

  // Refuses fields that no accessor has asked for, and lists those that exist.
  Result<void> done() const;

 private:
  const boost::json::value* find(std::string_view name);  // null when absent; remembers the name
  template <class T, class Convert>
  Field<T> field(std::string_view name, Convert convert);

  const boost::json::value* value_;
  std::string path_;
  std::vector<std::string> known_;
};

}  // namespace glovebox::json
