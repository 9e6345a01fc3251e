"""The user's connection to the server: the only module of the evals that uses the Python client's session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from voicepipe.audio.samples import Samples
from voicepipe.client import Call, SessionOptions, connect
from voicepipe.client import events as e
from voicepipe.evals.scenario import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class _OptionsWithTools(SessionOptions):
    tools: tuple[dict[str, Any], ...] = ()

    def to_wire(self) -> dict[str, Any]:
        # `super()` without arguments does not work in a dataclass with slots.
        session = SessionOptions.to_wire(self)
        return session | {"tools": list(self.tools)} if self.tools else session


class UserConnection:
    """An open session, as the scripted user needs it."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def send(self, samples: Samples) -> None:
        """Send more of the microphone's audio: int16, (n_samples,), 24 kHz."""
        await self._call.send(samples)

    async def type_text(self, text: str) -> None:
        """Send a typed message, and request the answer."""
        await self._call.write(text)
        await self._call.respond()

    async def return_result(self, call_id: str, output: str) -> None:
        """Send a tool's result."""
        await self._call.return_result(call_id, output)

    async def request_answer(self) -> None:
        """Request an answer, after the last result of a response."""
        await self._call.respond()

    async def next_event(self) -> e.ServerEvent:
        """Wait for the next event.

        Raises:
            CallEnded: the connection is closed.
            CallFailed: the server sent something that is not an event.
        """
        return await self._call.next_event()


@asynccontextmanager
async def open_connection(url: str, key: str | None, scenario: Scenario) -> AsyncIterator[UserConnection]:
    """Connect with the scenario's session and tools; leaving the block hangs up.

    Raises:
        CallFailed: no server, a refusal, or a server that breaks the protocol.
    """
    session = scenario.session
    tools = tuple(
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in scenario.tools
    )
    options = _OptionsWithTools(
        language=session.language, instructions=session.instructions, voice=session.voice, tools=tools
    )
    async with connect(url, key=key, agent=scenario.agent, session_options=options) as call:
        yield UserConnection(call)
