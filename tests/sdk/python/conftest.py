# SPDX-License-Identifier: Apache-2.0
"""The server is the one of ../run. Tests with `tier` run once for each tier that works there."""

import os
import signal

import pytest

import glovebox

WANTED = os.environ.get("GLOVEBOX_TIERS", "")


def usable_tiers():
    with glovebox.Glovebox() as client:
        usable = [status.runtime for status in client.runtimes().runtimes if status.usable]
    return [tier for tier in usable if not WANTED or tier in WANTED.split(",")]


def pytest_generate_tests(metafunc):
    if "tier" in metafunc.fixturenames:
        metafunc.parametrize("tier", usable_tiers(), scope="module", indirect=True)


@pytest.fixture(scope="module")
def tier(request):
    return request.param


@pytest.fixture(scope="module")
def client():
    with glovebox.Glovebox() as client:
        yield client


@pytest.fixture(scope="module")
def sandbox(client, tier):
    """One for all tests of a module that leave it usable."""
    with glovebox.Sandbox.create(runtime=tier, client=client, lifetime_ms=3_600_000) as sandbox:
        yield sandbox


@pytest.fixture(autouse=True)
def time_limit():
    """A test that hangs says where."""

    def give_up(*_):
        raise TimeoutError("the test took more than 900 s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(900)
    yield
    signal.alarm(0)
