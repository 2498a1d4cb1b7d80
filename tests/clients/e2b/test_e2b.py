# SPDX-License-Identifier: Apache-2.0
"""What users of the Python client do, a row for each method, synchronous and asynchronous. See daemon.mjs for the variables."""
import asyncio
import json
import os
import pathlib
import threading
import time
import urllib.request

import pytest

e2b = pytest.importorskip("e2b")
from e2b import AsyncSandbox, CommandExitException, Sandbox  # noqa: E402

VERSION = "2.63.0"
URL, ADMIN = os.environ["GLOVEBOX_URL"], os.environ["GLOVEBOX_ADMIN_KEY"]


def native(method, path, body=None, key=ADMIN):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, headers, method=method)) as answer:
        return json.load(answer)


TIERS = native("GET", "/v1/runtimes")["runtimes"]
if "GLOVEBOX_TIERS" in os.environ:
    TIERS = [r for r in TIERS if r["runtime"] in os.environ["GLOVEBOX_TIERS"].split(",")]


def until(check, seconds=60):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


class Context:
    """A key whose sandboxes are of one tier, and a sandbox for all rows that leave it usable."""

    def __init__(self, tier):
        self.tier = tier
        body = {"name": f"py-{tier}", "tenant": f"py-{tier}-{os.getpid()}", "role": "user", "default_runtime": tier}
        self.made = native("POST", "/v1/keys", body)
        self.key = self.made["key"]
        # The client is configured by nothing but its variables.
        os.environ.update(E2B_API_URL=URL, E2B_SANDBOX_URL=URL, E2B_API_KEY="e2b_" + self.key.encode().hex())
        self.box = Sandbox.create("base", timeout=3000)

    def native_id(self, box):
        return "sb-" + box.sandbox_id[2:]

    def close(self):
        for box in native("GET", "/v1/sandboxes", key=self.key)["sandboxes"]:
            native("DELETE", f"/v1/sandboxes/{box['id']}", key=self.key)
        native("DELETE", f"/v1/keys/{self.made['id']}")


ROWS = []


def row(area, method, expected="pass"):
    def add(work):
        ROWS.append((area, method, expected, work))
        return work
    return add


@row("Sandbox", "create")
def create(c):
    with Sandbox.create("base", timeout=300, metadata={"who": "a b&ä"}, envs={"COLOUR": "blue"}) as box:
        assert box.commands.run("echo $COLOUR $E2B_SANDBOX_ID").stdout == f"blue {box.sandbox_id}\n"
        assert native("GET", f"/v1/sandboxes/{c.native_id(box)}", key=c.key)["runtime"] == c.tier
    assert not box.is_running()


@row("Sandbox", "create of an unknown template")
def create_unknown(c):
    with pytest.raises(e2b.SandboxException, match="404"):
        Sandbox.create("no-such-template")


@row("Sandbox", "a wrong key")
def wrong_key(c):
    with pytest.raises(e2b.AuthenticationException):
        Sandbox.create("base", api_key="e2b_" + "00" * 20)


@row("Sandbox", "connect, get_info")
def connect(c):
    c.box.files.write("/tmp/mark", "here")
    again = Sandbox.connect(c.box.sandbox_id, timeout=300)
    assert again.files.read("/tmp/mark") == "here"
    info = again.get_info()
    assert info.sandbox_id == c.box.sandbox_id and info.template_id == "base" and info.state.value == "running"
    with pytest.raises(e2b.SandboxException):
        Sandbox.connect("sb" + "z" * 12)


@row("Sandbox", "set_timeout, and its end")
def set_timeout(c):
    box = Sandbox.create("base", timeout=300)
    box.set_timeout(1)
    until(lambda: not box.is_running())
    with pytest.raises(e2b.SandboxException):
        box.commands.run("true")


@row("Sandbox", "kill")
def kill(c):
    box = Sandbox.create("base", timeout=300)
    assert box.is_running()
    assert box.kill() is True
    assert not box.is_running()
    assert Sandbox.kill(box.sandbox_id) is False


@row("Sandbox", "list: filter, pages")
def list_pages(c):
    mark = {"mark": f"p &=%/ä {c.tier}"}
    made = [Sandbox.create("base", timeout=300, metadata=mark) for _ in range(3)]
    pages = Sandbox.list(query=e2b.SandboxQuery(metadata=mark), limit=2)
    found = pages.next_items()
    assert len(found) == 2 and pages.has_next
    found += pages.next_items()
    assert [f.sandbox_id for f in found] == [b.sandbox_id for b in reversed(made)] and not pages.has_next
    for box in made:
        box.kill()


