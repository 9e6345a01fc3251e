"""Speech to speech over OpenAI's Realtime API: what the vendor gets, and what becomes of what it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from voicepipe.errors import StageBroken, StageError, StageExpired, StageRefused
from voicepipe.ports.model import (
    CallDelta,
    Called,
    Content,
    Finished,
    Function,
    Image,
    Message,
    ModelRequest,
    Returned,
    Text,
    TextDelta,
)
from voicepipe.ports.speech_model import SpeechConversation, SpeechOptions, WordsComplete
from voicepipe.ports.speech_price import SpeechUsage
from voicepipe.ports.synthesizer import Spoken
from voicepipe.providers.built_in import speech_factory
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.fakes.cues import CallCue, Cut, Garbage, Hold, InBandError, Malformed, Status
from voicepipe.testing.fakes.openai_realtime_speech import KEY, FakeRealtimeSpeech
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.speech_model import SpeechCue
from voicepipe.testing.waiting import WAIT_S

SECOND = np.full(24_000, 1_000, dtype=np.int16)
NOON = SpeechCue(text="It is noon.")


def user(text: str) -> Content:
    return Content("user", (Text(text),))


def requested(*messages: Message, **more: Any) -> ModelRequest:
    return ModelRequest(model="gpt-realtime", messages=(Content("system", (Text("Be kind."),)), *messages), **more)


@asynccontextmanager
async def talking(
    vendor: FakeRealtimeSpeech, *, key: str = KEY, unused: list[SpeechUsage] | None = None, **options: Any
) -> AsyncIterator[SpeechConversation]:
    """Open a conversation with the fake."""
    spec = Spec("openai-realtime", "gpt-realtime")
    settings = ProviderSettings(kind="openai_realtime", base_url=vendor.base_url, api_key=key)
    model = speech_factory("openai_realtime", key="model")(spec, settings)
    chosen = SpeechOptions(model=spec.model, **options)
    async with model.open(chosen, ([] if unused is None else unused).append) as conversation:
        yield conversation


async def answered(conversation: SpeechConversation, request: ModelRequest, *, spoken: bool = True) -> list[Any]:
    """Return all events of an answer."""
    if spoken:
        conversation.push(SECOND)
    async with asyncio.timeout(WAIT_S), conversation.answer(request, spoken=spoken) as events:
        return [event async for event in events]


def said(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def sound_ms(events: list[Any]) -> int:
    return sum(len(event.samples) for event in events if isinstance(event, Spoken)) // 24


async def test_a_spoken_question_is_answered_with_words_and_sound() -> None:
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor, voice="marin", speed=2.0) as conversation:
        events = await answered(conversation, requested(user("What time is it?")))
        call = await vendor.nth(0)
    assert said(events) == "It is noon."
    assert sound_ms(events) == 11 * 40
    usage = SpeechUsage(
        text_input=120, audio_input=80, cached_text=64, cached_audio=0, text_output=30, audio_output=120
    )
    assert events[-2:] == [usage, Finished("stop")]
    assert WordsComplete() in events
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (200, 150, 64)
    assert call.query == {"model": "gpt-realtime"}
    (update,) = call.of_kind("session.update")
    assert update["session"]["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24_000},
        "voice": "marin",
        "speed": 1.5,
    }
    (create,) = call.of_kind("response.create")
    assert create["response"]["instructions"] == "Be kind."
    assert create["response"]["output_modalities"] == ["audio"]
    assert call.items[0]["input_ms"] == 1_000, "the user's own voice, not its text"


async def test_a_conversation_goes_on_without_repeating_itself() -> None:
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(user("What time is it?")))
        history = (user("What time is it?"), Content("assistant", (Text("It is noon."),)))
        await answered(conversation, requested(*history, user("Thanks.")))
        call = await vendor.nth(0)
        assert call.of_kind("conversation.item.create") == call.of_kind("conversation.item.delete") == []
        assert len(call.items) == 4


async def test_what_was_said_elsewhere_is_added_as_text() -> None:
    """The pipeline has answered meanwhile; a picture and a function's result are part of it."""
    picture = Content("user", (Text("What is this?"), Image("data:image/png;base64,AA==", "low")))
    history = (picture, Content("assistant", (Text("A cat."),)), Called("c1", "feed", ""), Returned("c1", "fed"))
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(*history, user("Thanks.")), spoken=False)
        call = await vendor.nth(0)
    items = [message["item"] for message in call.of_kind("conversation.item.create")]
    assert [item["type"] for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert items[0]["content"][1] == {
        "type": "input_image",
        "image_url": "data:image/png;base64,AA==",
        "detail": "low",
    }
    assert items[1]["content"] == [{"type": "output_text", "text": "A cat."}]
    assert (items[2]["arguments"], items[3]["output"]) == ("{}", "fed")


async def test_functions_are_listed_and_called_whole() -> None:
    cue = SpeechCue(text="", calls=(CallCue("look_up", ('{"city":', '"Rome"}'), "call_7"),))
    function = Function("look_up", "Look it up.", '{"type":"object"}')
    async with FakeRealtimeSpeech(cue, NOON) as vendor, talking(vendor) as conversation:
        request = requested(user("Weather?"), functions=(function,), tool_choice="look_up", max_output_tokens=50)
        events = await answered(conversation, request)
        assert events[0] == CallDelta(0, "call_7", "look_up", '{"city":"Rome"}')
        assert events[-1] == Finished("tool_calls")
        answered_with = (user("Weather?"), Called("call_7", "look_up", '{"city":"Rome"}'), Returned("call_7", "sunny"))
        assert (
            said(await answered(conversation, requested(*answered_with, functions=(function,)), spoken=False))
            == "It is noon."
        )
        call = await vendor.nth(0)
    first, second = (message["response"] for message in call.of_kind("response.create"))
    assert first["tool_choice"] == {"type": "function", "name": "look_up"}
    assert first["max_output_tokens"] == 50
    assert first["tools"][0]["parameters"] == {"type": "object"}
    assert second["tool_choice"] == "auto"
    (output,) = call.of_kind("conversation.item.create")
    assert output["item"]["output"] == "sunny"


async def test_an_answer_that_is_left_is_cancelled_and_its_tokens_are_reported() -> None:
    hold = Hold(after=1)
    unused: list[SpeechUsage] = []
    async with (
        FakeRealtimeSpeech(SpeechCue(hold=hold), NOON) as vendor,
        talking(vendor, unused=unused) as conversation,
    ):
        conversation.push(SECOND)
        async with conversation.answer(requested(user("What time")), spoken=True) as events:
            await anext(events)
            await soon(hold.reached)
        events_after = await answered(conversation, requested(user("What time is it?")))
        call = await vendor.nth(0)
        assert said(events_after) == "It is noon."
        assert len(unused) == 1
        assert unused[0].output_tokens == 150
        assert len(call.of_kind("response.cancel")) == 1
        assert [item["role"] for item in call.items] == ["user", "user", "assistant"], "both parts of what was said"


async def test_the_tokens_of_an_answer_that_is_left_when_it_is_complete_at_the_vendor_are_reported() -> None:
    """A vendor makes an answer faster than it is played."""
    unused: list[SpeechUsage] = []
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor, unused=unused) as conversation:
        conversation.push(SECOND)
        inner: Any = conversation
        async with conversation.answer(requested(user("What time is it?")), spoken=True) as events:
            await anext(events)
            await soon(inner._done)
            assert unused == []
        assert [each.output_tokens for each in unused] == [150]
        events_after = await answered(conversation, requested(user("What time is it?")))
        assert sum(isinstance(each, SpeechUsage) for each in events_after) == 1
        assert len(unused) == 1, "a read answer's tokens are reported once"


