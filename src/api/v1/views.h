// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/object.hpp>
#include <string>

#include "image/templates.h"
#include "sandbox/service.h"
#include "sandbox/snapshots.h"
#include "sandbox/volumes.h"
#include "tenant/keys.h"

// Our types as the JSON of docs/reference/api.md.
namespace glovebox::api::v1 {

boost::json::object view(const sandbox::SandboxInfo& info);
boost::json::object view(const sandbox::SnapshotInfo& info);
boost::json::object view(const sandbox::FileChange& change);
boost::json::object view(const sandbox::ExecInfo& info);
boost::json::object view(const sandbox::FileEntry& entry);
boost::json::object view(const sandbox::FileEvent& event);
boost::json::object view(const sandbox::ProcessInfo& process);
boost::json::object view(const sandbox::SandboxService::RuntimeInfo& runtime);
boost::json::object view(const image::Template& tmpl);
boost::json::object view(const sandbox::PoolState& pool);
boost::json::object view(const sandbox::VolumeInfo& volume);
boost::json::object view(const tenant::KeyInfo& key);
boost::json::object view(const sandbox::Chunk& chunk);  // data, or data_b64 when it is not UTF-8

// object[name] = text; when the bytes are not UTF-8 also object[name_b64].
void put_bytes(boost::json::object& object, std::string_view name, std::string_view bytes);
boost::json::value page_cursor(const std::string& cursor);  // null at the end
std::string_view signal_name(int signal);                   // "SIGKILL"; "" for an unknown one

}  // namespace glovebox::api::v1
