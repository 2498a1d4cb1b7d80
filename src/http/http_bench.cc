// SPDX-License-Identifier: Apache-2.0
// What the HTTP layer costs: latency of an empty handler over keep-alive, throughput of streamed
// bodies. Server and client have a thread each, on loopback. Usage: http_bench [requests] [MiB]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <vector>

#include "http/client.h"
#include "http/test_server.h"

namespace glovebox::http {
namespace {

using testing::Raw;
using testing::run_alone;
using testing::TestServer;
using Micros = std::chrono::duration<double, std::micro>;

constexpr size_t kPieceBytes = 256 << 10;

Awaitable<void> download(Exchange& exchange, uint64_t total) {
  const std::string piece(kPieceBytes, 'd');
  Headers headers;
  if (exchange.request.path == "/sized")
    headers.emplace_back("Content-Length", std::to_string(total));
  co_await exchange.response.begin(200, std::move(headers));
  for (uint64_t sent = 0; sent < total; sent += piece.size()) {
    if (!co_await exchange.response.write(piece)) co_return;
  }
  co_await exchange.response.end();
}

Awaitable<void> upload(Exchange& exchange) {
  uint64_t total = 0;
  for (;;) {
    auto part = co_await exchange.body.read_some();
    if (!part || part->empty()) break;
    total += part->size();
  }
  std::string text = std::to_string(total);
  co_await exchange.response.send(200, {}, std::move(text));
}

void print_latency(const char* what, std::vector<double>& samples) {
  std::sort(samples.begin(), samples.end());
  std::printf("%-34s p50 %7.1f us   p99 %7.1f us\n", what, samples[samples.size() / 2],
              samples[samples.size() * 99 / 100]);
}

void latency_raw(uint16_t port, int count) {
  Raw raw(port);
  const std::string request = testing::get("/empty");
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    raw.send(request);
    raw.read_response();
    samples.push_back(Micros(Clock::now() - start).count());
  }
  print_latency("empty handler, blocking client", samples);
}

Awaitable<void> latency_client(Url url, int count) {
  auto connection = (co_await Connection::connect(url)).value();
  std::vector<double> samples;
  for (int i = 0; i < count; ++i) {
    const auto start = Clock::now();
    auto response = co_await connection->request("GET", "/empty");
    GB_ASSERT(response.has_value());
    samples.push_back(Micros(Clock::now() - start).count());
  }
  print_latency("empty handler, our client", samples);
}

void print_rate(const char* what, uint64_t bytes, Clock::duration took) {
  const double seconds = std::chrono::duration<double>(took).count();
  std::printf("%-34s %7.0f MB/s\n", what, static_cast<double>(bytes) / 1e6 / seconds);
}

Awaitable<void> throughput_down(Url url, std::string target, uint64_t total, const char* what) {
  auto connection = (co_await Connection::connect(url)).value();
  const auto start = Clock::now();
  GB_ASSERT((co_await connection->start("GET", target, {}, Connection::kNoBody)).has_value());
  GB_ASSERT((co_await connection->finish()).has_value());
  uint64_t got = 0;
  for (;;) {
    const auto part = co_await connection->read_some();
    GB_ASSERT(part.has_value());
    if (part->empty()) break;
    got += part->size();
  }
  GB_ASSERT(got == total);
  print_rate(what, total, Clock::now() - start);
}

Awaitable<void> throughput_up(Url url, uint64_t total, int64_t length, const char* what) {
  auto connection = (co_await Connection::connect(url)).value();
  const std::string piece(kPieceBytes, 'u');
  const auto start = Clock::now();
  GB_ASSERT((co_await connection->start("POST", "/up", {}, length)).has_value());
  for (uint64_t sent = 0; sent < total; sent += piece.size())
    GB_ASSERT((co_await connection->write(piece)).has_value());
  GB_ASSERT((co_await connection->finish()).has_value());
  const auto answer = co_await connection->read_some();
  GB_ASSERT(answer.value() == std::to_string(total));
  print_rate(what, total, Clock::now() - start);
}

void run(int requests, uint64_t total) {
  TestServer server([total](Exchange& exchange) -> Awaitable<void> {
    const std::string& path = exchange.request.path;
    if (path == "/empty") co_return (void) co_await exchange.response.send(200, {}, "");
    if (path == "/up") co_return co_await upload(exchange);
    co_await download(exchange, total);
  });
  Url url;
  url.host = "127.0.0.1";
  url.port = server.port();
  latency_raw(server.port(), requests);
  run_alone([&] { return latency_client(url, requests); });
  run_alone([&] { return throughput_down(url, "/sized", total, "download, Content-Length"); });
  run_alone([&] { return throughput_down(url, "/chunked", total, "download, chunked"); });
  run_alone([&] {
    return throughput_up(url, total, static_cast<int64_t>(total), "upload, Content-Length");
  });
  run_alone([&] { return throughput_up(url, total, Connection::kChunked, "upload, chunked"); });
}

}  // namespace
}  // namespace glovebox::http

int main(int argc, char** argv) {
  const int requests = argc > 1 ? std::atoi(argv[1]) : 20'000;
  const uint64_t mebibytes = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 256;
  glovebox::http::run(std::max(requests, 100), std::max<uint64_t>(mebibytes, 1) << 20);
}
