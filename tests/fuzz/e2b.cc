// SPDX-License-Identifier: Apache-2.0
// What the E2B dialect reads itself: upload bodies, envelopes, addresses, list filters. The first byte chooses.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/e2b/list.h"
#include "api/e2b/multipart.h"
#include "api/e2b/network.h"
#include "api/e2b/rpc.h"
#include "api/e2b/target.h"
#include "http/json.h"

namespace {

using namespace glovebox;
using namespace glovebox::api::e2b;

// The same parts however the body is cut; contents are never longer than what came.
std::string parts_of(std::string_view body, size_t piece) {
  auto parser = Multipart::create("multipart/form-data; boundary=b");
  std::string out;
  for (size_t at = 0; at < body.size(); at += piece) {
    const auto events = parser->take(body.substr(at, piece));
    if (!events) return out + "!";
    for (const auto& event : *events) {
      using Kind = Multipart::Event::Kind;
      if (event.kind == Kind::kBegin) out += "[" + event.name + "|" + event.file_name + "]";
      if (event.kind == Kind::kData) out += event.data;
      if (event.kind == Kind::kEnd) out += ";";
    }
  }
  return out + (parser->finish() ? "." : "?");
}

void multipart(std::string_view body) {
  const std::string whole = parts_of(body, body.size() + 1), cut = parts_of(body, 3);
  // Broken bodies fail in the one piece that breaks them; what was passed on before differs.
  if (whole.back() == '.' && whole != cut) std::abort();
  if (whole.size() > 3 * body.size() + 64) std::abort();
}

void rpc(std::string_view body) {
  const auto text = open_envelope(body);
  const auto value = json::parse_object(text ? *text : std::string(body));
  if (!value) return;
  const Message message(*value);
  (void)message.integer("pid");
  (void)message.bytes("stdin");
  (void)message.map("envs");
  (void)message.texts("args");
  (void)message.message("process");
  (void)network_policy({}, &*value);
  (void)network_policy(false, &*value);
}

void words(std::string_view text) {
  (void)parse_metadata_filter(text);
  if (const auto place = decode_place(text)) {
    if (decode_place(encode_place(*place)) != place) std::abort();
  }
  http::Request request;
  request.path = "/";
  request.headers = {{"Host", std::string(text)}};
  (void)target_of_host(request);
  request.headers = {{"E2b-Sandbox-Id", std::string(text)}, {"E2b-Sandbox-Port", std::string(text)}};
  (void)named_target(request);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0: multipart(text); break;
    case 1: rpc(text); break;
    default: words(text);
  }
  return 0;
}
