# SPDX-License-Identifier: Apache-2.0
"""Previews: what an app in a sandbox sends and gets, who is let in, and what never reaches it."""

import asyncio
import contextlib
import hashlib
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import time
import urllib.parse

import httpx
import pytest
import websockets

from client import check_error, eventually, patience, scaled
from daemon import find_program, share_templates

APP = (pathlib.Path(__file__).parent / "preview_app.py").read_bytes()
MIB = 1 << 20


class Preview:
    """One port's preview as a client without any key sees it."""

    def __init__(self, box, port):
        self.box, self.port = box, port
        self.path = f"{box.path}/ports/{port}"
        self.info = box.api.call("GET", self.path)
        self.prefix = f"/p/{box.id}/{port}"
        self.host = f"{port}-{box.id}.localhost"
        self.daemon = urllib.parse.urlsplit(box.api.url)
        self.http = httpx.Client(base_url=box.api.url, timeout=180)

    @property
    def token(self):
        return {"X-Glovebox-Preview-Token": self.info["token"]}

    def request(self, method, path, form="path", headers=None, token=True, **options):
        headers = {**(self.token if token else {}), **(headers or {})}
        self.http.cookies.clear()
        if form == "host":
            headers["Host"] = f"{self.host}:{self.daemon.port}"
        return self.http.request(method, (self.prefix if form == "path" else "") + path, headers=headers, **options)

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def refused(self, status, code, path="/", **options):
        return check_error(self.get(path, **options), status, code)

    def seen(self, path="/headers", **options):
        """(path, headers as a list) that the app got."""
        response = self.get(path, **options)
        assert response.status_code == 200, response.text
        return response.json()["path"], {name.lower(): value for name, value in response.json()["headers"]}

    def raw(self, head, body=b""):
        connection = socket.create_connection((self.daemon.hostname, self.daemon.port), timeout=120)
        connection.sendall(head.encode() + body)
        return connection

    def head(self, method, path, *headers, version="1.1"):
        lines = [f"{method} {self.prefix}{path} HTTP/{version}", "Host: localhost",
                 f"X-Glovebox-Preview-Token: {self.info['token']}", *headers]
        return "\r\n".join(lines) + "\r\n\r\n"


def serve_app(box):
    box.put("/tmp/preview_app.py", APP)
    box.server = box.start(["python3", "/tmp/preview_app.py"])
    box.server.wait_for_output(b"up")
    return box


@pytest.fixture(scope="module")
def boxes():
    kept = {}
    yield kept
    for box in kept.values():
        box.kill()


@pytest.fixture
def box(api, tier, boxes):
    """One sandbox with the app, for all tests of a tier that leave it as it is."""
    if tier not in boxes:
        boxes[tier] = serve_app(api.create(runtime=tier, lifetime_ms=600_000))
    return boxes[tier]


@pytest.fixture
def app(box):
    return Preview(box, 8000)


@pytest.fixture
def hostile(box):
    return Preview(box, 8001)


FORMS = pytest.mark.parametrize("form", ["path", "host"])


# What passes ------------------------------------------------------------------------------------------------------------
@FORMS
def test_requests_and_responses_pass(app, form):
    assert app.get("/a%2Fb//c?x=1&y=%20", form=form).text == "hello from /a%2Fb//c?x=1&y=%20"
    assert len(app.get("/size?3000000", form=form).content) == 3_000_000
    assert app.get("/chunks", form=form).text == "".join(str(i) * 1000 for i in range(5))
    none = app.get("/204", form=form)
    assert none.status_code == 204 and none.content == b""
    same = app.get("/304", form=form)
    assert same.status_code == 304 and same.headers["etag"] == '"1"'
    head = app.request("HEAD", "/size?12345", form=form)
    assert head.headers["content-length"] == "12345" and head.content == b""
    assert app.request("DELETE", "/x", form=form).text == "hello from /x"


