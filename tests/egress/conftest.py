# SPDX-License-Identifier: Apache-2.0
"""The egress proxy in the lab of tests/network, without a daemon: links and policies come from the test."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "network"))

import lab as lab_module  # noqa: E402
import netns  # noqa: E402
import world  # noqa: E402


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    reason = netns.why_unusable()
    if not reason and not pathlib.Path(world.BINARY).exists():
        reason = f"{world.BINARY} is not built"
    if reason:
        pytest.skip(reason)
    made = lab_module.Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()


@pytest.fixture
def router(lab):
    made = world.Router()
    yield made
    made.close()


@pytest.fixture
def proxy(lab, router):
    made = world.Proxy(router, lab.host, {
        "operator": {"own_addresses": [lab_module.HOST]}, "resolvers": [f"{lab_module.RESOLVER}:53"], "registry_socket": "/registry.sock"})
    yield made
    status = made.process.poll()
    made.close()
    lab.settle()
    assert status is None, f"the proxy ended with {status}: {made.said()}"


@pytest.fixture
def sandbox(router):
    return router.link(512)


@pytest.fixture
def neighbour(router):
    return router.link(513)
