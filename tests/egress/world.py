# SPDX-License-Identifier: Apache-2.0
"""A router namespace with links of sandboxes, and the egress proxy alone, its control channel driven by the test."""

import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time

from netns import Namespace

BINARY = os.environ.get("GLOVEBOX_EGRESS_PROXY",
                        str(pathlib.Path(__file__).resolve().parents[2] / "build/dev/src/egress/egress_proxy_alone"))

# What the daemon puts into the router namespace, from its own source: a copy here could go another way.
ROUTER = pathlib.Path(__file__).resolve().parents[2] / "src/network/router.cc"
RULES = re.search(r'kFilter = R"\((.*?)\)";', ROUTER.read_text(encoding="utf-8"), re.S).group(1)


class Router:
    def __init__(self):
        self.space = Namespace.new("router")
        self.space.run("nft", "-f", "-", input=RULES)
        self.sandboxes = []

    def link(self, number):
        space = Namespace.new(f"sandbox {number}")
        near, far = f"10.200.{number >> 7}.{number * 2 % 256}", f"10.200.{number >> 7}.{number * 2 % 256 + 1}"
        self.space.ip(f"link add gb{number} type veth peer name eth0 netns {space.path}", f"addr add {near}/31 dev gb{number}",
                      f"link set gb{number} up")
        space.ip(f"addr add {far}/31 dev eth0", "link set eth0 up", f"route add default via {near}")
        # The kernel starts to send on a new link up to a second after it is up.
        for side, name in ((self.space, f"gb{number}"), (space, "eth0")):
            while "state UP" not in side.run("ip", "link", "show", name):
                time.sleep(0.01)
        space.address, space.router = far, near
        self.sandboxes.append(space)
        return space

    def close(self):
        for space in self.sandboxes:
            space.close()
        self.space.close()


class Proxy:
    """The process, and what it says."""

    def __init__(self, router, host, config):
        self.directory = tempfile.TemporaryDirectory()
        os.chmod(self.directory.name, 0o755)
        ours, theirs = socket.socketpair()
        fds = (theirs.fileno(), router.space.descriptor)
        command = [BINARY, str(fds[0]), str(fds[1]), self.directory.name, "64123", "64123"]
        self.errors = tempfile.TemporaryFile()
        with host:
            self.process = subprocess.Popen(command, pass_fds=fds, stderr=self.errors)
        theirs.close()
        self.control = ours
        self.messages, self.changed = [], threading.Condition()
        self.seq = 0
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.wait(lambda m: m["op"] == "ready")
        self.send(op="config", **config)

    def _read(self):
        try:
            for line in self.control.makefile("r", encoding="utf-8"):
                if not line.endswith("\n"):
                    return  # it was killed in the middle
                with self.changed:
                    self.messages.append(json.loads(line))
                    self.changed.notify_all()
        except OSError:
            pass

    def send(self, **message):
        self.control.sendall(json.dumps(message).encode() + b"\n")

    def ask(self, **message):
        self.seq += 1
        seq = self.seq
        self.send(seq=seq, **message)
        answer = self.wait(lambda m: m.get("seq") == seq)
        assert answer["op"] == "done", answer
        return answer

    def set_policy(self, space, policy, sandbox=None):
        return self.ask(op="link", address=space.address, sandbox=sandbox or f"sb-{space.address}", policy=policy)

    def wait(self, matches, since=0, seconds=60):
        deadline = time.monotonic() + seconds
        with self.changed:
            while True:
                for message in self.messages[since:]:
                    if matches(message):
                        return message
                left = deadline - time.monotonic()
                assert left > 0, f"no such message; the last ones: {self.messages[-8:]}; {self.said()}"
                assert self.process.poll() is None or left > 1, self.said()
                self.changed.wait(min(left, 0.2))

    def mark(self):
        with self.changed:
            return len(self.messages)

    def event(self, since=0, seconds=60, **fields):
        """The first event since `since` that has these fields."""
        return self.wait(lambda m: m["op"] == "event" and all(m.get(k) == v for k, v in fields.items()), since, seconds)

    def events(self, since=0, **fields):
        with self.changed:
            return [m for m in self.messages[since:] if m["op"] == "event" and all(m.get(k) == v for k, v in fields.items())]

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def close(self):
        self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.directory.cleanup()
