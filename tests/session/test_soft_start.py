"""Answers that begin softly: taken back by a voice with words, continued after a sound without."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from voicepipe.audio.files import read_sound
from voicepipe.ports.transcriber import Samples
from voicepipe.testing.fakes.cues import CallCue, LlmCue, SttCue, tokens
from voicepipe.testing.user import WIRE_HZ, User, calling
from voicepipe.testing.waiting import eventually
from voicepipe.turn.endpointing.strategies import Soft
from voicepipe.turn.endpointing.strategy import Evidence

pytestmark = pytest.mark.virtual_time

ANSWER = "It is sunny now. It will be warm all day long, with a light wind from the west."
ANSWER_MS = 40 * len(ANSWER)
DATA = Path(__file__).parents[1] / "data"
SPOKEN = "response.output_audio.delta"
WRITTEN = "response.output_audio_transcript.delta"


@pytest.fixture
def speculates() -> bool:
    return True


@pytest.fixture
def more_settings() -> dict[str, object]:
    """The default of an agent, named."""
    return {"agents.default.end_of_turn": "soft"}


@pytest.fixture
def silence() -> Samples:
    """What a microphone sends while nobody speaks."""
    return np.zeros(WIRE_HZ // 50, np.int16)


@pytest.fixture
def spoken(question: Samples) -> Samples:
    """The question without the silence around it."""
    return question[WIRE_HZ // 2 : WIRE_HZ * 19 // 10]


async def speaking(user: User, samples: Samples, silence: Samples, until: str) -> dict[str, Any]:
    """Speak, and be silent, in real time, until an event of that type comes."""
    async with asyncio.TaskGroup() as group:
        microphone = group.create_task(user.speak_in_real_time(np.concatenate((samples, np.tile(silence, 200)))))
        event = await user.until(until)
        microphone.cancel()
    return event


async def answered_softly(server: Any, user: User, spoken: Samples, silence: Samples, words: str) -> None:
    """Speak, and be silent until the answer is audible."""
    server.vendor.stt.usual = SttCue(text=words)
    await speaking(user, spoken, silence, SPOKEN)


def spoken_by(user: User, response_id: str) -> str:
    """All words of a response."""
    return "".join(e["delta"] for e in user.events if e["type"] == WRITTEN and e["response_id"] == response_id)


def kinds(user: User) -> list[str]:
    """The events that tell what a client does: flush, add a message, begin and end an answer."""
    notable = {
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "response.created",
        "response.done",
    }
    return [kind.partition(".")[2] for kind in user.kinds() if kind in notable]


async def test_a_user_who_goes_on_gets_one_answer_to_all_of_it(server: Any, spoken: Samples, silence: Samples) -> None:
    """On the wire an interruption as any other; the LLM reads one message, and nothing of the first answer."""
    server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER), gap_ms=100)
    async with calling(server.base_url) as user:
        await answered_softly(server, user, spoken, silence, "What is the weather like?")
        server.vendor.stt.usual = SttCue(text="And tomorrow?")
        await user.speak_in_real_time(spoken)
        first = await user.until("response.done")
        assert first["response"]["status_details"] == {"type": "cancelled", "reason": "turn_detected"}
        second = await speaking(user, silence, silence, "response.done")
        assert second["response"]["status"] == "completed"
        turn_id, same_id = (each["response"]["metadata"]["voicepipe_turn"] for each in (first, second))
        assert turn_id == same_id
        begun = ["speech_started", "speech_stopped", "committed", "created"]
        assert kinds(user) == [*begun, "speech_started", "done", "speech_stopped", "committed", "created", "done"]
        assert spoken_by(user, second["response"]["id"]) == ANSWER
        record = await eventually(lambda: server.closed(turn_id))
    messages = server.vendor.llm.received[-1].question["messages"]
    said = [(each["role"], each["content"]) for each in messages if each["role"] != "system"]
    assert said == [("user", "What is the weather like? And tomorrow?")]
    assert (record["outcome"], record["resumed"]) == ("completed", 1)
    assert 0 <= record["taken_back_ms"] <= 1_000
    assert len(await server.turns()) == 1


async def test_the_answer_goes_on_after_a_sound_without_words(server: Any, spoken: Samples, silence: Samples) -> None:
    """In a second response, from the word at which it was stopped: no word is lost, and the LLM is asked once."""
    server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
    async with calling(server.base_url) as user:
        await answered_softly(server, user, spoken, silence, "What is the weather like?")
        before = len(server.vendor.llm.received)
        server.vendor.stt.usual = SttCue(text="")
        await user.speak_in_real_time(spoken[: WIRE_HZ // 2])
        first = await user.until("response.done")
        await speaking(user, silence, silence, "response.created")
        second = await user.until("response.done")
        assert second["response"]["status"] == "completed"
        begun = ["speech_started", "speech_stopped", "committed", "created"]
        assert kinds(user)[:4] == begun
        assert sorted(kinds(user)[4:]) == sorted(["done", "speech_started", *begun[1:], "done"])
        rest = spoken_by(user, second["response"]["id"])
        assert ANSWER.endswith(rest)
        assert first["response"]["id"] != second["response"]["id"]
        n_samples = sum(
            len(event["delta"]) * 3 // 8
            for event in user.events
            if event["type"] == SPOKEN and event["response_id"] == second["response"]["id"]
        )
        record = await eventually(lambda: server.closed(second["response"]["metadata"]["voicepipe_turn"]))
    assert abs(n_samples * 1_000 // WIRE_HZ - 40 * len(rest)) <= 100, "the audio begins with the same word"
    assert len(server.vendor.llm.received) == before
    assert (record["outcome"], record["resumed"], record["taken_back_ms"]) == ("completed", 0, 0)
    assert record["played_text"] == ANSWER
    assert record["user_text"] == "What is the weather like?"


LONG_SILENCE_MS = 1_600
"""With it the certain end comes so long after the likely one that a busy machine has a call ready between them."""


@pytest.mark.parametrize(
    "more_settings",
    [{"agents.default.end_of_turn": "soft", "agents.default.silence_ms": LONG_SILENCE_MS}],
    ids=["long silence"],
)
async def test_a_function_call_waits_for_the_certain_end(server: Any, spoken: Samples, silence: Samples) -> None:
    """The client is told of the response when the end is likely, and of the call when `adaptive` ends the turn."""
    calls = (CallCue("lights", ('{"on": ', "true}")),)
    server.vendor.llm.cue(LlmCue(tokens=(), calls=calls, finish="tool_calls"))
    words = "Turn the lights on, can you?"
    server.vendor.stt.usual = SttCue(text=words)
    async with calling(server.base_url) as user:
        done = await speaking(user, spoken, silence, "response.function_call_arguments.done")
        assert done["arguments"] == '{"on": true}'
        turn = await eventually(server.newest)
    marks = turn["marks"]
    likely_ms = Soft(LONG_SILENCE_MS).decide(Evidence(text=words)).audible_ms
    assert marks["end_due"] - marks["voiced_last"] >= likely_ms, "a machine that is slow brings the words later"
    assert marks["end_due"] <= marks["ended"] < marks["gate_opened"]
    assert marks["gate_opened"] - marks["voiced_last"] >= 500, "the shortest wait of adaptive"
    assert marks["first_delta"] < marks["gate_opened"], "the call was ready"


SOUNDS = [
    *(("backchannel", path.stem, "mhm") for path in sorted((DATA / "backchannel").glob("*.flac"))),
    *(("noise", path.stem, "") for path in sorted((DATA / "noise").glob("*.flac"))),
]


@pytest.mark.parametrize(("kind", "clip", "words"), [*SOUNDS, ("echo", "own", "It is sunny now.")])
async def test_no_sound_loses_an_answer(
    server: Any, spoken: Samples, silence: Samples, kind: str, clip: str, words: str
) -> None:
    """A sound without words, or the agent's own audio, right after the answer has begun: every word is said."""
    server.vendor.llm.usual = LlmCue(tokens=tokens(ANSWER))
    async with calling(server.base_url) as user:
        await answered_softly(server, user, spoken, silence, "What is the weather like?")
        n_requests = len(server.vendor.llm.received)
        server.vendor.stt.usual = SttCue(text=words)
        sound = user.sound() if kind == "echo" else read_sound(DATA / kind / f"{clip}.flac", WIRE_HZ)
        turn_id = next(event for event in user.events if event["type"] == "response.created")["response"]["metadata"]
        await user.speak_in_real_time(np.concatenate((sound[: WIRE_HZ * 3 // 2], np.tile(silence, 200))))
        record = await eventually(lambda: server.closed(turn_id["voicepipe_turn"]))
    assert (record["outcome"], record["played_text"], record["resumed"]) == ("completed", ANSWER, 0)
    assert len(server.vendor.llm.received) == n_requests
