# SPDX-License-Identifier: Apache-2.0
"""The processes that cells run in, one a context: how they are started, spoken to, interrupted, and how they end."""
import array
import asyncio
import codecs
import gc
import json
import os
import signal
import socket
import struct
import sys
import types

MAX_MESSAGE = 32 << 20       # of a kernel, frames put together
MAX_HELD = 256 << 10         # output read from a kernel and not taken yet: then it waits
MAX_DRAIN = 4 << 20          # of its output pipes at a cell's end
TROUBLE_LINGER = 10
START_PATIENCE = 60.0
READ = 1 << 16
PIPE_BUF = 4096
FRAME = struct.Struct("<HBBI")

forge = None                 # set by who starts it
environment = {}             # what an owner has set since the process that kernels are forked from began
# FILES: our sources by name, set by who loads this


class Failed(Exception):
    """A request that cannot be served: `code` is one the daemon knows."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Died(Exception):
    """A kernel has ended by itself."""


# ---- The process that Python kernels are forked from ----

class Forge:
    """It has IPython loaded; a fork of it is a kernel at once."""

    def __init__(self, listener):
        self.socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self.socket.close()
            listener.close()  # the port must be free when only kernels are left
            forge_main(other)
        other.close()
        self.socket.setblocking(False)
        self.waiting, self.ended, self.trouble, self.code = {}, {}, None, "unavailable"
        self.numbers = 0

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def listen(self):
        asyncio.get_running_loop().add_reader(self.socket, self.on_message)

    def on_message(self):
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:  # it ended before it had read all
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.socket)
            self.trouble = self.trouble or "the process that Python kernels come from has ended"
            self.give_up(self.waiting, self.ended)
            return
        message = json.loads(data)
        if "trouble" in message:
            self.trouble, self.code = message["trouble"], message.get("code", "unavailable")
            self.give_up(self.waiting)
        elif "forked" in message:
            future = self.waiting.pop(message["forked"], None)
            if future is not None and not future.done():
                self.ended[message["pid"]] = asyncio.get_running_loop().create_future()
                future.set_result(message["pid"])
        elif "ended" in message:
            future = self.ended.pop(message["ended"], None)
            if future is not None and not future.done():
                future.set_result(message["status"])

    @staticmethod
    def give_up(*tables):
        for future in [future for table in tables for future in table.values()]:
            future.done() or future.set_result(None)

    async def fork(self, fds, settings):
        if self.trouble:
            raise Failed(self.code, self.trouble)
        self.numbers += 1
        number = self.numbers
        future = self.waiting[number] = asyncio.get_running_loop().create_future()
        text = json.dumps({"fork": number, **settings}).encode()
        self.socket.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
        pid = await asyncio.wait_for(future, START_PATIENCE)
        if pid is None:
            raise Failed(self.code, self.trouble)
        return pid, self.ended[pid]


def forge_main(sock):
    """In the forked child; does not return."""
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, signal.SIG_DFL)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            for name in ("glovebox_charts", "glovebox_kernel"):
                load_module(name)
            kernel = sys.modules["glovebox_kernel"]
            shell = kernel.make_shell()
            gc.collect()
            gc.freeze()  # collections in kernels must not touch what they share, and so copy it
        except ImportError as error:
            tell_trouble(sock, {"code": "missing", "trouble": f"Python cells need IPython: {error}"})
        forge_loop(sock, kernel, shell, wake_read)
    except BaseException as error:
        tell_trouble(sock, {"trouble": f"the Python kernel does not start: {type(error).__name__}: {error}"[:2000]})


def tell_trouble(sock, message):
    """Does not return. Requests are read on for a while: an end with unread ones would take the message along."""
    try:
        sock.send(json.dumps(message).encode())
        sock.settimeout(TROUBLE_LINGER)
        while sock.recv(65536):
            pass
    except OSError:
        pass
    finally:
        os._exit(1)


def load_module(name):
    module = sys.modules[name] = types.ModuleType(name)
    module.FILES = FILES
    exec(compile(FILES[name + ".py"], f"<{name}>", "exec"), module.__dict__)


def forge_loop(sock, kernel, shell, wake):
    import select
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if wake in ready:
            os.read(wake, 4096)
            reap(sock)
        if sock.fileno() not in ready:
            continue
        text, fds, _, _ = socket.recv_fds(sock, 65536, 4)
        if not text:
            os._exit(0)
        settings = json.loads(text)
        pid = os.fork()
        if pid == 0:
            sock.close()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(wake)
            kernel.run_kernel(shell, fds, settings)
            os._exit(1)
        for fd in fds:
            os.close(fd)
        sock.send(json.dumps({"forked": settings["fork"], "pid": pid}).encode())


def reap(sock):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        sock.send(json.dumps({"ended": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


# ---- Kernels ----

class Kernel:
    """A process that runs cells one after the other. Its output and its messages are events here, in order."""

    def __init__(self, context_id, cwd):
        self.context_id, self.cwd = context_id, cwd
        self.pid, self.ended = None, None
        self.events, self.held, self.is_paused = [], 0, False
        self.changed = asyncio.Event()
        self.is_fresh = asyncio.Event()
        self.readers = {}
        self.is_dead, self.status = False, None
        self.takes_output = False
        self.is_busy = False  # something of an earlier cell goes on in it

    async def start(self):
        try:
            await asyncio.wait_for(self.launch(), START_PATIENCE)
            await asyncio.wait_for(self.wait_ready(), START_PATIENCE)
        except (asyncio.TimeoutError, Died) as error:
            self.kill()
            raise Failed("unavailable", f"the kernel did not start: {error or 'it took too long'}") from None
        except BaseException:
            self.kill()
            raise

    async def wait_ready(self):
        while True:
            for event in await self.take():
                if event["event"] == "ready":
                    return
                if event["event"] == "unusable":
                    raise Failed("invalid_argument", event["message"])

    def watch(self, fd, handler):
        os.set_blocking(fd, False)
        self.readers[fd] = handler
        asyncio.get_running_loop().add_reader(fd, self.on_readable, fd)

    def watch_output(self, stdout, stderr):
        for fd, name in ((stdout, "stdout"), (stderr, "stderr")):
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self.watch(fd, lambda data, name=name, decoder=decoder: self.add_text(name, decoder.decode(data)))
        self.outputs = (stdout, stderr)

    def watch_end(self):
        self.ended.add_done_callback(self.on_end)

    def on_end(self, future):
        self.is_dead, self.status = True, future.result() if not future.cancelled() else None
        for fd in list(self.readers):
            self.drain(fd)
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
        self.readers.clear()
        self.changed.set()

    def on_readable(self, fd):
        data = self.read(fd)
        if data == b"":  # all ends are closed; the process's end is told elsewhere
            asyncio.get_running_loop().remove_reader(fd)
        elif data:
            self.readers[fd](data)
            if self.held > MAX_HELD and not self.is_paused:
                self.is_paused = True
                for each in self.readers:
                    asyncio.get_running_loop().remove_reader(each)

    @staticmethod
    def read(fd):
        try:
            return os.read(fd, READ)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def drain(self, fd):
        left = MAX_DRAIN
        while left > 0 and (data := self.read(fd)):
            left -= len(data)
            self.readers[fd](data)

    def add_text(self, name, text):
        if not text or not self.takes_output:
            return
        last = self.events[-1] if self.events else {}
        if last.get("event") == name and len(last["text"]) < MAX_HELD:
            last["text"] += text
        else:
            self.events.append({"event": name, "text": text})
        self.held += len(text)
        self.changed.set()

    def add_message(self, message):
        if message.get("event") == "reseeded":
            return self.is_fresh.set()
        if message.get("event") == "end":  # what was written before it, by whichever process
            for fd in self.outputs:
                if fd in self.readers:
                    self.drain(fd)
        self.events.append(message)
        self.held += 100
        self.changed.set()

    async def take(self):
        while not self.events:
            if self.is_dead:
                raise Died(how_it_died(self.status))
            self.changed.clear()
            await self.changed.wait()
        events, self.events, self.held = self.events, [], 0
        if self.is_paused:
            self.is_paused = False
            for fd in self.readers:
                asyncio.get_running_loop().add_reader(fd, self.on_readable, fd)
        return events

    def signal(self, number):
        if self.pid is not None and not self.is_dead:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """With all that shares its session; its other children live on."""
        if self.pid is not None and not self.is_dead:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                self.signal(signal.SIGKILL)

    async def rehearse(self):
        """Once it is ready, and has time."""

    async def take_environment(self, changed):
        """Before its first cell: what its owner has set. False when it must be started anew for that."""
        return not changed

    async def ask(self):
        """For a "busy" event; not every kernel has something to say."""
        self.add_message({"event": "busy", "busy": False})

    async def ask_busy(self):
        await self.ask()
        while True:
            for event in await self.take():
                if event["event"] == "busy":
                    return event.get("busy") is True


def how_it_died(status):
    if status is None:
        return "the kernel has ended"
    if status < 0:
        return f"the kernel was killed by signal {-status} ({signal.Signals(-status).name})"
    return f"the kernel ended with exit status {status}"


class PythonKernel(Kernel):
    async def launch(self):
        ours, theirs = [], []
        for ours_reads in (False, True, True, True):
            read, write = os.pipe2(os.O_CLOEXEC)
            ours.append(read if ours_reads else write)
            theirs.append(write if ours_reads else read)
        try:
            self.pid, self.ended = await forge.fork(theirs, {"context": self.context_id, "cwd": self.cwd})
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        self.requests = ours[0]
        os.set_blocking(self.requests, False)
        self.rest, self.parts = b"", {}
        self.watch(ours[1], self.on_frames)
        self.watch_output(ours[2], ours[3])
        self.watch_end()
        if environment:
            await self.take_environment(environment)

    async def rehearse(self):
        await self.send({"rehearse": True})
        await self.wait_ready()

    async def take_environment(self, changed):
        await self.send({"environment": changed})
        return True

    def on_end(self, future):
        super().on_end(future)
        os.close(self.requests)

    def on_frames(self, data):
        """Frames come whole, so half a one is left only where a read ended: all else was not written by the kernel."""
        is_all = len(data) < READ
        data = self.rest + data
        at = 0
        while len(data) - at >= FRAME.size:
            size, kind, is_last, number = FRAME.unpack_from(data, at)
            if kind not in (1, 2, 3) or is_last > 1 or size > PIPE_BUF - FRAME.size:
                return self.kill()
            if len(data) - at < FRAME.size + size:
                break
            self.on_frame(kind, is_last, number, data[at + FRAME.size:at + FRAME.size + size])
            at += FRAME.size + size
        self.rest = data[at:]
        if is_all and self.rest:
            self.kill()

    def on_frame(self, kind, is_last, number, payload):
        if kind in (1, 2):
            return self.add_text(("stdout", "stderr")[kind - 1], payload.decode("utf-8", "replace"))
        if number not in self.parts and len(self.parts) >= 8:  # left unfinished by an interrupt
            self.parts.pop(next(iter(self.parts)))
        parts = self.parts.setdefault(number, bytearray())
        if len(parts) + len(payload) <= MAX_MESSAGE:
            parts += payload
        if is_last:
            try:
                message = json.loads(self.parts.pop(number))
            except ValueError:
                return
            if isinstance(message, dict) and isinstance(message.get("event"), str):
                self.add_message(message)

    async def send(self, request):
        data = json.dumps(request).encode()
        data = len(data).to_bytes(4, "little") + data
        while data:
            try:
                data = data[os.write(self.requests, data):]
            except BlockingIOError:
                await writable(self.requests)
            except (BrokenPipeError, OSError):
                return  # it has died, which is told elsewhere

    def interrupt(self):
        self.signal(signal.SIGINT)

    def reseed(self, seed):
        self.signal(signal.SIGUSR2)

    async def ask(self):
        await self.send({"busy": True})


async def writable(fd):
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.add_writer(fd, lambda: future.done() or future.set_result(None))
    try:
        await future
    finally:
        loop.remove_writer(fd)


class ProcessKernel(Kernel):
    """One that is a program of its own: requests go to its standard input."""

    async def launch_program(self, argv, extra_fds=()):
        os.makedirs(self.cwd, exist_ok=True)
        stdout_read, stdout_write = os.pipe2(os.O_CLOEXEC)
        stderr_read, stderr_write = os.pipe2(os.O_CLOEXEC)
        env = {**os.environ, "GLOVEBOX_CODE_CONTEXT": self.context_id}
        try:
            self.process = await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.PIPE, stdout=stdout_write, stderr=stderr_write, cwd=self.cwd, env=env,
                start_new_session=True, pass_fds=extra_fds)
        except OSError as error:
            os.close(stdout_read)
            os.close(stderr_read)
            raise Failed("missing", f"{argv[0]}: {error.strerror}") from None
        finally:
            os.close(stdout_write)
            os.close(stderr_write)
        self.pid = self.process.pid
        self.ended = asyncio.ensure_future(self.process.wait())
        self.watch_output(stdout_read, stderr_read)
        self.watch_end()
        prefer_for_oom(self.pid)

    def watch_lines(self, fd, handler):
        self.line_rest = b""

        def on_data(data):
            *lines, rest = (self.line_rest + data).split(b"\n")
            self.line_rest = rest if len(rest) <= MAX_MESSAGE else b""
            for line in lines:
                handler(line)
        self.watch(fd, on_data)

    async def write(self, data):
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def reseed(self, seed):
        self.add_message({"event": "reseeded"})


def prefer_for_oom(pid):
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        pass


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


class BashKernel(ProcessKernel):
    """An interactive shell that reads from a pipe: an interrupt throws away the line it is at, and it goes on with the next one."""

    async def launch(self):
        read, self.reports = os.pipe2(os.O_CLOEXEC)
        try:
            await self.launch_program(["bash", "--norc", "--noprofile", "--noediting", "-i"], (self.reports,))
        finally:
            os.close(self.reports)
        self.count = 0
        self.watch_lines(read, self.on_report)
        done = f"{{ printf '%s\\n' \"$?\" >&{self.reports}; }} 2>/dev/null"
        self.done = done.encode() + b"\n"
        await self.write(b"exit() { builtin exit \"${1-$?}\" 2>/dev/null; }\n"  # an interactive one says so as it goes
                         b"PS1= PS2= PS4='+ ' HISTFILE=; unset PROMPT_COMMAND; set +o history +H +m; shopt -u checkwinsize\n" + self.done)

    async def wait_ready(self):
        await super().wait_ready()
        self.events.clear()

    def on_report(self, line):
        if self.count == 0:
            self.count = 1
            return self.add_message({"event": "ready"})
        status = int(line) if line.isdigit() else 1
        if status != 0:
            self.add_message({"event": "error", "name": "ExitError", "value": f"exit status {status}", "traceback": "", "kind": "exit"})
        self.add_message({"event": "end", "count": self.count})
        self.count += 1

    async def send(self, request):
        if "\0" in request["code"]:
            raise Failed("invalid_argument", "code: bash cannot hold a NUL character")
        self.events.append({"event": "start", "count": self.count})
        self.changed.set()
        sets = "".join(f"export {name}={quoted(value)}; " for name, value in request["env"].items())
        before = f"cd -- {quoted(request['cwd'])} && " if request.get("cwd") else ""
        code = f"{before}eval {quoted(request['code'])} </dev/null"
        if sets:  # for this cell only
            keeps = "".join(f"__gb_{name}=${{{name}-}} __gb_set_{name}=${{{name}+x}}; " for name in request["env"])
            back = "".join(f"if [ -n \"$__gb_set_{name}\" ]; then export {name}=\"$__gb_{name}\"; else unset {name}; fi; "
                           f"unset __gb_{name} __gb_set_{name}; " for name in request["env"])
            await self.write(f"{keeps}{sets}\n{code}\n__gb_status=$?; {back}(exit $__gb_status)\n".encode("utf-8", "replace") + self.done)
        else:
            await self.write(code.encode("utf-8", "replace") + b"\n" + self.done)

    def interrupt(self):
        try:
            os.killpg(self.pid, signal.SIGINT)
        except ProcessLookupError:
            pass


class NodeKernel(ProcessKernel):
    async def launch(self):
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            await self.launch_program(["node", "--no-warnings", "-e", FILES["node_kernel.js"], str(write)], (write,))
        finally:
            os.close(write)
        self.leaving = None
        self.watch_lines(read, self.on_line)

    def on_end(self, future):
        super().on_end(future)
        if self.leaving is not None:
            self.status = self.leaving

    def on_line(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            return
        if isinstance(message, dict) and message.get("event") == "leaving" and isinstance(message.get("status"), int):
            self.leaving = message["status"]
        elif isinstance(message, dict) and isinstance(message.get("event"), str):
            self.add_message(message)

    async def take_environment(self, changed):
        if any(name == "TZ" or name.startswith(("NODE_", "UV_", "OPENSSL_", "SSL_", "ICU_")) for name in changed):
            return False  # node has read it
        await self.write(json.dumps({"environment": changed}).encode() + b"\n")
        return True

    async def send(self, request):
        await self.write(json.dumps({"run": request}).encode() + b"\n")

    def interrupt(self):
        asyncio.ensure_future(self.write(b'{"interrupt":true}\n'))

    def reseed(self, seed):
        asyncio.ensure_future(self.write(json.dumps({"reseed": seed}).encode() + b"\n"))

    async def ask(self):
        await self.write(b'{"busy":true}\n')


KERNELS = {"python": PythonKernel, "javascript": NodeKernel, "bash": BashKernel}
