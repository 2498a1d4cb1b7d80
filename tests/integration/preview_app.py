# SPDX-License-Identifier: Apache-2.0
"""Runs inside a sandbox, on the Python of its template alone. Port 8000: an app that does what apps do. Port 8001: a server that answers
with whatever the request's path names, well-formed or not. Port 8002: takes connections and says nothing."""

import base64
import hashlib
import http.server
import json
import os
import socket
import socketserver
import threading
import time

CRLF = b"\r\n"


def heard(path):
    """Whether the file comes within a time that is long for everybody. It is taken away again."""
    for _ in range(3000):
        if os.path.exists(path):
            os.remove(path)
            return True
        time.sleep(0.02)
    return False


class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=(), length=True):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def pieces(self):
        """The body of the request as it comes."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers.get("Content-Length", 0))
        while left > 0:
            data = self.rfile.read1(min(left, 1 << 20))
            left -= len(data)
            yield data

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/headers":
            seen = json.dumps({"path": self.path, "headers": self.headers.items()}).encode()
            return self.reply(200, seen, [("Content-Type", "application/json")])
        if path == "/size":
            return self.reply(200, b"x" * int(self.path.split("?")[1]))
        if path == "/304":
            return self.reply(304, headers=[("ETag", '"1"')], length=False)
        if path == "/204":
            return self.reply(204, length=False)
        if path == "/to":
            return self.reply(302, headers=[("Location", self.path.split("?", 1)[1])])
        if path == "/cookies":
            cookies = ["a=1; Path=/; HttpOnly", "b=2; Domain=localhost; Path=/deep", "glovebox_preview=evil; Path=/", "c=3"]
            reach = [("Clear-Site-Data", '"*"'), ("Service-Worker-Allowed", "/"), ("Strict-Transport-Security", "max-age=9"), ("Alt-Svc", "h2=:1")]
            return self.reply(200, b"ok", [("Set-Cookie", c) for c in cookies] + reach)
        if path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for i in range(3):
                self.wfile.write(b"data: %d\n\n" % i)
                if not heard(f"/tmp/heard-{i}"):
                    break
            self.close_connection = True
            return None
        if path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for i in range(5):
                self.chunk(b"%d" % i * 1000)
            return self.wfile.write(b"0\r\n\r\n")
        if path == "/cut":
            self.reply(200, b"", [("Content-Length", "1000")], length=False)
            self.wfile.write(b"only this")
            self.close_connection = True
            return None
        if path == "/forever":
            self.reply(200, b"", [("Transfer-Encoding", "chunked")], length=False)
            try:
                while True:
                    self.chunk(b"tick")
                    time.sleep(0.05)
            except OSError:
                open("/tmp/forever-ended", "w").close()
            self.close_connection = True
            return None
        if path == "/socket":
            return self.web_socket()
        return self.reply(200, f"hello from {self.path}".encode(), [("Content-Type", "text/plain")])

    do_HEAD = do_DELETE = do_GET

    def do_POST(self):
        if self.path == "/early":  # answers and closes without reading
            self.reply(413, b"no")
            self.close_connection = True
            return None
        if self.path == "/duplex":  # answers each piece before it reads the next
            self.reply(200, b"", [("Transfer-Encoding", "chunked")], length=False)
            for piece in self.pieces():
                self.chunk(piece.upper())
                self.wfile.flush()
            return self.wfile.write(b"0\r\n\r\n")
        digest, size = hashlib.sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            size += len(piece)
        return self.reply(200, json.dumps({"size": size, "sha256": digest.hexdigest()}).encode())

    do_PUT = do_POST

    def web_socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.write(self.frame(1, b"welcome"))
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                break
            size = head[1] & 127
            if size == 126:
                size = int.from_bytes(self.rfile.read(2), "big")
            if size == 127:
                size = int.from_bytes(self.rfile.read(8), "big")
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            self.wfile.write(self.frame(head[0] & 15, data))
            if head[0] & 15 == 8:
                break
        open("/tmp/socket-ended", "w").close()
        self.close_connection = True

    @staticmethod
    def frame(opcode, data):
        size = len(data)
        head = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big") if size < 65536 else b"\x7f" + size.to_bytes(8, "big")
        return bytes([0x80 | opcode]) + head + data


HOSTILE = {
    "garbage": b"\x16\x03\x01\x02\x00hello\r\n\r\n",
    "two-lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length-and-chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "bare-lf": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
    "folded": b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 5\r\n\r\nhello",
    "nul": b"HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 5\r\n\r\nhello",
    "status-000": b"HTTP/1.1 000 No\r\nContent-Length: 5\r\n\r\nhello",
    "unasked-101": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nraw",
    "interims": b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "silence": b"",
}


class Hostile(socketserver.BaseRequestHandler):
    def handle(self):
        line = self.request.recv(65536).split(b" ")[1].decode().strip("/")
        if line == "endless-headers":
            try:
                self.request.sendall(b"HTTP/1.1 200 OK\r\n")
                while True:
                    self.request.sendall(b"A: " + b"b" * 1000 + CRLF)
            except OSError:
                return
        if line == "bad-chunk":
            self.request.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")
        self.request.sendall(HOSTILE.get(line, b""))


class Servers(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 100


class Web(http.server.ThreadingHTTPServer):
    request_queue_size = 100


def listen_and_say_nothing():
    with socket.create_server(("127.0.0.1", 8002), backlog=200) as listener:
        kept = []
        while True:
            kept.append(listener.accept())


if __name__ == "__main__":
    threading.Thread(target=listen_and_say_nothing, daemon=True).start()
    web, hostile = Web(("127.0.0.1", 8000), App), Servers(("127.0.0.1", 8001), Hostile)
    socket.setdefaulttimeout(60)
    threading.Thread(target=hostile.serve_forever, daemon=True).start()
    print("up", flush=True)
    web.serve_forever()