def test_a_connection_is_kept_alive(app):
    with app.raw(app.head("GET", "/size?5") + app.head("GET", "/204") + app.head("GET", "/size?7", "Connection: close")) as connection:
        data = b""
        while piece := connection.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 200") == 2 and data.count(b"HTTP/1.1 204") == 1 and data.endswith(b"xxxxxxx")


def test_an_http_1_0_client_gets_what_a_proxy_with_defaults_needs(app):
    with app.raw(app.head("GET", "/chunks", version="1.0")) as connection:
        data = b""
        while piece := connection.recv(65536):
            data += piece
    assert data.endswith(b"4" * 1000) and b"chunked" not in data


@FORMS
def test_uploads_of_any_size(app, form):
    size = scaled(64, 1024) * MIB
    block = os.urandom(MIB)

    def body():
        for _ in range(size // MIB):
            yield block

    expected = hashlib.sha256()
    for piece in body():
        expected.update(piece)
    fixed = app.request("PUT", "/upload", form=form, content=body(), headers={"Content-Length": str(size)}).json()
    assert fixed == {"size": size, "sha256": expected.hexdigest()}
    if form == "path":
        chunked = app.request("POST", "/upload", content=iter([block, block[:100]])).json()
        assert chunked["size"] == MIB + 100


def test_both_directions_stream_at_once(app):
    with app.raw(app.head("POST", "/duplex", "Transfer-Encoding: chunked")) as connection:
        reader = connection.makefile("rb")
        for word in (b"one", b"two", b"three"):
            connection.sendall(b"%x\r\n%s\r\n" % (len(word), word))
            while (line := reader.readline().strip()) != word.upper():
                assert line or word == b"one", "the connection ended"
        connection.sendall(b"0\r\n\r\n")
        assert reader.readline() == b"0\r\n"


def test_expect_100_continue(app):
    with app.raw(app.head("POST", "/upload", "Content-Length: 5", "Expect: 100-continue")) as connection:
        assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(b"hello")
        data = b""
        while b'"size": 5' not in data:
            assert (piece := connection.recv(4096)), data
            data += piece


def test_events_are_not_held_back(app):
    seen = []
    with app.http.stream("GET", app.prefix + "/events", headers=app.token, timeout=120) as response:
        assert response.headers["x-accel-buffering"] == "no"
        for line in response.iter_lines():
            if line.startswith("data:"):
                seen.append(line.strip())
                app.box.put("/tmp/heard-" + line.split()[1], b"")  # without it the app says no more
    assert seen == ["data: 0", "data: 1", "data: 2"]


@FORMS
def test_web_sockets(app, form):
    app.box.ok("rm -f /tmp/socket-ended")

    async def talk():
        url = f"ws://{app.host}:{app.daemon.port}/socket" if form == "host" else f"ws://{app.daemon.netloc}{app.prefix}/socket"
        async with websockets.connect(url, extra_headers=app.token, host=app.daemon.hostname, port=app.daemon.port, max_size=None) as s:
            assert await s.recv() == "welcome"
            for message in ("text", b"\x00\xff", "x" * 200_000):
                await s.send(message)
                assert await s.recv() == message
    asyncio.run(talk())
    eventually(lambda: app.box.exists("/tmp/socket-ended"), 5, "the app heard that the client left")


def test_many_at_once(app):
    async def load():
        async with httpx.AsyncClient(base_url=app.box.api.url, timeout=180, limits=httpx.Limits(max_connections=50)) as client:
            answers = await asyncio.gather(*(client.get(f"{app.prefix}/size?{i}", headers=app.token) for i in range(300)))
        assert [len(a.content) for a in answers] == list(range(300))
    asyncio.run(load())


# What the app sees, and what comes back ------------------------------------------------------------------------------------
@FORMS
def test_the_app_sees_itself_as_localhost(app, form):
    own = f"{app.host}:{app.daemon.port}" if form == "host" else app.daemon.netloc
    _, headers = app.seen(form=form, headers={"Origin": f"http://{own}", "Connection": "keep-alive, X-Hop", "X-Hop": "1", "TE": "trailers",
                                              "X-Forwarded-For": "192.0.2.1"})
    assert headers["host"] == "localhost:8000" and headers["origin"] == "http://localhost:8000"
    assert headers["x-forwarded-host"] == own and headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-for"] == "192.0.2.1, 127.0.0.1"
    assert headers.get("x-forwarded-prefix") == (app.prefix if form == "path" else None)
    assert not {"x-hop", "te", "keep-alive"} & set(headers)
    assert app.seen(form=form, headers={"Origin": "https://elsewhere.example"})[1]["origin"] == "https://elsewhere.example"


def test_locations_are_corrected(app):
    def location(to, form):
        return app.get("/to?" + to, form=form).headers["location"]
    outside = app.daemon.netloc
    for to in ("/login?a=b", "http://localhost:8000/login?a=b", "http://127.0.0.1:8000/login?a=b", f"http://{outside}/login?a=b",
               app.prefix + "/login?a=b"):
        assert location(to, "path") == app.prefix + "/login?a=b", to
    assert location("next", "path") == "next"
    assert location("https://elsewhere.example/x", "path") == "https://elsewhere.example/x"
    assert location("http://localhost:8000/login", "host") == "/login"
    assert location("/login", "host") == "/login"
    assert location("http://localhost:8000//evil.example/", "host") == "/.//evil.example/"


def test_cookies_stay_with_their_app(app):
    by_path = app.get("/cookies").headers
    assert by_path.get_list("set-cookie") == [f"a=1; Path={app.prefix}/; HttpOnly", f"b=2; Path={app.prefix}/deep", "c=3"]
    assert not {"clear-site-data", "service-worker-allowed", "strict-transport-security", "alt-svc"} & set(by_path)
    by_host = app.get("/cookies", form="host").headers
    assert by_host.get_list("set-cookie") == ["a=1; Path=/; HttpOnly", "b=2; Path=/deep", "c=3"]
    assert "alt-svc" not in by_host and "clear-site-data" in by_host


def test_path_previews_have_an_origin_of_their_own(app):
    policy = app.get("/").headers["content-security-policy"]
    assert policy.startswith("sandbox ") and "allow-same-origin" not in policy
    assert "content-security-policy" not in app.get("/", form="host").headers


def test_a_path_without_its_slash(app):
    response = app.get("?a=1")
    assert (response.status_code, response.headers["location"]) == (308, app.prefix + "/?a=1")


# Who is let in -------------------------------------------------------------------------------------------------------------
@FORMS
def test_private_by_default(app, form):
    app.refused(401, "unauthenticated", form=form, token=False)
    app.refused(401, "unauthenticated", form=form, token=False, headers={"X-Glovebox-Preview-Token": "gbp_" + "0" * 64})
    app.refused(401, "unauthenticated", form=form, token=False, headers={"Cookie": "glovebox_preview="})
    page = app.get("/", form=form, token=False, headers={"Accept": "text/html"})
    assert page.status_code == 401 and page.headers["content-type"].startswith("text/html") and "<script" not in page.text
    other = Preview(app.box, 8001)
    other.refused(401, "unauthenticated", form=form, token=False, headers=app.token)


@FORMS
def test_a_link_is_exchanged_for_a_cookie(app, form):
    first = app.get(f"/headers?a=1&glovebox_token={app.info['token']}&b=2", form=form, token=False)
    prefix = app.prefix if form == "path" else ""
    assert (first.status_code, first.headers["location"]) == (302, prefix + "/headers?a=1&b=2")
    assert first.headers["referrer-policy"] == "no-referrer" and first.headers["cache-control"] == "no-store"
    cookie = first.headers["set-cookie"]
    assert cookie == f"glovebox_preview={app.info['token']}; Path={prefix}/; HttpOnly; SameSite=Lax"
    sent = {"Cookie": f"mine=1; {cookie.split(';')[0]}; other=2"}
    path, headers = app.seen("/headers?a=1", form=form, token=False, headers=sent)
    assert path == "/headers?a=1" and headers["cookie"] == "mine=1; other=2"
    _, headers = app.seen(form=form, token=False, headers={"Cookie": cookie.split(";")[0]})
    assert "cookie" not in headers
    app.refused(401, "unauthenticated", path="/?glovebox_token=wrong", form=form, token=False)
    # Not to another host, whatever the path looks like.
    head = f"GET //evil.example/?glovebox_token={app.info['token']} HTTP/1.1\r\nHost: {app.host}\r\nConnection: close\r\n\r\n"
    with app.raw(head) as connection:
        assert b"\r\nLocation: /.//evil.example/\r\n" in connection.makefile("rb").read()


def test_the_token_never_reaches_the_app_or_the_log(app, daemon):
    token = app.info["token"]
    for form in ("path", "host"):
        path, headers = app.seen(f"/headers?x&lizard_token=1&glovebox_token={token}&y=", form=form,
                                 headers={"Cookie": f"glovebox_preview={token}", "Referer": f"http://a/?glovebox_token={token}",
                                          "X-Lizard-Access-Token": token, "Connection": "upgrade"})
        assert path == "/headers?x&y=" and token not in json.dumps(headers)
    sent = app.request("POST", f"/upload?glovebox_token={token}", token=False, content=b"abc")
    assert sent.json()["size"] == 3
    assert token not in daemon.log_path.read_text()


def test_a_key_opens_the_path_form_of_its_tenant_only(app, daemon):
    own, other = app.box.api.key, daemon.new_key("other")["key"]
    for name, value in (("Authorization", f"Bearer {own}"), ("X-API-Key", own)):
        _, headers = app.seen(token=False, headers={name: value})
        assert own not in json.dumps(headers)
        app.refused(401, "unauthenticated", form="host", token=False, headers={name: value})
    app.refused(404, "sandbox_not_found", token=False, headers={"Authorization": f"Bearer {other}"})
    app.refused(401, "unauthenticated", token=False, headers={"Authorization": "Bearer gbx_wrong"})
    _, headers = app.seen(headers={"Authorization": "Basic YTpi"})
    assert headers["authorization"] == "Basic YTpi"
    _, headers = app.seen(form="host", headers={"Authorization": f"Bearer {other}"})
    assert "authorization" not in headers
    daemon.api("third").refused("GET", app.path, 404, "sandbox_not_found")


def test_other_pages_cannot_use_the_cookie(app):
    sent = {"Cookie": f"glovebox_preview={app.info['token']}"}
    own = f"http://{app.host}:{app.daemon.port}"
    for headers in ({"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
                    {"Origin": "http://3000-sb-other.localhost", "Upgrade": "websocket", "Connection": "Upgrade"}):
        app.refused(401, "unauthenticated", form="host", token=False, headers={**sent, **headers})
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, {"Origin": own}):
        assert app.get("/", form="host", token=False, headers={**sent, **headers}).status_code == 200, headers
    assert app.request("POST", "/upload", form="host", token=False, headers={**sent, "Origin": "http://evil.example"}).status_code == 401


def test_a_browser_is_sent_from_the_path_to_the_host(app):
    link = f"/x?a=1&glovebox_token={app.info['token']}"
    moved = app.get(link, token=False, headers={"Sec-Fetch-Mode": "navigate"})
    host = f"http://{app.host}:{app.daemon.port}"
    assert (moved.status_code, moved.headers["location"]) == (302, f"{host}/x?a=1&glovebox_token={app.info['token']}")


def test_ports_and_links_are_managed(create):
    app = Preview(serve_app(create()), 8000)
    assert app.info["listening"] is True and app.info["public"] is False and app.info["revoked"] is False
    assert app.info["urls"] == {"path": f"{app.box.api.url}{app.prefix}/", "domain": None,
                                "localhost": f"http://{app.host}:{app.daemon.port}/"}
    assert app.info["link"] == app.info["urls"]["localhost"] + "?glovebox_token=" + app.info["token"]
    assert Preview(app.box, 9).info["listening"] is False
    old = dict(app.token)
    app.info = app.box.api.call("POST", app.path)
    assert app.get("/").status_code == 200 and app.token != old
    app.refused(401, "unauthenticated", token=False, headers=old)
    app.info = app.box.api.call("POST", app.path, json={"public": True})
    assert app.get("/", token=False).status_code == 200 and app.info["link"] == app.info["urls"]["localhost"]
    app.info = app.box.api.call("POST", app.path, json={"public": False})
    app.refused(401, "unauthenticated", token=False)
    assert app.get("/").status_code == 200
    gone = app.box.api.call("DELETE", app.path)
    assert (gone["revoked"], gone["token"], gone["link"]) == (True, None, None)
    app.refused(404, "not_found")
    assert app.box.api.call("GET", app.path)["revoked"] is True
    app.info = app.box.api.call("POST", app.path)
    assert app.get("/").status_code == 200
    for port in ("0", "65536", "-1", "x", "080"):
        app.box.api.refused("GET", f"{app.box.path}/ports/{port}", 400, "invalid_argument")
        assert app.http.get(f"/p/{app.box.id}/{port}/", headers=app.token).status_code == 404
    app.box.api.refused("POST", app.path, 400, "invalid_argument", json={"pubic": True})


def test_a_new_link_ends_what_the_old_one_holds_open(create):
    app = Preview(serve_app(create()), 8000)

    async def talk():
        url = f"ws://{app.daemon.netloc}{app.prefix}/socket"
        async with websockets.connect(url, extra_headers=app.token) as s:
            assert await s.recv() == "welcome"
            await asyncio.to_thread(app.box.api.call, "DELETE", app.path)
            with pytest.raises(websockets.ConnectionClosed):
                await asyncio.wait_for(s.recv(), 60)
    asyncio.run(talk())


def test_links_outlive_the_daemon(make_daemon, runtimes):
    if not runtimes["container"]["usable"]:
        pytest.skip("container: " + runtimes["container"]["problem"])
    daemon = make_daemon()
    app = Preview(serve_app(daemon.admin.create(runtime="container")), 8000)
    app.info = app.box.api.call("POST", app.path)
    took = []
    while not took or took[-1] >= 6:
        assert len(took) < 4, f"an open preview kept the daemon from stopping, for {took} s"
        if took:
            daemon.start()
            app.http = httpx.Client(base_url=daemon.url, timeout=180)
        with app.http.stream("GET", app.prefix + "/forever", headers=app.token) as response:
            pieces = response.iter_raw()
            next(pieces)
            begin = time.monotonic()
            daemon.stop()
            took.append(time.monotonic() - begin)
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
    daemon.start()
    again = Preview(daemon.admin.create(runtime="container"), 8000)  # of the new daemon's address
    again.box.id, again.path, again.prefix = app.box.id, app.path, app.prefix
    response = again.http.get(app.prefix + "/", headers=app.token)
    assert response.status_code == 200, response.text
    assert (daemon.data_dir / "preview.key").stat().st_mode & 0o777 == 0o600


# What is not there ---------------------------------------------------------------------------------------------------------
@FORMS
def test_nothing_listens(box, form):
    error = Preview(box, 81).refused(502, "preview_unreachable", form=form)
    assert error["details"] == {"port": "81"} and "81" in error["message"]
    page = Preview(box, 81).get("/", form=form, headers={"Accept": "text/html"})
    assert page.status_code == 502 and "port 81" in page.text


@FORMS
def test_stale_links(create, api, form):
    app = Preview(create(), 8000)
    app.box.kill()
    app.refused(410, "sandbox_ended", form=form)
    app.refused(410, "sandbox_ended", form=form, token=False)
    app.prefix, app.host = "/p/sb-abcdefghijkl/8000", "8000-sb-abcdefghijkl.localhost"
    app.refused(404, "sandbox_not_found", form=form)
    api.refused("GET", "/v1/sandboxes/sb-abcdefghijkl/ports/80", 404, "sandbox_not_found")
    api.refused("POST", app.path, 410, "sandbox_ended")


def test_refused_requests_wake_nothing(create):
    box = create()
    frozen = lambda: box.refresh()["frozen"]
    eventually(frozen, 10, "it is frozen")
    preview = Preview(box, 8000)
    assert preview.info["listening"] is None
    preview.refused(401, "unauthenticated", token=False)
    preview.refused(401, "unauthenticated", token=False, form="host", headers={"Authorization": f"Bearer {box.api.key}"})
    assert frozen()

    def awake():  # for a third of a second
        preview.refused(502, "preview_unreachable")
        return not frozen()

    eventually(awake, what="what is let in wakes it")


def test_bytes_are_activity_and_looking_is_none(create):
    for idle_timeout_ms in (1500, 6000, 20_000):  # longer where this machine stands still for so long
        box, rest = used_for_a_while(create, patience(idle_timeout_ms))
        if box.info["state"] == "ready" or rest < patience(idle_timeout_ms) / 1000:
            break
    assert box.info["state"] == "ready", f"it ended although it never rested for more than {rest} s"
    app = Preview(box, 9000)
    begin = time.monotonic()
    while box.refresh()["state"] == "ready":
        box.api.call("GET", app.path)
        app.get("/", token=False)
        time.sleep(0.2)
        assert time.monotonic() - begin < patience(idle_timeout_ms) / 1000 + 60, "status reads and refused requests kept it alive"
    assert box.info["ended"]["reason"] == "idle"


def used_for_a_while(create, idle_timeout_ms):
    """A sandbox that nothing but requests to its app kept alive, and the longest time between two of them."""
    box = serve_app(create(idle_timeout_ms=0))
    # A server left behind by an execution that has ended: the sandbox is idle.
    box.ok("setsid python3 -m http.server 9000 >/dev/null 2>&1 & sleep 0.5")
    for execution in box.executions("?state=running"):
        box.api.call("POST", f"{box.path}/executions/{execution['id']}/kill")
    app = Preview(box, 9000)
    eventually(lambda: app.get("/").status_code == 200, what="the server listens")
    times = [time.monotonic()]
    box.api.call("PATCH", box.path, json={"idle_timeout_ms": idle_timeout_ms})
    for _ in range(6):
        answer = app.get("/").status_code
        times.append(time.monotonic())
        if answer != 200:
            break
        time.sleep(idle_timeout_ms / 4000)
    box.refresh()
    times.append(time.monotonic())
    return box, max(later - before for before, later in zip(times, times[1:]))


# Faults on both sides ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("answer", ["garbage", "two-lengths", "length-and-chunked", "bare-lf", "folded", "nul", "status-000", "unasked-101",
                                    "interims", "silence", "endless-headers"])
