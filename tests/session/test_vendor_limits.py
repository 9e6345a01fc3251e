"""Vendors that send too much, or nothing worth hearing: the reply ends with a reason, and the next turn works."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.protocol.fields import MAX_SHOWN_CHARS
from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import Caller, calling
from voicepipe.testing.fakes.cues import CallCue, LlmCue, SttCue, TtsCue, tokens

SILENT = {"output_modalities": ["text"], "audio": {"input": {"turn_detection": None}}}
SPOKEN = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


async def ended(caller: Caller) -> tuple[str, str]:
    """How the next response ends: its status, and the reason or the error's text."""
    done = (await caller.until("response.done"))["response"]
    details = done["status_details"] or {}
    return done["status"], details.get("reason") or details.get("error", {}).get("message", "")


async def answers_again(caller: Caller) -> None:
    """The conversation goes on."""
    await caller.send("response.create")
    assert await ended(caller) == ("completed", "")


async def test_a_reply_of_more_text_than_an_event_can_tell(house: Any) -> None:
    """It ends where its limit is, as if the model had reached its own."""
    house.vendor.llm.cue(LlmCue(tokens=("word " * 100,) * 1_000))
    async with calling(house.base_url, session=SILENT) as caller:
        await caller.send("response.create")
        assert await ended(caller) == ("incomplete", "max_output_tokens")
        said = next(e["text"] for e in caller.events if e["type"] == "response.output_text.done")
        assert len(said) == MAX_SHOWN_CHARS
        await answers_again(caller)


async def test_a_call_with_more_arguments_than_an_event_can_tell(house: Any) -> None:
    """It is never whole, so that no client runs it."""
    arguments = ('{"a": "', *("x" * 1_000,) * 200, '"}')
    house.vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("look", arguments),), finish="tool_calls"))
    async with calling(house.base_url, session=SILENT) as caller:
        await caller.send("response.create")
        assert await ended(caller) == ("incomplete", "max_output_tokens")
        assert "response.function_call_arguments.done" not in caller.kinds()
        deltas = [e["delta"] for e in caller.events if e["type"] == "response.function_call_arguments.delta"]
        assert sum(map(len, deltas)) == MAX_SHOWN_CHARS
        await answers_again(caller)


async def test_white_space_is_told_with_what_follows(house: Any) -> None:
    """Of it nothing is lost: neither inside an answer, nor at its end, nor in a call's arguments."""
    call = CallCue("look", ('{"a":', ' "b', " ", ' c"', "}", " "))
    house.vendor.llm.cue(LlmCue(tokens=("Well,", " ", "\n", "then", ".", "\n")))
    house.vendor.llm.cue(LlmCue(tokens=(), calls=(call,), finish="tool_calls"))
    async with calling(house.base_url, session=SILENT) as caller:
        await answers_again(caller)
        await answers_again(caller)
    by_type = {event["type"]: event for event in caller.events}
    assert by_type["response.output_text.done"]["text"] == "Well, \nthen.\n"
    assert by_type["response.function_call_arguments.done"]["arguments"] == '{"a": "b  c"}'


async def test_a_model_that_says_nothing_any_more(house: Any) -> None:
    """White space is no progress, however steadily it comes."""
    house.vendor.llm.cue(LlmCue(tokens=("Well. ", *("\n",) * 100_000), gap_ms=20))
    async with calling(house.base_url, session=SILENT) as caller:
        await caller.send("response.create")
        status, why = await ended(caller)
        assert (status, why) == ("failed", "no progress for 2500 ms")
        await answers_again(caller)


@pytest.mark.parametrize(
    ("cue", "why"),
    [
        (TtsCue(ms_per_char=10_000), "expected at most 34 s of audio for 12 characters, got more"),
        (TtsCue(raw=bytes(48_000 * 20)), "expected speech, got 10 s of silence"),
    ],
    ids=["without end", "silence"],
)
async def test_a_voice_that_goes_on_and_on(house: Any, cue: TtsCue, why: str) -> None:
    """What was heard of it stays; the reply fails."""
    house.vendor.llm.cue(LlmCue(tokens=tokens("It is twelve")))
    house.vendor.tts.cue(cue)
    async with calling(house.base_url, session=SPOKEN) as caller:
        await caller.send("response.create")
        status, said = await ended(caller)
        assert (status, said) == ("failed", f"fake/mouth: {why}")
        await answers_again(caller)


async def test_a_transcript_without_end(house: Any, question: Samples) -> None:
    """Nobody said so much: the turn fails, and the next one is heard."""
    house.vendor.stt.cue(SttCue(text="word " * 10_000))
    async with calling(house.base_url, session=SPOKEN) as caller:
        await caller.say(question)
        status, why = await ended(caller)
        assert status == "failed"
        assert "fake/ear: expected at most" in why
        assert "got 49999" in why
        await caller.say(question)
        assert await ended(caller) == ("completed", "")
