// SPDX-License-Identifier: Apache-2.0
#include "http/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <set>

#include "base/text.h"

namespace glovebox::json {
namespace bj = boost::json;
namespace {

constexpr size_t kMaxDepth = 64;

// Builds the value, and refuses what Boost.JSON would quietly resolve: duplicate keys (the last one
// wins), and numbers that lose digits. `why` tells the reason of a refusal.
struct Handler {
  static constexpr size_t max_object_size = bj::object::max_size();
  static constexpr size_t max_array_size = bj::array::max_size();
  static constexpr size_t max_key_size = bj::string::max_size();
  static constexpr size_t max_string_size = bj::string::max_size();
  using string_view = bj::string_view;
  using error_code = bj::error_code;

  Handler() { stack.reset(); }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    keys.emplace_back();
    return true;
  }
  bool on_object_end(size_t n, error_code&) {
    keys.pop_back();
    stack.push_object(n);
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t n, error_code&) {
    stack.push_array(n);
    return true;
  }
  bool on_key_part(string_view s, size_t, error_code&) {
    key.append(s.data(), s.size());
    stack.push_chars(s);
    return true;
  }
  bool on_key(string_view s, size_t, error_code& ec) {
    key.append(s.data(), s.size());
    stack.push_key(s);
    if (!keys.back().insert(key).second)
      return refuse("the key \"" + key + "\" is there twice", ec);
    key.clear();
    return true;
  }
  bool on_string_part(string_view s, size_t, error_code&) {
    stack.push_chars(s);
    return true;
  }
  bool on_string(string_view s, size_t, error_code&) {
    stack.push_string(s);
    return true;
  }
  bool on_number_part(string_view s, error_code&) {
    number.append(s.data(), s.size());
    return true;
  }
  bool on_int64(int64_t i, string_view, error_code&) {
    number.clear();
    stack.push_int64(i);
    return true;
  }
  bool on_uint64(uint64_t u, string_view, error_code& ec) {
    number.clear();
    if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return refuse("the number is too large", ec);
    stack.push_int64(static_cast<int64_t>(u));
    return true;
  }
  bool on_double(double d, string_view s, error_code& ec) {
    number.append(s.data(), s.size());
    // An integer comes here when it does not fit 64 bits.
    const bool is_integer = number.find_first_of(".eE") == std::string::npos;
    number.clear();
    if (is_integer || !std::isfinite(d)) return refuse("the number is too large", ec);
    stack.push_double(d);
    return true;
  }
  bool on_bool(bool b, error_code&) {
    stack.push_bool(b);
    return true;
  }
  bool on_null(error_code&) {
    stack.push_null();
    return true;
  }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

  bool refuse(std::string reason, error_code& ec) {
    why = std::move(reason);
    ec = bj::error::syntax;
    return false;
  }

