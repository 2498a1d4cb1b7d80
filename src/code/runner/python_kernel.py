# SPDX-License-Identifier: Apache-2.0
"""The Python kernel: IPython's shell in a process of its own, forked from one that has IPython loaded already.

It reads requests from one pipe and writes to another: frames of at most PIPE_BUF bytes, which the kernel writes whole or not at
all. So no signal, thread or forked child can leave half a frame behind. No thread of ours runs here: a cell may fork.
"""
import asyncio
import base64
import builtins
import io
import itertools
import json
import math
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
import warnings

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

HEADER = struct.Struct("<HBBI")  # bytes that follow, kind, whether it is the message's last frame, the message's number
MAX_PAYLOAD = select.PIPE_BUF - HEADER.size
STDOUT, STDERR, MESSAGE = 1, 2, 3
MAX_RESULT = 12 << 20  # bytes of one result, all representations together


class Channel:
    """The way out. `fd` is set once this process is a kernel."""

    fd = None
    numbers = itertools.count()

    def message(self, value):
        flush_output()
        data = encode(value)
        number = (os.getpid() << 16 ^ next(self.numbers)) & 0xFFFFFFFF
        for at in range(0, max(len(data), 1), MAX_PAYLOAD):
            part = data[at:at + MAX_PAYLOAD]
            self.frame(MESSAGE, part, at + MAX_PAYLOAD >= len(data), number)

    def text(self, kind, data):
        while data:
            part = data[:MAX_PAYLOAD]
            while len(part) < len(data) and data[len(part)] & 0xC0 == 0x80:  # whole characters
                part = part[:-1]
            self.frame(kind, part, True, 0)
            data = data[len(part):]

    def frame(self, kind, part, is_last, number):
        if self.fd is not None:
            os.write(self.fd, HEADER.pack(len(part), kind, is_last, number) + part)


channel = Channel()


