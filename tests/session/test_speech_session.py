"""The conversation of one session with a speech-to-speech model: opened again, replaced, heard from the beginning."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused, StageTimeout
from voicepipe.ports.model import Content, Finished, ModelRequest, Text
from voicepipe.ports.speech_model import SpeechModel, SpeechOptions
from voicepipe.ports.speech_price import SpeechPrice, SpeechUsage
from voicepipe.router.pool import SharedStats
from voicepipe.router.speech_to_speech import ObservedSpeechModel
from voicepipe.session.speech_model import SpeechSession, SpeechStage
from voicepipe.session.speech_reply import passages_as_system_message
from voicepipe.testing.waiting import WAIT_S
from voicepipe.turn.cost import Price

REQUEST = ModelRequest(model="m", messages=(Content("user", (Text("Hello"),)),))
SOUND = np.full(2_400, 1_000, dtype=np.int16)
PRICE = SpeechPrice(text=Price(1, 3), audio=Price(2, 4))


class Conversation:
    """A conversation that answers at once, fails or says nothing."""

    def __init__(self, model: Model, options: SpeechOptions, unused: Callable[[SpeechUsage], None]) -> None:
        self.model, self.options, self.unused = model, options, unused
        self.n_samples = self.n_drops = 0
        self.spoken: list[bool] = []
        self.is_open = True
        self.failure: asyncio.Future[StageError] = asyncio.get_running_loop().create_future()

    def push(self, samples: Any) -> None:
        self.n_samples += len(samples)

    def drop(self) -> None:
        self.n_drops += 1

    @asynccontextmanager
    async def answer(self, request: ModelRequest, *, spoken: bool) -> AsyncIterator[AsyncIterator[Any]]:
        self.spoken.append(spoken)
        yield self._events()

    async def _events(self) -> AsyncIterator[Any]:
        if self.model.is_silent:
            await asyncio.Event().wait()
        if self.model.fails is not None:
            raise self.model.fails
        yield Finished("stop")

    async def broken(self) -> StageError:
        return await self.failure


class Model:
    """Opens such conversations."""

    name, rate_hz = "fake/speech", 24_000
    voices: frozenset[str] | None = frozenset({"marin"})
    lifetime_ms: int | None = None

    def __init__(self) -> None:
        self.opened: list[Conversation] = []
        self.is_silent = False
        self.fails: Exception | None = None
        self.bug: Exception | None = None
        self.changed = asyncio.Event()

    @asynccontextmanager
    async def open(self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]) -> AsyncIterator[Conversation]:
        if self.bug is not None:
            bug, self.bug = self.bug, None
            raise bug
        conversation = Conversation(self, options, unused)
        self.opened.append(conversation)
        self.changed.set()
        try:
            yield conversation
        finally:
            conversation.is_open = False

    async def nth(self, n: int) -> Conversation:
        async with asyncio.timeout(WAIT_S):
            while len(self.opened) <= n:
                self.changed.clear()
                await self.changed.wait()
        await asyncio.sleep(0)
        return self.opened[n]


class Running:
    """A session's conversation that runs, and what it has charged."""

    def __init__(self, model: SpeechModel, **stage: Any) -> None:
        self.charged: list[float] = []
        self.voice: tuple[str | None, float] = (None, 1.0)
        self.stage = SpeechStage(model=model, name="m", price=PRICE, **{"timeout_ms": 200, **stage})
        self.session = SpeechSession(self.stage, self.charged.append, lambda: self.voice)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[SpeechSession]:
        task = asyncio.ensure_future(self.session.run())
        try:
            yield self.session
        finally:
            task.cancel()
            await asyncio.wait([task])


async def answered(session: SpeechSession, request: ModelRequest = REQUEST, *, spoken: bool = True) -> list[Any]:
    async with asyncio.timeout(WAIT_S), session.answer(request, spoken=spoken) as events:
        return [event async for event in events]


async def test_audio_from_before_the_conversation_opened_is_pushed() -> None:
    model = Model()
    running = Running(model)
    running.session.begin(SOUND, 24_000)
    async with running.run() as session:
        conversation = await model.nth(0)
        session.push(SOUND, 24_000)
        assert conversation.n_samples > 4_000
        assert await answered(session) == [Finished("stop")]
        assert await answered(session) == [Finished("stop")]
        assert conversation.spoken == [True, False], "nothing more was said"


async def test_a_broken_conversation_is_opened_again_with_all_audio() -> None:
    model = Model()
    running = Running(model)
    async with running.run() as session:
        first = await model.nth(0)
        session.begin(SOUND, 24_000)
        first.failure.set_result(StageBroken("llm", provider="fake", why="cut", retryable=True))
        second = await model.nth(1)
        assert second.n_samples == first.n_samples > 0
        assert not first.is_open


async def test_a_bug_in_an_adapter_leaves_the_session_alive(caplog: pytest.LogCaptureFixture) -> None:
    model = Model()
    model.bug = ValueError("a bug")
    async with Running(model).run():
        await model.nth(0)
    assert "a bug" in caplog.text or caplog.records


async def test_a_stalled_answer_ends_in_time_and_takes_another_conversation() -> None:
    model = Model()
    model.is_silent = True
    async with Running(model, timeout_ms=20).run() as session:
        await model.nth(0)
        with pytest.raises(StageTimeout, match="nothing came for 20 ms"):
            await answered(session)
        assert not session.is_ready
        await model.nth(1)


