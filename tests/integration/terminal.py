# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal of its own, driven as a person would."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time


class Terminal:
    def __init__(self, command, env=None, rows=24, cols=80):
        self.master, self.slave = pty.openpty()
        self.set_size(rows, cols)
        self.before = termios.tcgetattr(self.slave)
        self.output = self.pending = b""  # all that came; what no expect() has taken yet
        self.process = subprocess.Popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave, env=env,
                                        preexec_fn=self.take_terminal)

    def take_terminal(self):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def set_size(self, rows, cols):
        """As a window that changes: the kernel tells the foreground process with SIGWINCH."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def send(self, data):
        os.write(self.master, data)

    def read(self, seconds):
        """What comes within the time, at most one piece."""
        if select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 65536)
            self.output += data
            self.pending += data
            return data
        return b""

    def expect(self, wanted, seconds=60):
        """Reads until `wanted` has come; returns it and what came before it since the last call."""
        deadline = time.monotonic() + seconds
        while wanted not in self.pending:
            assert time.monotonic() < deadline, f"{wanted!r} did not come; seen: {self.pending[-2000:]!r}"
            if self.process.poll() is None:
                self.read(0.1)
                continue
            self.take_rest()
            assert wanted in self.pending, f"ended with {self.process.returncode} before {wanted!r}; seen: {self.pending[-2000:]!r}"
        before, found, self.pending = self.pending.partition(wanted)
        return before + found

    def take_rest(self):
        """What a program that has ended had written: the kernel passes it on a moment later, and before what we write after it."""
        mark = b"\0no more\0"
        while self.read(0):
            pass
        os.write(self.slave, mark)
        while mark not in self.output:
            assert self.read(60), f"the terminal gives nothing back; last output: {self.output[-2000:]!r}"
        self.output, self.pending = self.output.replace(mark, b""), self.pending.replace(mark, b"")

    def wait(self, seconds=60):
        """The exit status, reading on so that the program can write."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"did not end; last output: {self.output[-2000:]!r}"
            self.read(0.05)
        self.take_rest()
        return self.process.returncode

    def is_restored(self):
        """The modes of the terminal are what they were, and the open file that a shell would share is still blocking."""
        is_blocking = not fcntl.fcntl(self.slave, fcntl.F_GETFL) & os.O_NONBLOCK
        return is_blocking and termios.tcgetattr(self.slave) == self.before

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)
