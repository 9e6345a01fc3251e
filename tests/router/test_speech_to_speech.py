"""The circuit breaker of a speech-to-speech model: it counts complete answers, and failures once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from voicepipe.errors import StageBroken
from voicepipe.ports.model import Finished, ModelRequest, TextDelta
from voicepipe.ports.speech_model import SpeechConversation, SpeechModelEvent, SpeechOptions
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.ports.transcriber import Samples
from voicepipe.router.pool import SharedStats
from voicepipe.router.speech_to_speech import ObservedSpeechModel

BROKEN = StageBroken("llm", provider="fake/speech", why="cut", retryable=True)
REQUEST = ModelRequest(model="m", messages=())


class Conversation:
    """Says one word, and finishes or breaks."""

    def __init__(self, breaks: bool) -> None:
        self._breaks = breaks

    def push(self, samples: Samples) -> None:
        """Nothing."""

    def drop(self) -> None:
        """Nothing."""

    @asynccontextmanager
    async def answer(self, request: ModelRequest, *, spoken: bool) -> AsyncIterator[AsyncIterator[SpeechModelEvent]]:
        """Answer."""
        yield self._events()

    async def _events(self) -> AsyncIterator[SpeechModelEvent]:
        yield TextDelta("Noon.")
        if self._breaks:
            raise BROKEN
        yield Finished("stop")

    async def broken(self) -> StageBroken:
        """Return the failure."""
        return BROKEN


class Model:
    """Opens such conversations."""

    name = "fake/speech"
    rate_hz = 24_000
    voices: frozenset[str] | None = None
    lifetime_ms: int | None = None
    breaks = False

    @asynccontextmanager
    async def open(
        self, options: SpeechOptions, unused: Callable[[SpeechUsage], None]
    ) -> AsyncIterator[SpeechConversation]:
        """Open one."""
        yield Conversation(self.breaks)


async def words(conversation: SpeechConversation) -> list[SpeechModelEvent]:
    """Return the events of an answer."""
    async with conversation.answer(REQUEST, spoken=False) as events:
        return [event async for event in events]


async def test_a_complete_answer_counts_and_a_broken_one_fails_once() -> None:
    model, stats = Model(), SharedStats()
    observed = ObservedSpeechModel(model, stats)
    async with observed.open(SpeechOptions(model="m"), lambda usage: None) as conversation:
        assert await words(conversation) == [TextDelta("Noon."), Finished("stop")]
    assert stats.breakers["fake/speech"].n_answers == 1
    model.breaks = True
    async with observed.open(SpeechOptions(model="m"), lambda usage: None) as conversation:
        with pytest.raises(StageBroken):
            await words(conversation)
        assert await conversation.broken() is BROKEN
    assert stats.breakers["fake/speech"].errors == {"broken": 1}
