"""The docs of the gateway are right: their example runs, and their tables name every parameter."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import voicepipe
from tests import docs
from voicepipe.protocol import response_rest_request
from voicepipe.protocol.chat_request import IGNORED, NEUTRAL, PASSED
from voicepipe.testing.fakes.cues import LlmCue
from voicepipe.testing.waiting import WAIT_S

ROOT = Path(voicepipe.__file__).parents[1]
SECTION = docs.section("A gateway for chat")
RESPONSES = docs.section("Responses")


def row(beginning: str, section: str = SECTION) -> set[str]:
    """What stands between backticks in the second cell of a line of the table."""
    (line,) = re.findall(rf"^\| {re.escape(beginning)}[^|]* \| (.*) \|$", section, re.MULTILINE)
    return set(re.findall(r"`([^`]+)`", line))


def test_every_parameter_that_is_not_honoured_is_documented() -> None:
    assert row("changes nothing") == set(IGNORED)
    assert row("refused (400)") == set(NEUTRAL)
    assert row("the provider's to honour") == set(PASSED)


def test_every_parameter_of_a_response_that_is_not_supported_is_documented() -> None:
    assert row("without effect", RESPONSES) == {*response_rest_request.IGNORED, "reasoning.summary"}
    assert row("refused unless", RESPONSES) == set(response_rest_request.NEUTRAL)


@pytest.mark.slow
@pytest.mark.parametrize(("section", "route"), [(SECTION, "fake/llm"), (RESPONSES, "")])
async def test_the_example_runs_as_it_stands(fake_server: Any, section: str, route: str) -> None:
    """In a process of its own, against a server on another port."""
    (snippet,) = re.findall(r"^```py\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    async with fake_server() as server:
        server.vendor.llm.usual = LlmCue(tokens=("Mount", " Everest."))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", snippet.replace("http://127.0.0.1:8080", server.url)),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        try:
            async with asyncio.timeout(WAIT_S):
                out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0
    assert out.decode().count("Mount Everest.") == 2
    assert route in out.decode()
