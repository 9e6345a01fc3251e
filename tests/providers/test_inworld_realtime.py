"""Inworld's Realtime API: OpenAI's protocol with another address, key and session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.ports.model import Content, Finished, ModelRequest, Text, TextDelta
from voicepipe.ports.speech_model import SpeechConversation, SpeechOptions
from voicepipe.providers.built_in import published_speech_price, speech_factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import Cut, InBandError, Status
from voicepipe.testing.fakes.inworld_realtime import KEY, FakeInworldRealtime
from voicepipe.testing.fakes.speech_model import SpeechCue
from voicepipe.testing.waiting import WAIT_S

SPEC = Spec("inworld-realtime", "openai/gpt-4o-mini")
REQUEST = ModelRequest(model=SPEC.model, messages=(Content("user", (Text("What time is it?"),)),))


@asynccontextmanager
async def talking(vendor: FakeInworldRealtime, *, key: str = KEY) -> AsyncIterator[SpeechConversation]:
    settings = ProviderSettings(kind="inworld_realtime", base_url=vendor.base_url, api_key=key)
    model = speech_factory("inworld_realtime", key="model")(SPEC, settings)
    async with model.open(SpeechOptions(model=SPEC.model, voice="Clive"), lambda usage: None) as conversation:
        yield conversation


async def answered(conversation: SpeechConversation) -> list[Any]:
    conversation.push(np.full(24_000, 1_000, dtype=np.int16))
    async with asyncio.timeout(WAIT_S), conversation.answer(REQUEST, spoken=True) as events:
        return [event async for event in events]


async def test_a_spoken_question_is_answered() -> None:
    async with FakeInworldRealtime(SpeechCue(text="It is noon.")) as vendor, talking(vendor) as conversation:
        events = await answered(conversation)
        call = await vendor.nth(0)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It is noon."
    assert events[-1] == Finished("stop")
    session = call.of_kind("session.update")[0]["session"]
    assert (session["model"], session["audio"]["output"]["voice"]) == ("openai/gpt-4o-mini", "Clive")
    assert call.query["key"].startswith("voice-")


async def test_a_wrong_key_is_refused() -> None:
    async with FakeInworldRealtime() as vendor, talking(vendor, key="wrong") as conversation:
        async with asyncio.timeout(WAIT_S):
            failure = await conversation.broken()
        assert isinstance(failure, StageRefused)
        assert failure.status == 401


@pytest.mark.parametrize(
    ("fault", "error"), [(Cut(1), StageBroken), (InBandError(), StageBroken), (Status(429, "slow"), StageRefused)]
)
async def test_each_fault_is_raised(fault: Any, error: type[StageError]) -> None:
    async with FakeInworldRealtime(SpeechCue(fault=fault)) as vendor, talking(vendor) as conversation:
        with pytest.raises(error):
            await answered(conversation)


def test_its_price_is_unknown() -> None:
    assert published_speech_price(SPEC, "wss://api.inworld.ai") is None
