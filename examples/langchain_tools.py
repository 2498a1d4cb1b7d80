#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sandbox as tools of LangChain: pip install glovebox-sdk langchain-core.

    agent = create_agent(model, tools=sandbox_tools(sandbox))      # with a model of yours, from `langchain`

Without a model, this program makes the calls that one would make.
"""
from typing import List, Optional

from glovebox import Sandbox
from glovebox.errors import ApiError
from langchain_core.tools import BaseTool, ToolException, tool

MAX_OUTPUT = 20_000  # characters that a model is shown of each stream


def shortened(text: str) -> str:
    left_out = len(text) - MAX_OUTPUT
    return text if left_out <= 0 else f"{text[:MAX_OUTPUT // 2]}\n… {left_out} characters left out …\n{text[-MAX_OUTPUT // 2:]}"


def sandbox_tools(sandbox: Sandbox) -> List[BaseTool]:
    """Tools for one sandbox. What goes wrong in it is an answer for the model, not the end of the agent."""

    @tool
    def run_command(command: str, timeout_seconds: int = 60) -> str:
        """Run a shell command in the sandbox, a Linux machine without network. Gives its output and how it ended."""
        result = sandbox.exec(command, timeout_ms=timeout_seconds * 1000)
        end = f"exit code {result.exit_code}" if result.exit_code is not None else f"ended: {result.outcome.type}"
        return f"{shortened(result.stdout)}{shortened(result.stderr)}[{end}]"

    @tool
    def write_file(path: str, content: str) -> str:
        """Write a text file in the sandbox; missing directories are made."""
        try:
            return f"{sandbox.files.write(path, content).size_bytes} bytes written"
        except ApiError as error:
            raise ToolException(str(error)) from error

    @tool
    def read_file(path: str) -> str:
        """Read a text file of the sandbox."""
        try:
            return shortened(sandbox.files.read(path).decode(errors="replace"))
        except ApiError as error:
            raise ToolException(str(error)) from error

    tools: List[BaseTool] = [run_command, write_file, read_file]
    for each in tools:
        each.handle_tool_error = True
    return tools


def main(runtime: Optional[str] = None) -> None:
    calls = [
        ("write_file", {"path": "primes.py", "content": "print([n for n in range(2, 30) if all(n % d for d in range(2, n))])\n"}),
        ("run_command", {"command": "python3 primes.py"}),
        ("run_command", {"command": "sleep 30", "timeout_seconds": 1}),
        ("read_file", {"path": "/nothing"}),
    ]
    with Sandbox.create(runtime=runtime) as sandbox:
        tools = {each.name: each for each in sandbox_tools(sandbox)}
        for number, (name, arguments) in enumerate(calls):
            answer = tools[name].invoke({"type": "tool_call", "id": f"call-{number}", "name": name, "args": arguments})
            print(f"{name}({arguments}) → {answer.status}: {answer.content}")


if __name__ == "__main__":
    main()