  bj::value_stack stack;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string key, number;
  std::string why;
};

std::string position(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t start = before.rfind('\n');
  const size_t column = start == before.npos ? at + 1 : at - start;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

tl::unexpected<Error> bad_json(std::string_view text, size_t at, std::string why) {
  return fail(Code::kInvalidArgument,
              "invalid JSON at " + position(text, at) + ": " + std::move(why));
}

std::string range_text(const std::string& low, const std::string& high) {
  return " between " + low + " and " + high;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

std::string list_text(const std::vector<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return out;
}

}  // namespace

Result<bj::value> parse(std::string_view text) {
  bj::parse_options options;
  options.max_depth = kMaxDepth;
  bj::basic_parser<Handler> parser(options);
  bj::error_code ec;
  const size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (ec) {
    const std::string& why = parser.handler().why;
    return bad_json(text, used, why.empty() ? ec.message() : why);
  }
  const size_t rest = text.find_first_not_of(" \t\r\n", used);
  if (rest != text.npos) return bad_json(text, rest, "something follows the value");
  return parser.handler().stack.release();
}

Result<bj::value> parse_object(std::string_view text) {
  GB_TRY(auto value, parse(text));
  if (!value.is_object()) return fail(Code::kInvalidArgument, "the body must be a JSON object");
  return value;
}

std::string to_text(const bj::value& value) {
  return bj::serialize(value);
}

Reader::Reader(const bj::value& value, std::string path) : value_(&value), path_(std::move(path)) {}

std::string Reader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

Error Reader::error(std::string_view name, std::string_view what) const {
  const std::string path = path_of(name);
  return Error{Code::kInvalidArgument, path + ": " + std::string(what), {{"field", path}}};
}

bool Reader::has(std::string_view name) const {
  const auto* object = value_->if_object();
  const auto* found = object ? object->if_contains({name.data(), name.size()}) : nullptr;
  return found && !found->is_null();
}

const bj::value* Reader::find(std::string_view name) {
  if (std::find(known_.begin(), known_.end(), name) == known_.end()) known_.emplace_back(name);
  const auto* object = value_->if_object();
  return object ? object->if_contains({name.data(), name.size()}) : nullptr;
}

const bj::value* Reader::any(std::string_view name) {
  return find(name);
}

Result<void> Reader::done() const {
  const auto* object = value_->if_object();
  if (!object) {
    const std::string who = path_.empty() ? "the body" : path_;
    return fail(Code::kInvalidArgument, who + ": must be an object", {{"field", path_}});
  }
  for (const auto& member : *object) {
    const std::string_view name(member.key().data(), member.key().size());
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    return fail(error(utf8_lossy(name), "is not a known field; these are: " + list_text(known_)));
  }
  return {};
}

// `convert` gives the value, or what it must be ("must be a string").
template <class T, class Convert>
Field<T> Reader::field(std::string_view name, Convert convert) {
  using Outcome = Result<std::optional<T>>;
  if (!value_->is_object()) return Field<T>(path_of(name), Outcome(fail(done().error())));
  const bj::value* value = find(name);
  if (!value || value->is_null()) return Field<T>(path_of(name), Outcome(std::optional<T>()));
  std::string wanted;
  std::optional<T> out = convert(*value, wanted);
  if (!out) return Field<T>(path_of(name), Outcome(fail(error(name, wanted))));
  return Field<T>(path_of(name), Outcome(std::move(out)));
}

namespace {

std::optional<std::string> to_string(const bj::value& value, bool allows_nul, std::string& wanted) {
  const auto* text = value.if_string();
  if (!text) {
    wanted = "must be a string";
    return std::nullopt;
  }
  if (!allows_nul && text->find('\0') != text->npos) {
    wanted = "must not hold a NUL character";
    return std::nullopt;
  }
  return std::string(text->data(), text->size());
}

std::optional<int64_t> to_integer(const bj::value& value) {
  if (const auto* i = value.if_int64()) return *i;
  const auto* d = value.if_double();
  // Above 2^53 a double does not say which integer was meant.
  if (!d || std::trunc(*d) != *d || std::abs(*d) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(*d);
}

}  // namespace

Field<std::string> Reader::string(std::string_view name, size_t min_bytes, size_t max_bytes) {
  return field<std::string>(name, [&](const bj::value& value, std::string& wanted) {
    auto text = to_string(value, false, wanted);
    if (!text || (text->size() >= min_bytes && text->size() <= max_bytes)) return text;
    wanted = max_bytes == kNoLimit
                 ? "must have at least " + std::to_string(min_bytes) + " bytes"
                 : "must have" + range_text(std::to_string(min_bytes), std::to_string(max_bytes)) +
                       " bytes";
    return std::optional<std::string>();
  });
}

Field<std::string> Reader::content(std::string_view name, size_t max_bytes) {
  return field<std::string>(name, [&](const bj::value& value, std::string& wanted) {
    auto text = to_string(value, true, wanted);
    if (!text || text->size() <= max_bytes) return text;
    wanted = "must have at most " + std::to_string(max_bytes) + " bytes";
    return std::optional<std::string>();
  });
}

Field<std::string> Reader::one_of(std::string_view name,
                                  const std::vector<std::string_view>& allowed) {
  return field<std::string>(name, [&](const bj::value& value, std::string& wanted) {
    auto text = to_string(value, true, wanted);
    if (text && std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) return text;
    wanted =
        "must be one of: " + list_text(std::vector<std::string>(allowed.begin(), allowed.end()));
    return std::optional<std::string>();
  });
}

Field<int64_t> Reader::integer(std::string_view name, int64_t min, int64_t max) {
  return field<int64_t>(name, [&](const bj::value& value, std::string& wanted) {
    const auto number = to_integer(value);
    if (number && *number >= min && *number <= max) return number;
    const bool is_open =
        min == std::numeric_limits<int64_t>::min() && max == std::numeric_limits<int64_t>::max();
    wanted = "must be an integer";
    if (!is_open) wanted += range_text(std::to_string(min), std::to_string(max));
    return std::optional<int64_t>();
  });
}

Field<double> Reader::number(std::string_view name, double min, double max) {
  return field<double>(name, [&](const bj::value& value, std::string& wanted) {
    std::optional<double> number;
    if (const auto* i = value.if_int64()) number = static_cast<double>(*i);
    if (const auto* d = value.if_double()) number = *d;
    if (number && *number >= min && *number <= max) return number;
    const bool is_open =
        min == std::numeric_limits<double>::lowest() && max == std::numeric_limits<double>::max();
    wanted = "must be a number";
    if (!is_open) wanted += range_text(number_text(min), number_text(max));
    return std::optional<double>();
  });
}

Field<bool> Reader::boolean(std::string_view name) {
  return field<bool>(name, [](const bj::value& value, std::string& wanted) {
    wanted = "must be true or false";
    const auto* flag = value.if_bool();
    return flag ? std::optional<bool>(*flag) : std::nullopt;
  });
}

Field<std::vector<std::string>> Reader::strings(std::string_view name, size_t max_count) {
  using Strings = std::vector<std::string>;
  return field<Strings>(name,
                        [&](const bj::value& value, std::string& wanted) -> std::optional<Strings> {
                          wanted = "must be an array of strings";
                          const auto* array = value.if_array();
                          if (!array) return std::nullopt;
                          if (array->size() > max_count) {
                            wanted = "must have at most " + std::to_string(max_count) + " items";
                            return std::nullopt;
                          }
                          Strings out;
                          for (size_t i = 0; i < array->size(); ++i) {
                            std::string why;
                            auto text = to_string((*array)[i], false, why);
                            if (!text) {
                              wanted = "item " + std::to_string(i) + " " + why;
                              return std::nullopt;
                            }
                            out.push_back(*std::move(text));
                          }
                          return out;
                        });
}

Field<Reader::StringMap> Reader::string_map(std::string_view name, size_t max_count) {
  return field<StringMap>(
      name, [&](const bj::value& value, std::string& wanted) -> std::optional<StringMap> {
        wanted = "must be an object of strings";
        const auto* object = value.if_object();
        if (!object) return std::nullopt;
        if (object->size() > max_count) {
          wanted = "must have at most " + std::to_string(max_count) + " fields";
          return std::nullopt;
        }
        StringMap out;
        for (const auto& member : *object) {
          std::string key(member.key().data(), member.key().size());
          std::string why = "must not hold a NUL character";
          const bool has_nul = key.find('\0') != key.npos;
          auto text = has_nul ? std::nullopt : to_string(member.value(), false, why);
          if (!text) {
            wanted = (has_nul ? "a key " : "the value of " + key + " ") + why;
            return std::nullopt;
          }
          out.emplace(std::move(key), *std::move(text));
        }
        return out;
      });
}

Field<std::vector<Reader>> Reader::objects(std::string_view name, size_t max_count) {
  using Readers = std::vector<Reader>;
  return field<Readers>(
      name, [&](const bj::value& value, std::string& wanted) -> std::optional<Readers> {
        wanted = "must be an array of objects";
        const auto* array = value.if_array();
        if (!array) return std::nullopt;
        if (array->size() > max_count) {
          wanted = "must have at most " + std::to_string(max_count) + " items";
          return std::nullopt;
        }
        Readers out;
        for (size_t i = 0; i < array->size(); ++i) {
          if (!(*array)[i].is_object()) {
            wanted = "item " + std::to_string(i) + " must be an object";
            return std::nullopt;
          }
          out.emplace_back((*array)[i], path_of(name) + "[" + std::to_string(i) + "]");
        }
        return out;
      });
}

Result<Reader> Reader::object(std::string_view name) {
  static const bj::value kEmpty = bj::object();
  auto reader = field<Reader>(name, [&](const bj::value& value, std::string& wanted) {
    wanted = "must be an object";
    return value.is_object() ? std::optional<Reader>(Reader(value, path_of(name))) : std::nullopt;
  });
  return std::move(reader).or_default(Reader(kEmpty, path_of(name)));
}

}  // namespace glovebox::json
