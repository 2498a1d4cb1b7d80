# SPDX-License-Identifier: Apache-2.0
"""A linter for OpenAPI (pinned in lint/package.json) finds nothing in spec/openapi.yaml, and finds what is wrong on purpose."""

import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent / "lint"
DOCUMENT = HERE.parents[2] / "spec/openapi.yaml"


@pytest.fixture(scope="module")
def lint():
    version = shutil.which("node") and subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if not version or tuple(map(int, re.findall(r"\d+", version)[:2])) < (20, 19):
        pytest.skip(f"needs Node.js 20.19 or newer, this is {version or 'none'}")
    program = HERE / "node_modules/.bin/redocly"
    if not program.exists():
        got = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=HERE, capture_output=True, text=True)
        if got.returncode != 0:
            pytest.skip(f"the npm registry cannot be reached: {got.stderr[-300:]}")

    def run(document):
        done = subprocess.run([program, "lint", document, "--config", HERE / "redocly.yaml", "--format", "stylish"], capture_output=True,
                              text=True, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "REDOCLY_TELEMETRY": "off",
                                              "REDOCLY_SUPPRESS_UPDATE_NOTICE": "true"})
        return done.returncode, done.stdout + done.stderr

    return run


def test_the_description_is_clean(lint):
    status, said = lint(DOCUMENT)
    assert status == 0, said


@pytest.mark.parametrize("was, instead, rule", [
    ("template: base\n", "template: 5\n", "no-invalid-media-type-examples"),
    ("operationId: listSandboxes", "operationId: createSandbox", "operation-operationId-unique"),
    ("'#/components/schemas/CreateSandbox'", "'#/components/schemas/None'", "no-unresolved-refs"),
])
def test_mistakes_are_found(lint, tmp_path, was, instead, rule):
    text = DOCUMENT.read_text(encoding="utf-8")
    assert was in text
    (tmp_path / "openapi.yaml").write_text(text.replace(was, instead, 1), encoding="utf-8")
    status, said = lint(tmp_path / "openapi.yaml")
    assert status != 0 and rule in said, said