@row("Sandbox", "get_metrics")
def metrics(c):
    point = c.box.get_metrics()[0]
    assert point.mem_total > 0 and point.mem_used > 0 and point.cpu_count > 0


@row("Network", "allow_internet_access=False, network")
def network(c):
    box = Sandbox.create("base", timeout=300, allow_internet_access=False)
    assert native("GET", f"/v1/sandboxes/{c.native_id(box)}/network", key=c.key)["policy"]["egress"] == "none"
    box.kill()
    box = Sandbox.create("base", timeout=300, network={"deny_out": ["0.0.0.0/0"], "allow_out": ["example.com"]})
    policy = native("GET", f"/v1/sandboxes/{c.native_id(box)}/network", key=c.key)["policy"]
    assert policy["egress"] == "allowlist" and policy["allow"][0]["host"] == "example.com"
    box.kill()


@row("Ports", "get_host")
def get_host(c):
    c.box.files.write("/tmp/www/index.html", "from inside")
    c.box.commands.run("python3 -m http.server 8123 --bind 127.0.0.1 -d /tmp/www", background=True, timeout=0)
    c.box.commands.run("for i in $(seq 100); do ss -Hltn | grep -q :8123 && exit 0; sleep 0.1; done; exit 1")
    asked = urllib.request.Request(URL + "/", headers={"Host": c.box.get_host(8123)})
    assert urllib.request.urlopen(asked).read() == b"from inside"


@row("Commands", "run")
def run(c):
    heard = []
    done = c.box.commands.run("echo out; echo err >&2; printf ä€😀", on_stdout=heard.append)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "out\nä€😀", "err\n")
    assert "".join(heard) == "out\nä€😀"


@row("Commands", "run: exit codes")
def exit_codes(c):
    for line, code in [("exit 1", 1), ("exit 255", 255), ("no-such-command", 127), ("/etc/passwd", 126)]:
        with pytest.raises(CommandExitException) as caught:
            c.box.commands.run(line)
        assert caught.value.exit_code == code, line


@row("Commands", "run: cwd, envs, user")
def run_options(c):
    assert c.box.commands.run("pwd; echo $A; id -un", cwd="/tmp", envs={"A": "a b"}).stdout == "/tmp\na b\nuser\n"
    assert c.box.commands.run("id -un; pwd", user="root").stdout == "root\n/root\n"
    with pytest.raises(e2b.InvalidArgumentException, match="does not exist"):
        c.box.commands.run("true", cwd="/no/such")


@row("Commands", "run: timeout")
def run_timeout(c):
    with pytest.raises(e2b.TimeoutException):
        c.box.commands.run("sleep 300.75", timeout=0.7)
    until(lambda: c.box.commands.run("pgrep -f 'sleep 300.7[5]' || true").stdout == "")


@row("Commands", "run: large, split and invalid output")
def output(c):
    big = c.box.commands.run("python3 -c \"print('é' * 3000000, end='')\"").stdout
    assert len(big) == 3_000_000 and not big.strip("é")
    assert c.box.commands.run("printf '\\303'; sleep 0.3; printf '\\251'").stdout == "é"
    assert c.box.commands.run("printf 'a\\377b'").stdout == "a\ufffdb"


@row("Commands", "background, list, kill")
def background(c):
    handle = c.box.commands.run("sleep 31", background=True, timeout=0)
    listed = next(p for p in c.box.commands.list() if p.pid == handle.pid)
    assert (listed.cmd, listed.args) == ("/bin/bash", ["-l", "-c", "sleep 31"])
    assert handle.kill() is True
    with pytest.raises(CommandExitException):
        handle.wait()
    assert c.box.commands.kill(handle.pid) is False and c.box.commands.kill(999_999) is False


@row("Commands", "connect, send_stdin, close_stdin")
def connect_command(c):
    first = c.box.commands.run("read x; echo got $x; cat; exit 4", background=True, stdin=True)
    second = c.box.commands.connect(first.pid)
    c.box.commands.send_stdin(first.pid, "word\n")
    c.box.commands.close_stdin(first.pid)
    for handle in (first, second):
        with pytest.raises(CommandExitException) as caught:
            handle.wait()
        assert caught.value.exit_code == 4 and caught.value.stdout == "got word\n"


