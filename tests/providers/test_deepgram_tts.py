"""What the voice at Deepgram sends, and how it keeps within the vendor's limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageRefused
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.built_in import factory
from voicepipe.providers.deepgram.tts import MAX_FLUSHES, open_synthesizer
from voicepipe.providers.net import connection_pool
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import outcome, sound_of, speak
from voicepipe.testing.fakes.cues import Hold, InBandError, Malformed, TtsCue
from voicepipe.testing.fakes.deepgram_tts import KEY, FakeAura
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S

SPEC = Spec("deepgram", "aura-2-thalia-en")
VOICE = Voice(model="aura-2-thalia-en")
Make = Callable[..., Synthesizer]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeAura]:
    async with FakeAura() as vendor:
        yield vendor


@pytest.fixture
def make(settings: Callable[..., ProviderSettings]) -> Make:
    """A voice at the vendor, with options as keywords."""
    return lambda api_key=KEY, **options: open_synthesizer(SPEC, settings(api_key=api_key, **options))


def test_registry_finds_it() -> None:
    assert factory("deepgram", "tts", key="agents.default.tts") is open_synthesizer


@pytest.mark.parametrize(
    ("voice", "expected"),
    [
        (VOICE, {"model": "aura-2-thalia-en"}),
        (Voice(model="aura-2-thalia-en", voice="aura-2-zeus-en"), {"model": "aura-2-zeus-en"}),
        (Voice(model="aura-2-thalia-en", voice="alloy"), {"model": "aura-2-thalia-en"}),
        (Voice(model="aura-2-thalia-en", speed=1.25), {"model": "aura-2-thalia-en", "speed": "1.25"}),
        (Voice(model="aura-2-thalia-en", speed=4.0), {"model": "aura-2-thalia-en", "speed": "1.5"}),
    ],
)
async def test_handshake(vendor: FakeAura, make: Make, voice: Voice, expected: dict[str, str]) -> None:
    """A voice is a model; the handshake has no voice of another vendor, and no speed that this vendor lacks."""
    await speak(make(tts_extra='{"mip_opt_out": "true"}', endpointing_ms="20"), voice, "Hi.")
    call = await vendor.nth(0)
    assert call.query == {"encoding": "linear16", "sample_rate": "24000", "mip_opt_out": "true"} | expected
    assert [message["type"] for message in call.messages] == ["Speak", "Flush"]


@pytest.mark.parametrize("options", [{"tts_extra": "[]"}, {"tts_extra": '{"a": 1}'}, {"colour": "red"}])
def test_wrong_options(make: Make, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"providers\.deepgram\.\w+: "):
        make(**options)


async def test_wrong_key(make: Make) -> None:
    """The key's refusal is reported as the handshake's, without the key."""
    spoken_audio, error = await outcome(make(api_key="dg-wrong-0123456789"), VOICE, "Hi.")
    assert spoken_audio == []
    assert isinstance(error, StageRefused)
    assert (error.status, error.retryable) == (401, False)
    assert "dg-wrong" not in str(error)


async def test_more_clauses_than_flushes(vendor: FakeAura, make: Make) -> None:
    """The limit is never met, and nothing is lost: what is past it is flushed as one."""
    clauses = [f"Clause {n}." for n in range(MAX_FLUSHES + 6)]
    vendor.script.usual = TtsCue(ms_per_char=2)
    spoken_audio = await speak(make(), VOICE, *clauses)
    (call,) = vendor.calls
    assert sum(message["type"] == "Flush" for message in call.messages) == MAX_FLUSHES
    assert np.array_equal(sound_of(spoken_audio, 3), tone("Clause 3.", ms_per_char=2))
    rest = " ".join(clauses[MAX_FLUSHES - 1 :])
    assert np.array_equal(sound_of(spoken_audio, MAX_FLUSHES - 1), tone(rest, ms_per_char=2))


@pytest.mark.parametrize(
    "warning",
    [
        '{"type": "Warning", "warn_code": "EXCESSIVE_FLUSH", "warn_msg": "Rate limit exceeded for flushes."}',
        '{"type": "Warning", "code": "EXCESSIVE_FLUSH", "description": "Rate limit exceeded for flushes."}',
    ],
)
async def test_limit_is_a_refusal(vendor: FakeAura, make: Make, warning: str) -> None:
    """A flush that was not taken has no sound: it is not waited for. Both shapes have been seen."""
    vendor.script.cue(TtsCue(hold=Hold()))
    async with make().open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        await vendor.script.nth(0)
        await vendor.calls[0].send(warning)
        with pytest.raises(StageRefused) as raised:
            await anext(audio_of(speech))
    assert (raised.value.status, raised.value.retryable) == (429, True)


@pytest.mark.parametrize(
    "message",
    [
        '{"type": "Metadata", "request_id": "r", "model_name": "m", "model_version": "1", "model_uuid": "u"}',
        '{"type": "Warning", "code": "SOMETHING", "description": "Never mind."}',
        '{"type": "Novelty"}',
    ],
)
async def test_message_that_says_nothing_to_us(vendor: FakeAura, make: Make, message: str) -> None:
    """It is passed over, before anything was said and between."""
    async with make().open(VOICE) as speech, asyncio.timeout(WAIT_S):
        call = await vendor.nth(0)
        await call.send(message)
        speech.push("Hello.")
        speech.finish()
        spoken_audio = [spoken async for spoken in audio_of(speech)]
    assert len(sound_of(spoken_audio, 0))


@pytest.mark.parametrize(
    ("cue", "kind", "words"),
    [
        (TtsCue(fault=InBandError(message="voice went away")), StageBroken, "voice went away"),
        (TtsCue(fault=InBandError(message="out of credit", code=402)), StageRefused, "no credit"),
        (TtsCue(fault=Malformed()), StageBroken, "expected a message of the vendor's API"),
        (TtsCue(raw=b""), StageBroken, "no audio"),
    ],
)
async def test_what_is_no_sound(vendor: FakeAura, make: Make, cue: TtsCue, kind: type[Exception], words: str) -> None:
    vendor.script.cue(cue)
    spoken_audio, error = await outcome(make(), VOICE, "Hello.")
    assert spoken_audio == []
    assert type(error) is kind
    assert words in str(error)


async def test_each_turn_has_a_socket_of_its_own(vendor: FakeAura, make: Make) -> None:
    """Its sound bears no name: what ends the turn closes it, and the next one is there already."""
    async with connection_pool.lifetime():
        synthesizer = make()
        with synthesizer.keep_warm(VOICE):
            await vendor.nth(0)
            for n in range(2):
                await speak(synthesizer, VOICE, f"Turn {n}.")
                await soon(vendor.calls[n].closed)
                await vendor.nth(n + 1)
    assert [len(call.messages) for call in vendor.calls[:2]] == [2, 2]
