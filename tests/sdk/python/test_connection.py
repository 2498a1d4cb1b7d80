# SPDX-License-Identifier: Apache-2.0
"""What happens when the connection breaks, the server is away or answers nonsense."""
import hashlib
import io
import json
import os
import socket
import tarfile

import pytest

import glovebox._tar
from glovebox import Glovebox, Sandbox, errors
from glovebox._h1 import BodyDecoder, Head, chunk, split_head
from glovebox._sse import EventParser
from world import Breaker, OwnDaemon, Scripted, answer, error

SANDBOX = {
    "id": "sb-1", "state": "ready", "runtime": "container", "template": {"name": "base", "version": "0" * 64}, "started_from": "cold",
    "ready_ms": 1, "created_at": "2026-01-31T12:00:00.123Z", "expires_at": None, "idle_timeout_ms": 0, "on_timeout": "kill",
    "limits": {"cpus": 1, "memory_mb": 1, "disk_mb": 1, "processes": 1, "open_files": 1}, "user": "root", "workdir": "/", "env_keys": [], "secret_keys": [],
    "metadata": {}, "network": {"egress": "none", "link": False, "address": None}, "frozen": False, "paused": None,
    "running_executions": 0, "ended": None, "snapshot_id": None, "volumes": [], "a field of the future": {"x": 1}}


@pytest.fixture
def scripted():
    servers = []

    def start(*answers, **options):
        servers.append(Scripted(*answers))
        return servers[-1], Glovebox(servers[-1].url, "key", **options)

    yield start
    for server in servers:
        server.close()


def test_output_goes_on_after_broken_connections(client, sandbox):
    breaker = Breaker(client.url, after_bytes=2_000_000)
    with Glovebox(breaker.url, client.transport._headers["Authorization"][7:]) as through:
        execution = Sandbox.connect(sandbox.id, client=through).start("seq -f 'größe %.0f' 1 800000; echo err >&2")
        texts = {"stdout": "", "stderr": ""}
        for piece in execution.output():
            texts[piece.stream] += piece.text
    breaker.close()
    assert breaker.broken > 3
    assert texts["stdout"] == "".join(f"größe {n}\n" for n in range(1, 800001)) and texts["stderr"] == "err\n"


def test_an_attachment_goes_on_after_broken_connections(client, sandbox):
    breaker = Breaker(client.url, after_bytes=300_000)
    with Glovebox(breaker.url, client.transport._headers["Authorization"][7:]) as through:
        execution = Sandbox.connect(sandbox.id, client=through).start("seq 1 300000")
        result = execution.attach().result()
    breaker.close()
    assert breaker.broken > 3
    assert result.stdout == "".join(f"{n}\n" for n in range(1, 300001)) and result.ok


def test_output_goes_on_after_a_crash_of_the_server(tmp_path):
    daemon = OwnDaemon(tmp_path)
    try:
        with Glovebox(daemon.url, daemon.key) as client, Sandbox.create(client=client, runtime="container") as sandbox:
            execution = sandbox.start("for i in $(seq 1 60); do echo $i; sleep 0.03; done")
            seen = []
            for piece in execution.output():
                seen += piece.text.split()
                if len(seen) > 10 and daemon.process.poll() is None and not hasattr(daemon, "crashed"):
                    daemon.crashed = True
                    daemon.crash()
                    daemon.start()
            assert daemon.crashed and seen == [str(i) for i in range(1, 61)]
            assert execution.info.outcome.type in ("exited", "interrupted")
    finally:
        daemon.stop()


def test_a_call_that_was_never_sent_is_tried_again(scripted):
    with socket.socket() as taken:  # and nobody listens
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(errors.ConnectionLostError, match="is the server running") as lost:
            Glovebox(f"http://127.0.0.1:{taken.getsockname()[1]}", "key", retries=1).version()
    assert not lost.value.sent


def test_a_read_is_repeated_and_a_start_is_not(scripted):
    server, client = scripted(None, answer(200, SANDBOX), None)
    sandbox = client.sandboxes.get("sb-1")
    assert sandbox.id == "sb-1" and len(server.requests) == 2
    with pytest.raises(errors.ConnectionLostError) as lost:
        sandbox.exec("rm -rf /")
    assert lost.value.sent and len(server.requests) == 3


def test_a_create_is_repeated_with_its_key(scripted):
    server, client = scripted(None, answer(201, SANDBOX))
    Sandbox.create(client=client)
    keys = {headers["idempotency-key"] for _, _, headers, _ in server.requests}
    assert len(server.requests) == 2 and len(keys) == 1
    Sandbox.create(client=client)
    assert server.requests[2][2]["idempotency-key"] not in keys