def test_an_app_that_breaks_http(hostile, answer):
    error = hostile.refused(502, "preview_unreachable", path="/" + answer)
    assert "8001" in error["message"]
    assert hostile.box.ok("echo alive") == "alive\n"


@pytest.mark.parametrize("path, port", [("/cut", 8000), ("/bad-chunk", 8001)])
def test_a_response_that_breaks_off_is_seen_to(box, path, port):
    with pytest.raises(httpx.RemoteProtocolError):
        Preview(box, port).get(path)


def test_an_early_answer_to_an_upload(app):
    for _ in range(5):
        try:
            assert app.request("POST", "/early", content=b"x" * (2 * MIB)).status_code in (413, 502)
        except (httpx.WriteError, httpx.RemoteProtocolError, httpx.ReadError):
            pass  # it may close while we send
    assert app.box.ok("echo alive") == "alive\n"
    assert app.get("/").status_code == 200


def test_a_client_that_leaves_ends_the_connection_to_the_app(app):
    app.box.ok("rm -f /tmp/forever-ended")
    with app.http.stream("GET", app.prefix + "/forever", headers=app.token) as response:
        next(response.iter_raw())
        response.close()
    eventually(lambda: app.box.exists("/tmp/forever-ended"), 5, "the app's connection was closed")
    with app.raw(app.head("POST", "/upload", "Content-Length: 1000"), b"part"):
        pass
    assert app.get("/").status_code == 200


