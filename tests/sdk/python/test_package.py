# SPDX-License-Identifier: Apache-2.0
"""The packages: they are clean by their type checkers, can be installed from a file, and do what their READMEs show."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests/sdk"
PYTHON = ROOT / "sdk/python"
TYPESCRIPT = ROOT / "sdk/typescript"


def run(*command, **options):
    """What it prints; it must succeed."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=800, **options)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-6000:]}"
    return done.stdout


def examples(readme, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", readme.read_text(), re.M | re.S)


def without_sdk_on_path():
    return {**os.environ, "PYTHONPATH": ""}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """Built from a copy, so that the source tree stays as it is."""
    copy = tmp_path_factory.mktemp("source") / "python"
    shutil.copytree(PYTHON, copy, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    environment = {**os.environ, "PYTHONPATH": str(TESTS / ".packages")}
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", target, copy, env=environment)
    return next(target.glob("*.whl"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    """The Python of a fresh environment that has the wheel and nothing else."""
    place = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", place)
    site = next(place.glob("lib/python*/site-packages"))
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", site, wheel)
    return place / "bin/python"


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """A fresh project that has the packed package and nothing else."""
    place = tmp_path_factory.mktemp("project")
    name = run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", place, cwd=TYPESCRIPT).strip().splitlines()[-1]
    (place / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", place / name, cwd=place)
    return place


def test_the_code_for_threads_is_made_from_that_for_asyncio():
    run(sys.executable, PYTHON / "scripts/make-sync", "--check")


def test_mypy_strict(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(TESTS / ".packages")}
    run(sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--python-version", "3.10", cwd=PYTHON, env=environment)


def test_pyright_strict_for_the_oldest_python():
    run(TESTS / "node_modules/.bin/pyright", "-p", PYTHON)


def test_the_wheel_is_typed_and_needs_nothing(wheel, installed):
    assert wheel.name == "glovebox_sdk-0.1.0-py3-none-any.whl"
    check = ("import glovebox, importlib.metadata as m, pathlib; d = m.distribution('glovebox-sdk'); assert not d.requires, d.requires; "
             "assert (pathlib.Path(glovebox.__file__).parent / 'py.typed').exists(); assert d.version == glovebox.__version__; print(glovebox.__file__)")
    assert str(installed.parent.parent) in run(installed, "-c", check, env=without_sdk_on_path())


@pytest.mark.parametrize("number", range(len(examples(PYTHON / "README.md", "python"))))
def test_an_example_of_the_python_readme(installed, tmp_path, number):
    (tmp_path / "example.py").write_text(examples(PYTHON / "README.md", "python")[number])
    assert run(installed, "-X", "dev", "-W", "error", "example.py", cwd=tmp_path, env=without_sdk_on_path())


def test_every_python_on_this_host_that_is_new_enough(wheel, tmp_path):
    """Threads and asyncio, from the wheel itself."""
    named = [shutil.which(f"python3.{minor}") for minor in range(9, 20)]
    usable = {path for path in named if path and subprocess.run([path, "-c", "import ssl"], capture_output=True).returncode == 0}
    for interpreter in usable | {sys.executable}:
        for text in examples(PYTHON / "README.md", "python")[:2]:
            (tmp_path / "example.py").write_text(text)
            assert run(interpreter, "-X", "dev", "-W", "error", "example.py", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(wheel)})


def test_the_python_examples_are_typed(installed, tmp_path):
    for number, text in enumerate(examples(PYTHON / "README.md", "python")):
        (tmp_path / f"example_{number}.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(TESTS / ".packages")}
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "--python-executable", installed, *tmp_path.glob("*.py"), env=environment)


def test_the_package_needs_nothing_and_loads_both_ways(packed):
    described = json.loads((packed / "node_modules/@glovebox/sdk/package.json").read_text())
    assert "dependencies" not in described and os.listdir(packed / "node_modules") in (["@glovebox"], [".package-lock.json", "@glovebox"], ["@glovebox", ".package-lock.json"])
    names = "console.log(typeof sdk.Sandbox.create, typeof sdk.FileNotFoundError)"
    assert run("node", "--input-type=module", "-e", f"import * as sdk from '@glovebox/sdk'; {names}", cwd=packed) == "function function\n"
    assert run("node", "--input-type=commonjs", "-e", f"const sdk = require('@glovebox/sdk'); {names}", cwd=packed) == "function function\n"


COMPILER = ["--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--target", "es2022", "--lib", "es2022,esnext.disposable", "--module", "nodenext",
            "--types", "node", "--typeRoots", str(TYPESCRIPT / "node_modules/@types")]


@pytest.fixture(scope="session")
def compiled(packed):
    """The README's examples, compiled as ES modules against the packed types, and one as CommonJS."""
    texts = examples(TYPESCRIPT / "README.md", "ts")
    for number, text in enumerate(texts):
        (packed / f"example-{number}.mts").write_text(text)
    (packed / "common.cts").write_text('import sdk = require("@glovebox/sdk");\nexport const create: typeof sdk.Sandbox.create = sdk.Sandbox.create;\n')
    run("node", TYPESCRIPT / "node_modules/typescript/bin/tsc", *COMPILER, *packed.glob("*.mts"), packed / "common.cts")
    return packed


@pytest.mark.parametrize("number", range(len(examples(TYPESCRIPT / "README.md", "ts"))))
def test_an_example_of_the_typescript_readme(compiled, number):
    assert run("node", f"example-{number}.mjs", cwd=compiled)