def test_a_start_is_repeated_with_a_key(scripted):
    server, client = scripted(answer(200, SANDBOX), None, None, error(409, "conflict"))
    sandbox = client.sandboxes.get("sb-1")
    with pytest.raises(errors.ConflictError):
        sandbox.start("true", idempotency_key="mine")
    assert [headers["idempotency-key"] for _, _, headers, _ in server.requests[1:]] == ["mine"] * 3


def test_a_server_that_is_starting_is_asked_again(scripted):
    server, client = scripted(error(503, "unavailable", Retry_After="1"), answer(200, SANDBOX))
    sandbox = Sandbox(client, client.sandboxes.get("sb-1").info)
    assert len(server.requests) == 2
    server.answers[:] = [*[None] * 2, error(503, "unavailable", Retry_After="0"), answer(200, {})]
    sandbox.signal_process(1, 9)
    assert len(server.requests) == 4


def test_other_refusals_are_not_repeated(scripted):
    for status, code, cause in [(429, "capacity", errors.CapacityError), (500, "internal", errors.ServerError), (501, "unsupported", errors.UnsupportedError),
                                (418, "code_of_the_future", errors.ApiError)]:
        server, client = scripted(error(status, code, Retry_After="1"))
        with pytest.raises(cause) as refused:
            client.info()
        assert len(server.requests) == 1
        assert (refused.value.code, refused.value.status, refused.value.request_id, refused.value.advice, refused.value.details) == (
            code, status, "req-1", "the advice", {"field": "x"})