def test_a_sandboxs_connections_are_bounded(create):
    app = Preview(serve_app(create()), 8002)
    with contextlib.ExitStack() as kept:
        for _ in range(256):
            kept.enter_context(app.raw(app.head("GET", "/")))
        other = Preview(app.box, 8000)
        eventually(lambda: other.get("/").status_code == 429, 10, "the sandbox has all it may have")
        other.refused(429, "capacity")
        assert app.box.ok("echo alive") == "alive\n"
    eventually(lambda: other.get("/").status_code == 200, 10, "they are given back")


def test_an_app_that_dies_mid_response(create):
    app = Preview(serve_app(create()), 8000)
    with pytest.raises(httpx.RemoteProtocolError):
        with app.http.stream("GET", app.prefix + "/forever", headers=app.token) as response:
            for i, _ in enumerate(response.iter_raw()):
                if i == 1:
                    app.box.server.kill()
    app.refused(502, "preview_unreachable")


def test_a_sandbox_that_ends_mid_response(create):
    app = Preview(serve_app(create()), 8000)
    with pytest.raises(httpx.RemoteProtocolError):
        with app.http.stream("GET", app.prefix + "/forever", headers=app.token) as response:
            for i, _ in enumerate(response.iter_raw()):
                if i == 1:
                    app.box.kill()
    app.refused(410, "sandbox_ended")


