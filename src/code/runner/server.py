# SPDX-License-Identifier: Apache-2.0
"""Contexts that keep state, and the kernels behind them: what the daemon starts in a sandbox to run code cell by cell.

One connection to a port of the loopback is one request: a line of JSON, answered by lines of JSON (see docs/code-interpreter.md,
"Inside"). Nothing here has a timer while nothing runs, so that an idle sandbox stands still. In a sandbox of the pool it is started
before there is an owner, whose first request tells what he has set.
"""
import asyncio
import json
import os
import secrets
import signal
import site
import socket
import sys
import time
import types

MAX_REQUEST = 40 << 20
MAX_CONTEXTS = 64
MAX_QUEUE = 64               # runs that wait for one context
KEEPALIVE = 0.5              # a sign of life while a cell runs: by it the daemon knows that the sandbox is in use
BATCH = 0.004                # seconds of output that go together while there is much of it
RESEED_PATIENCE = 2.0        # one in the middle of a long computation comes to it when that is done
INTERRUPT_PATIENCE = 5.0     # then the kernel is killed
LANGUAGES = {"python": "python", "py": "python", "python3": "python", "javascript": "javascript", "js": "javascript",
             "node": "javascript", "bash": "bash", "sh": "bash", "shell": "bash"}


def load(name):
    """Sources come from the daemon, not from files."""
    module = sys.modules[name] = types.ModuleType(name)
    module.FILES = FILES
    exec(compile(FILES[name + ".py"], f"<{name}>", "exec"), module.__dict__)
    return module


kernels = load("glovebox_kernels")
Failed, Died = kernels.Failed, kernels.Died


# ---- Contexts ----

class Context:
    def __init__(self, context_id, language, cwd):
        self.id, self.language, self.cwd = context_id, language, cwd
        self.turn = asyncio.Lock()
        self.kernel = None
        self.waiting = 0
        self.runs = None      # the Run under way
        self.lingerer = None  # the connection that is held as long as something of it goes on
        self.is_deleted = False

    def view(self):
        return {"id": self.id, "language": self.language, "cwd": self.cwd, "running": self.runs is not None}

    async def ready_kernel(self):
        if self.kernel is None or self.kernel.is_dead:
            self.kernel = None
            kernel = pooled.take_kernel(self)
            if kernel is None:
                kernel = kernels.KERNELS[self.language](self.id, self.cwd)
                await kernel.start()
            self.kernel = kernel
        return self.kernel

    def stop(self):
        if self.kernel is not None:
            self.kernel.kill()


contexts = {}


def language_of(name):
    language = LANGUAGES.get(name.lower())
    if language is None:
        raise Failed("invalid_argument", f"language: {name} is not one of python, javascript, bash")
    return language


def default_cwd():
    home = os.environ.get("HOME") or "/"
    return home if os.path.isdir(home) and os.access(home, os.W_OK) else "/tmp"


def new_context(context_id, language, cwd):
    if len(contexts) >= MAX_CONTEXTS:
        raise Failed("capacity", f"there are {MAX_CONTEXTS} contexts already: delete one")
    context = contexts[context_id] = Context(context_id, language, cwd or default_cwd())
    return context


def find_context(request):
    context_id = request.get("context")
    if context_id:
        if context_id not in contexts:
            raise Failed("not_found", f"no context '{context_id}'")
        return contexts[context_id]
    language = language_of(request.get("language") or "python")
    return contexts.get("default-" + language) or new_context("default-" + language, language, request.get("cwd"))


# ---- In the pool ----

# What a program, and not a cell, looks at: with another value of these, everything is started again.
READ_AT_START = ("PYTHON", "LD_", "LC_", "IPYTHON", "JUPYTER", "MPL", "XDG_", "CONDA", "MALLOC_", "GLIBC_", "OPENSSL_")
READ_AT_START_EXACTLY = {"PATH", "HOME", "LANG", "LANGUAGE", "VIRTUAL_ENV", "TERM", "COLUMNS", "LINES", "TMPDIR", "TEMP", "TMP"}
RESTART_PATIENCE = 1.0       # for those who have connected and ask nothing


class Asks(Exception):
    """In place of an answer: the daemon is to do something, and ask again."""


def places_of_modules():
    """When they were changed last: what a start would find that is in them."""
    home = os.path.expanduser("~")
    places = [*site.getsitepackages(), site.getusersitepackages(), "/etc/ipython", "/etc/matplotlib", home + "/.config/matplotlib",
              home + "/.ipython", home + "/.ipython/profile_default", home + "/.ipython/profile_default/startup"]
    seen = []
    for place in places:
        try:
            status = os.stat(place)
            seen.append((status.st_ino, status.st_mtime_ns))
        except OSError:
            seen.append(None)
    return seen