@row("Commands", "a sandbox killed meanwhile")
def killed_meanwhile(c):
    box = Sandbox.create("base", timeout=300)
    handle = box.commands.run("sleep 300", background=True)
    threading.Timer(0.3, box.kill).start()
    with pytest.raises(e2b.SandboxException) as caught:
        handle.wait()
    assert not isinstance(caught.value, CommandExitException)


@row("PTY", "create, send_stdin, resize, kill")
def pty(c):
    screen = []
    terminal = c.box.pty.create(e2b.PtySize(rows=30, cols=90), timeout=200)
    reader = threading.Thread(target=lambda: _wait_quietly(terminal, screen))
    reader.start()
    c.box.pty.send_stdin(terminal.pid, b"stty size; echo $((40+2))-$TERM\n")
    until(lambda: b"30 90" in b"".join(screen) and b"42-xterm-256color" in b"".join(screen))
    c.box.pty.resize(terminal.pid, e2b.PtySize(rows=41, cols=101))
    c.box.pty.send_stdin(terminal.pid, b"stty size\n")
    until(lambda: b"41 101" in b"".join(screen))
    assert c.box.pty.kill(terminal.pid)
    reader.join(60)
    assert not reader.is_alive()


def _wait_quietly(terminal, screen):
    try:
        terminal.wait(on_pty=screen.append)
    except e2b.SandboxException:
        pass


@row("Files", "write and read")
def write_read(c):
    written = c.box.files.write("/tmp/new dir/ü \"quoted\".txt", "text ä\n")
    assert written.path == "/tmp/new dir/ü \"quoted\".txt" and c.box.files.read(written.path) == "text ä\n"
    data = bytes((i * 31 + (i >> 8)) & 255 for i in range(1_000_000))
    c.box.files.write("/tmp/bytes", data)
    assert bytes(c.box.files.read("/tmp/bytes", format="bytes")) == data
    assert b"".join(c.box.files.read("/tmp/bytes", format="stream")) == data
    assert c.box.files.write("notes.txt", "n").path == "/home/user/notes.txt"


@row("Files", "several at once")
def write_many(c):
    files = [{"path": f"/tmp/many/{i}.txt", "data": f"content {i}"} for i in range(20)]
    assert [w.path for w in c.box.files.write_files(files)] == [f["path"] for f in files]
    assert c.box.files.read("/tmp/many/19.txt") == "content 19"


@row("Files", "list, make_dir, exists, get_info, rename, remove")
def files(c):
    assert c.box.files.make_dir("/tmp/d/e") is True and c.box.files.make_dir("/tmp/d/e") is False
    c.box.files.write("/tmp/d/e/f", "12345")
    assert [e.path for e in c.box.files.list("/tmp/d", depth=2)] == ["/tmp/d/e", "/tmp/d/e/f"]
    info = c.box.files.get_info("/tmp/d/e/f")
    assert (info.size, info.permissions, info.owner, info.mode) == (5, "-rw-r--r--", "user", 0o644)
    assert c.box.files.rename("/tmp/d/e/f", "/tmp/d/g").path == "/tmp/d/g"
    c.box.files.remove("/tmp/d/g")
    assert not c.box.files.exists("/tmp/d/g")
    with pytest.raises(e2b.NotFoundException):
        c.box.files.read("/no/such")


@row("Files", "signed URLs")
def signed(c):
    c.box.files.write("/tmp/signed", "by url")
    link = c.box.download_url("/tmp/signed", use_signature_expiration=60)
    assert urllib.request.urlopen(link).read() == b"by url"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(link.replace("signed", "other"))


@row("Asynchronous", "create, run, write, read, list, kill")
def asynchronous(c):
    async def work():
        async with await AsyncSandbox.create("base", timeout=300) as box:
            done = await asyncio.gather(*(box.commands.run(f"echo {i}") for i in range(10)))
            assert [d.stdout for d in done] == [f"{i}\n" for i in range(10)]
            await box.files.write("/tmp/a", "async")
            assert await box.files.read("/tmp/a") == "async"
            assert [e.name for e in await box.files.list("/tmp")] == ["a"]
    asyncio.run(work())


@row("Files", "watch_dir", "pass")
def watch(c):
    c.box.files.make_dir("/tmp/watched/sub")
    watcher = c.box.files.watch_dir("/tmp/watched", recursive=True)
    c.box.files.write("/tmp/watched/sub/f", "1")
    assert [(e.name, e.type.value) for e in watcher.get_new_events()] == [("sub/f", "create"), ("sub/f", "write")]
    c.box.files.write("/tmp/watched/sub/f", "2")
    c.box.files.remove("/tmp/watched/sub/f")
    assert [(e.name, e.type.value) for e in watcher.get_new_events()] == [("sub/f", "write"), ("sub/f", "remove")]
    assert watcher.get_new_events() == []
    watcher.stop()


