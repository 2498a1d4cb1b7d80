// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sandbox/identity.h"
#include "sandbox/service.h"

// Documents in the store and messages of the agent's, to and from our types. The agent's are hostile: wrong types, sizes and
// missing fields give kAgentProtocol.
namespace glovebox::sandbox::codec {

// A JSON string when the bytes are UTF-8, else {"b64": "…"}.
void append_bytes(std::string& out, std::string_view bytes);
void append_map(std::string& out, const StringMap& map);

// Where a sandbox goes on from when it has no processes.
struct StoredImage {
  std::string directory;
  bool is_own = true;  // the sandbox's, and removed once it runs again; else a snapshot's
  runtime::SnapshotImage content;
};
struct SandboxDocument {
  SandboxInfo info;
  runtime::Record record;
  runtime::Rootfs rootfs;
  std::optional<StoredImage> image;  // while it is hibernated
  uint64_t unowned_cpu_us = 0;       // of its engine's CPU time: used before it had an owner
};
std::string encode(const SandboxDocument& document);
Result<SandboxDocument> decode_sandbox(std::string_view text);

std::string encode(const ExecInfo& info);
Result<ExecInfo> decode_execution(std::string_view text);

std::string hello_fields(const SandboxInfo& info, const std::string& hostname, const std::string& seed_hex, const Identity* resumed = nullptr);
std::string exec_message(const std::string& id, const ExecSpec& spec, const SandboxInfo& sandbox);

struct AgentExecution {
  std::string id;
  bool exited = false;
  int64_t pid = 0;
};
// Ids are ours ("ex-…") and each comes once.
Result<std::vector<AgentExecution>> decode_hello(std::string_view text);

Result<int64_t> decode_pid(std::string_view started);
// Fills outcome and counters of `info` from EXITED. True: the sandbox's own kernel has run out of memory meanwhile.
Result<bool> decode_exited(std::string_view text, ExecInfo* info);

Result<FileEntry> decode_entry(std::string_view response);                 // its `entry`
struct EntryList {
  std::vector<FileEntry> entries;
  bool more = false;
};
Result<EntryList> decode_entries(std::string_view response);
Result<std::vector<ProcessInfo>> decode_processes(std::string_view response);
struct ReadAnswer {
  std::optional<FileEntry> entry;
  std::optional<uint64_t> length;
};
Result<ReadAnswer> decode_read(std::string_view response);
// Tells two requests of one caller apart, nothing more.
std::string request_hash(std::string_view request);

Result<FileEvent> decode_file_event(std::string_view line);  // of a watch
Result<bool> decode_bool(std::string_view response, std::string_view field);

}  // namespace glovebox::sandbox::codec
