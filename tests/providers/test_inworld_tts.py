"""What the voice at Inworld sends, and how it reads what the vendor says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest

from voicepipe.errors import ConfigError, StageBroken, StageError, StageRefused
from voicepipe.ports.synthesizer import Synthesizer, Voice, audio_of
from voicepipe.providers.built_in import factory
from voicepipe.providers.inworld.tts import MAX_CHARACTERS, open_synthesizer
from voicepipe.providers.net import connection_pool
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import outcome, sound_of, speak
from voicepipe.testing.conformance.waits import promptly
from voicepipe.testing.fakes.cues import Garbage, Hold, InBandError, Malformed, TtsCue
from voicepipe.testing.fakes.inworld_tts import KEY, FakeInworld
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone
from voicepipe.testing.waiting import WAIT_S

SPEC = Spec("inworld", "inworld-tts-2")
VOICE = Voice(model="inworld-tts-2")
Make = Callable[..., Synthesizer]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeInworld]:
    async with FakeInworld() as vendor:
        yield vendor


@pytest.fixture
def make(settings: Callable[..., ProviderSettings]) -> Make:
    """A voice at the vendor, with options as keywords."""
    return lambda api_key=KEY, **options: open_synthesizer(SPEC, settings(api_key=api_key, **options))


def test_registry_finds_it() -> None:
    assert factory("inworld", "tts", key="agents.default.tts") is open_synthesizer


async def test_messages(vendor: FakeInworld, make: Make) -> None:
    """A context is made once, each clause is flushed with its text, and the context is closed with the last."""
    await speak(make(), VOICE, "One clause,", "two clauses.")
    call = await vendor.nth(0)
    await call.until(lambda: not call.tts_contexts)
    assert [next(iter(message)) for message in call.messages] == ["create", "send_text", "send_text", "close_context"]
    assert call.messages[0]["create"] == {
        "voiceId": "Ashley",
        "modelId": "inworld-tts-2",
        "audioConfig": {"audioEncoding": "PCM", "sampleRateHertz": 24_000},
        "timestampType": "WORD",
        "timestampTransportStrategy": "SYNC",
        "bufferCharThreshold": 1_000,
    }
    assert call.messages[1]["send_text"] == {"text": "One clause, ", "flush_context": {}}


@pytest.mark.parametrize(
    ("voice", "options", "expected"),
    [
        (Voice(model="m", voice="Dennis"), {}, {"voiceId": "Dennis"}),
        (Voice(model="m", voice="default-ab12__olive"), {}, {"voiceId": "default-ab12__olive"}),
        (Voice(model="m", voice="alloy"), {"tts_voice": "Hades"}, {"voiceId": "Hades"}),
        (Voice(model="m", language="de-DE"), {"tts_extra": '{"temperature": 0.8}'}, {"temperature": 0.8}),
        (Voice(model="m", language="de-DE"), {}, {"language": "de-DE"}),
    ],
)
async def test_settings_of_a_context(
    vendor: FakeInworld, make: Make, voice: Voice, options: dict[str, str], expected: dict[str, Any]
) -> None:
    await speak(make(**options), voice, "Hi.")
    create = vendor.calls[0].messages[0]["create"]
    assert create | expected == create


@pytest.mark.parametrize(("speed", "rate"), [(1.25, 1.25), (0.25, 0.5), (4.0, 1.5)])
async def test_speed(vendor: FakeInworld, make: Make, speed: float, rate: float) -> None:
    """Brought to what the vendor can speak."""
    await speak(make(), Voice(model="m", speed=speed), "Hi.")
    assert vendor.calls[0].messages[0]["create"]["audioConfig"]["speakingRate"] == rate


@pytest.mark.parametrize("options", [{"tts_extra": "[]"}, {"tts_colour": "red"}])
def test_wrong_options(make: Make, options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"providers\.inworld\.\w+: "):
        make(**options)


async def test_wrong_key(make: Make) -> None:
    """The key's refusal is reported as the handshake's, without the key."""
    _, error = await outcome(make(api_key="d3Jvbmc6a2V5"), VOICE, "Hi.")
    assert isinstance(error, StageRefused)
    assert (error.status, error.retryable) == (401, False)
    assert "d3Jvbmc6a2V5" not in str(error)


async def test_word_times(vendor: FakeInworld, make: Make) -> None:
    """From the clause's beginning, each with the sound that it begins in."""
    vendor.script.usual = TtsCue(ms_per_char=40, chunk_bytes=9_600)
    spoken_audio = await speak(make(), VOICE, "Four words of it.", "Two more.")
    reported = [(spoken.clause, word.word, word.start_ms) for spoken in spoken_audio for word in spoken.words]
    assert reported == [
        (0, "Four", 0),
        (0, "words", 170),
        (0, "of", 340),
        (0, "it.", 510),
        (1, "Two", 0),
        (1, "more.", 180),
    ]


