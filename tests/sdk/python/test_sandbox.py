# SPDX-License-Identifier: Apache-2.0
import io
import os
import tarfile
import threading
import time
import uuid

import pytest

from glovebox import CommandFailedError, Glovebox, Sandbox, errors
from world import eventually


def test_a_context_ends_its_sandbox(client, tier):
    with Sandbox.create(runtime=tier, client=client, metadata={"task": "4711"}, env={"LANG": "C"}, limits={"memory_mb": 256}) as sandbox:
        assert sandbox.info.runtime == tier and sandbox.info.state == "ready"
        assert sandbox.info.limits.memory_mb == 256 and sandbox.info.metadata == {"task": "4711"} and "LANG" in sandbox.info.env_keys
    assert client.sandboxes.get(sandbox.id).info.ended.reason == "killed"


def test_create_with_the_same_key_gives_the_same_sandbox(client, tier):
    key = str(uuid.uuid4())
    with Sandbox.create(runtime=tier, client=client, idempotency_key=key) as first:
        assert Sandbox.create(runtime=tier, client=client, idempotency_key=key).id == first.id
        with pytest.raises(errors.ConflictError):
            Sandbox.create(runtime=tier, client=client, idempotency_key=key, metadata={"other": "1"})


def test_start_with_the_same_key_gives_the_same_execution(client, tier):
    with Sandbox.create(runtime=tier, client=client) as sandbox:
        first = sandbox.start("echo once", idempotency_key="k")
        assert sandbox.start("echo once", idempotency_key="k").id == first.id
        assert first.result().stdout == "once\n"
        with pytest.raises(errors.ConflictError):
            sandbox.start("echo twice", idempotency_key="k")


def test_secrets(client, tier):
    with Sandbox.create(runtime=tier, client=client, secrets={"TOKEN": "t"}) as sandbox:
        assert sandbox.info.secret_keys == ["TOKEN"]
        assert sandbox.exec("echo $TOKEN $OTHER", secrets={"OTHER": "o"}).stdout == "t o\n"


def test_list_pages_and_filters(client, tier):
    made = [Sandbox.create(runtime=tier, client=client, metadata={"batch": f"list-{tier}", "n": str(n)}) for n in range(3)]
    try:
        found = client.sandboxes.list(metadata={"batch": f"list-{tier}"}).to_list()
        assert [s.id for s in found] == [s.id for s in reversed(made)]
        one = client.sandboxes.list(metadata={"batch": f"list-{tier}", "n": "1"}, state=["ready", "paused"]).to_list()
        assert [s.id for s in one] == [made[1].id]
        assert Sandbox.connect(made[0].id, client=client).info.metadata["n"] == "0"
    finally:
        for sandbox in made:
            sandbox.kill()


def test_update_pause_resume_and_stats(client, sandbox):
    assert sandbox.update(metadata={"a": "b"}, idle_timeout_ms=600_000).metadata == {"a": "b"}
    before = sandbox.info.expires_at
    assert sandbox.update(lifetime_ms=7_200_000).expires_at > before
    assert sandbox.pause().state == "paused" and sandbox.info.paused.cause == "call"
    assert sandbox.resume().state == "ready"
    assert sandbox.exec("true").ok and sandbox.stats().memory_peak_bytes > 0


def test_a_result_is_no_error(sandbox):
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("out\n", "err\n", 3, False)
    with pytest.raises(CommandFailedError, match="exited with 3:\nerr") as failure:
        result.check()
    assert failure.value.result is result
    with pytest.raises(CommandFailedError):
        sandbox.exec("exit 1", check=True)
    assert sandbox.exec(["printf", "%s", "$HOME"], check=True).stdout == "$HOME"


def test_outcomes_are_told_apart(sandbox):
    assert sandbox.exec("kill -TERM $$").outcome.signal_name == "SIGTERM"
    timed_out = sandbox.exec("sleep 60", timeout_ms=200)
    assert timed_out.outcome.type == "timed_out" and timed_out.exit_code is None
    execution = sandbox.start("sleep 60")
    assert execution.kill().outcome.type == "killed_by_caller"
    with pytest.raises(CommandFailedError, match="killed_by_caller"):
        execution.result().check()


def test_out_of_memory_is_an_outcome(client, tier):
    with Sandbox.create(runtime=tier, client=client, limits={"memory_mb": 128}) as sandbox:
        try:
            assert sandbox.exec(["python3", "-c", "x = bytearray(1 << 30)\nfor i in range(0, 1 << 30, 4096): x[i] = 1"]).outcome.type in (
                "oom_killed", "sandbox_ended")
        except errors.SandboxEndedError as ended:  # all of it ran out
            assert ended.details["reason"] == "oom"


