"""What a session sends to its model."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.session.test_observers import session
from tests.session.test_third_party_faults import Client
from voicepipe.clock import SessionClock
from voicepipe.pii.redact import Redactor
from voicepipe.ports.model import Content, ModelRequest, Text
from voicepipe.ports.model import Message as ReadMessage
from voicepipe.session.grant import SessionGrant
from voicepipe.session.ports import SessionPorts
from voicepipe.session.prompt import PromptBuilder
from voicepipe.testing.fakes.model import FakeModel
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.commands import StartReply
from voicepipe.turn.conversation import InputAudio, Message, OutputAudio
from voicepipe.turn.core import Core
from voicepipe.turn.settings import ReplySettings, TurnSettings

FILLER_ITEM = Message("filler_s_0001", "assistant", (OutputAudio("One moment."),), hidden_from_llm=True)
QUESTION = Message("item_s_0001", "user", (InputAudio("What time is it?"),))


def prompt_builder() -> PromptBuilder:
    grant = SessionGrant(
        session_id="sess_s", project="p", agent="default", model="m", identity=None, config=None, expires_at=0
    )
    return PromptBuilder(FakeModel(), "m", grant, Core("sess_s", TurnSettings()), SessionClock(), Redactor(()))


@pytest.mark.parametrize("left_ms", [None, 400])
def test_request_has_the_time_left(left_ms: int | None) -> None:
    """A router hedges by it."""
    command = StartReply(1, 0, "item", ReplySettings(), (), first_output_ms=left_ms)
    assert prompt_builder().question(command).deadline_ms == left_ms


def test_a_filler_is_not_read() -> None:
    question = prompt_builder().question(StartReply(1, 0, "item", ReplySettings(), (FILLER_ITEM, QUESTION)))
    assert question.messages == (Content("user", (Text("What time is it?"),)),)


class ReadingModel(FakeModel):
    """Reads a prompt until the test lets it go on."""

    def __init__(self, *, is_quick: bool) -> None:
        super().__init__()
        self.prompts: list[str] = []
        self.n_cancelled = 0
        self.changed = asyncio.Event()
        self.may_end = asyncio.Event()
        if is_quick:
            self.may_end.set()

    async def warm(self, request: ModelRequest) -> None:
        self.prompts.append(instructions_of(request.messages))
        self.changed.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise

    async def read(self, n: int) -> list[str]:
        """Return the instructions of the prompts, once there are `n`."""
        while len(self.prompts) < n:
            self.changed.clear()
            await self.changed.wait()
        return self.prompts


def instructions_of(messages: tuple[ReadMessage, ...]) -> str:
    first = messages[0]
    assert isinstance(first, Content)
    assert first.role == "system"
    part = first.parts[0]
    assert isinstance(part, Text)
    return part.text


def updated(**fields: object) -> str:
    return json.dumps({"type": "session.update", "session": {"type": "realtime", **fields}})


class UpdatingClient(Client):
    """Send these updates, each once so many prompts were read, and leave once one more was."""

    def __init__(self, model: ReadingModel, updates: list[tuple[int, str]]) -> None:
        super().__init__(asyncio.Event())
        self._model, self._updates = model, list(updates)

    async def receive(self) -> str | None:
        if not self._updates:
            return None
        n_read, update = self._updates.pop(0)
        await self._model.read(n_read)
        return update


async def prompts(model: ReadingModel, updates: list[tuple[int, str]]) -> list[str]:
    """What the LLM read ahead in a session of these updates. The last one only ends it, at its number of prompts."""
    async with asyncio.timeout(WAIT_S):
        await session(model, SessionPorts()).run(UpdatingClient(model, updates))
    return model.prompts


POLITE = updated(instructions="Be polite.")
BRIEF = updated(instructions="Be brief, and polite.")
SILENT = updated(audio={"input": {"turn_detection": None}})


async def test_instructions_that_a_client_sends_are_read_ahead() -> None:
    """A client that sends them has no slower first answer than one whose token has them. Other settings are no reason
    to read again, and neither are the same instructions.
    """
    updates = [(1, POLITE), (2, SILENT), (2, POLITE), (2, BRIEF), (3, SILENT)]
    assert await prompts(ReadingModel(is_quick=True), updates) == ["Be brief.", "Be polite.", "Be brief, and polite."]


async def test_functions_that_a_client_sends_are_read_ahead() -> None:
    tools = [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]
    updates = [(1, updated(tools=tools)), (2, SILENT)]
    assert await prompts(ReadingModel(is_quick=True), updates) == ["Be brief.", "Be brief."]


async def test_only_the_newest_instructions_are_read_on() -> None:
    model = ReadingModel(is_quick=False)
    assert await prompts(model, [(1, POLITE), (2, BRIEF), (3, SILENT)]) == [
        "Be brief.",
        "Be polite.",
        "Be brief, and polite.",
    ]
    assert model.n_cancelled == 3, "two by newer ones, the last by the end of the session"