async def test_long_clause(vendor: FakeInworld, make: Make) -> None:
    """It goes in several texts, and is one clause with one line of word times."""
    clause = "seventeen letters " * 80
    vendor.script.usual = TtsCue(ms_per_char=2)
    spoken_audio = await speak(make(), VOICE, clause.strip(), "Next.")
    texts = [message["send_text"]["text"] for message in vendor.calls[0].messages if "send_text" in message]
    assert [len(text) <= MAX_CHARACTERS for text in texts] == [True, True, True]
    starts_ms = [word.start_ms for spoken in spoken_audio if spoken.clause == 0 for word in spoken.words]
    assert len(starts_ms) == 160
    assert starts_ms == sorted(starts_ms)
    assert np.array_equal(sound_of(spoken_audio, 1), tone("Next.", ms_per_char=2))


async def test_header_before_the_sound(vendor: FakeInworld, make: Make) -> None:
    """It is not played."""
    vendor.wav = True
    spoken_audio = await speak(make(), VOICE, "A clause of some length.")
    assert np.array_equal(sound_of(spoken_audio, 0), tone("A clause of some length."))


@pytest.mark.parametrize(
    ("cue", "kind", "words"),
    [
        (TtsCue(fault=InBandError(message="voice went away")), StageBroken, "voice went away"),
        (TtsCue(fault=InBandError(message="no such voice", code=5)), StageRefused, "no such voice"),
        (TtsCue(fault=InBandError(message="slow down", code=8)), StageRefused, "slow down"),
        (TtsCue(fault=Malformed()), StageBroken, "expected a message of the vendor's API"),
        (TtsCue(fault=Garbage()), StageBroken, "expected text"),
        (TtsCue(raw=b""), StageBroken, "no audio"),
    ],
)
async def test_what_is_no_sound(
    vendor: FakeInworld, make: Make, cue: TtsCue, kind: type[Exception], words: str
) -> None:
    vendor.script.cue(cue)
    spoken_audio, error = await outcome(make(), VOICE, "Hello.")
    assert spoken_audio == []
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    ("message", "retryable"),
    [
        ('{"error": {"code": 16, "message": "Unauthenticated"}}', False),
        ('{"error": {"code": 14, "message": "Try again"}}', True),
        ('{"error": {"code": 99, "message": "Whatever"}}', True),
        ('{"result": {"status": {"code": 3, "message": "nonsense"}}}', False),
    ],
)
async def test_error_of_no_context(vendor: FakeInworld, make: Make, message: str, retryable: bool) -> None:
    """It ends whatever is spoken."""
    vendor.script.cue(TtsCue(hold=Hold()))
    async with make().open(VOICE) as speech, asyncio.timeout(WAIT_S):
        speech.push("Hello.")
        await vendor.script.nth(0)
        await vendor.calls[0].send(message)
        with pytest.raises(StageError) as raised:
            await anext(audio_of(speech))
    assert raised.value.retryable is retryable


@pytest.mark.parametrize(
    "message",
    [
        '{"result": {"contextId": "another", "audioChunk": {"audioContent": "AAAA"}, "status": {"code": 0}}}',
        '{"result": {"contextUpdated": {}}}',
        '{"novelty": 1}',
    ],
)
async def test_message_that_says_nothing_to_us(vendor: FakeInworld, make: Make, message: str) -> None:
    async with make().open(VOICE) as speech, asyncio.timeout(WAIT_S):
        await (await vendor.nth(0)).send(message)
        speech.push("Hello.")
        speech.finish()
        spoken_audio = [spoken async for spoken in audio_of(speech)]
    assert np.array_equal(sound_of(spoken_audio, 0), tone("Hello."))


async def test_interrupted_turns_share_a_socket(vendor: FakeInworld, make: Make) -> None:
    """The next turn begins while the vendor still ends the one before, and receives no audio of that."""
    async with connection_pool.lifetime():
        synthesizer = make()
        hold = Hold(after=4_800)
        vendor.script.cue(TtsCue(hold=hold))
        async with synthesizer.open(VOICE) as speech, asyncio.timeout(WAIT_S):
            speech.push("A clause that somebody interrupts.")
            await anext(audio_of(speech))
        async with promptly():
            await (await vendor.script.nth(0)).gone.wait()
            spoken_audio = await speak(synthesizer, VOICE, "Yes?")
        assert np.array_equal(sound_of(spoken_audio, 0), tone("Yes?"))
        hold.release.set()
        (call,) = vendor.calls
        await call.until(lambda: not call.tts_contexts)
        assert call.peak_contexts == 2
    await soon(call.closed)
