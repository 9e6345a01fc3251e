"""Call an agent in a test, with a scripted user and a scripted LLM: no model, no network, no settings.

async def test_the_desk():
    async with calling_agent("clinic.py", calls("free_times", day="2026-12-01"), "At nine or half past ten.") as call:
        assert await call.speaks("Is there a time?") == "At nine or half past ten."
        assert call.results == ['["09:00","10:30"]']
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from voicepipe.agents import Agent, load_file
from voicepipe.config import load
from voicepipe.testing.fakes.cues import CallCue, LlmCue, tokens
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.user import User, calling
from voicepipe.wiring import running

_STAGES: Final = ("stt", "llm", "tts")
_NOT_FAKED: Final = ("model", "summary_llm", "knowledge_embedding")


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One function call that the LLM makes: its name and its arguments as JSON."""

    name: str
    arguments: str


def calls(name: str, /, **arguments: Any) -> ScriptedCall:
    """Have the LLM call a function with these arguments. Its next answer of the script reads the result."""
    return ScriptedCall(name, json.dumps(arguments))


ScriptedOutput = str | ScriptedCall | tuple[ScriptedCall, ...]
"""What the LLM answers one request with: words, a function call, or several calls at once."""


class AgentCall:
    """A call that is connected."""

    def __init__(self, user: User, vendor: FakeVendor) -> None:
        self.user, self.vendor = user, vendor

    async def speaks(self, words: str) -> str:
        """Say something as the user, and return what the agent answers, after the functions that it calls."""
        return await self.user.prompt(words)

    async def greeting(self) -> str:
        """Return the first words of an agent that speaks first."""
        return await self.user.answer()

    @property
    def results(self) -> list[str]:
        """The results of the functions so far, as the LLM reads them; of one that failed, why."""
        done = (event["item"] for event in self.user.events if event["type"] == "conversation.item.done")
        ended = [item for item in done if item["type"] == "mcp_call"]
        return [item["error"]["message"] if item["error"] else item["output"] for item in ended]

    @property
    def instructions(self) -> list[str]:
        """The system messages of the latest request to the LLM: the instructions first."""
        messages = self.vendor.llm.received[-1].question["messages"]
        return [message["content"] for message in messages if message["role"] == "system"]


@asynccontextmanager
async def calling_agent(
    agent: Agent | str | Path,
    *script: ScriptedOutput,
    name: str = "",
    settings: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[AgentCall]:
    """Serve an agent, and call it.

    No provider is called: an agent with a speech-to-speech model answers with the fake LLM and TTS, writes no
    summaries, and searches its documents by their words.

    Args:
        agent: the agent, or a Python file with one or several.
        script: the LLM's answers, in order. A request after the last one is answered with "Hello there, user."
        name: which agent of the file to call; empty: the first.
        settings: more settings, such as a tool that the agent names: {"tools.book.url": "http://127.0.0.1:9000"}.

    Raises:
        ConfigError: the agent cannot be served.
    """
    agents = (agent,) if isinstance(agent, Agent) else load_file(Path(agent))
    numbers = count(1)
    async with FakeVendor() as vendor:
        vendor.llm.cue(*(_cue(answer, numbers) for answer in script))
        with tempfile.TemporaryDirectory() as folder:
            fake: dict[str, object] = {
                f"agents.{each}.{stage}": f"fake/{stage}"
                for each in ("default", *(agent.name for agent in agents))
                for stage in _STAGES
            }
            fake |= {
                f"agents.{agent.name}.{option}": ""
                for agent in agents
                for option in _NOT_FAKED
                if option in agent.settings
            }
            more = {"providers.fake.base_url": vendor.base_url, "server.port": 0, "server.drain_ms": 0}
            loaded = load(
                overrides={**settings, **fake, **more, "server.data_dir": folder},
                environ={"HOME": folder},
                folder=Path(folder),
                agents=agents,
            )
            query = f"agent={name or agents[0].name}"
            async with running(loaded) as server, calling(server.base_url, query=query) as user:
                yield AgentCall(user, vendor)


def _cue(answer: ScriptedOutput, numbers: count[int]) -> LlmCue:
    if isinstance(answer, str):
        return LlmCue(tokens=tokens(answer))
    made = answer if isinstance(answer, tuple) else (answer,)
    return LlmCue(calls=tuple(CallCue(call.name, (call.arguments,), f"call_{next(numbers)}") for call in made))