class Pooled:
    """What is up before there is an owner: a kernel for the default context of some languages."""

    def __init__(self):
        self.waits = False
        self.kernels = {}  # by language
        self.turn = asyncio.Lock()
        self.is_restarting = False

    async def warm(self, languages):
        for language in map(language_of, languages):
            kernel = kernels.KERNELS[language]("default-" + language, default_cwd())
            await kernel.start()
            self.kernels[language] = kernel
            await asyncio.wait_for(kernel.rehearse(), kernels.START_PATIENCE)
        self.places = places_of_modules()
        self.waits = True

    def take_kernel(self, context):
        kernel = self.kernels.get(context.language)
        if kernel is None or kernel.context_id != context.id:
            return None
        del self.kernels[context.language]
        if not kernel.is_dead and kernel.cwd == context.cwd:
            return kernel
        kernel.kill()
        return None

    async def meet_owner(self, owner):
        async with self.turn:
            if self.is_restarting:
                raise Asks("again")
            if not self.waits:
                return
            if owner is None:
                raise Asks("owner")
            changed = {name: value for name, value in owner["env"].items() if os.environ.get(name) != value}
            is_early = any(name in READ_AT_START_EXACTLY or name.startswith(READ_AT_START) for name in changed)
            if is_early or places_of_modules() != self.places:
                self.is_restarting = True
                asyncio.ensure_future(self.start_again(dict(sorted({**os.environ, **changed}.items()))))
                raise Asks("again")
            os.environ.update(changed)
            kernels.environment = changed
            time.tzset()
            for language, kernel in list(self.kernels.items()):
                if kernel.is_dead or kernel.cwd != default_cwd() or not await kernel.take_environment(changed):
                    kernel.kill()
                    del self.kernels[language]
            self.waits = False

    async def start_again(self, environment):
        """The same program, as if it had not run yet. Who connects meanwhile waits at the port."""
        asyncio.get_running_loop().remove_reader(LISTENER)
        deadline = time.monotonic() + RESTART_PATIENCE
        await asyncio.sleep(0.02)  # for those who are being taken in
        while open_connections and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        for kernel in self.kernels.values():
            kernel.kill()
            try:
                os.waitpid(kernel.pid, 0)
            except ChildProcessError:  # not ours, or seen to its end already
                pass
        kernels.forge.end()
        start_over(environment)


pooled = Pooled()


class Run:
    """One cell. It queues behind the others of its context."""

    def __init__(self, connection, context, request):
        self.connection, self.context, self.request = connection, context, request
        self.why = None       # it is being stopped: "timeout", "interrupted", "client"
        self.count = 0
        self.kernel = None
        self.traceback = ""   # of what the interrupt raised

    async def go(self):
        context = self.context
        if context.waiting >= MAX_QUEUE:
            raise Failed("capacity", f"{MAX_QUEUE} runs wait for this context already")
        context.waiting += 1
        try:
            await context.turn.acquire()
        finally:
            context.waiting -= 1
        try:
            if context.is_deleted:
                raise Failed("not_found", f"no context '{context.id}'")
            context.runs = self
            await self.run()
        finally:
            context.runs = None
            context.turn.release()

    async def run(self):
        self.kernel = await self.context.ready_kernel()
        if self.context.lingerer is not None:
            self.context.lingerer.close()
        limit = self.request.get("timeout_ms") or 0
        timer = asyncio.get_running_loop().call_later(limit / 1000, self.stop, "timeout") if limit else None
        try:
            self.kernel.events.clear()
            self.kernel.takes_output = True
            await self.kernel.send(self.request)
            await self.follow()
        except Died as death:
            await self.report_death(str(death))
        finally:
            self.kernel.takes_output = False
            if timer:
                timer.cancel()
            if getattr(self, "killer", None):
                self.killer.cancel()
        await self.connection.send({"event": "end", "count": self.count})

    async def follow(self):
        clock = asyncio.get_running_loop().time
        last = clock() - 1
        while True:
            if clock() - last < BATCH:
                await asyncio.sleep(BATCH)
            events = await self.kernel.take()
            if events[-1]["event"] in ("stdout", "stderr"):
                last = clock()
            for event in events:
                kind = event["event"]
                if kind == "end":
                    self.kernel.is_busy = event.get("busy") is True
                    if self.why:
                        await self.send_stopped("it was interrupted, and the context's state is kept")
                    return
                if kind == "start":
                    self.count = event.get("count", 0)
                    event = {"event": "start", "count": self.count, "context": self.context.id, "language": self.context.language}
                elif kind == "error":
                    if self.why:  # how it ends decides what to say
                        self.traceback = event.get("traceback", "")
                        continue
                elif kind not in ("stdout", "stderr", "result"):
                    continue
                await self.connection.send(event)

    async def send_stopped(self, what):
        limit = self.request.get("timeout_ms") or 0
        name, value = ("TimeoutError", f"the code ran longer than {limit} ms: {what}") if self.why == "timeout" else (
            "KeyboardInterrupt", what)
        await self.connection.send({"event": "error", "name": name, "value": value, "traceback": self.traceback,
                                    "kind": "timeout" if self.why == "timeout" else "interrupted"})

    async def report_death(self, how):
        status = self.kernel.status
        if self.why:
            return await self.send_stopped("it did not react, so its kernel was ended, and the context's state is lost")
        if self.context.is_deleted:
            how = "its context was deleted"
        kind = "exit" if self.context.language == "bash" and status is not None and status >= 0 else "died"
        name = "ExitError" if kind == "exit" else "KernelDied"
        if kind == "exit":
            how = f"exit status {status}: the shell has ended, and the next cell gets a new one"
            if status == 0:
                return
        await self.connection.send({"event": "error", "name": name, "value": how, "traceback": "", "kind": kind,
                                    **({"signal": -status} if status is not None and status < 0 else {})})

    def stop(self, why):
        """Interrupts, and kills what does not react."""
        if self.why is None:
            self.why = why
            self.kernel.interrupt()
            self.killer = asyncio.get_running_loop().call_later(INTERRUPT_PATIENCE, self.kernel.kill)