async def test_without_a_conversation_there_is_no_answer() -> None:
    session = SpeechSession(None, lambda usd: None, lambda: (None, 1.0))
    session.push(SOUND, 24_000)
    session.drop()
    assert session.name == ""
    with pytest.raises(StageBroken, match="no connection"):
        await answered(session)


async def test_a_question_that_others_have_answered_is_not_pushed_again() -> None:
    """Also not with the next one, once there is a conversation: the model gets it as text."""
    model = Model()
    running = Running(model)
    running.session.begin(SOUND, 24_000)
    with pytest.raises(StageBroken):
        await answered(running.session)
    async with running.run() as session:
        conversation = await model.nth(0)
        assert conversation.n_samples == 0
        session.begin(SOUND, 24_000)
        pushed = conversation.n_samples
        assert 0 < pushed <= len(SOUND)
        later = ModelRequest(model="m", messages=(*REQUEST.messages, Content("assistant", ()), Content("user", ())))
        await answered(session, later)
        assert conversation.spoken == [True]


async def test_a_question_that_goes_on_after_a_failure_is_sent_as_text() -> None:
    """Its beginning is gone, so that the model would hear only its end."""
    model = Model()
    running = Running(model)
    async with running.run() as session:
        first = await model.nth(0)
        session.begin(SOUND, 24_000)
        model.fails = StageBroken("llm", provider="fake/speech", why="it broke", retryable=True)
        with pytest.raises(StageBroken):
            await answered(session)
        model.fails = None
        second = await model.nth(1)
        session.begin(SOUND, 24_000)
        await answered(session)
        session.begin(SOUND, 24_000)
        await answered(session)
    assert first.spoken == [True]
    assert second.spoken == [False, True], "the failure is over with the next answer"


async def test_an_old_conversation_is_replaced_between_two_answers() -> None:
    model = Model()
    model.lifetime_ms = -1
    async with Running(model).run() as session:
        await model.nth(0)
        await answered(session)
        await model.nth(1)
        assert not model.opened[0].is_open


async def test_another_voice_takes_another_conversation() -> None:
    """At the user's next word, or at the answer itself."""
    model = Model()
    running = Running(model)
    async with running.run() as session:
        await model.nth(0)
        running.voice = ("marin", 1.0)
        session.begin(SOUND, 24_000)
        assert (await model.nth(1)).options.voice == "marin"
        running.voice = ("nobody", 1.5)
        assert await answered(session) == [Finished("stop")]
        assert (model.opened[2].options.voice, model.opened[2].options.speed) == (None, 1.5)
        session.drop()
        assert model.opened[2].n_drops == 1


async def test_another_agent_brings_its_own_model_or_none() -> None:
    first, second = Model(), Model()
    running = Running(first)
    async with running.run() as session:
        await first.nth(0)
        assert session.use(running.stage) is session
        session.use(SpeechStage(model=second, name="n"))
        assert (await second.nth(0)).options.model == "n"
        assert session.use(None) is None, "nobody hears the user"
        await asyncio.sleep(0)
        assert not session.is_ready


async def test_answers_that_were_cancelled_are_charged() -> None:
    model = Model()
    running = Running(model)
    async with running.run():
        (await model.nth(0)).unused(SpeechUsage(audio_input=1_000_000, cached_audio=500_000, text_output=1_000_000))
    assert running.charged == [2.0 + 3.0]


async def test_an_open_circuit_breaker_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """A wrong key is logged once, and no session dials in vain."""
    model, stats = Model(), SharedStats()
    model.fails = StageRefused("llm", provider="fake", why="HTTP 401", retryable=False, status=401)
    observed = ObservedSpeechModel(model, stats)
    running = Running(observed)
    async with running.run() as session:
        await model.nth(0)
        with pytest.raises(StageRefused):
            await answered(session)
        model.opened[0].failure.set_result(model.fails)
        await asyncio.sleep(0)
        assert not session.is_ready
    assert stats.breakers["fake/speech"].alert.startswith("401")
    assert [record.message for record in caplog.records].count("provider_failed") == 1
    assert len(model.opened) == 1


async def test_an_answer_closes_the_circuit_breaker() -> None:
    model, stats = Model(), SharedStats()
    async with Running(ObservedSpeechModel(model, stats)).run() as session:
        await model.nth(0)
        await answered(session)
    assert stats.breakers["fake/speech"].n_answers == 1


def test_passages_are_separated_from_what_the_user_said() -> None:
    words, passages, more = Text("Hello"), Text("Passages"), Content("system", (Text("From a hook"),))
    before = ModelRequest(model="m", messages=(Content("user", (words,)), Content("assistant", (Text("Hi"),))))
    after = ModelRequest(
        model="m",
        messages=(Content("user", (words, passages)), Content("assistant", (Text("Hi"),)), more),
    )
    sent = passages_as_system_message(before, after).messages
    assert sent == (*before.messages, more, Content("system", (passages,)))
    assert passages_as_system_message(before, before) == before
    greeting = ModelRequest(model="m", messages=())
    assert passages_as_system_message(greeting, greeting) == greeting
