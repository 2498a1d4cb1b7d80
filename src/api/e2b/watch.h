// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "api/e2b/rpc.h"

// The watching part of filesystem.Filesystem: one stream, and three calls for clients that poll.
namespace glovebox::api::e2b {

Async<void> watch_dir(DaemonCall& call, const Message& request, StreamAnswer& answer);
Async<boost::json::value> create_watcher(DaemonCall& call, const Message& request);
Async<boost::json::value> get_watcher_events(DaemonCall& call, const Message& request);
Async<boost::json::value> remove_watcher(DaemonCall& call, const Message& request);

// An entry at a path, as `{entry}`.
Async<boost::json::value> entry_at(DaemonCall& call, const std::string& path);

}  // namespace glovebox::api::e2b
