# SPDX-License-Identifier: Apache-2.0
"""The daemon in a lab of network namespaces (lab.py), and sandboxes of each usable tier in it.

The same environment variables as in tests/integration/conftest.py choose the program, the templates and the tiers.
"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import lab as lab_module  # noqa: E402
import netns  # noqa: E402


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    reason = netns.why_unusable()
    if reason:
        pytest.skip(reason)
    made = lab_module.Lab(tmp_path_factory.mktemp("lab"))
    yield made
    made.close()
