#!/usr/bin/env python3
"""Reads every #include and fails when a module includes one of a higher layer or, sideways, one it may not. The order of the layers
is that of cmake/layers.cmake. Usage: layers_test.py SOURCE_DIR"""
import pathlib
import re
import sys

# Sideways includes that are part of the design: which module may see which of its own layer.
SIDEWAYS = {("tenant", "sandbox"), ("http", "metrics"), ("programs", "programs")}


def layers(root):
    text = (root / "cmake/layers.cmake").read_text()
    block = re.search(r"set\(GLOVEBOX_LAYERS(.*?)\)", text, re.S).group(1)
    order = re.findall(r'"([^"]+)"', block)
    return {module: level for level, names in enumerate(order) for module in names.split()}


def violations(root):
    level_of = layers(root)
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        module = path.relative_to(root / "src").parts[0]
        if module not in level_of:
            yield f"{path}: module '{module}' is in no layer of cmake/layers.cmake"
            continue
        for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            other = pathlib.PurePath(included).parts[0]
            if other == module or other not in level_of:
                continue
            is_test = "test" in path.stem
            if level_of[other] > level_of[module] or (
                    level_of[other] == level_of[module] and (module, other) not in SIDEWAYS and not is_test):
                yield f"{path.relative_to(root)}: {module} must not include {included}"
            if "/internal/" in included:
                yield f"{path.relative_to(root)}: {included} is internal to {other}"


def heavy_headers(root):
    """Public headers stay light: Beast and Asio beyond the coroutine types belong into source files."""
    allowed = {"boost/asio/any_io_executor.hpp", "boost/asio/awaitable.hpp"}
    for path in sorted((root / "src").rglob("*.h")):
        if "internal" in path.parts or path.stem.startswith("test_"):
            continue
        for included in re.findall(r"^#include <(boost/(?:asio|beast)/[^>]+)>", path.read_text(), re.M):
            if included not in allowed:
                yield f"{path.relative_to(root)}: a public header includes <{included}>"


def main():
    root = pathlib.Path(sys.argv[1])
    found = list(violations(root)) + list(heavy_headers(root))
    print("\n".join(found) or "includes point down")
    sys.exit(1 if found else 0)


main()
