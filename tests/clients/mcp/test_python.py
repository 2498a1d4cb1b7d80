# SPDX-License-Identifier: Apache-2.0
"""The official Python client, on both transports: what differs from the JavaScript one is how it connects and reads. `run` starts the daemon."""

import asyncio
import contextlib
import os

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

URL, ADMIN, PROGRAM = (os.environ[name] for name in ("GLOVEBOX_URL", "GLOVEBOX_ADMIN_KEY", "GLOVEBOX_BIN"))
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def native(method, path, key=ADMIN, **options):
    return httpx2.request(method, URL + path, headers={"Authorization": f"Bearer {key}"}, timeout=60, **options).json()


RUNTIMES = {r["runtime"]: r for r in native("GET", "/v1/runtimes")["runtimes"] if r["runtime"] != "microvm"}
TIERS = os.environ.get("GLOVEBOX_TIERS", ",".join(RUNTIMES)).split(",")


@pytest.fixture(params=TIERS, scope="module")
def key(request):
    found = RUNTIMES.get(request.param)
    if not found or not found["usable"]:
        pytest.skip(found["problem"] if found else "not known to this server")
    made = native("POST", "/v1/keys", json={"name": "python", "tenant": f"python-{request.param}-{os.getpid()}", "role": "user",
                                            "default_runtime": request.param})
    yield made["key"]
    native("DELETE", f"/v1/keys/{made['id']}")


@pytest.fixture(params=["http", "stdio"])
def connect(request, key):
    """A context manager that gives a connected client."""

    @contextlib.asynccontextmanager
    async def over_http():
        async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=120) as http:
            async with Client(streamable_http_client(URL + "/mcp", http_client=http)) as client:
                yield client

    @contextlib.asynccontextmanager
    async def over_stdio():
        server = StdioServerParameters(command=PROGRAM, args=["mcp"], env={"GLOVEBOX_API_URL": URL, "GLOVEBOX_API_KEY": key})
        async with Client(stdio_client(server)) as client:
            yield client

    return over_http if request.param == "http" else over_stdio


async def works(client, name, **arguments):
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result


def test_a_conversation(connect, key):
    async def talk():
        async with connect() as client:
            assert client.protocol_version == "2025-11-25"
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"exec", "read_file", "create_sandbox"} <= names
            first = (await works(client, "exec", command="echo out; echo err >&2; exit 3")).structured_content
            assert (first["stdout"], first["stderr"], first["exit_code"]) == ("out\n", "err\n", 3)
            await works(client, "write_file", path="/tmp/dot.png", content=PNG, encoding="base64")
            image = (await works(client, "read_file", path="/tmp/dot.png")).content[0]
            assert (image.type, image.mime_type, image.data) == ("image", "image/png", PNG)
            failed = await client.call_tool("read_file", {"path": "/no/such"})
            assert failed.is_error and "file_not_found" in failed.content[0].text
            with pytest.raises(MCPError):
                await client.call_tool("no_such_tool", {})
            return first["sandbox_id"]

    box = asyncio.run(talk())
    assert native("GET", f"/v1/sandboxes/{box}", key)["state"] == "ended"


def test_long_calls_tell_of_progress(connect):
    seen = []

    async def note(progress, total, message):
        seen.append((progress, message))

    async def talk():
        async with connect() as client:
            command = "for i in 1 2 3 4 5; do echo step $i; sleep 1; done"
            return await client.call_tool("exec", {"command": command}, progress_callback=note)

    result = asyncio.run(talk()).structured_content
    assert result["stdout"].count("step") == 5
    assert seen and "step" in seen[-1][1] and [p for p, _ in seen] == sorted({p for p, _ in seen})


def test_many_calls_at_once(connect):
    async def talk():
        async with connect() as client:
            return await asyncio.gather(*(works(client, "exec", command=f"echo {i}; sleep 0.2") for i in range(12)))

    results = [result.structured_content for result in asyncio.run(talk())]
    assert [r["stdout"] for r in results] == [f"{i}\n" for i in range(12)]
    assert len({r["sandbox_id"] for r in results}) == 1
