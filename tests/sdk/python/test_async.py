# SPDX-License-Identifier: Apache-2.0
"""The asyncio side. It is the source of the other one, which the other files test; here is what asyncio adds."""
import asyncio
import contextlib
import functools
import io
import time

import pytest

from glovebox import AsyncGlovebox, AsyncSandbox, CommandFailedError, errors
from world import Breaker, Scripted, answer


def asynchronous(test):
    @functools.wraps(test)
    def run(*arguments, **named):
        return asyncio.run(test(*arguments, **named))

    return run


@asynchronous
async def test_commands_and_files(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        result = await sandbox.exec("echo out; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
        with pytest.raises(CommandFailedError):
            await sandbox.exec("exit 1", check=True)
        await sandbox.files.write("a", io.BytesIO(b"from a file"))
        assert await sandbox.files.read_text("a") == "from a file"

        async def generated():
            for _ in range(64):
                yield b"y" * (1 << 18)

        await sandbox.files.write("b", generated())
        assert sum([len(piece) async for piece in sandbox.files.read_stream("b")]) == 16 << 20
        assert [entry.name async for entry in sandbox.files.list()][-2:] == ["a", "b"]
        assert (await sandbox.exec("wc -c", stdin=generated())).stdout.strip() == str(16 << 20)
        kept = sandbox
    assert (await AsyncSandbox.connect(kept.id)).info.state == "ended"


@asynchronous
async def test_create_can_be_awaited(tier):
    sandbox = await AsyncSandbox.create(runtime=tier, metadata={"awaited": tier})
    assert [found.id async for found in AsyncSandbox.list(metadata={"awaited": tier})] == [sandbox.id]
    await sandbox.kill()
    await sandbox.client.close()


@asynchronous
async def test_200_commands_at_once(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        results = await asyncio.gather(*(sandbox.exec(["echo", str(n)]) for n in range(200)))
        assert [int(result.stdout) for result in results] == list(range(200))


@asynchronous
async def test_cancelling_kills_the_command(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        runs = asyncio.Event()
        task = asyncio.ensure_future(sandbox.exec("sleep 600 & echo runs; sleep 600", on_stdout=lambda _: runs.set()))
        await runs.wait()
        began = time.monotonic()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(task, 0.1)
        assert time.monotonic() - began < 40
        assert [e.info.outcome.type async for e in sandbox.executions()] == ["killed_by_caller"]
        deadline = time.monotonic() + 60
        while [p for p in await sandbox.processes() if p.argv[:1] == ["sleep"]]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


@asynchronous
async def test_cancelling_a_start_leaves_no_command(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        for delay in (0, 0.0005, 0.002, 0.1, 0.3):  # the last ones have begun, however slow the machine is
            task = asyncio.ensure_future(sandbox.exec("sleep 600"))
            await asyncio.sleep(delay)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        deadline = time.monotonic() + 60
        while len([e async for e in sandbox.executions()]) < 2 or [e async for e in sandbox.executions(state="running")]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)


@asynchronous
async def test_input_that_never_ends_or_fails(tier):
    async def endless():
        yield b"abcdef" * 20_000
        await asyncio.Event().wait()

    async def broken():
        yield b"abc"
        raise ZeroDivisionError

    async with AsyncSandbox.create(runtime=tier) as sandbox:
        assert (await sandbox.exec("head -c 3", stdin=endless())).stdout == "abc"
        with pytest.raises(ZeroDivisionError):
            await sandbox.exec("cat", stdin=broken())


@asynchronous
async def test_cancelling_a_create_leaves_no_sandbox(tier):
    async with AsyncGlovebox() as client:
        mark = {"cancelled": f"{tier}-{time.time()}"}
        await client.info()  # there is a connection: the request leaves at once
        task = asyncio.ensure_future(AsyncSandbox.create(runtime=tier, metadata=mark, client=client)._work)
        await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadline = time.monotonic() + 60
        while True:
            ended = await client.sandboxes.list(metadata=mark, state="ended").to_list()
            if ended:
                break
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
        assert await client.sandboxes.list(metadata=mark).to_list() == []


@asynchronous
async def test_a_terminal(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        async with await sandbox.terminal(["sh"], cols=132, rows=43) as terminal:
            await terminal.write("stty size; exit 7\n")
            result = await terminal.result()
        assert "43 132" in result.stdout and result.exit_code == 7


@asynchronous
async def test_output_goes_on_after_broken_connections(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        breaker = Breaker(sandbox.client.url, after_bytes=2_000_000)
        key = sandbox.client.transport._headers["Authorization"][7:]
        async with AsyncGlovebox(breaker.url, key) as through:
            again = await AsyncSandbox.connect(sandbox.id, client=through)
            execution = await again.start("seq 1 1200000")
            text = "".join([chunk.text async for chunk in execution.output()])
        breaker.close()
        assert breaker.broken > 3 and text == "".join(f"{n}\n" for n in range(1, 1200001))


@asynchronous
async def test_a_reader_who_is_slow_or_leaves(tier):
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        execution = await sandbox.start("seq 1 300000")
        async with contextlib.aclosing(execution.output()) as chunks:
            async for _ in chunks:
                break
        total = 0
        async for chunk in execution.output():
            total += len(chunk.data)
            if total < 100_000:
                await asyncio.sleep(0.02)
        assert total == sum(len(str(n)) + 1 for n in range(1, 300001))


@asynchronous
async def test_directories(tier, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x").write_text("x")
    async with AsyncSandbox.create(runtime=tier) as sandbox:
        await sandbox.files.upload(str(tmp_path / "source"), "there")
        assert await sandbox.files.download("there", str(tmp_path / "back")) == []
    assert (tmp_path / "back" / "x").read_text() == "x"


@asynchronous
async def test_an_early_refusal_of_a_large_upload_is_heard():
    server = Scripted(answer(404, {"error": {"code": "sandbox_not_found", "message": "m", "hint": "h", "fault": "caller", "details": {}}}))
    client = AsyncGlovebox(server.url, "key")

    async def endless():
        while True:
            yield b"x" * (1 << 16)

    with pytest.raises(errors.SandboxNotFoundError):
        await client.volumes.write_archive("x", endless())
    await client.close()
    server.close()


@asynchronous
async def test_a_silent_server_is_given_up():
    server = Scripted(b"")
    async with AsyncGlovebox(server.url, "key", idle_timeout_ms=200, retries=0) as client:
        with pytest.raises(errors.ConnectionTimeoutError, match="silent"):
            await client.info()
    server.close()
