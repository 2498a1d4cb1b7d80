# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import proxy  # noqa: E402
import upstream  # noqa: E402


@pytest.fixture
def fake():
    server = upstream.Upstream()
    yield server
    server.close()


@pytest.fixture
def registries():
    """Starts proxies that are stopped at the end: registries(upstream settings, …)."""
    made = []

    def make(*args, **kwargs):
        made.append(proxy.Registry(*args, **kwargs))
        return made[-1]

    yield make
    for registry in made:
        registry.close()


@pytest.fixture
def public_directory():
    """Readable for the user that the proxy runs as, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="glovebox-registry-") as directory:
        os.chmod(directory, 0o755)
        yield pathlib.Path(directory)


@pytest.fixture
def registry(fake, registries):
    return registries({"pypi": fake.url + "/simple", "npm": fake.url + "/npm", "debian": fake.url + "/debian"})


def clean_environment(home):
    """Without what the machine configures for its own pip and npm."""
    dropped = ("PIP_", "UV_", "NPM_CONFIG_", "npm_config_", "YARN_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return {**kept, "HOME": str(home), "PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


class Client:
    """pip and npm as a sandbox would run them."""

    def __init__(self, home):
        self.home = home
        self.environment = clean_environment(home)

    def run(self, *command, **kwargs):
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=self.home, env=self.environment, timeout=600, **kwargs)

    def pip(self, bridge, *arguments, target="site"):
        return self.run(sys.executable, "-m", "pip", "install", "--no-cache-dir", "--retries", "0", "--target", self.home / target, "--index-url",
                        bridge.url + "/pypi/simple/", "--trusted-host", "127.0.0.1", *arguments)

    def npm(self, bridge, *arguments):
        (self.home / "package.json").write_text('{"name":"test","version":"1.0.0"}')
        return self.run("npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--userconfig", self.home / "no-npmrc", "--globalconfig",
                        self.home / "no-global-npmrc", "--fetch-retries", "0", "--cache", self.home / "npm-cache", "--registry", bridge.url + "/npm/", *arguments)


@pytest.fixture
def client(tmp_path):
    return Client(tmp_path)
