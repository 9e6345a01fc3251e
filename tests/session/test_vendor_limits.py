"""Vendors that send too much, or nothing worth hearing: the reply ends with a reason, and the next turn works."""

from __future__ import annotations

from typing import Any

import pytest

from voicepipe.ports.transcriber import Samples
from voicepipe.protocol.json_fields import MAX_ECHOED_CHARS
from voicepipe.testing.fakes.cues import CallCue, LlmCue, SttCue, TtsCue, tokens
from voicepipe.testing.user import User, calling

SILENT = {"output_modalities": ["text"], "audio": {"input": {"turn_detection": None}}}
SPOKEN = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}


async def ended(user: User) -> tuple[str, str]:
    """How the next response ends: its status, and the reason or the error's text."""
    done = (await user.until("response.done"))["response"]
    details = done["status_details"] or {}
    return done["status"], details.get("reason") or details.get("error", {}).get("message", "")


async def answers_again(user: User) -> None:
    """The conversation goes on."""
    await user.send("response.create")
    assert await ended(user) == ("completed", "")


async def test_reply_text_longer_than_an_event(server: Any) -> None:
    """It ends where its limit is, as if the model had reached its own."""
    server.vendor.llm.cue(LlmCue(tokens=("word " * 100,) * 1_000))
    async with calling(server.base_url, session=SILENT) as user:
        await user.send("response.create")
        assert await ended(user) == ("incomplete", "max_output_tokens")
        said = next(e["text"] for e in user.events if e["type"] == "response.output_text.done")
        assert len(said) == MAX_ECHOED_CHARS
        await answers_again(user)


async def test_call_arguments_longer_than_an_event(server: Any) -> None:
    """It is never whole, so that no client runs it."""
    arguments = ('{"a": "', *("x" * 1_000,) * 200, '"}')
    server.vendor.llm.cue(LlmCue(tokens=(), calls=(CallCue("look", arguments),), finish="tool_calls"))
    async with calling(server.base_url, session=SILENT) as user:
        await user.send("response.create")
        assert await ended(user) == ("incomplete", "max_output_tokens")
        assert "response.function_call_arguments.done" not in user.kinds()
        deltas = [e["delta"] for e in user.events if e["type"] == "response.function_call_arguments.delta"]
        assert sum(map(len, deltas)) == MAX_ECHOED_CHARS
        await answers_again(user)


async def test_white_space_is_sent_with_the_next_text(server: Any) -> None:
    """Of it nothing is lost: neither inside an answer, nor at its end, nor in a call's arguments."""
    call = CallCue("look", ('{"a":', ' "b', " ", ' c"', "}", " "))
    server.vendor.llm.cue(LlmCue(tokens=("Well,", " ", "\n", "then", ".", "\n")))
    server.vendor.llm.cue(LlmCue(tokens=(), calls=(call,), finish="tool_calls"))
    async with calling(server.base_url, session=SILENT) as user:
        await answers_again(user)
        await answers_again(user)
    by_type = {event["type"]: event for event in user.events}
    assert by_type["response.output_text.done"]["text"] == "Well, \nthen.\n"
    assert by_type["response.function_call_arguments.done"]["arguments"] == '{"a": "b  c"}'


@pytest.mark.virtual_time
@pytest.mark.parametrize("is_impatient", [True], ids=["impatient"])
@pytest.mark.slow
async def test_a_model_that_says_nothing_any_more(server: Any) -> None:
    """White space is no progress, however steadily it comes."""
    server.vendor.llm.cue(LlmCue(tokens=("Well. ", *("\n",) * 100_000), gap_ms=20))
    async with calling(server.base_url, session=SILENT) as user:
        await user.send("response.create")
        status, why = await ended(user)
        assert (status, why) == ("failed", "no progress for 2500 ms")
        await answers_again(user)


@pytest.mark.parametrize(
    ("cue", "why"),
    [
        (TtsCue(ms_per_char=10_000), "expected at most 34 s of audio for 12 characters, got more"),
        (TtsCue(raw=bytes(48_000 * 20)), "expected speech, got 10 s of silence"),
        (TtsCue(raw=bytes(48_000)), "expected speech, got only silence"),
    ],
    ids=["without end", "silence", "a short silence"],
)
async def test_a_voice_that_goes_on_and_on(server: Any, cue: TtsCue, why: str) -> None:
    """The audio that was played stays; the reply fails."""
    server.vendor.llm.cue(LlmCue(tokens=tokens("It is twelve")))
    server.vendor.tts.cue(cue)
    async with calling(server.base_url, session=SPOKEN) as user:
        await user.send("response.create")
        status, said = await ended(user)
        assert (status, said) == ("failed", f"fake/tts: {why}")
        await answers_again(user)


async def test_a_transcript_without_end(server: Any, question: Samples) -> None:
    """No user says that many words: the turn fails, and the next one is transcribed."""
    server.vendor.stt.cue(SttCue(text="word " * 10_000))
    async with calling(server.base_url, session=SPOKEN) as user:
        await user.speak(question)
        status, why = await ended(user)
        assert status == "failed"
        assert "fake/stt: expected at most" in why
        assert "got 49999" in why
        await user.speak(question)
        assert await ended(user) == ("completed", "")
