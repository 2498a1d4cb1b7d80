# SPDX-License-Identifier: Apache-2.0
"""Network namespaces that live as long as this process holds their descriptor: a crash leaves none behind."""

import contextlib
import ctypes
import fcntl
import os
import subprocess
import threading

CLONE_NEWNET = 0x40000000
SYS_PIDFD_GETFD = 438
TUNGETDEVNETNS = 0x54E3
_libc = ctypes.CDLL(None, use_errno=True)
_stack = threading.local()


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class Namespace:
    """`with namespace:` puts the calling thread into it: sockets that it opens and processes that it starts there stay there."""

    def __init__(self, label, descriptor):
        self.label = label
        self.descriptor = descriptor

    @classmethod
    def new(cls, label):
        made = []

        def make():
            try:
                _call("unshare", CLONE_NEWNET)
                made.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            except OSError as error:
                made.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if isinstance(made[0], OSError):
            raise made[0]
        namespace = cls(label, made[0])
        namespace.ip("link set lo up")
        return namespace

    @classmethod
    def of_process(cls, pid, label=""):
        return cls(label or f"namespace of {pid}", os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    @classmethod
    def of_tap(cls, pid, label):
        """Of the tap that the process, a virtual machine's monitor, holds: nobody need be in it."""
        process = os.pidfd_open(pid)
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    if os.readlink(f"/proc/{pid}/fd/{name}") != "/dev/net/tun":
                        continue
                    copy = _libc.syscall(SYS_PIDFD_GETFD, process, int(name), 0)
                    if copy < 0:
                        continue
                    try:
                        return cls(label, fcntl.ioctl(copy, TUNGETDEVNETNS))
                    finally:
                        os.close(copy)
        finally:
            os.close(process)
        raise OSError(f"process {pid} holds no tap")

    @property
    def path(self):
        """For `ip … netns PATH` and nsenter, while this process lives."""
        return f"/proc/{os.getpid()}/fd/{self.descriptor}"

    @property
    def identity(self):
        return os.stat(self.path).st_ino

    def close(self):
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __enter__(self):
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _call("setns", self.descriptor, CLONE_NEWNET)
        _stack.__dict__.setdefault("before", []).append(before)
        return self

    def __exit__(self, *_):
        before = _stack.before.pop()
        _call("setns", before, CLONE_NEWNET)
        os.close(before)

    def run(self, *command, check=True, **options):
        """The standard output of a program in the namespace."""
        with self:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, **options)
        assert not check or done.returncode == 0, f"{self.label}: {' '.join(command)}: {done.stderr.strip()}"
        return done.stdout

    def ip(self, *lines):
        """Lines for `ip -batch`; the address family follows from the addresses."""
        self.run("ip", "-batch", "-", input="\n".join(lines) + "\n")

    def set(self, **values):
        """net.* settings by name with dots as two underscores: ipv4__ip_forward=1."""
        with self:
            for name, value in values.items():
                with open("/proc/sys/net/" + name.replace("__", "/"), "w") as file:
                    file.write(str(value))


def why_unusable():
    """The reason why the lab cannot run here; empty when it can."""
    if os.geteuid() != 0:
        return "needs root: network namespaces"
    try:
        probe = Namespace.new("probe")
    except OSError as error:
        return f"needs network namespaces: {error}"
    try:
        probe.ip("link add probe0 type veth peer name probe1")
        probe.run("nft", "add table inet probe")
        return ""
    except (AssertionError, OSError) as error:
        return f"needs veth and nftables: {error}"
    finally:
        probe.close()