# ---- Connections ----

open_connections = set()
LOOKS_AGAIN = (0, 0.02, 0.1)  # seconds before each look


class Connection:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.run = None
        self.is_gone = False

    def close(self):
        self.writer.close()

    async def send(self, event):
        if self.is_gone:
            return  # what runs is being interrupted; its output has to go somewhere
        self.writer.write(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        try:
            await self.writer.drain()
        except (ConnectionError, OSError):
            self.is_gone = True

    async def serve(self):
        open_connections.add(self)
        try:
            line = await self.reader.readline()
            request = json.loads(line)
            handler = HANDLERS.get(request.get("op"))
            if handler is None:
                raise Failed("invalid_argument", "op: not one of mine")
            if handler not in (serve_warm, serve_reseed):
                owner = request.pop("owner", None)
                await pooled.meet_owner(owner)
                if owner is not None:
                    await self.send({"event": "met"})  # from here on something may have run
            await handler(self, request)
        except Asks as wish:
            await self.send({"event": str(wish)})
        except Failed as failure:
            await self.send({"event": "failed", "code": failure.code, "message": str(failure)})
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            await self.send({"event": "failed", "code": "invalid_argument", "message": f"not a request: {error}"})
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.close()
            open_connections.discard(self)

    async def beat(self):
        while True:
            await asyncio.sleep(KEEPALIVE)
            await self.send({"event": "keepalive"})


async def serve_run(connection, request):
    """Until the cell's end; then the connection is held while something that it started goes on."""
    context = find_context(request)
    request.setdefault("env", {})
    run = connection.run = Run(connection, context, request)
    task = asyncio.ensure_future(run.go())
    beat = asyncio.ensure_future(connection.beat())
    gone = asyncio.ensure_future(connection.reader.read(1))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():  # nobody waits for it any more
            connection.is_gone = True
            if context.runs is run and run.kernel is not None:
                run.stop("client")
                await asyncio.wait({task})
            else:
                task.cancel()
        beat.cancel()
        await task
        await linger(connection, context, gone)
    except asyncio.CancelledError:
        pass
    finally:
        beat.cancel()
        gone.cancel()


async def linger(connection, context, gone):
    context.lingerer = connection
    asks = False
    try:
        while not gone.done() and not connection.writer.is_closing() and await still_goes_on(context, asks, gone):
            asks = True
            await asyncio.wait({gone}, timeout=1.0)
    except Died:
        pass
    finally:
        if context.lingerer is connection:
            context.lingerer = None


async def still_goes_on(context, asks, gone):
    """A process that is just being replaced by the program it runs shows no environment, so that nothing goes on is believed when it was seen again."""
    for pause in LOOKS_AGAIN:
        await asyncio.wait({gone}, timeout=pause)
        if gone.done() or await goes_on(context, asks):
            return True
    return False


async def goes_on(context, asks):
    if context.turn.locked():
        return True
    kernel = context.kernel
    if kernel is not None and not kernel.is_dead:
        async with context.turn:
            if asks:
                kernel.is_busy = await kernel.ask_busy()
        if kernel.is_busy:
            return True
    return any(pid != (context.kernel and context.kernel.pid) for pid in processes_of(context.id))


def processes_of(context_id):
    """Also those that have left the kernel's session: they have inherited the context's name."""
    mark = b"GLOVEBOX_CODE_CONTEXT=" + context_id.encode() + b"\0"
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read(1 << 17) + b"\0":
                        found.append(int(name))
            except OSError:
                pass
    return found


async def serve_create(connection, request):
    language = language_of(request.get("language") or "python")
    context = new_context("ctx-" + secrets.token_hex(8), language, request.get("cwd"))
    try:
        async with context.turn:
            await context.ready_kernel()
    except BaseException:
        contexts.pop(context.id, None)
        raise
    await connection.send({"event": "context", **context.view()})


async def serve_warm(connection, request):
    await pooled.warm(request["languages"])
    await connection.send({"event": "ok"})


async def serve_list(connection, request):
    await connection.send({"event": "contexts", "contexts": [context.view() for context in contexts.values()]})


async def serve_delete(connection, request):
    context = find_context({"context": request.get("context") or "?"})
    contexts.pop(context.id)
    context.is_deleted = True
    context.stop()
    await connection.send({"event": "ok"})


async def serve_restart(connection, request):
    """What runs ends, what waits runs in the new kernel."""
    context = find_context({"context": request.get("context") or "?"})
    kernel, context.kernel = context.kernel, None
    if kernel is not None and not kernel.is_dead:
        kernel.kill()
        await asyncio.wait({kernel.ended}, timeout=INTERRUPT_PATIENCE)
    async with context.turn:
        await context.ready_kernel()
    await connection.send({"event": "context", **context.view()})


async def serve_interrupt(connection, request):
    context = find_context({"context": request.get("context") or "?"})
    runs = context.runs
    if runs is not None and runs.kernel is not None:
        runs.stop("interrupted")
    await connection.send({"event": "ok", "interrupted": runs is not None})


async def serve_reseed(connection, request):
    """After a restore: others may go on from the same memory."""
    kernels = [kernel for kernel in [*(context.kernel for context in contexts.values()), *pooled.kernels.values()]
               if kernel is not None and not kernel.is_dead]
    for kernel in kernels:
        kernel.is_fresh.clear()
        kernel.reseed(str(request.get("seed", "")))
    if kernels:
        _, late = await asyncio.wait([asyncio.ensure_future(kernel.is_fresh.wait()) for kernel in kernels], timeout=RESEED_PATIENCE)
        for waiting in late:
            waiting.cancel()
    await connection.send({"event": "ok", "kernels": len(kernels)})


HANDLERS = {"run": serve_run, "create": serve_create, "list": serve_list, "delete": serve_delete, "restart": serve_restart,
            "interrupt": serve_interrupt, "reseed": serve_reseed, "warm": serve_warm}


async def main(listener):
    kernels.forge.listen()
    server = await asyncio.start_server(lambda reader, writer: Connection(reader, writer).serve(), sock=listener, limit=MAX_REQUEST)
    if not IS_AGAIN:
        print(json.dumps({"event": "ready"}), flush=True)
    async with server:
        await server.serve_forever()


def listen():
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", PORT))
    except OSError as error:
        print(json.dumps({"event": "failed", "code": "unavailable", "message": f"port {PORT}: {error.strerror}"}), flush=True)
        sys.exit(1)
    listener.listen(128)
    return listener


def start_over(environment):
    """Does not return. The port stays open."""
    os.set_inheritable(LISTENER, True)
    files = os.memfd_create("code", 0)
    with open(files, "w", closefd=False) as file:
        json.dump({**FILES, "listener": LISTENER}, file)
    os.lseek(files, 0, os.SEEK_SET)
    os.dup2(files, 0)
    os.close(files)
    try:
        os.execvpe(sys.orig_argv[0], sys.orig_argv, environment)
    finally:
        os._exit(127)  # the next call finds nobody, and says why one cannot be started


def start():
    global LISTENER, IS_AGAIN
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    IS_AGAIN = "listener" in FILES
    listener = socket.socket(fileno=FILES["listener"]) if IS_AGAIN else listen()
    listener.set_inheritable(False)
    LISTENER = listener.fileno()
    kernels.forge = kernels.Forge(listener)
    asyncio.run(main(listener))


start()
