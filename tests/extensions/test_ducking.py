"""Speech over the agent, on a real connection: what an opted-in client receives, and no other client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.audio.files import read_sound
from voicepipe.errors import ProtocolError
from voicepipe.ports.transcriber import Samples
from voicepipe.protocol.extensions import Extensions
from voicepipe.protocol.session_config import SessionConfig
from voicepipe.testing.fakes.cues import LlmCue, SttCue, tokens
from voicepipe.testing.user import WIRE_HZ, User, calling

MURMUR = Path(__file__).parents[1] / "data" / "backchannel" / "ami_trn01_22269.flac"
QUICK = {"audio": {"input": {"turn_detection": {"type": "server_vad", "silence_duration_ms": 200}}}}
DUCKING = {**QUICK, "providerData": {"voicepipe": {"ducking": True}}}
LONG = "It is noon, and I could go on about that for as long as you like, if nobody said anything to stop me."


@pytest.fixture(scope="module")
def murmur() -> Samples:
    """Return a user's "mhm" and silence: int16 at 24 kHz. It is loud, so that it counts as near as the question."""
    return read_sound(MURMUR, WIRE_HZ)


async def talking(server: Any, user: User, question: Samples) -> None:
    """The agent answers at length."""
    server.vendor.llm.cue(LlmCue(tokens=tokens(LONG)))
    await user.speak(question)
    await user.until("response.done")


def event_kinds(user: User) -> list[str]:
    """Return the kinds of events that a client receives about the agent's volume and the user's voice."""
    named = ("voicepipe.agent.", "input_audio_buffer.")
    return [event["type"] for event in user.events if event["type"].startswith(named)]


TURN = [f"input_audio_buffer.{kind}" for kind in ("speech_started", "speech_stopped", "committed")]


async def test_a_murmur_stops_nothing_and_leaves_nothing(server: Any, question: Samples, murmur: Samples) -> None:
    """No event but those of the agent's voice, no item, no answer, and none of its sound in the next utterance."""
    async with calling(server.base_url, session=DUCKING) as user:
        await talking(server, user, question)
        server.vendor.stt.cue(SttCue(text="Mm-hmm."))
        await user.speak(murmur)
        restored = await user.until("voicepipe.agent.unducked")
        assert event_kinds(user) == [*TURN, "voicepipe.agent.ducked", "voicepipe.agent.unducked"]
        # On a busy machine the STT's text may miss the deadline of 280 ms: without words nothing is stopped either.
        assert restored["reason"] in ("acknowledgement", "no_words")
        assert len(server.vendor.llm.received) == 1
        await user.speak(question)
        await user.until("response.done")
    latest = server.vendor.stt.received[-1]
    assert len(latest.samples) / 16_000 < 2.2, "the question, its padding and little else"
    messages = server.vendor.llm.received[-1].question["messages"]
    said = [message["content"] for message in messages if message["role"] == "user"]
    assert said == ["what time is it", "what time is it"]


async def test_interruption_is_notified_in_order(server: Any, question: Samples) -> None:
    """The agent's volume is lowered; then the user's speech is confirmed; then the agent has yielded, with
    its reason.
    """
    async with calling(server.base_url, session=DUCKING) as user:
        await talking(server, user, question)
        await user.speak(question)
        yielded = await user.until("voicepipe.agent.interrupted")
        kinds = event_kinds(user)[len(TURN) :]
        assert kinds[0] == "voicepipe.agent.ducked"
        assert kinds[-2:] == ["input_audio_buffer.speech_started", "voicepipe.agent.interrupted"]
        assert yielded["reason"] in ("words", "sustained")
        await user.until("response.done")


async def test_no_ducking_events_without_the_extension(server: Any, question: Samples, murmur: Samples) -> None:
    """Nothing of a murmur; of an interruption what the published events have."""
    async with calling(server.base_url, session=QUICK) as user:
        await talking(server, user, question)
        server.vendor.stt.cue(SttCue(text="Mm-hmm."))
        await user.speak(murmur)
        await user.speak(question)
        await user.until("input_audio_buffer.committed")
        assert event_kinds(user) == [*TURN, *TURN]
        await user.until("response.done")


async def test_immediate_is_what_hosted_services_do(server: Any, question: Samples, murmur: Samples) -> None:
    """Any voice is reported, and interrupts."""
    session = {**QUICK, "providerData": {"voicepipe": {"ducking": True, "interruption": "immediate"}}}
    async with calling(server.base_url, session=session) as user:
        await talking(server, user, question)
        server.vendor.stt.cue(SttCue(text=""))
        await user.speak(murmur)
        await user.until("input_audio_buffer.committed")
        assert event_kinds(user) == [*TURN, *TURN]


# --- the setting ----------------------------------------------------------------------------------

AGENT = SessionConfig.start(
    session_id="sess_d", model="default", voice="v", instructions="", expires_at=0, interruption="immediate"
)


def config_with(**requested: object) -> SessionConfig:
    return AGENT.merged({"providerData": {"voicepipe": requested}})


def test_the_agent_s_own_counts_until_the_client_says_otherwise() -> None:
    assert AGENT.turn_settings().interruption == "immediate"
    assert config_with(ducking=True).turn_settings().interruption == "immediate"
    assert config_with(interruption="confirmed").turn_settings().interruption == "confirmed"
    back = config_with(interruption="confirmed").merged({"providerData": {"voicepipe": {"interruption": None}}})
    assert back.turn_settings().interruption == "immediate"
    off = config_with(interruption="confirmed").merged({"providerData": {"voicepipe": None}})
    assert off.turn_settings().interruption == "immediate"


def test_the_session_shows_which() -> None:
    extensions = config_with(interruption="confirmed").extensions
    assert extensions == Extensions(interruption="confirmed")
    assert extensions.to_wire()["interruption"] == "confirmed"


@pytest.mark.parametrize("wrong", ["later", True, 1, {}])
def test_another_word_is_refused(wrong: object) -> None:
    with pytest.raises(ProtocolError) as refused:
        config_with(interruption=wrong)
    assert refused.value.field == "session.providerData.voicepipe.interruption"
