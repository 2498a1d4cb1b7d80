# SPDX-License-Identifier: Apache-2.0
"""The command line program against a real daemon, as people and scripts use it (docs/reference/cli.md)."""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tarfile
import threading
import time
import urllib.parse

import pytest

import host
from client import eventually, needs_true_memory, scaled
from daemon import find_program, share_kernel, share_templates
from terminal import Terminal

MIB = 1 << 20


class Cli:
    def __init__(self, data_dir, **env):
        self.program = find_program()
        self.env = {"PATH": os.environ["PATH"], "HOME": "/root", "TERM": "xterm-256color",
                    "GLOVEBOX_DATA_DIR": str(data_dir), **env}

    def start(self, *arguments, **options):
        return subprocess.Popen([self.program, *map(str, arguments)], env=self.env, **options)

    def run(self, *arguments, input=None, timeout=300, **options):
        """The finished process; output as bytes. Without `input` standard input is empty."""
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        if "stdin" in options:
            stdin = {}
        return subprocess.run([self.program, *map(str, arguments)], env=self.env, capture_output=True, timeout=timeout,
                              **stdin, **options)

    def ok(self, *arguments, **options):
        """Standard output, as text, of a command that must succeed."""
        done = self.run(*arguments, **options)
        assert done.returncode == 0, done
        return done.stdout.decode()

    def json(self, *arguments):
        return json.loads(self.ok("--json", *arguments))

    def terminal(self, *arguments, **options):
        return Terminal([self.program, *map(str, arguments)], env=self.env, **options)


@pytest.fixture(scope="session")
def cli(daemon):
    return Cli(daemon.data_dir)


@pytest.fixture
def terminals():
    opened = []
    yield opened
    for terminal in opened:
        terminal.close()