@row("Lifecycle", "pause, connect")
def pause(c):
    with Sandbox.create("base", timeout=300) as box:
        box.files.write("/tmp/mark", "here")
        box.commands.run("sleep 1000", background=True, timeout=0)
        assert box.pause() and not box.pause()
        assert not box.is_running() and box.get_info().state.value == "paused"
        again = Sandbox.connect(box.sandbox_id, timeout=300)
        assert again.files.read("/tmp/mark") == "here" and len(again.commands.list()) == 1


@row("Lifecycle", "pause at the end of the timeout, resume by traffic")
def auto_pause(c):
    box = Sandbox.create("base", timeout=300, lifecycle={"on_timeout": "pause", "auto_resume": True})
    box.files.write("/tmp/mark", "here")
    box.set_timeout(1)
    until(lambda: box.get_info().state.value == "paused")
    assert box.files.read("/tmp/mark") == "here"
    box.kill()


@row("Snapshots", "create, list, create from it, delete")
def snapshot(c):
    with Sandbox.create("base", timeout=300) as box:
        box.files.write("/home/user/kept", "at the snapshot")
        made = box.create_snapshot()
        box.files.write("/home/user/kept", "later")
        with Sandbox.create(made.snapshot_id, timeout=300) as copy:
            assert copy.files.read("/home/user/kept") == "at the snapshot"
        assert [s.snapshot_id for s in Sandbox.list_snapshots(sandbox_id=box.sandbox_id).next_items()] == [made.snapshot_id]
        assert Sandbox.delete_snapshot(made.snapshot_id) is True
        assert Sandbox.delete_snapshot(made.snapshot_id) is False


@row("Snapshots", "create in a mode", lambda tier: "pass" if tier == "container" else "not supported")
def snapshot_mode(c):
    made = c.box.create_snapshot(mode="filesystem")
    Sandbox.delete_snapshot(made.snapshot_id)


@row("Templates", "Template.build")
def build(c):
    template = e2b.Template(file_context_path=os.path.dirname(os.path.abspath(__file__))).from_base_image()
    template = template.set_envs({"PLACE": "here"}).run_cmd("echo $PLACE >/tmp/place").copy("requirements.txt", "/tmp/sent")
    lines = []
    e2b.Template.build(template, "built-py", on_build_logs=lambda entry: lines.append(entry.message))
    assert any("RUN echo" in line for line in lines)
    with Sandbox.create("built-py", timeout=300) as box:
        wanted = pathlib.Path(__file__).with_name("requirements.txt").read_text()
        assert box.commands.run("echo $PLACE; cat /tmp/place /tmp/sent").stdout == "here\nhere\n" + wanted


@row("Templates", "Template.build from an image of a registry", "not supported")
def build_fetched(c):
    e2b.Template.build(e2b.Template().from_image("debian:12").run_cmd("true"), "fetched", cpu_count=1, memory_mb=512)


@row("Volumes", "Volume.create", "not supported")
def volume(c):
    e2b.Volume.create("data")


@pytest.mark.parametrize("tier", TIERS, ids=lambda t: t["runtime"])
def test_tier(tier):
    if not tier["usable"]:
        pytest.skip(f"{tier['runtime']}: {tier['problem']}")


@pytest.fixture(scope="module", params=[t["runtime"] for t in TIERS if t["usable"]])
def context(request):
    context = Context(request.param)
    context.results = []
    yield context
    context.close()
    if directory := os.environ.get("E2B_RESULTS"):
        out = {"client": "e2b (Python)", "version": VERSION, "tier": context.tier, "results": context.results}
        pathlib.Path(directory, f"e2b-Python-{VERSION}-{context.tier}.json").write_text(json.dumps(out, indent=1))


@pytest.mark.parametrize("entry", ROWS, ids=lambda r: f"{r[0]}: {r[1]}")
def test_row(context, entry):
    area, method, expected, work = entry
    if callable(expected):  # by tier
        expected = expected(context.tier)
    result = {"area": area, "method": method, "result": "fail"}
    context.results.append(result)
    if expected == "pass":
        work(context)
    else:
        with pytest.raises(Exception, match="(?i)501|unimplemented|does not have"):
            work(context)
    result["result"] = expected
