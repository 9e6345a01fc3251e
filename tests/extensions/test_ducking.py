"""Who speaks over the agent, on a real line: what an opted-in client is told, and what nobody else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.errors import ProtocolError
from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.stages.transcriber import Samples
from voicepipe.testing.caller import WIRE_HZ, Caller, calling
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens

MURMUR = Path(__file__).parents[1] / "data" / "backchannel" / "ami_trn01_22269.flac"
QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
DUCKING = {**QUICK, "providerData": {"voicepipe": {"ducking": True}}}
LONG = "It is noon, and I could go on about that for as long as you like, if nobody said anything to stop me."


@pytest.fixture(scope="module")
def murmur() -> Samples:
    """Somebody says "mhm", and is silent: int16 at 24 kHz. Loud, so that it is heard as near as the question."""
    return read_sound(MURMUR, WIRE_HZ)


async def talking(house: Any, caller: Caller, question: Samples) -> None:
    """The agent answers at length."""
    house.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    await caller.say(question)
    await caller.until("response.done")


def told(caller: Caller) -> list[str]:
    """The kinds of what a client is told of the agent's voice and of the caller's."""
    named = ("voicepipe.agent.", "input_audio_buffer.")
    return [event["type"] for event in caller.events if event["type"].startswith(named)]


TURN = [f"input_audio_buffer.{kind}" for kind in ("speech_started", "speech_stopped", "committed")]


async def test_a_murmur_stops_nothing_and_leaves_nothing(house: Any, question: Samples, murmur: Samples) -> None:
    """No event but those of the agent's voice, no item, no answer, and none of its sound in the next utterance."""
    async with calling(house.base_url, session=DUCKING) as caller:
        await talking(house, caller, question)
        house.vendor.stt.cue(SttCue(text="Mm-hmm."))
        await caller.say(murmur)
        restored = await caller.until("voicepipe.agent.restored")
        assert told(caller) == [*TURN, "voicepipe.agent.ducked", "voicepipe.agent.restored"]
        assert restored["reason"] == "acknowledgement"
        assert restored["after_ms"] <= 300
        assert len(house.vendor.llm.asked) == 1
        await caller.say(question)
        await caller.until("response.done")
    latest = house.vendor.stt.asked[-1]
    assert len(latest.samples) / 16_000 < 2.2, "the question, its padding and little else"
    messages = house.vendor.llm.asked[-1].question["messages"]
    said = [message["content"] for message in messages if message["role"] == "user"]
    assert said == ["what time is it", "what time is it"]


async def test_an_interruption_is_told_in_order(house: Any, question: Samples) -> None:
    """The voice is lowered; then somebody speaks; then the agent has yielded, and says why."""
    async with calling(house.base_url, session=DUCKING) as caller:
        await talking(house, caller, question)
        await caller.say(question)
        yielded = await caller.until("voicepipe.agent.yielded")
        kinds = told(caller)[len(TURN) :]
        assert kinds[0] == "voicepipe.agent.ducked"
        assert kinds[-2:] == ["input_audio_buffer.speech_started", "voicepipe.agent.yielded"]
        assert yielded["reason"] in ("words", "sustained")
        await caller.until("response.done")


async def test_who_did_not_ask_hears_of_the_turn_only(house: Any, question: Samples, murmur: Samples) -> None:
    """Nothing of a murmur; of an interruption what the published events have."""
    async with calling(house.base_url, session=QUICK) as caller:
        await talking(house, caller, question)
        house.vendor.stt.cue(SttCue(text="Mm-hmm."))
        await caller.say(murmur)
        await caller.say(question)
        await caller.until("input_audio_buffer.committed")
        assert told(caller) == [*TURN, *TURN]
        await caller.until("response.done")


async def test_immediate_is_what_hosted_services_do(house: Any, question: Samples, murmur: Samples) -> None:
    """Any voice is told of, and interrupts."""
    session = {**QUICK, "providerData": {"voicepipe": {"ducking": True, "announce": "immediate"}}}
    async with calling(house.base_url, session=session) as caller:
        await talking(house, caller, question)
        house.vendor.stt.cue(SttCue(text=""))
        await caller.say(murmur)
        await caller.until("input_audio_buffer.committed")
        assert told(caller) == [*TURN, *TURN]


# --- the setting ----------------------------------------------------------------------------------

AGENT = SessionConfig.start(
    session_id="sess_d", model="default", voice="v", instructions="", expires_at=0, announce="immediate"
)


def asked(**wish: object) -> SessionConfig:
    return AGENT.merged({"providerData": {"voicepipe": wish}})


def test_the_agent_s_own_counts_until_the_client_says_otherwise() -> None:
    assert AGENT.turn_settings().announce == "immediate"
    assert asked(ducking=True).turn_settings().announce == "immediate"
    assert asked(announce="verdict").turn_settings().announce == "verdict"
    back = asked(announce="verdict").merged({"providerData": {"voicepipe": {"announce": None}}})
    assert back.turn_settings().announce == "immediate"
    off = asked(announce="verdict").merged({"providerData": {"voicepipe": None}})
    assert off.turn_settings().announce == "immediate"


def test_the_session_shows_which() -> None:
    extensions = asked(announce="verdict").extensions
    assert extensions == Extensions(announce="verdict")
    assert extensions.to_wire()["announce"] == "verdict"


@pytest.mark.parametrize("wrong", ["later", True, 1, {}])
def test_another_word_is_refused(wrong: object) -> None:
    with pytest.raises(ProtocolError) as refused:
        asked(announce=wrong)
    assert refused.value.field == "session.providerData.voicepipe.announce"
