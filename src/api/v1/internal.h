// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/call.h"
#include "api/v1/v1.h"
#include "http/json.h"

// Shared by the files of this dialect.
namespace glovebox::api::v1 {

constexpr size_t kMaxJsonBody = 4 << 20;
constexpr std::chrono::seconds kKeepalive{15};
constexpr size_t kPieceBytes = 256 << 10;
constexpr int64_t kMaxTimeMs = 365LL * 24 * 3600 * 1000;

void add_sandbox_routes(http::Router& router, const Parts& parts);
void add_snapshot_routes(http::Router& router, const Parts& parts);
void add_execution_routes(http::Router& router, const Parts& parts);
void add_file_routes(http::Router& router, const Parts& parts);
// GET /v1/sandboxes/{id}/files/watch
Async<void> watch_files(const Parts& parts, Call& call);
void add_code_routes(http::Router& router, const Parts& parts);
void add_network_routes(http::Router& router, const Parts& parts);
void add_volume_routes(http::Router& router, const Parts& parts);
void add_other_routes(http::Router& router, const Parts& parts);

// kForbidden unless the caller's key has the role admin.
Result<void> check_admin(const Call& call);
// The request's body as a JSON object; none at all reads as {} when it may.
Async<boost::json::value> read_json(Call& call, bool may_be_empty = false);
// The header Idempotency-Key, if there is one.
Result<std::optional<std::string>> idempotency_key(const http::Request& request);
Result<size_t> query_limit(const http::Request& request);  // 1 … 1000, default 100

// The bytes of `source` as the answer's body, and the request's into `sink` to its end. Nothing but finish() makes an upload visible: a
// client that breaks off leaves what was there.
Async<void> stream_out(Call& call, int status, http::Headers headers, sandbox::ByteSource& source);
Async<std::optional<sandbox::FileEntry>> stream_in(Call& call, sandbox::ByteSink& sink);
// kInvalidArgument for a request without a body: even an archive of nothing has bytes.
Result<void> check_archive(const http::Request& request);

// Sends `chunk`-wise output of an execution over an accepted WebSocket until its end or the client's.
Async<void> attach(Call& call, sandbox::ExecutionPtr execution, uint64_t cursor);

// The field "network", a policy; null when it is absent.
Result<sandbox::NetworkPolicyPtr> read_network(json::Reader& reader);

// "KILL", "SIGKILL", "9" or a number. kInvalidArgument.
Result<int> parse_signal(json::Reader& reader, std::string_view field);

// Chunks whose text is whole characters: a chunk that is not UTF-8 is split so that only the odd bytes go as base64. The last
// chunk's unfinished character is left out unless `final`.
std::vector<sandbox::Chunk> by_characters(std::vector<sandbox::Chunk> chunks, bool final);

}  // namespace glovebox::api::v1
