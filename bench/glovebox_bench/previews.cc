// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "base/text.h"
#include "tier_bench.h"

// A request through a preview, against the same request to the same server from inside the sandbox.
// Both make a connection to the server for each request, because a preview does.
namespace glovebox::bench {
namespace {

using namespace std::chrono_literals;

// `serve`: a server of 1 KiB. `ask N`: N requests; their times in ms go into a file.
constexpr std::string_view kProgram = R"(#!/usr/bin/env python3
import os, socket, sys, time
if os.path.basename(sys.argv[0]) == "bench-serve":
    s = socket.create_server(("127.0.0.1", 8000), backlog=200)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\nConnection: close\r\n\r\n" + b"x" * 1024
    while True:
        c, _ = s.accept()
        while b"\r\n\r\n" not in c.recv(65536): pass
        c.sendall(answer)
        c.close()
times = []
for _ in range(100):
    start = time.perf_counter()
    with socket.create_connection(("127.0.0.1", 8000)) as c:
        c.sendall(b"GET / HTTP/1.1\r\nHost: localhost:8000\r\nConnection: close\r\n\r\n")
        while c.recv(65536): pass
    times.append((time.perf_counter() - start) * 1000)
open("bench-times.new", "w").write(" ".join(f"{t:.4f}" for t in times))
os.rename("bench-times.new", "bench-times")
)";
constexpr int kRequestsOfARound = 100;

}  // namespace

Async<void> TierBench::previews(std::string id) {
  GB_CO_TRYV(co_await api_->upload_program(id, "bench-serve", kProgram));
  GB_CO_TRYV(co_await api_->upload_program(id, "bench-ask", kProgram));
  GB_CO_TRYV(co_await api_->start(id, {"./bench-serve"}));
  const std::string path = "/p/" + id + "/8000/";
  for (int i = 0; i < 100; ++i) {
    if (co_await api_->get(path)) break;
    co_await sleep_for(50ms);
  }
  Samples ours, direct;
  for (size_t round = 0; round < rounds_.preview_rounds; ++round) {
    for (int i = 0; i < kRequestsOfARound; ++i) {
      const auto start = Clock::now();
      GB_CO_TRYV(co_await api_->get(path));
      ours.push_back(ms_since(start));
    }
    GB_CO_TRYV(co_await api_->exec(id, "./bench-ask"));
    GB_CO_TRY(const auto text, co_await api_->get("/v1/sandboxes/" + id + "/files?path=bench-times"));
    for (const auto& word : split(text, ' ')) direct.push_back(std::strtod(word.c_str(), nullptr));
  }
  print(Row{tier_, "GET of 1 KiB through a preview", "ms", ours, "direct, inside the sandbox", direct, {}, "adds ≤ 1 ms"});
  co_return Result<void>();
}

}  // namespace glovebox::bench
