// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/capability.h>

#include <cstdint>

// What a sandbox is like from inside, wherever the kernel below it is Linux: the host's, or a machine's own.
namespace glovebox::sys {

constexpr uint64_t capability_bit(int capability) { return 1ull << capability; }

// Of root inside: what package managers and servers need within their own files and processes. Not among them: SYS_CHROOT (nothing
// needs it that a sandbox of its own does not give), NET_RAW (ping works through ping_group_range), MKNOD, AUDIT_WRITE and everything
// that speaks to the kernel as its owner.
inline constexpr uint64_t kInsideCapabilities =
    capability_bit(CAP_CHOWN) | capability_bit(CAP_DAC_OVERRIDE) | capability_bit(CAP_FOWNER) | capability_bit(CAP_FSETID) |
    capability_bit(CAP_KILL) | capability_bit(CAP_SETGID) | capability_bit(CAP_SETUID) | capability_bit(CAP_SETPCAP) |
    capability_bit(CAP_NET_BIND_SERVICE) | capability_bit(CAP_SETFCAP);

// What tells about the machine, its disks or its kernel's memory. Kernels differ: some are missing.
inline constexpr const char* kMaskedFiles[] = {
    "/proc/kcore",         "/proc/keys",          "/proc/key-users",    "/proc/timer_list",  "/proc/sched_debug",   "/proc/kmsg",
    "/proc/cmdline",       "/proc/bootconfig",    "/proc/sysrq-trigger", "/proc/latency_stats", "/proc/kallsyms",   "/proc/kpagecount",
    "/proc/kpageflags",    "/proc/kpagecgroup",   "/proc/vmallocinfo",  "/proc/slabinfo",    "/proc/modules",       "/proc/mtrr",
    "/proc/diskstats",     "/proc/partitions",    "/proc/swaps",        "/proc/mdstat",      "/proc/iomem",         "/proc/ioports",
    "/proc/interrupts",    "/proc/softirqs",      "/proc/pagetypeinfo", "/proc/zoneinfo",    "/proc/buddyinfo",     "/proc/consoles",
    "/proc/schedstat",     "/proc/config.gz",     "/proc/locks",        "/proc/timer_stats", "/proc/fb",            "/proc/dma"};
inline constexpr const char* kMaskedDirectories[] = {"/proc/acpi", "/proc/scsi", "/proc/asound",        "/proc/driver",  "/proc/fs",
                                                     "/proc/bus",  "/proc/irq",  "/proc/dynamic_debug", "/proc/pressure"};

}  // namespace glovebox::sys
