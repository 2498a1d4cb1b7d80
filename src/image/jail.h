// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

// Cages for the work of a helper process. Only for single-threaded processes: they fork.
namespace glovebox::image {

// Host ids that root … 65535 of an imported image become while its archive is read. Above what
// distributions, subuid and systemd-nspawn hand out.
inline constexpr uint32_t kShiftedIds = 0x70000000;
inline constexpr uint32_t kIdCount = 65536;

struct JailSpec {
  bool has_user_namespace =
      false;                 // ids of the body are shifted; it has no rights outside its namespaces
  bool has_network = false;  // false: an empty network namespace
};

// Runs `body` as process 1 of new mount, pid, ipc and uts namespaces and waits for it. Everything
// it starts dies with it, and it with the caller. The body reports its own errors (error_line() on
// standard output); kInternal when it dies without doing so.
Result<void> run_in_jail(const JailSpec& spec, const std::function<Result<void>()>& body);

// A mount of the directory `fd` that has no place yet, for the body to attach. Only the caller's
// mount namespace can make it, so this comes before run_in_jail(). Linux 5.2.
Result<UniqueFd> detach_directory(int fd);

// The steps of a body, in the order they make sense.
Result<void> mount_private_tmp();  // a tmpfs on /tmp
Result<void> mount_own_proc();     // /proc of the new pid namespace
Result<void> only_writable(
    const std::vector<std::string>& directories);  // everything else becomes read-only
Result<void> attach_directory(const UniqueFd& detached, const std::string& where);
Result<void> enter_root(
    const UniqueFd& detached);  // pivot_root; nothing of the host stays reachable
Result<void> keep_capabilities(
    const std::vector<int>& capabilities);  // drops all others, for good; sets no_new_privs
Result<void> limit_resource(int resource, uint64_t value);
// Denies what reading an archive never needs: sockets, mounts, exec, namespaces, ptrace, keys, bpf,
// io_uring, …
Result<void> deny_dangerous_syscalls();
// fsync() and its kin succeed without doing anything, here and in everything started from here: a
// build that is interrupted is thrown away whole, so only its result is worth a sync.
Result<void> skip_fsync();

}  // namespace glovebox::image
