#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A coding agent: a model proposes an action, a sandbox does it, the model sees what happened, until the tests pass.

Needs glovebox-sdk. The model here is a script, so that the loop can be seen and tested without one; `Model` is all that another has to be.
"""
import json
from dataclasses import dataclass
from typing import Dict, List, Protocol

from glovebox import Sandbox

MAX_STEPS = 20
MAX_SHOWN = 4_000  # characters of output that the model is shown

TASK = "Write slugify(text) in slug.py: lower case, words of letters and digits joined by single dashes. Begin with a failing test."

TEST = '''
import unittest
from slug import slugify

class Slugs(unittest.TestCase):
    def test_words_are_joined(self):
        self.assertEqual(slugify("Hello World"), "hello-world")
    def test_anything_else_is_one_dash(self):
        self.assertEqual(slugify("  a -- b!  c?"), "a-b-c")
    def test_letters_of_any_alphabet_count(self):
        self.assertEqual(slugify("Größe 42"), "größe-42")

unittest.main()
'''


@dataclass
class Action:
    """`write` (path, content), `run` (command) or `done` (summary)."""

    kind: str
    arguments: Dict[str, str]


class Model(Protocol):
    def next_action(self, task: str, observations: List[str]) -> Action:
        """What to do, given all that has happened so far."""


class ScriptedModel:
    """Does what a model would: a failing test, an attempt that is not enough, a fix after reading the failure."""

    def next_action(self, task: str, observations: List[str]) -> Action:
        last = observations[-1] if observations else ""
        if not observations:
            return Action("write", {"path": "test_slug.py", "content": TEST})
        if last.startswith("wrote"):
            return Action("run", {"command": "python3 test_slug.py"})
        if "exit code 0" in last:
            return Action("done", {"summary": f"All tests pass after {len(observations)} steps."})
        if "No module named 'slug'" in last:
            return Action("write", {"path": "slug.py", "content": "def slugify(text):\n    return '-'.join(text.lower().split())\n"})
        if "'a-b-c'" in last:
            fixed = "import re\n\ndef slugify(text):\n    return '-'.join(re.findall(r'[^\\W_]+', text.lower()))\n"
            return Action("write", {"path": "slug.py", "content": fixed})
        raise RuntimeError(f"the script does not know what to do about:\n{last}")


def act(sandbox: Sandbox, action: Action) -> str:
    if action.kind == "write":
        entry = sandbox.files.write(action.arguments["path"], action.arguments["content"])
        return f"wrote {entry.path}, {entry.size_bytes} bytes"
    result = sandbox.exec(action.arguments["command"], timeout_ms=30_000)
    end = f"exit code {result.exit_code}" if result.exit_code is not None else result.outcome.type
    return f"{end}\n{(result.stdout + result.stderr)[-MAX_SHOWN:]}"


def solve(model: Model, sandbox: Sandbox, task: str) -> List[str]:
    """What happened, step by step, to the model's `done`."""
    observations: List[str] = []
    for _ in range(MAX_STEPS):
        action = model.next_action(task, observations)
        print(f"→ {action.kind} {json.dumps(action.arguments, ensure_ascii=False)[:100]}")
        if action.kind == "done":
            return observations
        observations.append(act(sandbox, action))
        print("  " + observations[-1].strip().replace("\n", "\n  "))
    raise RuntimeError(f"not done after {MAX_STEPS} steps")


def main() -> None:
    with Sandbox.create(limits={"memory_mb": 512}, lifetime_ms=300_000) as sandbox:
        solve(ScriptedModel(), sandbox, TASK)
        # The agent's word is not enough: the tests are run once more, by us.
        check = sandbox.exec(["python3", "test_slug.py"], check=True)
        print(check.stderr)


if __name__ == "__main__":
    main()
