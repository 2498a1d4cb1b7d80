# SPDX-License-Identifier: Apache-2.0
"""Behind a proxy that ends TLS, each in a process of its own: what it trusts is read at its start."""
import os
import socket
import ssl
import subprocess
import sys
import threading
import urllib.parse

import pytest

from test_package import ROOT, run
from world import Breaker


class TlsRelay(Breaker):
    """A relay that speaks TLS to its clients."""

    def __init__(self, url, certificate, key):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        super().__init__(url, None)
        self.url = self.url.replace("http://127.0.0.1", "https://localhost")

    def _accept(self):
        target = urllib.parse.urlsplit(self.target.geturl())
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain, target), daemon=True).start()

    def _serve(self, plain, target):
        try:
            client = self.context.wrap_socket(plain, server_side=True)
        except OSError:  # it does not trust the certificate
            return
        server = socket.create_connection((target.hostname, target.port))
        threading.Thread(target=self._relay, args=(client, server, None), daemon=True).start()
        self._relay(server, client, None)


@pytest.fixture(scope="module")
def relay(client, tmp_path_factory):
    place = tmp_path_factory.mktemp("tls")
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", place / "key.pem", "-out",
        place / "cert.pem", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    relay = TlsRelay(client.url, place / "cert.pem", place / "key.pem")
    yield relay, place / "cert.pem"
    relay.close()


def environment(relay, trusted=True):
    names = {"SSL_CERT_FILE": str(relay[1]), "NODE_EXTRA_CA_CERTS": str(relay[1])} if trusted else {}
    return {**os.environ, "GLOVEBOX_API_URL": relay[0].url, **names}


SYNC = """
from glovebox import Sandbox
with Sandbox.create() as sandbox:
    data = bytes(range(256)) * 32768
    assert sandbox.exec("cat", stdin=data).stdout_bytes == data
    sandbox.files.write("x", (data for _ in range(2)))
    assert sandbox.files.read("x") == data * 2
    with sandbox.start("cat", stdin=True).attach() as attachment:
        attachment.write(data[:1 << 20])
        attachment.close_stdin()
        assert attachment.result().stdout_bytes == data[:1 << 20]
print("done")
"""
ASYNC = """
import asyncio
from glovebox import AsyncSandbox
async def main():
    async with AsyncSandbox.create() as sandbox:
        data = bytes(range(256)) * 32768
        assert (await sandbox.exec("cat", stdin=data)).stdout_bytes == data
        await sandbox.files.write("x", (data for _ in range(2)))
        assert await sandbox.files.read("x") == data * 2
        async with await (await sandbox.start("cat", stdin=True)).attach() as attachment:
            await attachment.write(data[:1 << 20])
            await attachment.close_stdin()
            assert (await attachment.result()).stdout_bytes == data[:1 << 20]
    print("done")
asyncio.run(main())
"""
NODE = f"""
import {{ Sandbox }} from "{ROOT}/sdk/typescript/dist/esm/index.js";
const sandbox = await Sandbox.create();
const data = Buffer.alloc(8 << 20, "0123456789");
if (!data.equals((await sandbox.exec("cat", {{ stdin: data }})).stdoutBytes)) throw new Error("stdin");
await sandbox.files.write("x", [data, data]);
if ((await sandbox.files.read("x")).length !== 16 << 20) throw new Error("files");
const attachment = await (await sandbox.start("cat", {{ stdin: true }})).attach();
void attachment.write(data.subarray(0, 1 << 20)).then(() => attachment.closeStdin());
if (!data.subarray(0, 1 << 20).equals((await attachment.result()).stdoutBytes)) throw new Error("attach");
await sandbox.kill();
console.log("done");
"""
PROGRAMS = {"sync": [sys.executable, "-c", SYNC], "async": [sys.executable, "-c", ASYNC], "node": ["node", "--input-type=module", "-e", NODE]}


@pytest.mark.parametrize("name", PROGRAMS)
def test_everything_goes_through_tls(relay, name):
    assert run(*PROGRAMS[name], env=environment(relay)) == "done\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_certificate_that_is_not_trusted_is_refused(relay, name):
    done = subprocess.run(PROGRAMS[name], env=environment(relay, trusted=False), capture_output=True, text=True, timeout=800)
    assert done.returncode != 0 and "certificate" in done.stderr.lower()
