# SPDX-License-Identifier: Apache-2.0
"""Previews with what stands around them in practice: a development server, a browser, a proxy. See ../integration/fixtures.py."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
for _module in ("fixtures", "daemon", "client", "browser"):
    pytest.register_assert_rewrite(_module)

from browser import Browser, find_chromium  # noqa: E402
from fixtures import (  # noqa: E402, F401
    api, create, daemon, make_daemon, place, pytest_collection_modifyitems, pytest_generate_tests, pytest_runtest_setup, runtimes, sandbox, settings, tier)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = find_chromium()
    if not program:
        pytest.skip("needs Debian's chromium")
    # A name that is not this host's, for what browsers do on names that are not localhost.
    with Browser(program, tmp_path_factory.mktemp("chromium"), ["--host-resolver-rules=MAP glovebox.test 127.0.0.1"]) as started:
        yield started