# A domain of its own, with TLS ---------------------------------------------------------------------------------------------
def make_certificate(directory, name):
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-addext", f"subjectAltName=DNS:*.{name}", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


@pytest.fixture(scope="module")
def domain(make_daemon, tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    cert, key = make_certificate(directory, "preview.test")
    daemon = make_daemon(config=f'[preview]\ndomain = "preview.test"\nlisten = "127.0.0.1:0"\ntls_cert = "{cert}"\ntls_key = "{key}"\n')
    said = re.search(r"daemon\.previews.*?127\.0\.0\.1:(\d+)", daemon.log_path.read_text())
    return daemon, int(said[1]), cert, directory


@contextlib.contextmanager
def tls_connection(port, cert, name, **options):
    context = ssl.create_default_context(cafile=str(cert))
    context.set_alpn_protocols(options.get("alpn", ["http/1.1"]))
    with socket.create_connection(("127.0.0.1", port), timeout=120) as plain, context.wrap_socket(plain, server_hostname=name) as secure:
        yield secure


def exchange(connection, head):
    connection.sendall(head.replace("\n", "\r\n").encode())
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def test_a_domain_with_tls(domain, runtimes):
    daemon, port, cert, directory = domain
    app = Preview(serve_app(daemon.admin.create(runtime="container" if runtimes["container"]["usable"] else "auto")), 8000)
    host = f"8000-{app.box.id}.preview.test"
    assert app.info["urls"]["domain"] == f"https://{host}:{port}/"
    token = app.info["token"]
    ask = f"GET /headers HTTP/1.1\nHost: {{}}\nX-Glovebox-Preview-Token: {token}\nConnection: close\n\n"
    for name in (host, f"{app.box.id}-8000.preview.test"):
        with tls_connection(port, cert, name) as connection:
            assert connection.selected_alpn_protocol() == "http/1.1"
            answer = exchange(connection, ask.format(f"{name}:{port}"))
            assert b"200 OK" in answer and b'["X-Forwarded-Proto", "https"]' in answer
    with tls_connection(port, cert, host) as connection:
        first = exchange(connection, f"GET /?glovebox_token={token} HTTP/1.1\nHost: {host}\nConnection: close\n\n")
        assert b"302 Found" in first and b"SameSite=Lax; Secure" in first
    # Previews only: neither the API nor path URLs, and no name that is no sandbox's.
    for target, name in (("/v1/sandboxes", "preview.test"), ("/healthz", "www.preview.test"), ("/healthz", "localhost"),
                         (app.prefix + "/", "localhost"), ("/", app.host), (app.prefix + "/", "www.preview.test")):
        with tls_connection(port, cert, host) as connection:
            answer = exchange(connection, f"GET {target} HTTP/1.1\nHost: {name}\nX-API-Key: {daemon.admin.key}\n"
                                          f"X-Glovebox-Preview-Token: {token}\nConnection: close\n\n")
            assert b" 404 " in answer, (target, name)

    async def talk():
        context = ssl.create_default_context(cafile=str(cert))
        async with websockets.connect(f"wss://{host}:{port}/socket", ssl=context, host="127.0.0.1", port=port, server_hostname=host, extra_headers=app.token) as s:
            assert await s.recv() == "welcome"
            await s.send("x" * 100_000)
            assert await s.recv() == "x" * 100_000
    asyncio.run(talk())

    # A proxy in front may end TLS and pass the name on to the main address.
    plain = app.http.get("/headers", headers={**app.token, "Host": host, "X-Forwarded-Proto": "https"})
    assert ["X-Forwarded-Proto", "https"] in plain.json()["headers"]

    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not connection.recv(1000).startswith(b"HTTP/1.1 2")
    with pytest.raises(ssl.SSLError):
        with tls_connection(port, cert, host, alpn=["h2"]):
            pass
    make_certificate(directory, "preview.test")  # renewed: the old authority does not vouch for what is served now

    def is_served_with_it():
        with contextlib.suppress(ssl.SSLError), tls_connection(port, cert, host) as connection:
            return b"200 OK" in exchange(connection, ask.format(host))

    eventually(is_served_with_it, what="the renewed certificate is in use")
    app.box.kill()


@pytest.mark.parametrize("config, complaint", [
    ('domain = "Preview.Test"', "preview.domain must be a host name in lower case"),
    ('domain = "preview.test"\ntls_cert = "/x.pem"\ntls_key = "/x.key"', "preview.tls_cert needs preview.listen"),
    ('domain = "preview.test"\nlisten = "127.0.0.1:0"\ntls_cert = "/x.pem"', "go together"),
    ('listen = "127.0.0.1:0"', "need preview.domain"),
    ('domain = "preview.test"\nlisten = "127.0.0.1:0"\ntls_cert = "/nowhere.pem"\ntls_key = "/nowhere.key"', "/nowhere.pem: is no usable certificate"),
    ("path_same_origin = 1", "preview.path_same_origin must be true or false"),
    ("domian = 1", "preview.domian is not a known key"),
])
def test_settings_that_cannot_work_stop_the_start(tmp_path, config, complaint):
    share_templates(tmp_path)
    (tmp_path / "config.toml").write_text("[preview]\n" + config + "\n")
    done = subprocess.run([find_program(), "up", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and complaint in done.stdout + done.stderr, done


def test_apps_may_share_the_origin_where_the_operator_says_so(make_daemon, runtimes):
    daemon = make_daemon(config="[preview]\npath_same_origin = true\n")
    app = Preview(serve_app(daemon.admin.create(runtime="container" if runtimes["container"]["usable"] else "auto")), 8000)
    assert "content-security-policy" not in app.get("/").headers
    link = app.get(f"/?glovebox_token={app.info['token']}", token=False, headers={"Sec-Fetch-Mode": "navigate"})
    assert link.headers["location"] == app.prefix + "/"
    app.box.kill()