def encode(value):
    try:
        return json.dumps(value, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
    except ValueError:
        return json.dumps(plain(value), ensure_ascii=False).encode("utf-8", "replace")


def plain(value):
    """JSON has no NaN and no infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


class Output(io.TextIOBase):
    """sys.stdout or sys.stderr: sends whole lines, or what there is when something else happens."""

    encoding, errors, line_buffering = "utf-8", "backslashreplace", True

    def __init__(self, kind, name):
        self.kind, self.name, self.held = kind, name, []
        self.held_bytes = 0
        self.buffer = io.BufferedWriter(io.FileIO(kind, "wb", closefd=False), 1 << 13)

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.held.append(text)
        self.held_bytes += len(text)
        if "\n" in text or "\r" in text or self.held_bytes > 2000:
            self.flush()
        return len(text)

    def flush(self):
        held, self.held, self.held_bytes = self.held, [], 0
        if held:
            channel.text(self.kind, "".join(held).encode("utf-8", "backslashreplace"))
        self.buffer.flush()

    def fileno(self):
        return self.kind

    def writable(self):
        return True

    def isatty(self):
        return False


def flush_output():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # whatever a cell has put there
            pass


# ---- Results ----

def portable(value):
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value if isinstance(value, (str, dict, list)) else str(value)


def has_plain_shape(value, depth=0):
    """What the daemon reads from us is bounded: deep or huge structures are left out rather than refused there."""
    if isinstance(value, (dict, list, tuple)):
        items = value.values() if isinstance(value, dict) else value
        room = 1000 if isinstance(value, dict) else 200_000
        return depth < 12 and len(value) <= room and all(has_plain_shape(item, depth + 1) for item in items)
    return not isinstance(value, int) or isinstance(value, bool) or -2**63 <= value < 2**63


def send_result(formats, is_main):
    data, dropped, room = {}, [], MAX_RESULT
    for mime in sorted(formats, key=lambda mime: len(encode_or_none(portable(formats[mime])) or b"")):
        value = portable(formats[mime])
        size = len(encode_or_none(value) or b"") if has_plain_shape(value) else 0
        room -= size
        if size == 0 or room < 0:
            dropped.append(mime)
        else:
            data[mime] = value
    message = {"event": "result", "main": is_main, "data": data}
    if dropped:
        message["dropped"] = dropped
    channel.message(message)


def encode_or_none(value):
    try:
        return encode(value)
    except (TypeError, ValueError, RecursionError):
        return None


class ResultHook(DisplayHook):
    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        send_result(format_dict, True)

    def finish_displayhook(self):
        pass


class Publisher(DisplayPublisher):
    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        send_result(data, False)

    def clear_output(self, wait=False):
        pass


class Shell(InteractiveShell):
    displayhook_class = ResultHook
    display_pub_class = Publisher

    def _showtraceback(self, etype, evalue, stb):
        text = stb if isinstance(stb, str) else "\n".join(stb)
        try:
            value = str(evalue)
        except Exception:
            value = "<exception str() failed>"
        channel.message({"event": "error", "name": etype.__name__, "value": value, "traceback": text})

    def ask_exit(self):
        raise SystemExit(0)

    def system(self, cmd):
        """`!command`: its output goes where everything goes, and an interrupt reaches it."""
        flush_output()
        child = subprocess.Popen(self.var_expand(cmd, depth=1), shell=True, executable="/bin/bash", stdin=subprocess.DEVNULL)
        try:
            self.user_ns["_exit_code"] = child.wait()
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)
            try:
                child.wait(1)
            except subprocess.TimeoutExpired:
                child.kill()
            raise

    def enable_gui(self, gui=None):
        pass


def describe(value):
    """What is beside the usual representations: {"data": columns of a table, "chart": what a figure shows}."""
    kind = type(value)
    try:
        if kind.__name__ == "DataFrame" and kind.__module__.startswith("pandas."):
            if value.size <= 100_000:
                columns = json.loads(value.to_json(orient="split", date_format="iso"))
                rows = columns["data"]
                return {"data": {str(name): [row[i] for row in rows] for i, name in enumerate(columns["columns"])}}
        elif kind.__name__ == "Figure" and kind.__module__ == "matplotlib.figure":
            return {"chart": sys.modules["glovebox_charts"].describe(value)}
    except Exception:  # a table or figure of a shape not thought of has its picture and text
        pass
    return {}


def make_shell():
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    warnings.filterwarnings("ignore", "To exit: use")
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.banner1 = ""
    shell = Shell.instance(config=config)
    usual = shell.display_formatter.format

    def with_description(value, include=None, exclude=None):
        formats, metadata = usual(value, include=include, exclude=exclude)
        if formats:
            formats.update(describe(value))
        return formats, metadata

    shell.display_formatter.format = with_description
    rehearse(shell)
    return shell


def rehearse(shell):
    """Loads what cells need; in a kernel, also into memory of its own."""
    fd, channel.fd = channel.fd, None
    for code in ("1 + 1", "raise ValueError('warm-up')", "await __import__('asyncio').sleep(0)"):
        shell.run_cell(code, store_history=False)
    shell.reset(new_session=True)
    shell.execution_count = 1
    channel.fd = fd


# ---- A kernel's life ----

class Kernel:
    def __init__(self, shell, requests):
        self.shell, self.requests = shell, requests
        self.loop = asyncio.new_event_loop()
        self.runs = False
        self.pid = os.getpid()
        shell.loop_runner = self.run_coroutine

    def main(self):
        signal.signal(signal.SIGINT, self.on_interrupt)
        signal.signal(signal.SIGUSR2, lambda *_: reseed())
        asyncio.set_event_loop(self.loop)
        channel.message({"event": "ready"})
        while True:
            request = self.next_request()
            if request is None:
                os._exit(0)
            if "busy" in request:
                channel.message({"event": "busy", "busy": self.is_busy()})
            elif "rehearse" in request:
                rehearse(self.shell)
                channel.message({"event": "ready"})
            elif "environment" in request:
                os.environ.update(request["environment"])
                time.tzset()
            else:
                self.run(request)

    def next_request(self):
        """Runs the loop meanwhile, so that tasks of earlier cells go on."""
        came = self.loop.create_future()
        self.loop.add_reader(self.requests, lambda: came.done() or came.set_result(None))
        while not came.done():
            try:
                self.loop.run_until_complete(came)
            except BaseException:  # of a task that a cell has left
                pass
        self.loop.remove_reader(self.requests)
        head = read_exactly(self.requests, 4)
        return head and json.loads(read_exactly(self.requests, int.from_bytes(head, "little")) or b"null")

    def run(self, request):
        before = {name: os.environ.get(name) for name in request["env"]}
        count = self.shell.execution_count
        channel.message({"event": "start", "count": count})
        try:
            asyncio.set_event_loop(self.loop)
            os.environ.update(request["env"])
            self.runs = True
            if request.get("cwd"):
                os.chdir(request["cwd"])
            self.shell.run_cell(request["code"], store_history=True)
        except BaseException:  # an interrupt between the cell and here, mostly
            self.runs = False
            self.shell.showtraceback()
        self.runs = False
        if os.getpid() != self.pid:  # a cell forked, and the child ran on to here
            flush_output()
            os._exit(0)
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        channel.message({"event": "end", "count": count, "busy": self.is_busy()})

    def is_busy(self):
        """Whether threads or tasks of cells go on."""
        threads = sys.modules["threading"].active_count() if "threading" in sys.modules else 1
        return threads > 1 or bool(asyncio.all_tasks(self.loop))

    def run_coroutine(self, coroutine):
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            try:
                self.loop.run_until_complete(asyncio.wait([task], timeout=1))
            except BaseException:
                pass
            raise

    def on_interrupt(self, *_):
        if self.runs:
            raise KeyboardInterrupt


def read_exactly(fd, size):
    data = b""
    while len(data) < size:
        part = os.read(fd, min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return data


def reseed():
    """After a restore: others may go on from the same memory."""
    random.seed(os.urandom(32))
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(list(os.urandom(64)))
    if "_ssl" in sys.modules:
        sys.modules["_ssl"].RAND_add(os.urandom(32), 32.0)
    channel.message({"event": "reseeded"})


def no_input(*_):
    raise EOFError("nobody can answer input() here")


def run_kernel(shell, fds, settings):
    """In the forked child; does not return. `fds`: requests, frames, stdout, stderr."""
    requests, channel.fd, stdout, stderr = fds
    os.setsid()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    try:
        with open("/proc/self/oom_score_adj", "w") as file:  # rather than what serves it
            file.write("500")
    except OSError:
        pass
    os.environ["GLOVEBOX_CODE_CONTEXT"] = settings["context"]
    sys.stdout = sys.__stdout__ = Output(STDOUT, "<stdout>")
    sys.stderr = sys.__stderr__ = Output(STDERR, "<stderr>")
    builtins.input = no_input
    try:
        os.makedirs(settings["cwd"], exist_ok=True)
        os.chdir(settings["cwd"])
    except OSError as error:
        channel.message({"event": "unusable", "message": f"{settings['cwd']}: {error.strerror}"})
        os._exit(1)
    sys.path.insert(0, "")
    random.seed()
    Kernel(shell, requests).main()
