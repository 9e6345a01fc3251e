"""Speech to speech by Gemini's Live API: what the vendor gets, and what becomes of what it sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageError, StageRefused
from voicepipe.ports.model import (
    CallDelta,
    Called,
    Content,
    Finished,
    Function,
    Message,
    ModelRequest,
    Returned,
    Text,
    TextDelta,
)
from voicepipe.ports.speech_model import SpeechConversation, SpeechOptions
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.ports.synthesizer import Spoken
from voicepipe.providers.built_in import published_speech_price, speech_factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import CallCue, Cut, Garbage, Hold, InBandError, Malformed, Status
from voicepipe.testing.fakes.gemini_live import KEY, FakeGeminiLive
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.speech_model import SpeechCue
from voicepipe.testing.waiting import WAIT_S, eventually

SPEC = Spec("gemini-live", "gemini-2.5-flash-native-audio-preview-12-2025")
SECOND = np.full(16_000, 1_000, dtype=np.int16)
NOON = SpeechCue(text="It is noon.")
USAGE = SpeechUsage(text_input=120, audio_input=80, audio_output=150)


def user(text: str) -> Content:
    return Content("user", (Text(text),))


def agent(text: str) -> Content:
    return Content("assistant", (Text(text),))


def requested(*messages: Message, system: str = "Be kind.", **more: Any) -> ModelRequest:
    return ModelRequest(model=SPEC.model, messages=(Content("system", (Text(system),)), *messages), **more)


@asynccontextmanager
async def talking(
    vendor: FakeGeminiLive, *, key: str = KEY, unused: list[SpeechUsage] | None = None, **options: Any
) -> AsyncIterator[SpeechConversation]:
    settings = ProviderSettings(kind="gemini_live", base_url=vendor.base_url, api_key=key)
    model = speech_factory("gemini_live", key="model")(SPEC, settings)
    chosen = SpeechOptions(model=SPEC.model, **options)
    async with model.open(chosen, ([] if unused is None else unused).append) as conversation:
        yield conversation


async def answered(conversation: SpeechConversation, request: ModelRequest, *, spoken: bool = True) -> list[Any]:
    if spoken:
        conversation.push(SECOND)
    async with asyncio.timeout(WAIT_S), conversation.answer(request, spoken=spoken) as events:
        return [event async for event in events]


def said(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_spoken_question_is_answered_with_words_and_sound() -> None:
    async with FakeGeminiLive(NOON) as vendor, talking(vendor, voice="Puck") as conversation:
        events = await answered(conversation, requested(user("What time is it?"), max_output_tokens=50))
        call = await vendor.nth(0)
    assert said(events) == "It is noon."
    assert sum(len(event.samples) for event in events if isinstance(event, Spoken)) == 440 * 24
    assert events[-2:] == [USAGE, Finished("stop")]
    setup = call.of_kind("setup")[0]["setup"]
    assert setup["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
    assert setup["generationConfig"]["maxOutputTokens"] == 50
    assert setup["generationConfig"]["speechConfig"]["voiceConfig"]["prebuiltVoiceConfig"]["voiceName"] == "Puck"
    assert call.items[0] == {"role": "user", "input_ms": 1_000}


async def test_a_conversation_goes_on_over_one_connection() -> None:
    async with FakeGeminiLive(NOON) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(user("What time is it?")))
        await answered(conversation, requested(user("What time is it?"), agent("It is noon."), user("Thanks.")))
        assert [call.n for call in vendor.calls] == [2]
        assert vendor.calls[0].of_kind("clientContent") == []


async def test_the_end_of_an_answer_does_not_wait_for_its_playback() -> None:
    """Its tokens come with the next answer, and are reported apart."""
    unused: list[SpeechUsage] = []
    async with FakeGeminiLive(NOON) as vendor, talking(vendor, unused=unused) as conversation:
        vendor.turn_complete = False
        first = await answered(conversation, requested(user("What time is it?")))
        assert first[-1] == Finished("stop")
        assert USAGE not in first
        second = await answered(conversation, requested(user("What time is it?"), agent("It is noon."), user("And?")))
        assert said(second) == "It is noon."
        assert unused == [USAGE]


async def test_the_tokens_of_an_answer_that_is_left_when_it_is_complete_at_the_vendor_are_reported() -> None:
    """A vendor makes an answer faster than it is played."""
    unused: list[SpeechUsage] = []
    async with FakeGeminiLive(NOON) as vendor, talking(vendor, unused=unused) as conversation:
        conversation.push(SECOND)
        inner: Any = conversation
        async with conversation.answer(requested(user("What time is it?")), spoken=True) as events:
            await anext(events)
            queue = inner._connection.messages

            async def counted() -> bool | None:
                return any(each.usage_metadata is not None for each in queue._queue) or None

            await eventually(counted)
        assert unused == [USAGE]
        assert USAGE in await answered(conversation, requested(user("What time is it?")))
        assert unused == [USAGE], "a read answer's tokens are reported once"


async def test_an_interruption_takes_another_connection_with_what_was_played() -> None:
    hold = Hold(after=1)
    cue = SpeechCue(text="It is noon and sunny.", hold=hold)
    async with FakeGeminiLive(cue, NOON) as vendor, talking(vendor) as conversation:
        conversation.push(SECOND)
        async with conversation.answer(requested(user("What time?")), spoken=True) as events:
            await anext(events)
            await soon(hold.reached)
        second = await answered(conversation, requested(user("What time?"), agent("It is"), user("Stop")))
        assert said(second) == "It is noon."
        (sent,) = (await vendor.nth(1)).of_kind("clientContent")
        assert [turn["parts"][0]["text"] for turn in sent["clientContent"]["turns"]] == ["What time?", "It is"]
        assert sent["clientContent"]["turnComplete"] is False
        await soon(vendor.calls[0].closed)


async def test_a_question_that_goes_on_is_sent_whole_over_the_other_connection() -> None:
    hold = Hold(after=0)
    async with FakeGeminiLive(SpeechCue(hold=hold), NOON) as vendor, talking(vendor) as conversation:
        conversation.push(SECOND)
        async with conversation.answer(requested(user("What time")), spoken=True):
            await soon(hold.reached)
        await answered(conversation, requested(user("What time is it?")))
        assert (await vendor.nth(1)).items[0] == {"role": "user", "input_ms": 2_000}


async def test_other_instructions_take_another_connection() -> None:
    async with FakeGeminiLive(NOON) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(user("Hello")), spoken=False)
        await answered(conversation, requested(user("Hello"), agent("It is noon."), user("Hm"), system="Be brief."))
        assert len(vendor.calls) == 2


async def test_functions_are_called_and_their_results_answered() -> None:
    cue = SpeechCue(text="", calls=(CallCue("look_up", ('{"city":"Rome"}',), "call_7"),))
    function = Function("look_up", "Look it up.", '{"type":"object"}')
    async with FakeGeminiLive(cue, NOON) as vendor, talking(vendor) as conversation:
        events = await answered(conversation, requested(user("Weather?"), functions=(function,)))
        assert events == [CallDelta(0, "call_7", "look_up", '{"city":"Rome"}'), USAGE, Finished("tool_calls")]
        known = (user("Weather?"), Called("call_7", "look_up", '{"city":"Rome"}'), Returned("call_7", "sunny"))
        assert (
            said(await answered(conversation, requested(*known, functions=(function,)), spoken=False)) == "It is noon."
        )
        (call,) = vendor.calls
    assert call.items[-2] == {"returned": {"id": "call_7", "name": "look_up", "response": {"result": "sunny"}}}
    declared = call.of_kind("setup")[0]["setup"]["tools"][0]["functionDeclarations"][0]
    assert declared["parametersJsonSchema"] == {"type": "object"}


async def test_the_agent_may_speak_first() -> None:
    async with FakeGeminiLive(NOON) as vendor, talking(vendor) as conversation:
        conversation.push(SECOND)
        conversation.drop()
        assert said(await answered(conversation, requested(), spoken=False)) == "It is noon."
        assert vendor.calls[0].items[0] == {"role": "user", "parts": [{"text": "(The user is on the line.)"}]}


async def test_a_wrong_key_is_refused() -> None:
    async with FakeGeminiLive() as vendor, talking(vendor, key="wrong") as conversation:
        with pytest.raises(StageRefused, match="401"):
            await answered(conversation, requested(user("Hello")))
        async with asyncio.timeout(WAIT_S):
            assert isinstance(await conversation.broken(), StageRefused)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Cut(1), StageBroken),
        (Malformed(1), StageBroken),
        (Garbage(1), StageBroken),
        (InBandError(1, code=429), StageRefused),
        (Status(402, "pay"), StageRefused),
        (Status(500, "oops"), StageRefused),
    ],
)
async def test_each_fault_of_an_answer_is_raised(fault: Any, error: type[StageError]) -> None:
    async with FakeGeminiLive(SpeechCue(fault=fault)) as vendor, talking(vendor) as conversation:
        with pytest.raises(error):
            await answered(conversation, requested(user("Hello")))


@pytest.mark.parametrize(
    "content", ['{"interrupted":true}', '{"modelTurn":{"parts":[{"inlineData":{"data":"!"}},{"text":"thought"}]}}']
)
async def test_an_answer_that_the_vendor_interrupts_or_garbles_is_broken(content: str) -> None:
    hold = Hold(after=0)
    async with FakeGeminiLive(SpeechCue(hold=hold)) as vendor, talking(vendor) as conversation:

        async def spoil() -> None:
            await soon(hold.reached)
            await vendor.calls[0].socket.send(f'{{"serverContent":{content}}}')

        async with asyncio.TaskGroup() as group:
            group.create_task(spoil())
            with pytest.raises(StageBroken):
                await answered(conversation, requested(user("Hello")))


async def test_a_connection_that_is_about_to_end_is_replaced() -> None:
    async with FakeGeminiLive(NOON) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(user("Hello")))
        await vendor.calls[0].socket.send('{"goAway":{"timeLeft":"5s"}}')
        await vendor.calls[0].socket.ping()
        pong = await vendor.calls[0].socket.ping()
        await pong
        await answered(conversation, requested(user("Hello"), agent("It is noon."), user("Bye")))
        assert len(vendor.calls) == 2


def test_prices_apply_at_googles_own_address() -> None:
    price = published_speech_price(SPEC, "wss://generativelanguage.googleapis.com")
    assert price is not None
    assert price.cost_usd(USAGE) == pytest.approx((120 * 0.5 + 80 * 3 + 150 * 12) / 1e6)
    assert published_speech_price(SPEC, "wss://127.0.0.1") is None
