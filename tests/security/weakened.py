# SPDX-License-Identifier: Apache-2.0
"""Starts glovebox-attack where one defence after the other is missing. Runs as a program of its own:

    weakened.py PROGRAM WEAKENING FACTS-FILE ATTEMPT…

Every weakening lies in private namespaces of this process and ends with it: nothing of the machine is touched.
"""

import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x40000000, 0x20000000, 0x4000000, 0x8000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000


def check(rc, what):
    if rc < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags):
    check(libc.unshare(flags), "unshare")


def mount(source, target, kind, flags=0, data=""):
    check(libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode()), f"mount {target}")


def private_namespaces():
    """A process tree, mounts, network, name and IPC of our own, with all of root's power: no sandbox at all."""
    unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC)
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    if child := os.fork():  # the parent is still in the old pid namespace
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xff)
    mount("proc", "/proc", "proc")
    interfaces_up()


def interfaces_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
        fcntl.ioctl(control, 0x8914, request)


def run(program, attempts, facts, **options):
    """The attacker as a child, so that process 1 of the namespace is this program: something it may attack."""
    return subprocess.run([program, "run", *attempts], input=facts.encode(), **options).returncode


def claim_pid_namespace(facts):
    own = os.readlink("/proc/self/ns/pid")
    return "".join(line for line in facts.splitlines(True) if not line.startswith("pidns=")) + f"pidns={own}\n"


