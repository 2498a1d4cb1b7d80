// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <ctime>

#include "base/text.h"

namespace glovebox::log {
namespace {

std::atomic<Level> minimum{Level::kInfo};
std::atomic<bool> as_json{false};
constexpr const char* kNames[] = {"debug", "info", "warn", "error"};

std::string json_line(const char* level, std::string_view event, Fields fields) {
  std::string line = "{\"time\":\"" + iso_time_now() + "\",\"level\":\"" + level + "\",\"event\":";
  append_json_string(line, event);
  for (const Field& field : fields) {
    line += ',';
    append_json_string(line, field.key);
    line += ':';
    if (field.is_text) {
      append_json_string(line, field.value);
    } else {
      line += field.value;
    }
  }
  return line + "}\n";
}

std::string text_line(const char* level, std::string_view event, Fields fields) {
  std::string line = iso_time_now() + " " + level + " " + std::string(event);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    const bool bare = field.value.find_first_of(" \"\n\t=") == std::string::npos && !field.value.empty();
    if (bare) {
      line += field.value;
    } else {
      append_json_string(line, field.value);
    }
  }
  return line + "\n";
}

void write_event(Level level, std::string_view event, Fields fields) {
  if (level < minimum.load(std::memory_order_relaxed)) return;
  const char* name = kNames[static_cast<int>(level)];
  const std::string line = as_json ? json_line(name, event, fields) : text_line(name, event, fields);
  // One write a line: lines of several threads do not mix. A failed write of a log line has nowhere to go.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void debug(std::string_view event, Fields fields) { write_event(Level::kDebug, event, fields); }
void info(std::string_view event, Fields fields) { write_event(Level::kInfo, event, fields); }
void warn(std::string_view event, Fields fields) { write_event(Level::kWarn, event, fields); }
void error(std::string_view event, Fields fields) { write_event(Level::kError, event, fields); }
void set_level(Level level) { minimum = level; }
void set_json(bool json) { as_json = json; }

}  // namespace glovebox::log