def tree(directory):
    """{relative name: (kind, mode, content or target)} of everything below."""
    root = os.fsencode(directory)
    found = {}
    for path, directories, files in os.walk(root):
        for name in directories + files:
            full = os.path.join(path, name)
            relative = os.path.relpath(full, root)
            mode = os.lstat(full).st_mode
            if os.path.islink(full):
                found[relative] = ("link", None, os.readlink(full))
            elif os.path.isdir(full):
                found[relative] = ("directory", mode & 0o777, None)
            else:
                found[relative] = ("file", mode & 0o777, open(full, "rb").read())
    return found


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def peak_kib(pid):
    """The most memory that the process has had so far; 0 when it is gone."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) if found else 0


def live(daemon):
    return set(daemon.live_ids())


def sleeps(daemon, sandbox_id):
    """Whether `sleep` runs there: a shell that has written something may not have started it yet, and miss a signal meanwhile."""
    processes = daemon.admin.call("GET", f"/v1/sandboxes/{sandbox_id}/processes")["processes"]
    return any(process["argv"][:1] == ["sleep"] for process in processes)


# run ----------------------------------------------------------------------------------------------------------------

def test_run_streams_and_returns_the_commands_own_status(cli, daemon, tier):
    before = live(daemon)
    done = cli.run("run", "--runtime", tier, "--", "sh", "-c", "echo 42; echo oops >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"42\n", b"oops\n", 7)
    assert live(daemon) <= before, "the sandbox of `run` is gone"


def test_run_forwards_standard_input_byte_for_byte(cli, tier):
    data = os.urandom(20 * MIB)
    done = cli.run("run", "--runtime", tier, "--", "cat", input=data)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


def test_run_ends_with_the_command_although_standard_input_stays_open(cli):
    process = cli.start("run", "--", "echo", "done", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.wait(90) == 0
    assert process.stdout.read() == b"done\n"
    process.stdin.close()


def test_a_command_that_does_not_read_its_input_is_no_error(cli):
    done = cli.run("run", "--", "true", input=b"x" * (4 * MIB))
    assert (done.returncode, done.stderr) == (0, b"")


def test_run_passes_limits_environment_user_and_directory_on(cli):
    script = 'echo "$A|$B|$(id -un)|$(pwd)|$(nproc)"'
    done = Cli(cli.env["GLOVEBOX_DATA_DIR"], B="from outside").run(
        "run", "-e", "A=a=b", "-e", "B", "-e", "GLOVEBOX_NOT_SET", "--user", "root", "--workdir", "/tmp", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    a, b, user, directory, _ = done.stdout.decode().strip().split("|")
    assert (a, b, user, directory) == ("a=b", "from outside", "root", "/tmp")


def test_secrets_are_passed_on_and_not_shown(cli):
    own = Cli(cli.env["GLOVEBOX_DATA_DIR"], TOKEN="from outside")
    done = own.run("run", "--secret", "TOKEN", "--secret", "OTHER=o=p", "--", "sh", "-c", 'echo "$TOKEN|$OTHER"')
    assert (done.returncode, done.stdout) == (0, b"from outside|o=p\n"), done.stderr
    done = own.run("run", "--secret", "NOT_SET_ANYWHERE", "--", "true")
    assert done.returncode == 120 and b"NOT_SET_ANYWHERE" in done.stderr


@pytest.mark.parametrize("command, status", [
    (["nosuch-command"], 127),
    (["/etc/passwd"], 126),
    (["sh", "-c", "kill -TERM $$"], 143),
    (["sh", "-c", "kill -KILL $$"], 137),
    (["sh", "-c", "exit 255"], 255),
])
def test_exit_statuses(cli, command, status):
    assert cli.run("run", "--", *command).returncode == status


def test_a_timeout_has_a_status_of_its_own(cli, stopwatch):
    with stopwatch() as watch:
        done = cli.run("run", "--timeout", "500ms", "--", "sleep", "600")
    assert done.returncode == 124 and b"timeout" in done.stderr
    assert watch.seconds < 120


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_the_command_and_the_sandbox_is_removed(cli, daemon, number, status):
    before = live(daemon)
    process = cli.start("run", "--", "sh", "-c", "echo ready; sleep 60", stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    [made] = live(daemon) - before
    eventually(lambda: sleeps(daemon, made), 10, "it sleeps")
    process.send_signal(number)
    assert process.wait(90) == status
    assert live(daemon) <= before


def test_what_was_ignored_at_the_start_stays_ignored(cli):
    """nohup, and the background commands of a script."""
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = cli.start("run", "-i", "--", "sh", "-c", "trap 'echo caught' INT HUP; echo ready; read x; echo $x", stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE, preexec_fn=ignore)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.communicate(b"on\n", timeout=90)[0] == b"on\n"
    assert process.returncode == 0


def test_a_command_can_handle_the_signal(cli):
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    process = cli.start("run", "--", "sh", "-c", script, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 5
    assert process.stdout.read() == b"caught\n"


def test_a_third_interrupt_kills_a_command_that_does_not_heed_it(cli):
    process = cli.start("run", "--", "sh", "-c", "trap 'echo and so on' INT TERM; echo ready; while :; do sleep 0.05; done",
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"ready\n"
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"and so on\n"  # equal pending signals are one
    process.send_signal(signal.SIGINT)
    assert process.wait(90) == 137


def test_interrupts_kill_a_command_that_ignores_them(cli):
    process = cli.start("run", "--", "sh", "-c", "trap '' INT TERM; echo ready; while :; do sleep 0.05; done",
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout.readline() == b"ready\n"
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    while process.poll() is None:  # two that were pending at once were one
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    assert process.returncode == 137


def test_a_reader_that_goes_away_ends_the_command_and_the_sandbox(cli, daemon):
    before = live(daemon)
    process = cli.start("run", "--", "yes", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.wait(90) == 141
    assert process.stderr.read() == b""
    assert live(daemon) <= before


def test_a_slow_reader_loses_nothing(cli):
    count = scaled(400_000, 4_000_000)
    process = cli.start("run", "--", "seq", count, stdout=subprocess.PIPE)
    time.sleep(scaled(3, 70))  # past the queue of the program; in full past the idle time of the connection
    data = process.stdout.read()
    assert process.wait(60) == 0
    assert data == b"".join(b"%d\n" % i for i in range(1, count + 1))


def test_json_gives_the_execution_with_its_output(cli):
    done = cli.run("--json", "run", "--", "sh", "-c", r"printf 'a\377'; echo b >&2; exit 3")
    assert done.returncode == 3 and done.stderr == b""
    execution = json.loads(done.stdout)
    assert execution["exit_code"] == 3 and execution["stderr"] == "b\n"
    assert execution["stdout"] == "a\ufffd" and execution["stdout_b64"] == "Yf8="


class CuttingProxy:
    """Passes connections on to the daemon and cuts each one after so many bytes of answers."""

    def __init__(self, url, cut_after):
        target = urllib.parse.urlsplit(url)
        self.target, self.cut_after, self.cuts = (target.hostname, target.port), cut_after, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        upstream = socket.create_connection(self.target)
        threading.Thread(target=self.pump, args=(client, upstream), daemon=True).start()
        passed = 0
        with contextlib.suppress(OSError):
            while passed < self.cut_after:
                data = upstream.recv(min(65536, self.cut_after - passed))
                if not data:
                    break
                client.sendall(data)
                passed += len(data)
        self.cuts += passed >= self.cut_after
        for end in (client, upstream):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    @staticmethod
    def pump(source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)


def test_output_survives_connections_that_break(cli, daemon):
    proxy = CuttingProxy(daemon.url, cut_after=700_001)
    done = cli.run("--url", proxy.url, "run", "--", "seq", "1000000")
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"".join(b"%d\n" % i for i in range(1, 1_000_001))
    assert proxy.cuts >= 5
    proxy.listener.close()


# run without a daemon -----------------------------------------------------------------------------------------------

@pytest.fixture
def lonely(tmp_path):
    """A data directory without a daemon, deeper than a socket's address is long; afterwards nothing of it may be left on the host."""
    data_dir = tmp_path / ("deep-" * 20) / "data"
    data_dir.mkdir(parents=True)
    share_templates(data_dir)
    yield Cli(data_dir)
    words = [str(data_dir)]
    left = lambda: host.command_lines(words) + host.loop_devices(words) + host.mounts("self", words)
    eventually(lambda: not left(), what=f"nothing is left of it: {left()}")