async def test_an_interrupted_answer_is_cut_where_it_was_played() -> None:
    async with FakeRealtimeSpeech(SpeechCue(text="It is noon and sunny.")) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(user("What time?")))
        await answered(
            conversation, requested(user("What time?"), Content("assistant", (Text("It is"),)), user("Stop"))
        )
        call = await vendor.nth(0)
        (cut,) = call.of_kind("conversation.item.truncate")
        assert cut["audio_end_ms"] == 840 * len("It is") // len("It is noon and sunny.")
        assert call.items[1]["audio_ms"] == cut["audio_end_ms"]


async def test_what_was_no_question_is_cleared() -> None:
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor) as conversation:
        conversation.push(SECOND)
        conversation.drop()
        conversation.drop()
        await answered(conversation, requested(user("What time?")), spoken=False)
        call = await vendor.nth(0)
        assert len(call.of_kind("input_audio_buffer.clear")) == 1
        assert "input_ms" not in call.items[0]


async def test_a_very_short_word_is_padded() -> None:
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor) as conversation:
        conversation.push(SECOND[:240])
        async with conversation.answer(requested(user("Yes")), spoken=True) as events:
            assert said([event async for event in events]) == "It is noon."
        assert (await vendor.nth(0)).items[0]["input_ms"] == 120


