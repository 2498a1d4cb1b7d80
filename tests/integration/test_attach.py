# SPDX-License-Identifier: Apache-2.0
"""Executions over WebSocket: several clients, continuation from a cursor, clients that vanish."""

import asyncio
import json

import pytest
import websockets

from client import eventually

TIMEOUT = 90


class Attached:
    """One WebSocket. Frames are collected until something waited for has come."""

    def __init__(self, socket):
        self.socket = socket
        self.output = {1: b"", 2: b""}
        self.texts = []

    async def receive(self):
        frame = await asyncio.wait_for(self.socket.recv(), TIMEOUT)
        if isinstance(frame, bytes):
            assert frame[0] in (1, 2) and len(frame) > 1, frame[:10]
            self.output[frame[0]] += frame[1:]
        else:
            message = json.loads(frame)
            assert message["type"] in ("started", "cursor", "exit", "error"), message
            self.texts.append(message)
        return frame

    async def until_output(self, text, stream=1):
        while text not in self.output[stream]:
            await self.receive()

    async def until(self, kind):
        while not any(m["type"] == kind for m in self.texts):
            await self.receive()
        return next(m for m in self.texts if m["type"] == kind)

    async def to_the_end(self):
        """The execution of the `exit` message, which must be the last thing before close 1000."""
        with pytest.raises(websockets.ConnectionClosed) as closed:
            while True:
                await self.receive()
        assert closed.value.code == 1000
        assert self.texts[-1]["type"] == "exit"
        return self.texts[-1]["execution"]

    async def send(self, data):
        await self.socket.send(b"\0" + data)

    async def message(self, **fields):
        await self.socket.send(json.dumps(fields))


def connect(execution, query=""):
    url = execution.api.url.replace("http://", "ws://") + execution.path + "/attach" + query
    return websockets.connect(url, extra_headers={"Authorization": f"Bearer {execution.api.key}"}, max_size=None)


def test_a_session_from_start_to_exit(sandbox):
    running = sandbox.start("read x; echo got $x; echo oops >&2; exit 6", stdin=True)

    async def session():
        async with connect(running) as socket:
            client = Attached(socket)
            await client.receive()
            assert client.texts[0]["type"] == "started" and client.texts[0]["execution"]["id"] == running.id
            await client.send(b"word\n")
            done = await client.to_the_end()
            assert client.output == {1: b"got word\n", 2: b"oops\n"}
            assert done["state"] == "ended" and done["exit_code"] == 6
    asyncio.run(session())
    assert running.refresh()["exit_code"] == 6


def test_end_of_standard_input(sandbox):
    running = sandbox.start(["sort"], stdin=True)

    async def session():
        async with connect(running) as socket:
            client = Attached(socket)
            await client.send(b"b\na\n")
            await client.send(b"")
            await client.to_the_end()
            assert client.output[1] == b"a\nb\n"
    asyncio.run(session())


def test_a_terminal_for_two_clients(sandbox):
    running = sandbox.start(["sh"], stdin=True, pty={"cols": 80, "rows": 24})

    async def session():
        async with connect(running) as one, connect(running) as two:
            first, second = Attached(one), Attached(two)
            await first.send(b"echo $((40+2))\n")
            await first.until_output(b"42\r\n")
            await second.until_output(b"42\r\n")
            await second.message(type="resize", cols=111, rows=33)
            await second.send(b"stty size\n")
            await first.until_output(b"33 111\r\n")
            await second.message(type="signal", signal="KILL")
            for client in (first, second):
                done = await client.to_the_end()
                assert done["outcome"]["type"] == "signalled" and done["outcome"]["signal"] == 9
            assert first.output == second.output
    asyncio.run(session())


def test_a_vanished_client_is_replaced_from_its_cursor(sandbox):
    running = sandbox.start("read a; echo one $a; read b; echo two $b; exit 0", stdin=True)

    async def session():
        lost = await connect(running)
        client = Attached(lost)
        await client.send(b"x\n")
        await client.until_output(b"one x\n")
        lost.transport.abort()  # no close handshake
        assert running.refresh()["state"] == "running"
        async with connect(running, f"?cursor={len(client.output[1])}") as socket:
            follower = Attached(socket)
            await follower.send(b"y\n")
            done = await follower.to_the_end()
            assert follower.output[1] == b"two y\n" and done["exit_code"] == 0
        async with connect(running) as socket:
            late = Attached(socket)
            await late.to_the_end()
            assert late.output[1] == b"one x\ntwo y\n"
    asyncio.run(session())


def test_much_output_arrives_whole_at_a_slow_client(sandbox):
    running = sandbox.start("seq -f %09.0f 1 400000")  # 4 MB

    async def session():
        async with connect(running) as socket:
            client = Attached(socket)
            await client.until("started")
            eventually(lambda: running.refresh()["state"] == "ended", 30)  # reads nothing meanwhile
            await client.to_the_end()
            assert client.output[1] == b"".join(b"%09d\n" % n for n in range(1, 400001))
    asyncio.run(session())


def test_refused_messages_leave_the_connection_open(sandbox):
    running = sandbox.start(["cat"], stdin=True)

    async def session():
        async with connect(running) as socket:
            client = Attached(socket)
            refused = ["{", "[]", '{"type":"dance"}', '{"type":"resize","cols":0,"rows":5}',
                       '{"type":"signal","signal":"NOPE"}', '{"type":"signal"}']
            for text in refused:
                await socket.send(text)
            while sum(m["type"] == "error" for m in client.texts) < len(refused):
                await client.receive()
            assert {m["error"]["code"] for m in client.texts if m["type"] == "error"} == {"invalid_argument"}
            await client.send(b"still here\n")
            await client.until_output(b"still here\n")
            await client.send(b"")
            assert (await client.to_the_end())["exit_code"] == 0
    asyncio.run(session())


@pytest.mark.parametrize("path,status", [("executions/nope/attach", 404), ("executions/{id}/attach?cursor=-1", 400)])
def test_refused_handshakes(sandbox, path, status):
    done = sandbox.run(["true"])

    async def session():
        url = sandbox.api.url.replace("http://", "ws://") + sandbox.path + "/" + path.format(id=done["id"])
        with pytest.raises(websockets.InvalidStatusCode) as refusal:
            await websockets.connect(url, extra_headers={"Authorization": f"Bearer {sandbox.api.key}"})
        assert refusal.value.status_code == status
        with pytest.raises(websockets.InvalidStatusCode) as refusal:
            await websockets.connect(url)
        assert refusal.value.status_code == 401
    asyncio.run(session())


def test_killing_the_sandbox_ends_the_session_truthfully(create):
    sandbox = create()
    running = sandbox.start(["sleep", "1000"])

    async def session():
        async with connect(running) as socket:
            client = Attached(socket)
            await client.until("started")
            await asyncio.get_running_loop().run_in_executor(None, sandbox.kill)
            done = await client.to_the_end()
            assert done["outcome"]["type"] == "sandbox_ended" and "exit_code" not in done
    asyncio.run(session())
