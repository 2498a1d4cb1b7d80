# SPDX-License-Identifier: Apache-2.0
"""TCP, TLS, HTTP and UDP servers in a namespace. They write down all that reaches them."""

import dataclasses
import json
import select
import socket
import ssl
import subprocess
import threading
import time


class Authority:
    """A certificate authority of the test's own, made with openssl."""

    def __init__(self, directory):
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=test authority",
                      "-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign",
                      "-keyout", "ca.key", "-out", "ca.pem")

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True, timeout=120)

    def issue(self, label, *names):
        """The path of a file with key and certificate for `names`."""
        extensions = self.directory / f"{label}.ext"
        extensions.write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in names) + "\nextendedKeyUsage=serverAuth\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={label}",
                      "-keyout", f"{label}.key", "-out", f"{label}.csr")
        self._openssl("x509", "-req", "-in", f"{label}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                      "-extfile", extensions.name, "-out", f"{label}.crt")
        both = self.directory / f"{label}.pem"
        both.write_text((self.directory / f"{label}.key").read_text() + (self.directory / f"{label}.crt").read_text())
        return both


@dataclasses.dataclass
class Visit:
    """One connection or, over UDP, one datagram."""

    address: str  # of the server, as the client chose it
    port: int
    sni: str = ""
    data: bytes = b""  # what the client sent, after TLS
    requests: list = dataclasses.field(default_factory=list)  # (method, target, [(header, value)])
    closed: float = 0  # monotonic; 0: open
    sent: int = 0
    over: str = "tcp"

    def headers(self, name, index=0):
        return [value for key, value in self.requests[index][2] if key == name.lower()]


class Site:
    """Servers on every address of a namespace: HTTP on 80 and 8080, HTTPS on 443, 853 and 8443, a greeting and an echo on the other TCP ports,
    an echo on UDP. HTTP paths: /stream trickles for ever, /bytes/N gives N bytes, /upgrade switches protocols and echoes, everything else
    answers with JSON that names the site."""

    HTTP, TLS, ECHO, UDP = (80, 8080), (443, 853, 8443), (22, 25, 53, 5432, 7777, 7778), (53, 443, 5353, 5355, 7777, 9999)

    def __init__(self, name, namespace, certificate):
        self.name = name
        self.visits = []
        self.lock = threading.Lock()
        self.open = 0  # connections that are served
        self.closing = False
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.set_alpn_protocols(["http/1.1"])
        self.context.sni_callback = lambda connection, sni, _: setattr(connection, "asked_for", sni or "")
        with namespace:
            self.listeners = {self._listen(socket.SOCK_STREAM, port): port for port in self.HTTP + self.TLS + self.ECHO}
            self.datagrams = {self._listen(socket.SOCK_DGRAM, port): port for port in self.UDP}
        threading.Thread(target=self._accept, daemon=True).start()

    def _listen(self, kind, port):
        sock = socket.socket(socket.AF_INET6, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if kind == socket.SOCK_DGRAM:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND: to answer from any address
        sock.bind(("::", port))
        if kind == socket.SOCK_STREAM:
            sock.listen(512)
        return sock

    def close(self):
        self.closing = True
        for sock in [*self.listeners, *self.datagrams]:
            sock.close()

    def mark(self):
        with self.lock:
            return len(self.visits)

    def since(self, mark=0):
        with self.lock:
            return self.visits[mark:]

    def _note(self, **fields):
        visit = Visit(**fields)
        with self.lock:
            self.visits.append(visit)
        return visit

    def _accept(self):
        while not self.closing:
            try:
                ready = select.select([*self.listeners, *self.datagrams], [], [], 0.2)[0]
            except (OSError, ValueError):
                return
            for sock in ready:
                try:
                    self._take(sock)
                except OSError:
                    continue  # the peer, or all of this, is gone

    def _take(self, sock):
        if sock in self.datagrams:
            self._echo_datagram(sock)
            return
        connection, _ = sock.accept()
        with self.lock:
            self.open += 1
        threading.Thread(target=self._serve, args=(connection, self.listeners[sock]), daemon=True).start()

    def _echo_datagram(self, sock):
        data, ancillary, _, peer = sock.recvmsg(65536, 256)
        packet_info = [(level, kind, value) for level, kind, value in ancillary if kind == socket.IPV6_PKTINFO]
        address = socket.inet_ntop(socket.AF_INET6, packet_info[0][2][:16]) if packet_info else ""
        self._note(address=address.removeprefix("::ffff:"), port=self.datagrams[sock], data=data, over="udp")
        sock.sendmsg([data], packet_info, 0, peer)

    def _serve(self, connection, port):
        address = connection.getsockname()[0].removeprefix("::ffff:")
        visit = self._note(address=address, port=port)
        connection.settimeout(300)
        try:
            if port in self.TLS:
                connection = self.context.wrap_socket(connection, server_side=True)
                visit.sni = getattr(connection, "asked_for", "")
            if port in self.ECHO:
                self._echo(connection, visit)
            else:
                self._http(connection, visit)
        except (OSError, ValueError):
            pass
        finally:
            visit.closed = time.monotonic()
            connection.close()
            with self.lock:
                self.open -= 1

    def _receive(self, connection, visit):
        data = connection.recv(65536)
        if len(visit.data) < 1 << 20:
            visit.data += data
        return data

    def _send(self, connection, visit, data):
        connection.sendall(data)
        visit.sent += len(data)

    def _echo(self, connection, visit):
        self._send(connection, visit, f"220 {self.name}\r\n".encode())
        while data := self._receive(connection, visit):
            self._send(connection, visit, data)

    def _http(self, connection, visit):
        buffer = b""
        while not self.closing:
            while b"\r\n\r\n" not in buffer:
                data = self._receive(connection, visit)
                if not data:
                    return
                buffer += data
            head, buffer = buffer.split(b"\r\n\r\n", 1)
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
            method, target, _ = (first + "  ").split(" ", 2)
            visit.requests.append((method, target, headers))
            buffer = self._read_body(connection, visit, dict(headers), buffer)
            if not self._respond(connection, visit, method, target, dict(headers)):
                return

    def _read_body(self, connection, visit, headers, buffer):
        if "chunked" in headers.get("transfer-encoding", ""):
            while not buffer.endswith(b"0\r\n\r\n"):
                data = self._receive(connection, visit)
                if not data:
                    return b""
                buffer = (buffer + data)[-16:]
            return b""
        length = int(headers.get("content-length", "0"))
        while len(buffer) < length:
            data = self._receive(connection, visit)
            if not data:
                return b""
            buffer += data
        return buffer[length:]

    def _respond(self, connection, visit, method, target, headers):
        path = target if target.startswith("/") else "/" + target.partition("://")[2].partition("/")[2]
        if path == "/stream":
            return self._trickle(connection, visit)
        if path == "/upgrade" and "upgrade" in headers:
            self._send(connection, visit, b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
                       + headers["upgrade"].encode() + b"\r\n\r\n")
            self._echo(connection, visit)
            return False
        if path.startswith("/bytes/"):
            body = b"x" * int(path[7:])
        else:
            body = json.dumps({"site": self.name, "host": headers.get("host"), "target": target, "sni": visit.sni}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        self._send(connection, visit, head + (b"" if method == "HEAD" else body))
        return headers.get("connection", "").lower() != "close"

    def _trickle(self, connection, visit):
        self._send(connection, visit, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.setblocking(True)
        while not self.closing:
            self._send(connection, visit, b"5\r\ndrip\n\r\n")
            time.sleep(0.02)
        return False
