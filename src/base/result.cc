// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace glovebox {
namespace {

constexpr Fault kBad = Fault::kCaller;
constexpr Fault kBox = Fault::kSandbox;
constexpr Fault kOurs = Fault::kPlatform;

constexpr CodeInfo kCodes[] = {
    {Code::kInvalidArgument, "invalid_argument", 400, kBad, false, "Correct the field that the message names."},
    {Code::kInvalidPath, "invalid_path", 400, kBad, false, "Use an absolute path without NUL bytes, at most 4095 bytes long."},
    {Code::kPayloadTooLarge, "payload_too_large", 413, kBad, false, "Send less at once; files may be streamed through the files API."},
    {Code::kUnauthenticated, "unauthenticated", 401, kBad, false, "Send a valid key: `Authorization: Bearer …` or `X-API-Key: …`."},
    {Code::kForbidden, "forbidden", 403, kBad, false, "Use a key whose role allows this."},
    {Code::kNotFound, "not_found", 404, kBad, false, "Check the id."},
    {Code::kSandboxNotFound, "sandbox_not_found", 404, kBad, false, "Check the id; ended sandboxes are forgotten after a while."},
    {Code::kExecutionNotFound, "execution_not_found", 404, kBad, false, "Check the id; executions live as long as their sandbox."},
    {Code::kTemplateNotFound, "template_not_found", 404, kBad, false, "List templates, or build it: `glovebox template build base`."},
    {Code::kRouteNotFound, "route_not_found", 404, kBad, false, "See /openapi.json for the paths that exist."},
    {Code::kMethodNotAllowed, "method_not_allowed", 405, kBad, false, "See the Allow header and /openapi.json."},
    {Code::kAlreadyExists, "already_exists", 409, kBad, false, "Choose another name, or remove the existing one."},
    {Code::kConflict, "conflict", 409, kBad, false, "The message names the state that forbids this call; wait for another or change it."},
    {Code::kSandboxNotReady, "sandbox_not_ready", 409, kBad, false, "The message names the sandbox's state; create a new one if it has ended."},
    {Code::kTemplateInUse, "template_in_use", 409, kBad, true, "End the sandboxes that use the template first."},
    {Code::kSnapshotNotFound, "snapshot_not_found", 404, kBad, false, "Check the id, or list the snapshots."},
    {Code::kSnapshotInUse, "snapshot_in_use", 409, kBad, true, "Wait until the sandboxes that start from it have started."},
    {Code::kSnapshotMismatch, "snapshot_mismatch", 409, kOurs, false, "Restore it on a host like the one it was made on; details name what differs."},
    {Code::kVolumeNotFound, "volume_not_found", 404, kBad, false, "Check the name, or list the volumes."},
    {Code::kVolumeInUse, "volume_in_use", 409, kBad, true, "End the sandbox that details.sandbox names, or mount the volume read-only."},
    {Code::kFileNotFound, "file_not_found", 404, kBad, false, "Check the path inside the sandbox."},
    {Code::kFileExists, "file_exists", 409, kBad, false, "Choose another path, or remove what is there."},
    {Code::kNotADirectory, "not_a_directory", 409, kBad, false, "A component of the path is not a directory."},
    {Code::kIsADirectory, "is_a_directory", 409, kBad, false, "Name a file, or use the directory calls."},
    {Code::kDirectoryNotEmpty, "directory_not_empty", 409, kBad, false, "Remove its contents first, or ask for a recursive removal."},
    {Code::kPermissionDenied, "permission_denied", 403, kBad, false, "The chosen user lacks the right inside the sandbox; choose another with `user`."},
    {Code::kReadOnly, "read_only", 403, kBad, false, "This part of the sandbox's file system cannot be changed."},
    {Code::kTooManyLinks, "too_many_links", 400, kBad, false, "The path runs into a loop of symbolic links."},
    {Code::kUserUnknown, "user_unknown", 400, kBad, false, "Name a user of the sandbox's /etc/passwd, or a numeric id."},
    {Code::kWorkdirNotFound, "workdir_not_found", 400, kBad, false, "Create the directory first, or choose another."},
    {Code::kCommandNotFound, "command_not_found", 400, kBad, false, "Check the command's name and the PATH in its environment."},
    {Code::kCommandNotExecutable, "command_not_executable", 400, kBad, false, "Name a regular file with execute permission and a known format."},
    {Code::kArgumentsTooLong, "arguments_too_long", 400, kBad, false, "Pass large data through a file or standard input."},
    {Code::kProcessLimit, "process_limit", 429, kBox, true, "End processes in the sandbox, or create it with a larger `limits.processes`."},
    {Code::kOpenFileLimit, "open_file_limit", 429, kBox, true, "Close files in the sandbox."},
    {Code::kDiskFull, "disk_full", 507, kBox, false, "Remove files, or create the sandbox with a larger `limits.disk_mb`."},
    {Code::kMemoryLimit, "memory_limit", 507, kBox, false, "Use less memory, or create the sandbox with a larger `limits.memory_mb`."},
    {Code::kSandboxIo, "sandbox_io", 422, kBox, false, "The message has the reason the sandbox's kernel gave."},
    {Code::kCapacity, "capacity", 429, kOurs, true, "Retry after `Retry-After` seconds, or end sandboxes."},
    {Code::kRateLimited, "rate_limited", 429, kBad, true, "Retry after `Retry-After` seconds."},
    {Code::kRuntimeUnavailable, "runtime_unavailable", 422, kOurs, false, "Run `glovebox doctor`, or choose another runtime."},
    {Code::kStartFailed, "start_failed", 500, kOurs, true, "Retry; if it stays, look at the daemon's log and `glovebox doctor`."},
    {Code::kSandboxEnded, "sandbox_ended", 410, kBox, false, "details.reason says why it ended; create a new one."},
    {Code::kPreviewUnreachable, "preview_unreachable", 502, kBox, true, "Start a server in the sandbox that listens on this port; details.port names it."},
    {Code::kAgentProtocol, "agent_protocol", 502, kBox, false, "Something in the sandbox replaced or broke the agent; create a new sandbox."},
    {Code::kTimeout, "timeout", 504, kOurs, true, "Retry, or give it more time."},
    {Code::kCancelled, "cancelled", 499, kBad, true, "The call was given up before it finished."},
    {Code::kUnsupported, "unsupported", 501, kBad, false, "This version does not have the feature; see CHANGELOG.md."},
    {Code::kUnavailable, "unavailable", 503, kOurs, true, "Retry when the server is up: `glovebox up`."},
    {Code::kCorrupt, "corrupt", 500, kOurs, false, "Rebuild or re-import the named object."},
    {Code::kIo, "io", 500, kOurs, true, "Look at the daemon's log for the failing device or path."},
    {Code::kInternal, "internal", 500, kOurs, false, "This is a fault of ours; please report it with the request id."},
};

}  // namespace