def refuse_with_success(numbers):
    """A filter that answers these system calls with success and does not carry them out: a kernel that says yes to all."""
    code = [struct.pack("HBBI", 0x20, 0, 0, 0)]  # the number
    for number in numbers:
        code += [struct.pack("HBBI", 0x15, 0, 1, number), struct.pack("HBBI", 0x06, 0, 0, 0x00050000)]
    code.append(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000))
    program = ctypes.create_string_buffer(b"".join(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
    check(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    check(libc.prctl(22, 2, header, 0, 0), "seccomp")


# The weakenings -----------------------------------------------------------------------------------------------------


def no_sandbox(program, attempts, facts):
    """Root with every capability, no filter, the host's files and its name."""
    private_namespaces()
    return run(program, attempts, facts)


def host_pid_namespace(program, attempts, facts):
    """Told that this pid namespace is the host's: what a sandbox without one of its own would see."""
    private_namespaces()
    return run(program, attempts, claim_pid_namespace(facts))


def visible_process(program, attempts, facts):
    """A process of "the host" in the same pid namespace."""
    private_namespaces()
    victim, _ = [subprocess.Popen(["glovebox-test-marker", "600"], executable="/bin/sleep") for _ in range(2)]  # the first is killed
    return run(program, attempts, claim_pid_namespace(facts) + f"pid={victim.pid}\nmarker=glovebox-test-marker\n")


def yes_kernel(program, attempts, facts):
    """Calls that are too dangerous to be let through for real, or that this kernel may lack, succeed by a filter's word."""
    private_namespaces()
    refuse_with_success([321, 298, 250, 248, 323, 425, 246, 320, 175, 313, 169, 167, 163, 172, 227, 170, 304])
    return run(program, attempts, facts)


def yes_hypervisor(program, attempts, facts):
    """socket and connect succeed by a filter's word: nothing leaves."""
    private_namespaces()
    refuse_with_success([41, 42])
    return run(program, attempts, facts)


def kept_capabilities(program, attempts, facts):
    """A change of the user keeps root's capabilities."""
    private_namespaces()
    check(libc.prctl(28, 1 << 2, 0, 0, 0), "SECBIT_NO_SETUID_FIXUP")
    return run(program, attempts, facts)


def throwaway_init(program, attempts, facts):
    """Process 1 runs a copy of the interpreter that may be damaged; its file is not read-only and not another user's."""
    private_namespaces()
    mount("tmpfs", "/tmp", "tmpfs", 0, "size=64m")
    shutil.copy(sys.executable, "/tmp/init")
    with open("/tmp/facts", "w", encoding="utf-8") as file:
        file.write(facts)
    os.execve("/tmp/init", ["/tmp/init", "-c", f"""
import subprocess, sys
with open("/tmp/facts", "rb") as facts:
    sys.exit(subprocess.run({[program, "run", *attempts]!r}, stdin=facts).returncode)
"""], {"PYTHONHOME": sys.base_prefix, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


def mask_in_reach(program, attempts, facts):
    private_namespaces()
    mount("tmpfs", "/proc/sys", "tmpfs")
    return run(program, attempts, facts)


def writable_switches(program, attempts, facts):
    """Writable copies lie over the kernel's switches; the real ones are out of reach."""
    private_namespaces()
    for path in ("/proc/sys", "/sys"):
        mount("tmpfs", path, "tmpfs")
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/sys/kernel/uevent_helper",
                 "/sys/fs/cgroup/release_agent", "/sys/leak"):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="ascii") as file:
            file.write("glovebox-test-word\n")
    return run(program, attempts, facts + "word=glovebox-test-word\n")


def device_nodes(program, attempts, facts):
    """A /dev that holds what it should not; "mem" is the zero device by that name."""
    private_namespaces()
    mount("tmpfs", "/tmp", "tmpfs", 0, "size=64m")
    os.mkdir("/tmp/dev")
    for name, number in (("kmsg", os.makedev(1, 11)), ("mem", os.makedev(1, 5)), ("null", os.makedev(1, 3))):
        os.mknod(f"/tmp/dev/{name}", 0o020666, number)
    mount("/tmp/dev", "/dev", "none", MS_BIND)
    return run(program, attempts, facts)


def inherited_directory(program, attempts, facts):
    """A root of its own, but a descriptor of the host's root was left open: CVE-2024-21626."""
    private_namespaces()
    outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    with tempfile.TemporaryDirectory() as place:
        mount("tmpfs", place, "tmpfs")
        for name in ("proc", "tmp"):
            os.mkdir(f"{place}/{name}")
        mount("proc", f"{place}/proc", "proc")
        shutil.copy(program, f"{place}/attack")
        os.chroot(place)
        os.chdir("/")
        return run("/attack", attempts, facts, pass_fds=[outside])


def host_directory(program, attempts, facts):
    """A directory of the host is mounted, under its name there."""
    private_namespaces()
    with tempfile.TemporaryDirectory(prefix="glovebox-test-word-") as place:
        mount(place, "/mnt", "none", MS_BIND)
        mount("tmpfs", place, "tmpfs")
        try:
            return run(program, attempts, facts + "word=glovebox-test-word-\n")
        finally:
            check(libc.umount2(place.encode(), 2), f"umount {place}")


def open_network(program, attempts, facts):
    """A network with addresses to reach, and a listener."""
    private_namespaces()
    subprocess.run(["ip", "address", "add", "169.254.169.254/32", "dev", "lo"], check=True)
    listeners = [socket.create_server(("169.254.169.254", 80)), socket.create_server(("127.0.0.1", 47117))]
    return run(program, attempts, facts + "tcp=127.0.0.1:47117\n") if listeners else 1


def second_interface(program, attempts, facts):
    private_namespaces()
    subprocess.run(["ip", "link", "add", "veth-attack", "type", "veth", "peer", "name", "veth-other"], check=True)
    return run(program, attempts, facts)


def sockets_in_reach(program, attempts, facts):
    """An engine's socket in the file system and an abstract one of the host."""
    private_namespaces()
    mount("tmpfs", "/run", "tmpfs")
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for one, name in zip(sockets, ("/run/docker.sock", "\0glovebox-test-abstract")):
        one.bind(name)
        one.listen()
    return run(program, attempts, facts + "unix=@glovebox-test-abstract\n")


def no_limits(program, attempts, facts):
    """No limit but a machine's; what counts as too much is tiny."""
    private_namespaces()
    mount("tmpfs", "/tmp", "tmpfs", 0, "size=64m")
    mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m")
    return run(program, attempts, facts + "limit_processes=4\nlimit_memory_mb=4\nlimit_disk_mb=1\nlimit_open_files=16\n")


def main():
    program, weakening, facts_file, *attempts = sys.argv[1:]
    with open(facts_file, encoding="utf-8") as file:
        facts = file.read()
    sys.exit(globals()[weakening](program, attempts, facts))


if __name__ == "__main__":
    main()