@pytest.mark.parametrize("nonsense", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<htm>", answer(200, []), answer(502, b"<html>"), b"SSH-2.0-x\r\n\r\n", b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"HTTP/1.1 200 OK\r\nbroken\r\n\r\n", b"X" * 100_000, answer(200, {"version": None, "limits": 1, "network": [], "uptime_ms": 1})])
def test_nonsense_is_a_protocol_error(scripted, nonsense):
    _, client = scripted(nonsense)
    with pytest.raises(errors.ProtocolError):
        client.info()


def test_a_silent_server_is_given_up(scripted):
    _, client = scripted(b"", idle_timeout_ms=200, retries=0)
    with pytest.raises(errors.ConnectionTimeoutError, match="silent"):
        client.info()


def test_a_server_that_speaks_is_waited_for(scripted):
    """As it does while a command runs: white space before the JSON, more often than the client's limit for silence."""
    body = b'{"version": "1"}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(body) + 35)
    _, client = scripted([head, *[b" "] * 35, body], idle_timeout_ms=3000, retries=0)
    assert client.version() == "1"


def test_a_body_that_breaks_off_is_no_body(scripted):
    server, client = scripted(answer(200, SANDBOX), b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nabc", None, retries=1)
    files = client.sandboxes.get("sb-1").files
    with pytest.raises(errors.ConnectionLostError):
        files.read("x")


def test_connections_are_kept_and_stale_ones_left(scripted):
    server, client = scripted(answer(200, {"version": "1"}))
    assert [client.version() for _ in range(5)] == ["1"] * 5
    assert len(client.transport._kept) == 1
    client.transport._kept[0][0]._socket.close()
    client.transport._kept.clear()
    closing, client = scripted(answer(200, {"version": "1"}, Connection="close"))
    client.version()
    assert client.transport._kept == []


def test_unknown_parameters_are_refused_here(scripted):
    _, client = scripted(answer(200, SANDBOX))
    with pytest.raises(TypeError, match="no field runtme"):
        client.transport.json(glovebox._sync.sandbox.routes.CREATE_SANDBOX, json={"runtme": "x"})


def settings(monkeypatch, directory, **env):
    for name in ("GLOVEBOX_API_URL", "GLOVEBOX_URL", "GLOVEBOX_API_KEY", "GLOVEBOX_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"GLOVEBOX_DATA_DIR": str(directory), **env}.items():
        monkeypatch.setenv(name, value)


def test_where_the_server_is(monkeypatch, tmp_path):
    settings(monkeypatch, tmp_path, GLOVEBOX_API_URL="http://one:1", GLOVEBOX_URL="http://two:2", GLOVEBOX_API_KEY="k")
    assert Glovebox().url == "http://one:1" and Glovebox("https://three/prefix").url == "https://three/prefix"
    settings(monkeypatch, tmp_path, GLOVEBOX_URL="http://two:2", GLOVEBOX_API_KEY="k")
    assert Glovebox().url == "http://two:2"
    settings(monkeypatch, tmp_path, GLOVEBOX_API_KEY="k")
    assert Glovebox().url == "http://127.0.0.1:7070"
    settings(monkeypatch, tmp_path)
    with pytest.raises(errors.SettingsError, match="no server runs on"):
        Glovebox()
    (tmp_path / "admin.key").write_text("the key\n")
    (tmp_path / "daemon.json").write_text(json.dumps({"url": "http://127.0.0.1:1234", "pid": os.getpid()}))
    assert Glovebox().url == "http://127.0.0.1:1234"
    (tmp_path / "daemon.json").write_text(json.dumps({"url": "http://127.0.0.1:1234", "pid": 1 << 22}))
    with pytest.raises(errors.SettingsError):
        Glovebox()


@pytest.mark.parametrize("url", ["http://example.com", "http://127.0.0.1.example.com", "http://localhost.example", "http://10.0.0.1"])
def test_the_admin_key_stays_on_this_host(monkeypatch, tmp_path, url):
    settings(monkeypatch, tmp_path)
    (tmp_path / "admin.key").write_text("the key\n")
    with pytest.raises(errors.SettingsError, match="no key for"):
        Glovebox(url)
    assert Glovebox("http://localhost:1").transport._headers["Authorization"] == "Bearer the key"


def test_every_split_of_an_answer_reads_the_same():
    body = b"hello, " * 30
    whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(body[:50]) + chunk(body[50:]) + b"0\r\nTrailer: x\r\n\r\nnext"
    for cut in range(1, len(whole)):
        found, buffer = None, b""
        decoder, out = None, b""
        for piece in (whole[:cut], whole[cut:]):
            if decoder is None:
                buffer += piece
                found = split_head(buffer)
                if found is None:
                    continue
                decoder, piece = BodyDecoder(found[0]), found[1]
            out += b"".join(decoder.feed(piece)) if not decoder.is_complete else b""
            rest = decoder.rest
        assert out == body and decoder.is_complete
        assert rest == (b"next" if cut < len(whole) - 4 else whole[len(whole) - 4:cut])
    assert BodyDecoder(Head(204, {})).is_complete


def test_every_split_of_events_reads_the_same():
    text = "id: 5\nevent: output\ndata: {\"a\": \"größe\"}\n\n: awake\n\nid: 9\nevent: exit\ndata: 1\ndata: 2\n\nid: 10\ndata: unfinished".encode()
    expected = [("5", "output", '{"a": "größe"}'), ("9", "exit", "1\n2")]
    for cut in range(len(text)):
        parser = EventParser()
        assert [tuple(event) for piece in (text[:cut], text[cut:]) for event in parser.feed(piece)] == expected


def tar(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            if kind == tarfile.REGTYPE:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                member.linkname = content
                archive.addfile(member)
    out.seek(0)
    return out


HOSTILE = [
    ("../outside", tarfile.REGTYPE, b"x"), ("/absolute", tarfile.REGTYPE, b"x"), ("a/../../outside", tarfile.REGTYPE, b"x"),
    ("link", tarfile.SYMTYPE, "a"), ("link/through", tarfile.REGTYPE, b"x"), ("out", tarfile.SYMTYPE, "../.."), ("device", tarfile.CHRTYPE, ""),
    ("pipe", tarfile.FIFOTYPE, ""), ("hard", tarfile.LNKTYPE, "../../etc/passwd"), ("hard2", tarfile.LNKTYPE, "existing/secret"),
    ("fine", tarfile.REGTYPE, b"fine"), ("same", tarfile.LNKTYPE, "fine"), ("replaced", tarfile.REGTYPE, b"new")]


def test_a_hostile_archive_stays_in_the_target(tmp_path):
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    target.mkdir()
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("secret")
    (target / "existing").symlink_to(elsewhere)
    (target / "replaced").symlink_to(elsewhere / "secret")
    left_out = glovebox._tar.extract(tar(*HOSTILE, ("existing/new", tarfile.REGTYPE, b"x")), str(target))
    assert {item.name.lstrip("/") for item in left_out} == {"../outside", "absolute", "a/../../outside", "link/through", "out", "device", "pipe", "hard",
                                                            "hard2", "existing/new"}
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "target"] and os.listdir(elsewhere) == ["secret"]
    assert (elsewhere / "secret").read_text() == "secret" and (target / "replaced").read_text() == "new"
    assert (target / "same").read_text() == "fine"


def test_a_broken_archive_is_an_error(tmp_path):
    whole = tar(("a", tarfile.REGTYPE, b"x" * 2000)).getvalue()
    for broken in (whole[:100], whole[:1000], b"\xff" * 1024, hashlib.sha512(b"x").digest() * 16):
        with pytest.raises(errors.ProtocolError):
            glovebox._tar.extract(io.BytesIO(broken), str(tmp_path))