def test_bytes_are_bytes_and_characters_whole(sandbox):
    script = "import sys, time\nfor b in 'aé€😀'.encode(): sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.01)\n" \
             "sys.stdout.buffer.write(b'\\xff\\0')"
    texts = []
    result = sandbox.exec(["python3", "-c", script], on_stdout=texts.append)
    assert result.stdout_bytes == "aé€😀".encode() + b"\xff\0"
    assert "".join(texts) == result.stdout == "aé€😀\ufffd\0"


def test_standard_input(sandbox):
    assert sandbox.exec("cat", stdin="späte Grüße").stdout == "späte Grüße"
    assert sandbox.exec("cat", stdin=b"\0\xff").stdout_bytes == b"\0\xff"
    assert sandbox.exec("cat").stdout == ""
    large = bytes(range(256)) * 8192
    assert sandbox.exec("cat", stdin=large).stdout_bytes == large
    assert sandbox.exec("wc -c", stdin=(b"x" * 1000 for _ in range(500))).stdout.strip() == "500000"
    assert sandbox.exec("head -c 3", stdin=large).stdout_bytes == large[:3]  # it need not read all


def test_input_that_never_ends_or_fails(sandbox):
    def endless():
        yield b"abcdef" * 20_000
        threading.Event().wait()

    assert sandbox.exec("head -c 3", stdin=endless()).stdout == "abc"

    def broken():
        yield b"abc"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sandbox.exec("cat", stdin=broken())
    assert next(iter(sandbox.executions())).info.outcome.type == "killed_by_caller"


def test_ten_mebibytes_of_output(sandbox):
    result = sandbox.exec("head -c 10485760 /dev/zero | tr '\\0' y")
    assert result.stdout_bytes == b"y" * (10 << 20) and not result.truncated


def test_a_background_execution_is_found_again(client, sandbox):
    started = sandbox.start("read line; echo got $line; sleep 60", stdin=True, name="server")
    again = Sandbox.connect(sandbox.id, client=client).execution(started.id)
    again.write_stdin("hello\n")
    chunks = again.output()
    assert next(chunks).text == "got hello\n"
    assert started.wait(timeout_ms=50).state == "running"
    assert started.id in [e.id for e in sandbox.executions(state="running")]
    assert again.info.name == "server"
    again.signal("TERM", tree=True)
    assert started.wait().outcome.signal_name == "SIGTERM"
    assert started.id not in [e.id for e in sandbox.executions(state="running")]


def test_output_from_a_cursor_and_of_one_stream(sandbox):
    execution = sandbox.start("echo one; read _; echo two >&2; read _; echo three", stdin=True)
    chunks = []
    for chunk in execution.output():
        chunks.append(chunk)
        if len(chunks) < 3:
            execution.write_stdin("\n")  # the next one comes when this one has been seen
    assert [c.text for c in chunks] == ["one\n", "two\n", "three\n"]
    assert [c.text for c in execution.output(cursor=chunks[0].cursor)] == ["two\n", "three\n"]
    assert [c.text for c in execution.output(stream="stderr")] == ["two\n"]


def test_closing_stdin_and_processes(sandbox):
    execution = sandbox.start("cat; echo end", stdin=True)
    process = eventually(lambda: [p for p in sandbox.processes() if p.argv == ["cat"] and p.execution == execution.id])[0]
    execution.write_stdin(b"a")
    execution.close_stdin()
    assert execution.result().stdout == "aend\n"
    assert process.pid not in [p.pid for p in sandbox.processes()]
    sleeper = sandbox.start(["sleep", "60"])
    sandbox.signal_process(sleeper.info.pid, 9)
    assert sleeper.wait().outcome.signal == 9


def test_a_terminal(sandbox):
    with sandbox.terminal(["sh"], cols=132, rows=43) as terminal:
        terminal.write("stty size\n")
        seen = ""
        for chunk in terminal:
            seen += chunk.text
            if "43 132" in seen:
                break
        terminal.resize(100, 20)
        terminal.write("stty size; exit 7\n")
        assert terminal.execution.wait().exit_code == 7
    assert "20 100" in terminal.execution.result().stdout


def test_attach_from_two_threads(sandbox):
    attachment = sandbox.start("cat", stdin=True).attach()
    refusals = []
    attachment.on_error = refusals.append
    data = bytes(range(256)) * 4096

    def write():
        attachment.write(data)
        attachment.close_stdin()

    writer = threading.Thread(target=write)
    writer.start()
    assert attachment.result().stdout_bytes == data and refusals == []
    writer.join()


