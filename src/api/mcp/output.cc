// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/output.h"

#include <algorithm>

#include "base/text.h"

namespace glovebox::api::mcp {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
constexpr size_t kLineBytes = 160;

// Adds what lies between two cursors.
Async<void> take(const sandbox::ExecutionPtr& execution, uint64_t from, uint64_t to, Output& out) {
  while (from < to) {
    GB_CO_TRY(const auto chunks, co_await execution->read(from, std::min<uint64_t>(kPieceBytes, to - from)));
    if (chunks.empty()) break;
    for (const auto& chunk : chunks) {
      out.text += chunk.data;
      out.last_stream = chunk.stream == sandbox::Stream::kStderr;
      out.streams[out.last_stream] += chunk.data;
      from = chunk.cursor + chunk.data.size();
    }
  }
  out.next_cursor = from;
  co_return Result<void>();
}

void add_gap(Output& out, uint64_t bytes, uint64_t cursor) {
  const std::string gap = "\n[… " + std::to_string(bytes) + " bytes left out, from cursor " + std::to_string(cursor) + " …]\n";
  out.text += gap;
  for (auto& stream : out.streams) stream += stream.empty() ? "" : gap;
  out.is_truncated = true;
}

void make_text(Output& out) {
  out.text = utf8_lossy(out.text);
  for (auto& stream : out.streams) stream = utf8_lossy(stream);
}

// What the server did not keep.
void add_dropped(const sandbox::ExecInfo& info, Output& out) {
  if (!info.truncated()) return;
  out.text += "\n[… " + std::to_string(info.dropped_stdout + info.dropped_stderr) + " more bytes were written than are kept …]\n";
  out.is_truncated = true;
}

}  // namespace

Async<Output> head_and_tail(sandbox::ExecutionPtr execution, size_t max_bytes) {
  Output out;
  const uint64_t end = execution->info().kept_bytes;
  const bool is_all = end <= max_bytes;
  const uint64_t head = is_all ? end : max_bytes / 2;
  GB_CO_TRYV(co_await take(execution, 0, head, out));
  if (!is_all) {
    const uint64_t tail = end - (max_bytes - head);
    add_gap(out, tail - head, head);
    GB_CO_TRYV(co_await take(execution, tail, end, out));
  }
  add_dropped(execution->info(), out);
  make_text(out);
  co_return out;
}

Async<Output> onward(sandbox::ExecutionPtr execution, uint64_t cursor, size_t max_bytes) {
  Output out;
  const bool has_ended = execution->ended();
  const uint64_t end = execution->info().kept_bytes;
  cursor = std::min(cursor, end);
  const uint64_t to = std::min(end, cursor + max_bytes);
  GB_CO_TRYV(co_await take(execution, cursor, to, out));
  out.is_truncated = to < end;
  if (has_ended && to == end) add_dropped(execution->info(), out);
  const size_t whole = utf8_complete_prefix(out.text);
  if (const size_t rest = out.text.size() - whole; rest > 0 && !(has_ended && to == end)) {
    auto& stream = out.streams[out.last_stream];
    out.text.resize(whole);
    stream.resize(stream.size() - std::min(stream.size(), rest));
    out.next_cursor -= rest;
  }
  make_text(out);
  co_return out;
}

Async<std::string> last_line(sandbox::ExecutionPtr execution) {
  Output out;
  const uint64_t end = execution->info().kept_bytes;
  GB_CO_TRYV(co_await take(execution, end > kLineBytes ? end - kLineBytes : 0, end, out));
  while (out.text.ends_with('\n') || out.text.ends_with('\r')) out.text.pop_back();
  const size_t begin = out.text.find_last_of("\r\n");
  co_return utf8_lossy(begin == std::string::npos ? out.text : out.text.substr(begin + 1));
}

}  // namespace glovebox::api::mcp
