# SPDX-License-Identifier: Apache-2.0
"""nginx in front of the daemon: with its default proxy settings, and with those that docs/previews.md names."""

import asyncio
import contextlib
import hashlib
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import urllib.parse

import httpx
import pytest
import websockets

from client import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
APP = (ROOT / "tests/integration/preview_app.py").read_bytes()


def free_port():
    """Below those that the kernel gives to whoever asks for any: it stays free until nginx takes it."""
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", random.randrange(15_000, 30_000)))
            return probe.getsockname()[1]


def documented_server(port, upstream):
    """The example of the page, with this test's addresses in place of its own."""
    page = (ROOT / "docs/previews.md").read_text()
    example = re.search(r"```nginx\n(.*?)```", page, re.DOTALL).group(1)
    changed = example.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};").replace("127.0.0.1:7070", upstream)
    assert changed.count(upstream) == 1 and f":{port};" in changed
    return changed


@pytest.fixture(scope="module")
def nginx(daemon, tmp_path_factory):
    """(port with default settings, port with the documented ones)"""
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if not program:
        pytest.skip("needs nginx")
    directory = tmp_path_factory.mktemp("nginx")
    upstream = urllib.parse.urlsplit(daemon.url).netloc
    plain, documented = free_port(), free_port()
    temporary = "\n".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (directory / "nginx.conf").write_text(f"""
user root; pid {directory}/pid; error_log {directory}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
  access_log off; {temporary}
  server {{ listen 127.0.0.1:{plain}; location / {{ proxy_pass http://{upstream}; }} }}
  {documented_server(documented, upstream)}
}}""")
    process = subprocess.Popen([program, "-c", str(directory / "nginx.conf"), "-p", str(directory), "-g", "daemon off;"], stderr=subprocess.PIPE)

    def answers():
        assert process.poll() is None, process.stderr.read()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", documented)) == 0
    eventually(answers, 60, "nginx listens")
    yield plain, documented
    process.terminate()
    process.wait(60)


@pytest.fixture
def app(api, create):
    box = create()
    box.put("/tmp/preview_app.py", APP)
    box.start(["python3", "/tmp/preview_app.py"]).wait_for_output(b"up")
    info = api.call("GET", f"{box.path}/ports/8000")
    return box, info["token"], f"/p/{box.id}/8000"


def test_with_its_default_settings(nginx, app):
    box, token, prefix = app
    with httpx.Client(base_url=f"http://127.0.0.1:{nginx[0]}", headers={"X-Glovebox-Preview-Token": token}, timeout=60) as client:
        assert client.get(prefix + "/a%20b?c").text == "hello from /a%20b?c"
        assert client.get(prefix + "/chunks").text == "".join(str(i) * 1000 for i in range(5))
        assert len(client.get(prefix + "/size?20000000").content) == 20_000_000
        body = os.urandom(900_000)
        assert client.post(prefix + "/upload", content=body).json()["sha256"] == hashlib.sha256(body).hexdigest()
        assert client.post(prefix + "/upload", content=iter([body])).json()["size"] == len(body)
        assert client.head(prefix + "/size?7").headers["content-length"] == "7"
        assert client.get(prefix + "/304").status_code == 304
        assert client.get(prefix + "/to?/next").headers["location"].endswith(prefix + "/next")
        seen = []
        with client.stream("GET", prefix + "/events") as response:
            for line in response.iter_lines():
                if line.startswith("data:"):
                    seen.append(line.strip())
                    box.put("/tmp/heard-" + line.split()[1], b"")  # without it the app says no more
        assert seen == ["data: 0", "data: 1", "data: 2"], "events were held back"
    with httpx.Client(base_url=f"http://127.0.0.1:{nginx[0]}", timeout=60) as client:
        assert client.get(prefix + "/").status_code == 401
        landed = client.get(f"{prefix}/headers?glovebox_token={token}", follow_redirects=True)
        assert landed.status_code == 200 and token not in landed.text and landed.history[0].status_code == 302


def test_with_the_documented_settings(nginx, app):
    box, token, _ = app
    host = f"8000-{box.id}.localhost"
    with httpx.Client(base_url=f"http://127.0.0.1:{nginx[1]}", headers={"X-Glovebox-Preview-Token": token, "Host": host}, timeout=60) as client:
        seen = dict(client.get("/headers").json()["headers"])
        assert seen["Host"] == "localhost:8000" and seen["X-Forwarded-Host"] == host and seen["X-Forwarded-For"] == "127.0.0.1, 127.0.0.1"
        body = os.urandom(5_000_000)
        assert client.post("/upload", content=body).json()["sha256"] == hashlib.sha256(body).hexdigest()

    async def talk():
        async with websockets.connect(f"ws://{host}/socket", host="127.0.0.1", port=nginx[1], extra_headers={"X-Glovebox-Preview-Token": token}) as s:
            assert await s.recv() == "welcome"
            await s.send("through nginx")
            assert await s.recv() == "through nginx"
    asyncio.run(talk())