def test_giving_up_kills_the_command(sandbox):
    def fail(_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sandbox.exec("echo x; sleep 60", name="given up", on_stdout=fail)
    given_up = next(iter(sandbox.executions()))
    assert given_up.info.name == "given up" and given_up.info.outcome.type == "killed_by_caller"


@pytest.mark.skipif(os.environ.get("GLOVEBOX_LONG") != "1", reason="17 s; test_connection.py has the same with a server that speaks faster")
def test_the_client_waits_longer_than_its_timeout_for_a_command():
    # The server speaks every 15 s; the client would have given up a silent one after 16.
    with Glovebox(idle_timeout_ms=16_000) as client, Sandbox.create(client=client) as sandbox:
        began = time.monotonic()
        execution = sandbox.start("sleep 17; echo done")
        assert execution.wait().exit_code == 0 and time.monotonic() - began > 16.5
        assert execution.result().stdout == "done\n"


def test_a_preview(sandbox):
    sandbox.files.write("site/index.html", "<h1>hello</h1>")
    server = sandbox.start(["python3", "-m", "http.server", "8000", "--directory", "site"])
    try:
        eventually(lambda: sandbox.port(8000).listening)
        answer = sandbox.fetch(8000, "/index.html")
        assert (answer.status, answer.content) == (200, b"<h1>hello</h1>")
        assert sandbox.fetch(8000, "/nothing").status == 404
        token = sandbox.port(8000).token
        assert sandbox.open_port(8000, public=True).token != token
        assert sandbox.revoke_port(8000).revoked and sandbox.fetch(8000).status == 404
    finally:
        server.kill()


def test_network_policy_and_logs(client, tier):
    with Sandbox.create(runtime=tier, client=client, network={"egress": "none"}) as sandbox:
        assert sandbox.network.get().policy["egress"] == "none"
        state = sandbox.network.set({"allow": [{"host": "api.example.com", "ports": [443]}]})
        assert state.link and state.effective["egress"] == "allowlist"
        sandbox.exec(["python3", "-c", "import socket; socket.getaddrinfo('refused.example', 80)"])
        entry = eventually(lambda: next(iter(sandbox.network.connections()), None))
        assert entry.verdict == "denied" and entry.host == "refused.example" and entry.how_to_allow
        assert list(sandbox.network.packages()) == []
    assert "python-packages" in [preset.name for preset in client.network.presets()]


def test_errors_have_their_class_and_fields(client, sandbox):
    with pytest.raises(errors.InvalidArgumentError) as invalid:
        Sandbox.create(limits={"cpus": -1}, client=client)
    error = invalid.value
    assert (error.code, error.status, error.fault, error.is_retryable) == ("invalid_argument", 400, "caller", False)
    assert error.details["field"] == "limits.cpus" and error.request_id and error.advice and error.request_id in str(error)
    for cause, work in [
        (errors.SandboxNotFoundError, lambda: client.sandboxes.get("sb-nobody")),
        (errors.CommandNotFoundError, lambda: sandbox.exec(["no-such-program"])),
        (errors.WorkdirNotFoundError, lambda: sandbox.exec("true", cwd="/nowhere")),
        (errors.UserUnknownError, lambda: sandbox.exec("true", user="nobody-here")),
        (errors.TemplateNotFoundError, lambda: Sandbox.create(template="nothing", client=client)),
        (errors.UnauthenticatedError, lambda: Glovebox(client.url, "wrong").sandboxes.list().to_list()),
    ]:
        with pytest.raises(cause):
            work()


def test_an_ended_sandbox_says_so(client, tier):
    sandbox = Sandbox.create(runtime=tier, client=client)
    assert sandbox.kill().state == "ended" and sandbox.kill().state == "ended"
    with pytest.raises((errors.SandboxEndedError, errors.SandboxNotReadyError)):
        sandbox.exec("true")


def test_the_server(client):
    assert client.is_healthy() and client.is_ready() and client.version()
    assert client.info().network.default_egress in ("none", "allowlist", "open")
    assert client.runtimes().auto and client.pool() == []
    assert client.templates.get("base").name in [template.name for template in client.templates.list()]
    assert "glovebox_sandboxes" in client.metrics() and "/v1/sandboxes" in client.open_api()["paths"]
    assert client.network.get() is None
    client.network.set({"presets": ["python-packages"]})
    assert client.network.get()["presets"] == ["python-packages"]
    client.network.unset()
    assert client.network.get() is None
    assert client.network.check().enabled in (True, False)


def test_keys(client):
    made = client.keys.create("sdk-test", tenant="other", role="user", default_runtime="container")
    assert made.entry.default_runtime == "container" and made.entry.id in [key.id for key in client.keys.list()]
    with Glovebox(client.url, made.key) as other:
        assert other.sandboxes.list().to_list() == []
        with pytest.raises(errors.ForbiddenError):
            other.metrics()
    client.keys.remove(made.entry.id)
    with pytest.raises(errors.UnauthenticatedError):
        Glovebox(client.url, made.key).info()


def test_volumes(client, tier):
    name = f"sdk-{uuid.uuid4().hex[:8]}"
    volume = client.volumes.create(name, size_mb=64, labels={"a": "b"})
    try:
        assert client.volumes.create(name, get_or_create=True).id == volume.id and volume.labels == {"a": "b"}
        with Sandbox.create(runtime=tier, client=client, volumes=[{"volume": name, "path": "/data"}]) as sandbox:
            assert sandbox.info.volumes == [{"volume": volume.id, "path": "/data", "read_only": False}]
            sandbox.exec("echo kept >/data/file", user="root", check=True)
            assert client.volumes.get(name).writer == sandbox.id
            with pytest.raises(errors.VolumeInUseError):
                client.volumes.remove(name)
        assert b"kept" in b"".join(client.volumes.read_archive(name))
        assert client.volumes.grow(name, 128).size_mb == 128
        assert volume.id in [found.id for found in client.volumes.list()]
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            archive.addfile(tarfile.TarInfo("empty"))
        client.volumes.write_archive(name, out.getvalue())
        assert b"empty" in b"".join(client.volumes.read_archive(name))
    finally:
        client.volumes.remove(name)
    with pytest.raises(errors.VolumeNotFoundError):
        client.volumes.get(name)


def test_snapshots_forks_and_resets(client, tier):
    with Sandbox.create(runtime=tier, client=client) as sandbox:
        sandbox.exec("echo before >file", check=True)
        snapshot = sandbox.snapshot(name="sdk", labels={"by": tier})
        assert snapshot.state == "ready" and snapshot.source_sandbox == sandbox.id and snapshot.bytes > 0
        assert [found.id for found in client.snapshots.list(sandbox=sandbox.id, labels={"by": tier})] == [snapshot.id]
        assert client.snapshots.update(snapshot.id, labels={"by": "me"}).labels == {"by": "me"}
        client.snapshots.verify(snapshot.id)
        with Sandbox.create(snapshot=snapshot.id, client=client) as restored:
            assert restored.info.started_from == "snapshot" and restored.info.snapshot_id == snapshot.id
            assert restored.files.read_text("file") == "before\n"
            restored.exec("echo after >file", check=True)
            restored.reset()
            assert restored.files.read_text("file") == "before\n"
        children = sandbox.fork(2, metadata={"child": "yes"})
        try:
            assert [child.files.read_text("file") for child in children] == ["before\n"] * 2
            assert len({child.id for child in children}) == 2 and children[0].info.metadata == {"child": "yes"}
        finally:
            for child in children:
                child.kill()
        assert sandbox.hibernate().paused.hibernated
        assert sandbox.files.read_text("file") == "before\n"
    client.snapshots.remove(snapshot.id)
    with pytest.raises(errors.SnapshotNotFoundError):
        client.snapshots.get(snapshot.id)


def test_what_changed(client, tier):
    with Sandbox.create(runtime=tier, client=client) as sandbox:
        sandbox.files.write("/srv/new", "x", user="root")
        changes = sandbox.diff().to_list()
        assert [(c.change, c.type, c.size) for c in changes if c.path == "/srv/new"] == [("added", "file", 1)]


def test_code(client, tier):
    """In the template `interpreter` where there is one; otherwise the languages that need no other."""
    templates = [template.name for template in client.templates.list()]
    with Sandbox.create(runtime=tier, client=client, template="interpreter" if "interpreter" in templates else "base") as sandbox:
        assert sandbox.run_code("x=41; echo to stdout", language="bash").stdout == "to stdout\n"
        seen = []
        assert sandbox.run_code("echo $((x+1)); sleep 0.1", language="bash", on_stdout=seen.append).error is None
        assert seen == ["42\n"]
        failed = sandbox.run_code("exit 3" if "interpreter" not in templates else "1/0", language="bash" if "interpreter" not in templates else "python")
        assert failed.error is not None
        context = sandbox.code_contexts.create(language="bash")
        assert sandbox.run_code("echo [$x]", context=context.id).stdout == "[]\n"
        assert context.id in [found.id for found in sandbox.code_contexts.list()]
        assert sandbox.code_contexts.interrupt(context.id) is False
        assert sandbox.code_contexts.restart(context.id).id == context.id
        sandbox.code_contexts.remove(context.id)
        if "interpreter" in templates:
            assert sandbox.run_code("6*7").text == "42"
            chart = sandbox.run_code("import matplotlib.pyplot as p; p.plot([1, 2]); p.show()")
            assert any("image/png" in output.data for output in chart.results)