def daemons_of(cli):
    return [line for line in host.command_lines([cli.env["GLOVEBOX_DATA_DIR"]]) if " up" in str(line) or "'up'" in str(line)]


def test_run_starts_a_daemon_for_itself_and_stops_it(lonely):
    done = lonely.run("run", "--", "sh", "-c", "echo 42; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == (b"42\n", b"", 7)
    assert daemons_of(lonely) == []
    other = lonely.run("ls")
    assert other.returncode == 125 and b"no daemon runs on " in other.stderr


def test_runs_at_once_share_a_daemon_and_the_last_one_stops_it(lonely):
    processes = [lonely.start("run", "--", "sh", "-c", f"sleep {0.2 * i}; echo {i}", stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) for i in range(4)]
    for i, process in enumerate(processes):
        out, err = process.communicate(timeout=120)
        assert (out, err, process.returncode) == (b"%d\n" % i, b"", 0)
    eventually(lambda: daemons_of(lonely) == [], 10, "the daemon is stopped")


def test_run_says_why_no_daemon_can_be_started(tmp_path):
    (tmp_path / "admin.key").mkdir()  # nothing that a daemon could use
    done = Cli(tmp_path).run("run", "--", "true")
    assert done.returncode == 125
    assert b"did not start" in done.stderr and b"admin.key" in done.stderr


# exec, logs ---------------------------------------------------------------------------------------------------------

def test_exec_runs_in_the_sandbox(cli, sandbox):
    sandbox.put("/tmp/mark", b"here")
    done = cli.run("exec", "-e", "A=1", "--workdir", "/tmp", sandbox.id, "--", "sh", "-c", "cat mark; echo $A; exit 4")
    assert (done.stdout, done.returncode) == (b"here1\n", 4)


def test_exec_leaves_standard_input_alone_unless_asked(cli, sandbox):
    """`while read line; do glovebox exec …; done` must not lose lines."""
    script = 'while read line; do "$G" exec "$ID" -- sh -c "cat; echo $line"; done'
    done = subprocess.run(["sh", "-c", script], input=b"a\nb\nc\n", capture_output=True, timeout=300,
                          env={**cli.env, "G": cli.program, "ID": sandbox.id})
    assert done.stdout == b"a\nb\nc\n", done.stderr


def test_exec_forwards_standard_input_when_asked(cli, sandbox):
    data = os.urandom(20 * MIB)
    done = cli.run("exec", "--stdin", sandbox.id, "--", "sha256sum", input=data)
    assert done.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


def test_exec_detached_prints_the_id_and_logs_follow_it(cli, sandbox):
    script = "for i in 1 2 3; do echo $i; sleep 0.3; done; echo late >&2"
    execution = cli.ok("exec", "-d", sandbox.id, "--", "sh", "-c", script).strip()
    done = cli.run("logs", "-f", sandbox.id, execution)
    assert (done.stdout, done.stderr, done.returncode) == (b"1\n2\n3\n", b"late\n", 0)
    assert cli.ok("logs", sandbox.id, execution, "--since-cursor", "2") == "2\n3\n"
    chunks = [json.loads(line) for line in cli.ok("--json", "logs", sandbox.id, execution).splitlines()]
    assert "".join(c["data"] for c in chunks if c["stream"] == "stdout") == "1\n2\n3\n"


def test_logs_without_follow_do_not_wait(cli, sandbox, stopwatch):
    execution = sandbox.start(["sh", "-c", "echo now; sleep 600"])
    execution.wait_for_output(b"now")
    with stopwatch() as watch:
        assert cli.ok("logs", sandbox.id, execution.id) == "now\n"
    assert watch.seconds < 120


def test_the_end_of_the_sandbox_under_a_command_has_its_own_status(cli, sandbox):
    process = cli.start("exec", sandbox.id, "--", "sh", "-c", "echo ready; sleep 60", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    cli.ok("kill", sandbox.id)
    assert process.wait(90) == 121
    assert b"sandbox ended" in process.stderr.read()
    assert cli.run("exec", sandbox.id, "--", "true").returncode == 121


# cp -----------------------------------------------------------------------------------------------------------------

def make_tree(directory):
    (directory / "deep" / "er" / "empty").mkdir(parents=True)
    (directory / "deep" / "binary").write_bytes(bytes(range(256)) * 500)
    (directory / "deep" / "program").write_text("#!/bin/sh\necho ran\n")
    (directory / "deep" / "program").chmod(0o755)
    (directory / "größe ✓").write_text("utf-8")
    (directory / "-rf *").write_text("shell")
    (directory / ("n" * 200)).write_text("long")
    (pathlib.Path(os.fsdecode(os.fsencode(directory) + b"/bad\xff\xfe"))).write_text("no utf-8")
    (directory / "deep" / "link").symlink_to("../größe ✓")
    (directory / "nothing").write_bytes(b"")


def test_cp_directories_there_and_back(cli, sandbox, tmp_path):
    source = tmp_path / "source"
    make_tree(source)
    assert cli.ok("cp", source, f"{sandbox.id}:/tmp/copy") == ""
    assert sandbox.ok(["/tmp/copy/deep/program"]) == "ran\n"
    back = tmp_path / "back"
    cli.ok("cp", f"{sandbox.id}:/tmp/copy", back)
    assert tree(back) == tree(source)


def test_cp_into_existing_directories_keeps_the_name(cli, sandbox, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    cli.ok("cp", tmp_path / "d", f"{sandbox.id}:/tmp")
    assert sandbox.get("/tmp/d/f") == b"x"
    cli.ok("cp", str(tmp_path / "d") + "/.", f"{sandbox.id}:/tmp")
    assert sandbox.get("/tmp/f") == b"x"
    cli.ok("cp", tmp_path / "d" / "f", f"{sandbox.id}:/tmp/new/")
    assert sandbox.get("/tmp/new/f") == b"x"
    target = tmp_path / "target"
    target.mkdir()
    cli.ok("cp", f"{sandbox.id}:/tmp/d", target)
    cli.ok("cp", f"{sandbox.id}:/tmp/f", target)
    assert (target / "d" / "f").read_text() == "x" and (target / "f").read_text() == "x"


def test_cp_files_there_and_back_keep_bytes_and_mode(cli, sandbox, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(os.urandom(3 * MIB + 17))
    source.chmod(0o750)
    cli.ok("cp", source, f"{sandbox.id}:/tmp/file")
    assert sandbox.stat("/tmp/file")["mode"] == "0750"
    cli.ok("cp", f"{sandbox.id}:/tmp/file", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o750


def test_cp_standard_streams(cli, sandbox):
    data = os.urandom(2 * MIB)
    assert cli.run("cp", "-", f"{sandbox.id}:/tmp/stream", input=data).returncode == 0
    assert sandbox.get("/tmp/stream") == data
    assert cli.run("cp", f"{sandbox.id}:/tmp/stream", "-").stdout == data


def test_cp_a_directory_to_standard_output_is_a_tar(cli, sandbox, tmp_path):
    sandbox.ok("mkdir -p /tmp/t/sub && echo x > /tmp/t/sub/f")
    (tmp_path / "t.tar").write_bytes(cli.run("cp", f"{sandbox.id}:/tmp/t", "-").stdout)
    with tarfile.open(tmp_path / "t.tar") as archive:
        names = {name.removeprefix("./").rstrip("/") for name in archive.getnames()}
        assert {"sub", "sub/f"} <= names


@needs_true_memory
def test_cp_memory_does_not_grow_with_the_file(cli, sandbox, tmp_path):
    size = scaled(150, 1500) * MIB
    source = tmp_path / "large"
    with open(source, "wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
    for arguments in (["cp", source, f"{sandbox.id}:/tmp/large"], ["cp", f"{sandbox.id}:/tmp/large", tmp_path / "back"]):
        process = cli.start(*arguments)
        peak = 0
        while process.poll() is None:
            peak = max(peak, peak_kib(process.pid))
            time.sleep(0.01)
        assert process.returncode == 0
        assert 0 < peak < 60 * 1024, f"{peak} KiB"
    assert sha256(source) == sha256(tmp_path / "back")


def test_cp_takes_no_links_that_point_outside(cli, sandbox, tmp_path):
    sandbox.ok("mkdir /tmp/h && cd /tmp/h && ln -s /etc/passwd absolute && ln -s ../../x up && ln -s f fine && echo x > f && mkfifo pipe")
    done = cli.run("cp", f"{sandbox.id}:/tmp/h", tmp_path / "h")
    assert done.returncode == 125
    assert {name for name in ("absolute", "up", "pipe") if name.encode() in done.stderr} >= {"absolute", "up"}
    assert sorted(os.listdir(tmp_path / "h")) == ["f", "fine"]


def test_cp_does_not_write_through_links_of_this_host(cli, sandbox, tmp_path):
    sandbox.ok("mkdir -p /tmp/l/sub && echo new > /tmp/l/sub/f && echo new > /tmp/l/g")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("untouched")
    target = tmp_path / "target"
    target.mkdir()
    (target / "sub").symlink_to(outside)
    cli.run("cp", f"{sandbox.id}:/tmp/l/.", target)
    assert (outside / "f").read_text() == "untouched"
    assert not (target / "sub").is_symlink(), "what stood in the way was replaced, as tar does"


def test_cp_failures_leave_nothing_and_say_why(cli, sandbox, tmp_path):
    done = cli.run("cp", f"{sandbox.id}:/tmp/missing", tmp_path / "x")
    assert done.returncode == 125 and b"file_not_found" in done.stderr
    assert list(tmp_path.iterdir()) == []
    done = cli.run("cp", tmp_path / "missing", f"{sandbox.id}:/tmp/x")
    assert done.returncode == 125 and b"file_not_found" in done.stderr
    done = cli.run("cp", "a", "b")
    assert done.returncode == 125 and b"one side must be in a sandbox" in done.stderr
    assert cli.run("cp", "/etc/hostname", f"{sandbox.id}:/proc/nope").returncode == 125


def test_cp_interrupted_leaves_no_half_file(cli, sandbox, tmp_path):
    sandbox.ok("mkfifo /tmp/never")
    sandbox.ok("head -c 300000000 /dev/zero > /tmp/zeros")
    process = cli.start("cp", f"{sandbox.id}:/tmp/zeros", tmp_path / "zeros")
    eventually(lambda: os.listdir(tmp_path), 10, "the copy has begun")
    process.send_signal(signal.SIGINT)
    assert process.wait(90) in (130, 0)
    assert os.listdir(tmp_path) in ([], ["zeros"])


# shell --------------------------------------------------------------------------------------------------------------

PROMPT = b"gb-prompt> "


def opened_shell(cli, terminals, *arguments, **options):
    terminal = cli.terminal("shell", *arguments, **options)
    terminals.append(terminal)
    eventually(lambda: not terminal.is_restored(), what="it has taken the terminal over")
    terminal.send(b"PS1='gb-prompt''> '\r")
    terminal.expect(PROMPT, 60)
    return terminal


def test_shell_sees_the_size_of_the_window_and_its_changes(cli, sandbox, terminals):
    shell = opened_shell(cli, terminals, sandbox.id, rows=31, cols=97)
    shell.send(b"stty size\r")
    assert b"31 97" in shell.expect(PROMPT)
    shell.set_size(50, 123)

    def size():
        shell.send(b"stty size\r")
        return shell.expect(PROMPT)

    eventually(lambda: b"50 123" in size(), what="the shell has heard of the new size")
    shell.send(b"echo $TERM\r")
    shell.expect(b"xterm-256color")
    shell.send(b"exit 9\r")
    assert shell.wait() == 9
    assert shell.is_restored()
    assert sandbox.refresh()["state"] == "ready", "a shell in a sandbox of others does not end it"


def test_shell_control_c_interrupts_the_command_only(cli, sandbox, terminals, stopwatch):
    shell = opened_shell(cli, terminals, sandbox.id)
    shell.send(b"sleep 1000\r")
    shell.expect(b"sleep 1000")
    eventually(lambda: any(p["argv"] == ["sleep", "1000"] for p in sandbox.processes()), what="it sleeps")
    with stopwatch() as watch:
        shell.send(b"\x03")
        shell.expect(PROMPT)
    assert watch.seconds < 60
    shell.send(b"echo status=$?\r")
    assert b"status=130" in shell.expect(PROMPT)
    shell.send(b"\x04")
    shell.wait()
    assert shell.is_restored()


def test_shell_runs_full_screen_programs(cli, sandbox, terminals):
    shell = opened_shell(cli, terminals, sandbox.id)
    shell.send(b"command -v vim || command -v vi\r")
    if b"/vi" not in shell.expect(PROMPT):
        pytest.skip("the template has no vi: a full-screen program is not proven")
    shell.send(b"cd /tmp && vi edited.txt\r")
    shell.expect(b"edited.txt")  # as it was typed
    shell.expect(b"edited.txt")  # on the editor's screen
    shell.send(b"ihello from a terminal\x1b:wq\r")
    shell.expect(PROMPT)
    shell.send(b"exit\r")
    assert shell.wait() == 0
    assert sandbox.get("/tmp/edited.txt") == b"hello from a terminal\n"
    assert shell.is_restored()


def test_shell_without_an_id_makes_a_sandbox_and_ends_it(cli, daemon, terminals):
    before = live(daemon)
    shell = opened_shell(cli, terminals)
    assert len(live(daemon) - before) == 1
    shell.send(b"exit 3\r")
    assert shell.wait() == 3
    assert live(daemon) <= before and shell.is_restored()


def test_shell_terminated_restores_the_terminal_and_ends_the_sandbox(cli, daemon, terminals):
    before = live(daemon)
    shell = opened_shell(cli, terminals)
    assert not shell.is_restored()
    shell.process.send_signal(signal.SIGHUP)
    shell.wait()
    assert shell.is_restored()
    assert live(daemon) <= before


def test_a_shell_that_ignores_the_end_of_its_terminal_ends_all_the_same(cli, daemon, terminals):
    before = live(daemon)
    shell = opened_shell(cli, terminals)
    shell.send(b"trap '' HUP\r")
    shell.expect(PROMPT)
    shell.process.send_signal(signal.SIGHUP)
    assert shell.wait() == 137
    assert shell.is_restored() and live(daemon) <= before


def test_shell_needs_a_terminal(cli):
    done = cli.run("shell")
    assert done.returncode == 125 and b"needs a terminal" in done.stderr


def test_run_on_a_terminal(cli, terminals):
    terminal = cli.terminal("run", "-t", "--", "sh", "-c", "tty; read x; echo got $x")
    terminals.append(terminal)
    terminal.expect(b"/dev/")
    terminal.send(b"word\r")
    terminal.expect(b"got word")
    assert terminal.wait() == 0 and terminal.is_restored()


# create, ls, info, kill ---------------------------------------------------------------------------------------------

def test_create_list_info_kill(cli, daemon):
    sandbox = cli.ok("create", "--metadata", "cli=1", "--memory", "256M", "--lifetime", "10m").strip()
    try:
        assert re.fullmatch(r"[a-z0-9-]+", sandbox)
        lines = cli.ok("ls", "--metadata", "cli=1").splitlines()
        assert lines[0].split()[:3] == ["ID", "STATE", "RUNTIME"]
        assert [line.split()[0] for line in lines[1:]] == [sandbox]
        assert "256.0 MiB" in lines[1]
        info = cli.json("info", sandbox)
        assert info["id"] == sandbox and info["limits"]["memory_mb"] == 256 and info["stats"]["memory_bytes"] > 0
        assert sandbox in cli.ok("info", sandbox)
        assert cli.json("ls", "--metadata", "cli=2") == {"sandboxes": []}
    finally:
        assert cli.ok("kill", sandbox).strip() == sandbox
    assert sandbox not in cli.ok("ls") and sandbox in cli.ok("ls", "-a")
    assert "already" in cli.ok("kill", sandbox)


def test_kill_goes_on_after_a_failure_and_reports_it(cli, create):
    box = create()
    done = cli.run("kill", "sb-unknown", box.id)
    assert done.returncode == 125
    assert b"sandbox_not_found" in done.stderr and box.id.encode() in done.stdout
    assert box.refresh()["state"] == "ended"


def test_kill_all_reaches_the_keys_own_sandboxes_only(cli, daemon, sandbox):
    key = cli.ok("key", "create", "cli-tenant", "--tenant", "cli-tenant").strip()
    own = Cli(daemon.data_dir, GLOVEBOX_API_KEY=key)
    made = {own.ok("create").strip() for _ in range(2)}
    assert set(own.ok("kill", "--all").split()) == made
    assert own.json("ls") == {"sandboxes": []}
    assert sandbox.refresh()["state"] == "ready"


def test_keys_are_created_listed_and_withdrawn(cli, daemon):
    made = cli.json("key", "create", "cli-key", "--tenant", "t", "--role", "user")
    other = Cli(daemon.data_dir, GLOVEBOX_API_KEY=made["key"])
    assert other.run("ls").returncode == 0
    listed = cli.ok("key", "ls")
    assert made["id"] in listed and made["key"] not in listed
    cli.ok("key", "rm", made["id"])
    done = other.run("ls")
    assert done.returncode == 125 and b"unauthenticated" in done.stderr


def test_control_characters_of_others_never_reach_the_terminal(cli, api, create):
    box = create(metadata={"evil": "\x1b]0;owned\x07\x9b31m"})
    for output in (cli.run("info", box.id), cli.run("ls"), cli.run("info", "sb-\x1b[2J")):
        assert b"\x1b" not in output.stdout + output.stderr
        assert b"\x07" not in output.stdout + output.stderr


# templates, doctor, errors ------------------------------------------------------------------------------------------

def test_templates_are_shown(cli):
    assert "base" in [line.split()[0] for line in cli.ok("template", "ls").splitlines()[1:]]
    info = cli.json("template", "info", "base")
    assert info["name"] == "base" and len(info["version"]) == 64 and info["image_bytes"] > 0
    done = cli.run("template", "info", "nosuch")
    assert done.returncode == 125 and b"template_not_found" in done.stderr


def docker_archive(path, files):
    """What `docker save` writes, with one layer."""
    def add(archive, name, data, mode=0o644):
        member = tarfile.TarInfo(name)
        member.size, member.mode = len(data), mode
        archive.addfile(member, io.BytesIO(data))

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as archive:
        for name, data in files.items():
            add(archive, name, data)
    layer = layer.getvalue()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Env": ["IMPORTED=1"]},
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": ["tiny:1"], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as archive:
        for name, data in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            add(archive, name, data)


def test_template_import_list_and_info(lonely, tmp_path):
    docker_archive(tmp_path / "tiny.tar", {"etc/passwd": b"root:x:0:0::/root:/bin/sh\n", "hello": b"hello\n"})
    made = lonely.json("template", "import", "tiny", tmp_path / "tiny.tar")
    assert made["name"] == "tiny" and made["kind"] == "oci-import" and made["env"]["IMPORTED"] == "1"
    assert lonely.json("template", "info", "tiny") == made
    assert "tiny" in lonely.ok("template", "ls")
    (tmp_path / "broken.tar").write_bytes(os.urandom(5000))
    done = lonely.run("template", "import", "broken", tmp_path / "broken.tar")
    assert done.returncode == 125 and b"error: " in done.stderr
    assert "broken" not in lonely.ok("template", "ls")


def test_doctor_tells_what_works(cli, runtimes):
    text = cli.ok("doctor")
    for name, found in runtimes.items():
        line = next(line for line in text.splitlines() if f" {name}" in line and line.startswith(("works", "missing")))
        assert line.startswith("works" if found["usable"] else "missing")
        if not found["usable"]:
            assert found["problem"] in text
    assert {r["runtime"] for r in cli.json("doctor")["runtimes"]} == set(runtimes)


def test_doctor_without_a_daemon_finds_the_same(lonely, runtimes):
    share_kernel(pathlib.Path(lonely.env["GLOVEBOX_DATA_DIR"]))
    if runtimes["microvm"].get("facts", {}).get("accel") == "emulated":
        lonely.env["GLOVEBOX_MICROVM_ALLOW_EMULATION"] = "1"
    found = lonely.json("doctor")
    usable = {r["runtime"] for r in found["runtimes"] if r["usable"]}
    assert usable == {name for name, r in runtimes.items() if r["usable"]}
    assert found["network"]["works"], found["network"]
    assert not [name for name in os.listdir(lonely.env["GLOVEBOX_DATA_DIR"]) if name.startswith("doctor-")]


def test_version_names_both(cli, daemon):
    version = cli.json("version")
    assert version["version"] == version["daemon"]


def test_errors_name_code_hint_and_request(cli):
    done = cli.run("info", "sb-none")
    assert done.returncode == 121 and done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert lines[0].startswith("glovebox: error: ") and lines[0].endswith("(sandbox_not_found)")
    assert lines[1].startswith("  hint: ") and lines[2].startswith("  request: ")
    error = json.loads(cli.run("--json", "info", "sb-none").stderr)["error"]
    assert error["code"] == "sandbox_not_found" and error["hint"] and error["fault"] == "caller"


def test_a_daemon_that_cannot_be_reached_is_said_so(cli):
    done = cli.run("--url", "http://127.0.0.1:1", "ls")
    assert done.returncode == 125 and b"cannot reach the daemon at http://127.0.0.1:1" in done.stderr


def test_the_admin_key_is_not_sent_to_other_hosts(cli):
    done = cli.run("--url", "http://glovebox.invalid:7070", "ls")
    assert done.returncode == 125 and b"unauthenticated" in done.stderr


@pytest.mark.parametrize("arguments", [["run"], ["frobnicate"], ["exec", "x"], ["run", "--memory", "much", "--", "true"], []])
def test_wrong_command_lines_have_a_status_of_their_own(cli, arguments):
    done = cli.run(*arguments)
    assert done.returncode == 120 and b"--help" in done.stderr and done.stdout == b""


def test_no_colours_without_a_terminal_or_with_no_color(cli, terminals):
    assert b"\x1b" not in cli.run("ls").stdout
    coloured = cli.terminal("ls")
    terminals.append(coloured)
    coloured.wait()
    assert b"\x1b[1m" in coloured.output
    plain = Cli(cli.env["GLOVEBOX_DATA_DIR"], NO_COLOR="1").terminal("ls")
    terminals.append(plain)
    plain.wait()
    assert b"\x1b" not in plain.output
