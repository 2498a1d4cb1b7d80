# SPDX-License-Identifier: Apache-2.0
"""Starts the registry proxy as the daemon would, and a bridge that stands where the egress proxy stands: TCP on loopback in front of
the proxy's Unix socket, with the header that names the sandbox."""
import json
import os
import pathlib
import queue
import shutil
import socket
import subprocess
import tempfile
import threading
import time

NOBODY = 65534
# Build trees may lie where only root can read.
DRIVER = pathlib.Path(os.environ.get("GLOVEBOX_BIN", "build/dev/src/programs/glovebox/glovebox")).resolve().parents[3] / "tests/registry/registry_driver"


class Bridge:
    """Forwards connections to the proxy's socket and adds X-Glovebox-Sandbox to each request."""

    def __init__(self, socket_path, sandbox):
        self.socket_path, self.sandbox = str(socket_path), sandbox
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        upstream = socket.socket(socket.AF_UNIX)
        try:
            upstream.connect(self.socket_path)
            threading.Thread(target=self._answers, args=(upstream, client), daemon=True).start()
            pending = b""
            while True:
                while b"\r\n\r\n" not in pending:
                    data = client.recv(65536)
                    if not data:
                        return
                    pending += data
                head, rest = pending.split(b"\r\n\r\n", 1)
                lines = [l for l in head.split(b"\r\n") if not l.lower().startswith(b"x-glovebox-sandbox:")]
                length = next((int(l.split(b":")[1]) for l in lines if l.lower().startswith(b"content-length:")), 0)
                while len(rest) < length:
                    rest += client.recv(65536)
                lines.append(b"X-Glovebox-Sandbox: " + self.sandbox.encode())
                upstream.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + rest[:length])
                pending = rest[length:]
        except OSError:
            pass
        finally:
            try:
                upstream.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    @staticmethod
    def _answers(upstream, client):
        try:
            while data := upstream.recv(262144):
                client.sendall(data)
        except OSError:
            pass
        finally:
            for side in (client, upstream):
                try:
                    side.shutdown(socket.SHUT_RDWR)  # close() alone would not end the other thread's recv()
                except OSError:
                    pass
                side.close()

    def close(self):
        self.listener.close()


class Registry:
    def __init__(self, upstreams, cache_dir=None, cache_bytes=1 << 30, file_hosts=(), ca_bundle=""):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="glovebox-registry-"))
        self.dir.chmod(0o755)
        self.run_dir = self.dir / "run"
        self.run_dir.mkdir()
        self.cache_dir = pathlib.Path(cache_dir) if cache_dir else self.dir / "cache"
        self.driver = self.dir / "registry_driver"
        shutil.copy(DRIVER, self.driver)
        self.events, self.lines = [], queue.Queue()
        self.seq = 0
        self.bridges = []
        self.settings = {"op": "config", "upstreams": upstreams, "cache_bytes": cache_bytes, "file_hosts": list(file_hosts)}
        self.ca_bundle = ca_bundle
        self.start()

    def start(self):
        ours, theirs = socket.socketpair()
        self.control = ours
        command = [self.driver, str(theirs.fileno()), self.run_dir, self.cache_dir, str(NOBODY), str(NOBODY)]
        if self.ca_bundle:
            command.append(self.ca_bundle)
        self.log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=self.log)
        theirs.close()
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()
        assert self.lines.get(timeout=60) == {"op": "ready"}
        assert self.ask(self.settings)["op"] == "done"

    def _read(self, control):
        for line in control.makefile("r", encoding="utf-8"):
            message = json.loads(line)
            if message["op"] == "event":
                self.events.append(message["event"])
            else:
                self.lines.put(message)

    def ask(self, operation):
        self.seq += 1
        self.control.sendall((json.dumps({**operation, "seq": self.seq}) + "\n").encode())
        answer = self.lines.get(timeout=60)
        assert answer["seq"] == self.seq, answer
        return answer

    def sandbox(self, name="sb-test", **policy):
        """Sets the policy of a sandbox; the bridge through which it sees the proxy."""
        policy.setdefault("registries", ["pypi", "npm", "debian"])
        answer = self.ask({"op": "sandbox", "sandbox": name, "policy": policy})
        assert answer["op"] == "done", answer
        bridge = next((b for b in self.bridges if b.sandbox == name), None)
        if not bridge:
            bridge = Bridge(self.run_dir / "registry.sock", name)
            self.bridges.append(bridge)
        return bridge

    def wait_event(self, timeout=60, **wanted):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for event in list(self.events):
                if all(event.get(k) == v for k, v in wanted.items()):
                    return event
            time.sleep(0.02)
        raise AssertionError(f"no event {wanted} in {self.events}")

    def log_text(self):
        return (self.dir / "log").read_text(errors="replace")

    def stop(self, kill=False):
        if kill:
            self.process.kill()
        self.control.shutdown(socket.SHUT_RDWR)
        self.control.close()
        status = self.process.wait(timeout=60)
        self.log.close()
        return status

    def close(self):
        for bridge in self.bridges:
            bridge.close()
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