@pytest.mark.parametrize(("status", "kind"), [(401, 401), (402, 402), (429, 429), (500, 500)])
async def test_a_refused_handshake_is_named(status: int, kind: int) -> None:
    async with FakeRealtimeSpeech() as vendor:
        vendor.refusals.append(Status(status, "no"))
        async with talking(vendor) as conversation, asyncio.timeout(WAIT_S):
            failure = await conversation.broken()
            assert isinstance(failure, StageRefused)
            assert failure.status == kind
            with pytest.raises(StageRefused):
                await answered(conversation, requested(user("Hello")))


async def test_a_wrong_key_is_refused() -> None:
    async with FakeRealtimeSpeech() as vendor, talking(vendor, key="sk-wrong") as conversation:
        async with asyncio.timeout(WAIT_S):
            failure = await conversation.broken()
        assert isinstance(failure, StageRefused)
        assert failure.status == 401
        assert "sk-" not in failure.why


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Status(429, "slow down"), StageRefused),
        (Status(402, "pay"), StageRefused),
        (Status(500, "oops"), StageBroken),
        (InBandError(code=429), StageRefused),
        (InBandError(1), StageBroken),
        (Cut(1), StageBroken),
        (Malformed(1), StageBroken),
        (Garbage(1), StageBroken),
    ],
)
async def test_each_fault_of_an_answer_is_raised(fault: Any, error: type[StageError]) -> None:
    async with FakeRealtimeSpeech(SpeechCue(fault=fault)) as vendor, talking(vendor) as conversation:
        with pytest.raises(error):
            await answered(conversation, requested(user("Hello")))


async def test_the_end_of_a_session_is_no_failure_of_the_vendor() -> None:
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor) as conversation:
        call = await vendor.nth(0)
        error = {"type": "x", "code": "session_expired", "message": "Your session hit the maximum duration."}
        await call.socket.send(json.dumps({"type": "error", "error": error}))
        async with asyncio.timeout(WAIT_S):
            assert isinstance(await conversation.broken(), StageExpired)


async def test_an_answer_of_many_unread_events_makes_the_vendor_wait() -> None:
    """Leaving it frees the reader."""
    long = SpeechCue(text="word " * 1_200)
    async with FakeRealtimeSpeech(long, NOON) as vendor, talking(vendor) as conversation:
        conversation.push(SECOND)
        async with conversation.answer(requested(user("Go on")), spoken=True) as events:
            await anext(events)
            await asyncio.sleep(0)
        assert said(await answered(conversation, requested(user("Go on please")))) == "It is noon."


async def answered_with(message: dict[str, Any]) -> list[Any]:
    """Return the events of an answer in which the vendor sends that message."""
    hold = Hold(after=0)
    async with (
        FakeRealtimeSpeech(SpeechCue(hold=hold)) as vendor,
        talking(vendor) as conversation,
        conversation.answer(requested(user("Hello")), spoken=False) as events,
    ):
        await soon(hold.reached)
        await (await vendor.nth(0)).socket.send(json.dumps(message))
        return [event async for event in events]


@pytest.mark.parametrize(("reason", "finished"), [("max_output_tokens", "length"), ("content_filter",) * 2])
async def test_an_incomplete_answer_says_why(reason: str, finished: Any) -> None:
    done = {"id": "resp_1", "status": "incomplete", "status_details": {"reason": reason}}
    assert (await answered_with({"type": "response.done", "response": done}))[-1] == Finished(finished)


@pytest.mark.parametrize(
    "done", [{"status": "cancelled", "status_details": {"reason": "turn_detected"}}, {"status": "incomplete"}]
)
async def test_an_answer_that_the_vendor_ends_is_broken(done: dict[str, Any]) -> None:
    with pytest.raises(StageBroken, match="ended its answer"):
        await answered_with({"type": "response.done", "response": {"id": "resp_1", **done}})


@pytest.mark.parametrize(
    "message",
    [
        {"type": "response.output_audio.delta", "response_id": "resp_1", "delta": "!"},
        {"type": "response.output_item.done", "response_id": "resp_1", "item": {"type": "function_call", "id": "x"}},
    ],
)
async def test_audio_that_is_no_base64_and_a_call_out_of_nowhere_are_broken(message: dict[str, Any]) -> None:
    with pytest.raises(StageBroken):
        await answered_with(message)


async def test_audio_is_deleted_once_it_no_longer_counts() -> None:
    """The user's first words are corrected: the text takes the place of the voice."""
    async with FakeRealtimeSpeech(NOON) as vendor, talking(vendor) as conversation:
        await answered(conversation, requested(user("Look up the time")))
        await answered(conversation, requested(user("Book a table")))
        assert [item.get("input_ms") for item in (await vendor.nth(0)).items if item["role"] == "user"] == [None]