const CodeInfo* begin_codes() { return std::begin(kCodes); }
const CodeInfo* end_codes() { return std::end(kCodes); }

const CodeInfo& info(Code code) {
  const CodeInfo& entry = kCodes[static_cast<size_t>(code)];
  GB_ASSERT(entry.code == code);
  return entry;
}

std::string_view fault_name(Fault fault) {
  switch (fault) {
    case Fault::kCaller: return "caller";
    case Fault::kSandbox: return "sandbox";
    case Fault::kPlatform: return "platform";
  }
  return "platform";
}

Code code_from_name(std::string_view name) {
  for (const CodeInfo& entry : kCodes) {
    if (entry.name == name) return entry.code;
  }
  return Code::kInternal;
}

Code errno_code(int error) {
  switch (error) {
    case ENOENT: return Code::kFileNotFound;
    case EEXIST: return Code::kFileExists;
    case ENOTDIR: return Code::kNotADirectory;
    case EISDIR: return Code::kIsADirectory;
    case ENOTEMPTY: return Code::kDirectoryNotEmpty;
    case EACCES:
    case EPERM: return Code::kPermissionDenied;
    case EROFS: return Code::kReadOnly;
    case ELOOP: return Code::kTooManyLinks;
    case ENAMETOOLONG: return Code::kInvalidPath;
    case EINVAL: return Code::kInvalidArgument;
    case E2BIG: return Code::kArgumentsTooLong;
    case ENOSPC:
    case EDQUOT: return Code::kDiskFull;
    case EMFILE:
    case ENFILE: return Code::kOpenFileLimit;
    case ENOMEM: return Code::kMemoryLimit;
    case EAGAIN: return Code::kProcessLimit;
    case ENOEXEC: return Code::kCommandNotExecutable;
    case ENOSYS:
    case EOPNOTSUPP: return Code::kUnsupported;
    case ETIMEDOUT: return Code::kTimeout;
    case ECANCELED: return Code::kCancelled;
    default: return Code::kIo;
  }
}

std::string errno_text(int error) {
  const char* name = ::strerrorname_np(error);
  const char* text = ::strerrordesc_np(error);
  return std::string(text != nullptr ? text : "Unknown error") + " (" +
         (name != nullptr ? std::string(name) : std::to_string(error)) + ")";
}

tl::unexpected<Error> fail_errno(std::string_view what, int error) {
  return fail(errno_code(error), std::string(what) + ": " + errno_text(error));
}
tl::unexpected<Error> fail_errno(std::string_view what) { return fail_errno(what, errno); }

void assertion_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: invariant broken: %s\n", file, line, expression);
  std::abort();
}

}  // namespace glovebox
