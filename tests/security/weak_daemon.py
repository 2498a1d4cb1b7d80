# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the daemon that speaks as much of the REST API as `doctor --attack` needs, and has one weakness:

    weak_daemon.py WEAKNESS DIRECTORY        prints its URL, and runs until it is terminated

A "sandbox" is a directory: its programs run in a root, with a user and without new privileges, in a process namespace and a mount
namespace of this program. That keeps what the attack tries through the API, and what it tries from within is not carried out.

none                 nothing is missing
inherited_directory  programs inherit a descriptor of the host's root
follows_links        files are opened by the daemon, in the host's root
checks_then_opens    so they are, after a look at whether a link is on the way
keeps_marks          archives keep set-user-id bits, and programs may gain privileges
root_is_root         root inside is the host's, with process 1 in reach
"""

import base64
import http.server
import io
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import time
import urllib.parse

import weakened

PROCESS = pathlib.Path(__file__).with_name("weak_process.py")
USER, FAKE_ROOT = 1000, 0x10000000
CANNED = '{"id":"-","attempt":"%s","result":"refused","evidence":"not carried out here"}\n'
REAL_ATTEMPTS = ["write_program_files", "write_program_by_path_descriptor"]


class Weak:
    def __init__(self, weakness, directory):
        self.weakness = weakness
        self.place = pathlib.Path(directory)
        self.ids = itertools.count(1)
        self.outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY) if weakness == "inherited_directory" else -1

    def uid(self, user):
        if user != "root":
            return USER
        return 0 if self.weakness == "root_is_root" else FAKE_ROOT

    def create(self):
        name = f"sb-{next(self.ids)}"
        root = self.place / name
        for directory in ("", "proc", "tmp", "bin", "opt"):
            (root / directory).mkdir()
            os.chown(root / directory, self.uid("root"), self.uid("root"))
        (root / "tmp").chmod(0o1777)
        weakened.mount("proc", str(root / "proc"), "proc")
        return name

    def child(self, box, user, work, content=b"", wait=True, **how):
        """One of the sandbox's processes; how it ended, and what it wrote."""
        spec = json.dumps({"root": str(self.place / box), "uid": self.uid(user), "work": work,
                           "may_gain": self.weakness == "keeps_marks", **how})
        keep = (self.outside,) if self.outside >= 0 and work == "run" else ()
        process = subprocess.Popen([sys.executable, "-IS", PROCESS, spec], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, pass_fds=keep)
        if not wait:
            process.stdin.close()
            if how["argv"][1:2] == ["swap"]:
                process.stdout.readline()  # the race has begun
            return None
        try:
            out, err = process.communicate(content, timeout=how.get("seconds", 20))
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
        return process.returncode, out, err

    # Files -----------------------------------------------------------------------------------------------------------

    def by_the_daemon(self, box, path):
        """The path on the host, for a daemon that opens it itself; None when there is a link on the way, for one that looks."""
        place = self.place / box
        if self.weakness == "checks_then_opens":
            for part in path.strip("/").split("/"):
                place /= part
                if place.is_symlink() or part in ("proc", ".."):
                    return None
            time.sleep(0.003)
        return self.place / box / path.strip("/")

    def opens_itself(self):
        return self.weakness in ("follows_links", "checks_then_opens")

    def get(self, box, path, user):
        if self.opens_itself():
            try:
                found = self.by_the_daemon(box, path)
                return found.read_bytes() if found else None
            except OSError:
                return None
        code, out, _ = self.child(box, user, "read", path=path)
        return out if code == 0 else None

    def put(self, box, path, user, content, mode):
        if self.opens_itself():
            try:
                found = self.by_the_daemon(box, path)
                if not found:
                    return False
                found.write_bytes(content)
                found.chmod(mode)
                return True
            except OSError:
                return False
        return self.child(box, user, "write", content, path=path, mode=mode)[0] == 0

    def unpack(self, box, path, content):
        target = self.place / box / path.strip("/")
        target.mkdir()
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                (target / member.name).write_bytes(archive.extractfile(member).read())
                keeps = self.weakness == "keeps_marks"
                os.chown(target / member.name, member.uid if keeps else FAKE_ROOT, member.gid if keeps else FAKE_ROOT)
                (target / member.name).chmod(member.mode if keeps else member.mode & 0o777)

    # Executions ------------------------------------------------------------------------------------------------------

    def execute(self, box, body, wait):
        """The answer's JSON; None when the program could not be started."""
        argv = body.get("argv") or ["/bin/sh", "-c", body["command"]]
        mode, names = (argv + [""])[1], argv[2:]
        if mode == "whoami" and not names:
            return self.ended(0, b"uid=0 euid=0 suid=0 capabilities=0\n")
        if mode == "run" and names != REAL_ATTEMPTS:
            return self.ended(0, "".join(CANNED % name for name in names or ["inside"]).encode())
        if mode == "hold":
            return {"id": "ex-hold"}
        how = {"argv": argv, "cwd": body.get("cwd", "/"), "seconds": body.get("timeout_ms", 20000) / 1000}
        user = body.get("user", "user")
        if not wait:
            self.child(box, user, "run", wait=False, **how)
            return {"id": "ex-detached"}
        code, out, err = self.child(box, user, "run", body.get("stdin_text", "").encode(), **how)
        return None if b"not started" in err else self.ended(code, out)

    @staticmethod
    def ended(code, out):
        return {"id": "ex-1", "stdout": out.decode(errors="replace"), "exit_code": code, "outcome": {"type": "exited", "exit_code": code}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    weak = None

    def log_message(self, *_):
        pass

    def answer(self, content, status=200):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status=400):
        self.answer({"error": {"code": "invalid_argument", "message": "refused by the stand-in", "retryable": False}}, status)

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urllib.parse.urlsplit(self.path)
        query = {name: values[0] for name, values in urllib.parse.parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        user = query.get("user", "user")
        weak = self.weak
        if url.path == "/healthz":
            return self.answer({"status": "ok"})
        if url.path == "/v1/runtimes":
            return self.answer({"runtimes": [{"runtime": "container", "usable": True}]})
        if url.path == "/v1/sandboxes":
            return self.answer({"id": weak.create()}, 201)
        if self.command == "DELETE":
            return self.answer({"state": "ended"})
        box, what = parts[2], parts[3]
        if what == "executions" and self.command == "GET":
            return self.answer({"chunks": [{"stream": "stdout", "data": base64.b64encode(b"ready\n").decode()}]})
        if what == "executions":
            answer = weak.execute(box, json.loads(body), query.get("wait") == "true")
            return self.answer(answer) if answer else self.refuse()
        if what == "archive":
            weak.unpack(box, query["path"], body)
            return self.answer({})
        if self.command == "GET":
            content = weak.get(box, query["path"], user)
            return self.refuse(404) if content is None else self.answer(content)
        return self.answer({}) if weak.put(box, query["path"], user, body, int(query.get("mode", "0644"), 8)) else self.refuse()

    do_GET = do_PUT = do_POST = do_DELETE = handle_any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True


def main():
    weakness, directory = sys.argv[1:]
    # Before the namespaces are made: the address is the host's.
    server = Server(("127.0.0.1", 0), Handler)
    Handler.weak = Weak(weakness, directory)
    weakened.unshare(weakened.CLONE_NEWNS | weakened.CLONE_NEWPID)
    weakened.mount("none", "/", "none", weakened.MS_REC | weakened.MS_PRIVATE)
    if inside := os.fork():
        signal.signal(signal.SIGTERM, lambda *_: os.kill(inside, signal.SIGKILL))
        os.waitpid(inside, 0)
        return
    weakened.libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    weakened.mount("tmpfs", directory, "tmpfs", 0, "mode=755")
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
