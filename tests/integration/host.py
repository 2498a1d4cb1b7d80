# SPDX-License-Identifier: Apache-2.0
"""What a daemon has on the host, found by looking at the host and not by asking the daemon."""

import contextlib
import os
import pathlib
import stat

CGROUPS = pathlib.Path("/sys/fs/cgroup")


def read(path):
    try:
        return pathlib.Path(path).read_bytes().decode(errors="replace")
    except OSError:
        return ""


def names_in(folder):
    """Nothing when it is gone, as what belongs to a process or a device may be at any moment."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def parents():
    """pid -> (ppid, name, state) of every process on the host."""
    table = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            line = read(entry / "stat")
            if line:
                name, _, rest = line.partition("(")[2].rpartition(")")
                fields = rest.split()
                table[int(entry.name)] = (int(fields[1]), name, fields[0])
    return table


def descendants(root):
    """Processes below `root` as "name", with the zombies among them."""
    table = parents()
    found = {}
    grew = True
    family = {root}
    while grew:
        grew = False
        for pid, (ppid, name, state) in table.items():
            if ppid in family and pid not in family:
                family.add(pid)
                found[pid] = f"{name} {state}"
                grew = True
    return found


def rss_bytes(pid):
    for line in read(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")


def cgroups(words):
    """Cgroup directories whose path holds one of `words`."""
    found = []
    for folder, children, _ in os.walk(CGROUPS):
        found += [os.path.join(folder, child) for child in children if any(w in child for w in words)]
    return found


def mounts(pid, words):
    return [line for line in read(f"/proc/{pid}/mountinfo").splitlines() if any(w in line for w in words)]


def loop_devices(words):
    found = []
    for device in names_in("/sys/block"):
        file = read(f"/sys/block/{device}/loop/backing_file").strip()
        if any(w in file for w in words):
            found.append(file)
    return found


def open_files(words):
    """Files whose path holds one of `words` and that any process of the host has open."""
    found = set()
    for pid in filter(str.isdigit, names_in("/proc")):
        for fd in names_in(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                file = os.readlink(f"/proc/{pid}/fd/{fd}")
                if any(w in file for w in words):
                    found.add(file)
    return sorted(found)


def sizes_below(folder):
    """path -> (bytes, bytes on the disk) of each regular file; one that goes meanwhile is not there."""
    found = {}
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(place, name))
                if stat.S_ISREG(status.st_mode):
                    found[os.path.join(place, name)] = (status.st_size, status.st_blocks * 512)
    return found


def command_lines(words):
    """Processes of the whole host whose arguments hold one of `words`."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            line = read(entry / "cmdline").replace("\0", " ")
            if any(w in line for w in words):
                found.append(f"{entry.name} {line.strip()[:200]}")
    return found


def leftovers(daemon_pid, data_dir, ids):
    """Host objects of the sandboxes with these ids, or of any sandbox in the data directory."""
    sandboxes = str(pathlib.Path(data_dir) / "sandboxes")
    heavy = [path for path, (size, _) in sizes_below(sandboxes).items() if size > 64 << 20]
    found = {
        "processes": command_lines(ids + [sandboxes]),
        "cgroups": cgroups(ids),
        "mounts of the host": mounts("self", ids + [sandboxes]),
        "mounts of the daemon": mounts(daemon_pid, ids + [sandboxes]),
        "loop devices": loop_devices(ids + [sandboxes]),
        "large files": heavy,
    }
    return {kind: items for kind, items in found.items() if items}
