# SPDX-License-Identifier: Apache-2.0
"""A registry of the tests' own that answers as it is told, over HTTP or HTTPS on loopback."""
import hashlib
import http.server
import io
import json
import ssl
import subprocess
import tarfile
import threading
import time
import zipfile


def wheel(name, version, padding=0):
    """The bytes of a wheel that pip installs."""
    out = io.BytesIO()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(f"{name}.py", f"version = '{version}'\n" + "#" * padding)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return out.getvalue()


def npm_package(name, version, **manifest):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in {"package.json": json.dumps({"name": name, "version": version, **manifest}), "index.js": "module.exports = 1\n"}.items():
            member = tarfile.TarInfo("package/" + path)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


class Upstream:
    """`answers`: path -> (status, headers, body), or a function of the request handler. `hits` counts requests of each path."""

    def __init__(self, certificate=None):
        self.answers, self.hits, self.requests = {}, {}, []
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                owner.hits[self.path] = owner.hits.get(self.path, 0) + 1
                owner.requests.append((self.path, dict(self.headers)))
                answer = owner.answers.get(self.path, (404, {}, b""))
                if callable(answer):
                    answer = answer(self)
                    if answer is None:
                        return
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                if not any(name.lower() == "content-length" for name in headers):
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.port = self.server.server_address[1]
        self.url = f"{scheme}://{'localhost' if certificate else '127.0.0.1'}:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add_wheel(self, name, version, *, age_hours=24 * 365, url=None, sha256=None, body=None, upload_time=True, served=None):
        """Adds a wheel to the index of `name`. `served` is what really comes, `sha256` what the index says."""
        body = body or wheel(name, version)
        filename = f"{name}-{version}-py3-none-any.whl"
        self.answers["/files/" + filename] = (200, {}, body if served is None else served)
        entry = {"filename": filename, "url": url or f"{self.url}/files/{filename}", "size": len(body),
                 "hashes": {"sha256": hashlib.sha256(body).hexdigest() if sha256 is None else sha256} if sha256 != "" else {}}
        if upload_time:
            entry["upload-time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_hours * 3600))
        path = f"/simple/{name}/"
        page = json.loads(self.answers[path][2]) if path in self.answers else {"meta": {"api-version": "1.1"}, "name": name, "files": []}
        page["files"].append(entry)
        self.answers[path] = (200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, json.dumps(page).encode())
        return filename

    def add_npm(self, name, version, *, tarball=None, integrity=None, **manifest):
        body = tarball or npm_package(name, version, **manifest)
        file = f"/tarballs/{name}-{version}.tgz"
        self.answers[file] = (200, {}, body)
        page = json.loads(self.answers["/npm/" + name][2]) if "/npm/" + name in self.answers else {"name": name, "versions": {}, "time": {}}
        page["versions"][version] = {"name": name, "version": version, **manifest, "dist": {
            "tarball": self.url + file, "shasum": integrity or hashlib.sha1(body).hexdigest()}}
        page["time"][version] = "2020-01-01T00:00:00.000Z"
        page["dist-tags"] = {"latest": version}
        self.answers["/npm/" + name] = (200, {"Content-Type": "application/json"}, json.dumps(page).encode())
        return body

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def make_certificate(directory):
    """A self-signed certificate for localhost; the path of one file with key and certificate."""
    path = directory / "localhost.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=DNS:localhost", "-keyout", directory / "key", "-out", directory / "crt"], check=True, capture_output=True)
    path.write_bytes((directory / "key").read_bytes() + (directory / "crt").read_bytes())
    path.chmod(0o644)
    return path
