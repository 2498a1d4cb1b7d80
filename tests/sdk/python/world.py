# SPDX-License-Identifier: Apache-2.0
"""What stands between a client and the server in these tests: connections that break, servers that misbehave."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[3]


def eventually(check, seconds=60.0):
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < deadline, f"did not come true in {seconds} s (last: {value!r})"
        time.sleep(0.02)


class Breaker:
    """A TCP relay that breaks each connection after so many bytes from the server."""

    def __init__(self, url, after_bytes):
        self.target = urllib.parse.urlsplit(url)
        self.after_bytes = after_bytes
        self.broken = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection((self.target.hostname, self.target.port))
            threading.Thread(target=self._relay, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._relay, args=(server, client, self.after_bytes), daemon=True).start()

    def _relay(self, source, sink, left):
        try:
            while True:
                data = source.recv(65536 if left is None else min(65536, left))
                if not data:
                    break
                sink.sendall(data)
                if left is not None:
                    left -= len(data)
                    if left <= 0:
                        self.broken += 1
                        break
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()


class Scripted:
    """A server that answers the n-th request with the n-th answer, given as bytes, or as pieces of which one comes every 0.1 s;
    the last one stays. None: the connection is closed without a word."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection):
        with connection, contextlib.suppress(OSError):
            reader = connection.makefile("rb")
            while True:
                lines = list(iter(reader.readline, b"\r\n"))
                if not lines or b"" in lines:
                    return
                headers = {name.strip().lower(): value.strip() for name, _, value in (line.decode().partition(":") for line in lines[1:])}
                body = reader.read(int(headers.get("content-length", 0)))
                self.requests.append((*lines[0].decode().split()[:2], headers, body))
                answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
                if answer is None:
                    return
                for piece in [answer] if isinstance(answer, bytes) else answer:
                    connection.sendall(piece)
                    time.sleep(0 if isinstance(answer, bytes) else 0.1)
                if b"Connection: close" in answer:
                    return

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()


def answer(status, body, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(data)}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def error(status, code, **headers):
    fields = {"code": code, "message": "the message", "hint": "the advice", "retryable": False, "fault": "caller", "details": {"field": "x"}}
    return answer(status, {"error": fields}, X_Request_Id="req-1", **headers)


def free_port():
    """Below those that the kernel gives to whoever asks for any: it stays free, also while the daemon is away."""
    while True:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", random.randrange(15_000, 30_000))) as free:
            return free.getsockname()[1]


class OwnDaemon:
    """A daemon that a test may kill and start again on the same port."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        templates = pathlib.Path(os.environ["GLOVEBOX_TEST_DATA_DIR"]) / "templates"
        (self.directory / "templates").symlink_to(templates)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        (self.directory / "daemon.json").unlink(missing_ok=True)
        command = [os.environ["GLOVEBOX_BIN"], "--data-dir", str(self.directory), "up", "--listen", f"127.0.0.1:{self.port}"]
        with open(self.directory / "test.log", "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(lambda: (self.directory / "daemon.json").exists() and self.process.poll() is None, 120)
        self.key = (self.directory / "admin.key").read_text().strip()

    def crash(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.directory, ignore_errors=True)
