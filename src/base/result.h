// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace glovebox {

// Every error that can reach a caller, once. The table in result.cc gives each its wire name, HTTP status, fault and
// advice; docs/errors.md is generated from it and a test keeps the two equal.
enum class Code {
  kInvalidArgument,      // a field is missing, of the wrong type, out of range or unknown
  kInvalidPath,          // empty, relative, holds NUL, too long
  kPayloadTooLarge,      // body, header or argument list over its limit
  kUnauthenticated,      // no key, or not one of ours
  kForbidden,            // the key may not do this
  kNotFound,             // no such thing, or not the caller's
  kSandboxNotFound,
  kExecutionNotFound,
  kTemplateNotFound,
  kRouteNotFound,
  kMethodNotAllowed,
  kAlreadyExists,
  kConflict,             // legal call, wrong state; details.state names it
  kSandboxNotReady,      // the sandbox has not started yet, is ending or has ended
  kTemplateInUse,
  kSnapshotNotFound,
  kSnapshotInUse,
  kSnapshotMismatch,     // made on another kind of host or by another engine version; details name both
  kVolumeNotFound,
  kVolumeInUse,          // details.sandbox has it
  kFileNotFound,
  kFileExists,
  kNotADirectory,
  kIsADirectory,
  kDirectoryNotEmpty,
  kPermissionDenied,     // the chosen user lacks the right, inside the sandbox
  kReadOnly,
  kTooManyLinks,         // symbolic link loop
  kUserUnknown,          // no such user in the sandbox's /etc/passwd
  kWorkdirNotFound,
  kCommandNotFound,      // what exec names does not exist
  kCommandNotExecutable, // a directory, no x bit, unknown format
  kArgumentsTooLong,     // E2BIG
  kProcessLimit,         // the sandbox's process limit is reached
  kOpenFileLimit,
  kDiskFull,             // the sandbox's disk or inode limit is reached
  kMemoryLimit,
  kSandboxIo,            // an operation inside the sandbox failed for a reason that has no code of its own
  kCapacity,             // a limit of the host or tenant; details name it, its size and its use
  kRateLimited,
  kRuntimeUnavailable,   // the demanded tier does not work on this host; message says why
  kStartFailed,          // the sandbox could not be started
  kSandboxEnded,         // it ended while the call was under way; details.reason
  kPreviewUnreachable,   // nothing answers on that port of the sandbox, or what answers does not speak HTTP
  kAgentProtocol,        // the agent broke the protocol; its sandbox is ended
  kTimeout,              // a deadline of ours passed
  kCancelled,
  kUnsupported,          // a feature that this version does not have
  kUnavailable,          // the daemon is stopping or cannot be reached
  kCorrupt,              // stored bytes do not match their checksum or format
  kIo,
  kInternal,
};

enum class Fault { kCaller, kSandbox, kPlatform };

struct CodeInfo {
  Code code;
  std::string_view name;    // stable, lower_snake_case, on the wire
  int http_status;
  Fault fault;
  bool retryable;           // the same call may succeed later without a change by the caller
  std::string_view advice;  // what to do, one sentence
};

const CodeInfo& info(Code code);
const CodeInfo* begin_codes();
const CodeInfo* end_codes();
std::string_view fault_name(Fault fault);
// The code with this wire name, or kInternal. For errors that come back over a wire of ours.
Code code_from_name(std::string_view name);

struct Error {
  Code code = Code::kInternal;
  std::string message;                         // for people: what failed, on what, why
  std::map<std::string, std::string> details;  // for programs: limit, size, state, path, …
  bool retryable() const { return info(code).retryable; }
};

template <class T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(Code code, std::string message,
                                  std::map<std::string, std::string> details = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(details)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

// The code for an errno of a call on the host's side (kIo when nothing fits), and "Text (ENAME)".
Code errno_code(int error);
std::string errno_text(int error);
// fail() for the current errno: "<what>: No such file or directory (ENOENT)".
tl::unexpected<Error> fail_errno(std::string_view what);
tl::unexpected<Error> fail_errno(std::string_view what, int error);

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line);
#define GB_ASSERT(e) ((e) ? (void)0 : ::glovebox::assertion_failed(#e, __FILE__, __LINE__))

#define GB_CAT2(a, b) a##b
#define GB_CAT(a, b) GB_CAT2(a, b)
// GB_TRY(auto x, f()): declares x from the value, or returns the error. GB_TRYV for Result<void>.
#define GB_TRY(decl, expr) GB_TRY_IMPL(return, GB_CAT(gb_r_, __LINE__), decl, expr)
#define GB_CO_TRY(decl, expr) GB_TRY_IMPL(co_return, GB_CAT(gb_r_, __LINE__), decl, expr)
#define GB_TRY_IMPL(ret, tmp, decl, expr)                  \
  auto tmp = (expr);                                       \
  if (!tmp) ret ::glovebox::fail(std::move(tmp).error());  \
  decl = std::move(tmp).value()
#define GB_TRYV(expr)                                                      \
  do {                                                                     \
    auto gb_r = (expr);                                                    \
    if (!gb_r) return ::glovebox::fail(std::move(gb_r).error());           \
  } while (0)
#define GB_CO_TRYV(expr)                                                   \
  do {                                                                     \
    auto gb_r = (expr);                                                    \
    if (!gb_r) co_return ::glovebox::fail(std::move(gb_r).error());        \
  } while (0)

}  // namespace glovebox
