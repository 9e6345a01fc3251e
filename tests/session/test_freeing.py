"""An ended session's memory is freed without the garbage collector.

Memory that waits for the collector's oldest generation piles up for minutes on a busy server.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from voicepipe.freeing import FreeingTaskGroup, held_weakly
from voicepipe.ports.transcriber import Samples
from voicepipe.session.session import Session
from voicepipe.session.socket import ClientSocket
from voicepipe.testing.fakes.cues import LlmCue, Status, tokens
from voicepipe.testing.user import User
from voicepipe.testing.waiting import eventually

VAD = {"type": "server_vad", "silence_duration_ms": 200}


@pytest.fixture
def replayed() -> None:
    """Disable journals for these sessions: a journal would hold them."""


@pytest.fixture
def recorded_wire() -> None:
    """Nor their wire."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the collector, so that only unreferenced objects are freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, weakref.ref[Any]]:
    """The parts of the session that runs next, by name."""
    found: dict[str, weakref.ref[Any]] = {}
    run = Session.run

    async def watched(self: Session, socket: ClientSocket) -> None:
        parts = {name.strip("_"): part for name, part in vars(self).items()}
        parts["transcription"], parts["client_rules"] = self._listening.transcription, self._ports.client
        for name in (
            "core",
            "outbox",
            "audio_input",
            "wire",
            "replies",
            "prompt_builder",
            "transcription",
            "client_rules",
            "resumption",
        ):
            found[name] = weakref.ref(parts[name])
        found["session"], found["socket"] = weakref.ref(self), weakref.ref(socket)
        found["response"] = weakref.ref(socket._websocket)  # type: ignore[attr-defined]
        await run(self, socket)

    monkeypatch.setattr(Session, "run", watched)
    return found


@asynccontextmanager
async def calling(base_url: str, **session: Any) -> AsyncIterator[User]:
    """A user whose server keeps no record of what it said, and holds nothing for that."""
    url = f"{base_url}/v1/realtime"
    async with aiohttp.ClientSession() as http, http.ws_connect(url, max_msg_size=0) as line:
        user = User(line)
        await user.until("session.created")
        audio = {"input": {"turn_detection": VAD}}
        await user.send("session.update", session={"type": "realtime", "audio": audio, **session})
        await user.until("session.updated")
        yield user


async def just_connect(user: User, question: Samples) -> None:
    """Say nothing."""


async def add_an_item(user: User, question: Samples) -> None:
    """Say much at once."""
    text = {"type": "input_text", "text": "word " * 20_000}
    await user.send("conversation.item.create", item={"type": "message", "role": "user", "content": [text]})
    await user.until("conversation.item.done")


async def have_a_turn(user: User, question: Samples) -> None:
    """Speak, and wait for the reply."""
    await user.speak(question, then_silence_ms=1_000)
    await user.until("response.done")


async def leave_in_mid_answer(user: User, question: Samples) -> None:
    """Speak, and wait for no more than the beginning of the answer."""
    await user.speak(question, then_silence_ms=1_000)
    await user.until("response.output_audio.delta")


async def lose_the_connection(user: User, question: Samples) -> None:
    """Go without a word, in mid-answer."""
    await leave_in_mid_answer(user, question)
    connection = user.line._response.connection
    assert connection is not None
    assert connection.transport is not None
    connection.transport.abort()


async def fail(user: User, question: Samples) -> None:
    """Ask for an answer that the model does not give."""
    await user.send("response.create")
    await user.until("response.done")


CALLS = [just_connect, add_an_item, have_a_turn, leave_in_mid_answer, lose_the_connection, fail]


@pytest.mark.parametrize("call", CALLS)
async def test_a_session_that_is_over_is_gone_at_once(
    server: Any, question: Samples, no_collector: None, held: dict[str, weakref.ref[Any]], call: Any
) -> None:
    """With its conversation, its events, its connection's buffers: whatever its end was like."""
    server.vendor.llm.usual = LlmCue(tokens=tokens("It is noon. " * 20), gap_ms=5)
    if call is fail:
        server.vendor.llm.usual = LlmCue(fault=Status(500))
    async with calling(server.base_url) as user:
        await call(user, question)

    async def gone() -> bool | None:
        return True if not [name for name, part in held.items() if part() is not None] else None

    try:
        await eventually(gone)
    except TimeoutError:
        assert [name for name, part in held.items() if part() is not None] == []


async def test_a_session_that_logs_unserved_fields_is_gone_at_once(
    fake_server: Any, question: Samples, no_collector: None, held: dict[str, weakref.ref[Any]]
) -> None:
    """What logs them holds nothing of the session."""
    async with fake_server({"agents.default.unserved_fields": "log"}) as server:
        async with calling(server.url) as user:
            await just_connect(user, question)

        async def gone() -> bool | None:
            return True if held["client_rules"]() is None else None

        await eventually(gone)


# --- by what ----------------------------------------------------------------------------------------


class Whole:
    """Has a part that calls it."""

    def __init__(self) -> None:
        self.freed: list[int] = []
        self.part = held_weakly(self.take)

    def take(self, number: int) -> None:
        self.freed.append(number)


def test_a_part_that_calls_its_whole_does_not_hold_it(no_collector: None) -> None:
    """It calls it as long as it is there, and does nothing afterwards."""
    whole = Whole()
    part, gone = whole.part, weakref.ref(whole)
    part(1)
    assert whole.freed == [1]
    del whole
    assert gone() is None
    part(2)


class Marker:
    """Something that a frame holds."""


async def held_by_a_group(
    group: asyncio.TaskGroup, held: list[weakref.ref[Marker]], entered_it: asyncio.Event, *, fails: bool
) -> None:
    """Hold something while a group waits; perhaps a child of it fails."""
    marker = Marker()
    held.append(weakref.ref(marker))
    async with group as entered:
        entered.create_task(_fail() if fails else asyncio.sleep(3_600))
        entered_it.set()


async def _fail() -> None:
    raise ValueError("on cue")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_task_group_that_was_left_holds_nothing(no_collector: None, fails: bool) -> None:
    """Neither one that was cancelled nor one whose child failed."""
    found: list[weakref.ref[Marker]] = []
    entered_it = asyncio.Event()
    running = asyncio.ensure_future(held_by_a_group(FreeingTaskGroup(), found, entered_it, fails=fails))
    await entered_it.wait()
    if not fails:
        running.cancel()
    await asyncio.wait([running])
    assert running.cancelled() != fails
    assert not fails or running.exception() is not None
    del running
    await asyncio.sleep(0)
    assert found[0]() is None
