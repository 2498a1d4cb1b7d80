# SPDX-License-Identifier: Apache-2.0
"""Starts the real daemon once and gives each test fresh sandboxes on each usable tier: see fixtures.py."""

import os
import signal
import time

import pytest

from fixtures import (  # noqa: F401
    api, create, daemon, make_daemon, place, pytest_collection_modifyitems, pytest_generate_tests, pytest_runtest_setup, runtimes, sandbox, settings, tier)

# Programs inherit what is ignored, as it is for what a script runs in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def canary(tmp_path, daemon):
    """A file on the host that no answer may ever hold; (path, secret). The admin key counts as one too."""
    secret = f"canary-{os.urandom(16).hex()}"
    path = tmp_path / "glovebox-canary.txt"
    path.write_text(secret)
    return path, secret


@pytest.fixture
def stopwatch():
    class Stopwatch:
        def __enter__(self):
            self.begin = time.monotonic()
            return self

        def __exit__(self, *_):
            self.seconds = time.monotonic() - self.begin

    return Stopwatch
