# SPDX-License-Identifier: Apache-2.0
"""The programs of examples/ that use the SDKs, as far as they go without a model."""
import os
import pathlib
import struct
import subprocess
import sys
import zlib

from test_package import COMPILER, ROOT, TESTS, TYPESCRIPT, packed, run  # noqa: F401

EXAMPLES = ROOT / "examples"


def run_example(name, *arguments):
    return run(sys.executable, EXAMPLES / name, *arguments)


def test_langchain_tools():
    printed = run_example("langchain_tools.py")
    assert "success: [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]\n[exit code 0]" in printed
    assert "success: [ended: timed_out]" in printed
    assert "error: /nothing: No such file or directory" in printed


def test_langchain_sees_what_the_tools_take():
    program = ("import langchain_tools as t; from langchain_core.utils.function_calling import convert_to_openai_tool as c; "
               "print([c(x)['function'] for x in t.sandbox_tools(None)])")
    printed = run(sys.executable, "-c", program, cwd=EXAMPLES)
    assert "'name': 'run_command'" in printed and "'required': ['path', 'content']" in printed and "without network" in printed


def test_the_coding_agent_goes_from_red_to_green():
    printed = run_example("coding_agent.py")
    assert printed.index("No module named 'slug'") < printed.index("FAILED (failures=") < printed.index("→ done") < printed.rindex("Ran 3 tests")
    assert printed.rstrip().endswith("OK")


def test_a_coding_agent_that_is_not_done_is_no_success():
    program = ("import coding_agent as a, glovebox\n"
               "class Lazy:\n    def next_action(self, task, observations): return a.Action('run', {'command': 'true'})\n"
               "with glovebox.Sandbox.create() as sandbox: a.solve(Lazy(), sandbox, a.TASK)")
    done = subprocess.run([sys.executable, "-c", program], cwd=EXAMPLES, capture_output=True, text=True, timeout=800)
    assert done.returncode != 0 and "not done after 20 steps" in done.stderr


def test_the_coding_agent_is_typed(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(TESTS / ".packages"), "MYPYPATH": str(ROOT / "sdk/python/src")}
    run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, EXAMPLES / "coding_agent.py", env=environment)


def test_the_data_analyst_brings_a_chart(packed, tmp_path):  # noqa: F811
    (packed / "data_analyst.mts").write_bytes((EXAMPLES / "data_analyst.mts").read_bytes())
    run("node", TYPESCRIPT / "node_modules/typescript/bin/tsc", *COMPILER, packed / "data_analyst.mts")
    printed = run("node", "data_analyst.mjs", tmp_path / "chart.png", cwd=packed)
    assert printed.startswith("north 1200, south 1350;")
    assert colours_of(tmp_path / "chart.png") == {(255, 255, 255), (31, 119, 180), (255, 127, 14)}


def colours_of(path: pathlib.Path):
    """Of a PNG whose rows are not filtered; its checksums must be right."""
    data, at, compressed, size = path.read_bytes(), 8, b"", (0, 0)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0] == zlib.crc32(kind + body)
        compressed += body if kind == b"IDAT" else b""
        size = struct.unpack(">II", body[:8]) if kind == b"IHDR" else size
        at += 12 + length
    rows = zlib.decompress(compressed)
    stride = size[0] * 3 + 1
    assert len(rows) == stride * size[1]
    return {tuple(rows[y * stride + 1 + x * 3:y * stride + 4 + x * 3]) for y in range(size[1]) for x in range(size[0])}
