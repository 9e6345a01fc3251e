"""What the OpenAI-shaped voice sends, how it works ahead, and how it reads the ways in which servers answer."""

from __future__ import annotations

import asyncio
import io
import struct
import wave
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import StageBroken, StageRefused
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice, audio_of
from voicepipe.ports.transcriber import Samples
from voicepipe.providers.built_in import factory
from voicepipe.providers.net import connection_pool, http
from voicepipe.providers.net.address import ProviderAddress
from voicepipe.providers.openai.tts import open_synthesizer
from voicepipe.providers.tts.decode_audio import NotSpeech, SoundReader
from voicepipe.providers.tts.per_clause import AHEAD
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.conformance.synthesizer import outcome, sound_of, speak
from voicepipe.testing.fakes.cues import Hold, InBandError, Malformed, TtsCue
from voicepipe.testing.fakes.script import soon
from voicepipe.testing.fakes.tone import tone, wav_header
from voicepipe.testing.fakes.vendor import FakeVendor
from voicepipe.testing.waiting import WAIT_S

SPEC = Spec("kokoro", "kokoro")
VOICE = Voice(model="kokoro", voice="af_heart")
Settings = Callable[..., ProviderSettings]


@pytest.fixture
def synthesizer(settings: Settings) -> Synthesizer:
    return open_synthesizer(SPEC, settings())


def test_registry_finds_it() -> None:
    """The built-in name leads here."""
    assert factory("openai", "tts", key="agents.default.tts") is open_synthesizer


async def test_request(vendor: FakeVendor, settings: Settings) -> None:
    """Model, text, format and voice; the speed only where it is another than the vendor's own."""
    plain = open_synthesizer(SPEC, settings())
    await speak(plain, Voice(model="kokoro"), "Hi.")
    odd = open_synthesizer(
        SPEC, settings(speech_format="wav", default_voice="af_sky", tts_extra='{"instructions": "Calm."}')
    )
    await speak(odd, Voice(model="kokoro", speed=1.25), "Hi.")
    await speak(odd, VOICE, "Hi.")
    received = [received.question for received in vendor.tts.received]
    assert received[0] == {"model": "kokoro", "input": "Hi.", "response_format": "pcm"}
    assert received[1] == received[0] | {
        "response_format": "wav",
        "voice": "af_sky",
        "speed": 1.25,
        "instructions": "Calm.",
    }
    assert received[2]["voice"] == "af_heart"


async def test_a_connection_is_open_before_the_first_clause(
    vendor: FakeVendor, synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for all sessions that may speak, however many; and it is used now and then, so that it stays."""
    touches: asyncio.Queue[None] = asyncio.Queue()
    preconnect = http.preconnect

    async def noted(address: ProviderAddress, path: str) -> None:
        await preconnect(address, path)
        touches.put_nowait(None)

    monkeypatch.setattr(http, "preconnect", noted)
    async with connection_pool.lifetime(), asyncio.timeout(WAIT_S):
        with synthesizer.keep_warm(VOICE), synthesizer.keep_warm(VOICE):
            await touches.get()
            await speak(synthesizer, VOICE, "Hi.")
            assert (vendor.connections_made, touches.qsize()) == (1, 0)
        monkeypatch.setattr(connection_pool, "PRECONNECT_S", 0.0)
        with synthesizer.keep_warm(VOICE):
            await touches.get()
            await touches.get()
    assert vendor.connections_made == 1


async def test_next_clause_is_requested_ahead(vendor: FakeVendor, synthesizer: Synthesizer) -> None:
    """While a clause sounds the next one's request is open, and no further one."""
    hold = Hold(after=4_800)
    vendor.tts.cue(TtsCue(hold=hold))
    async with synthesizer.open(VOICE) as speech, asyncio.timeout(WAIT_S):
        for clause in ("The first clause.", "The second.", "The third.", "The fourth."):
            speech.push(clause)
        speech.finish()
        await anext(audio_of(speech))
        await vendor.tts.nth(AHEAD)
        assert [received.question["input"] for received in vendor.tts.received] == ["The first clause.", "The second."]
        hold.release.set()
        rest = [spoken async for spoken in audio_of(speech)]
    assert [spoken.clause for spoken in rest] == sorted(spoken.clause for spoken in rest)
    assert [received.question["input"] for received in vendor.tts.received][2:] == ["The third.", "The fourth."]
    for number, text in enumerate(("The second.", "The third.", "The fourth."), 1):
        assert np.array_equal(sound_of(rest, number), tone(text))


async def test_first_clause_is_requested_when_it_is_said(vendor: FakeVendor, synthesizer: Synthesizer) -> None:
    """The request leaves before the stream is read."""
    async with synthesizer.open(VOICE) as speech:
        speech.push("Hello.")
        assert (await vendor.tts.nth(0)).question["input"] == "Hello."


async def test_interrupt_cancels_the_request_ahead(vendor: FakeVendor, synthesizer: Synthesizer) -> None:
    """Leaving closes both requests at the vendor."""
    vendor.tts.cue(TtsCue(hold=Hold(after=4_800)), TtsCue(hold=Hold()))
    async with synthesizer.open(VOICE) as speech:
        speech.push("The first clause.")
        speech.push("The second.")
        await anext(audio_of(speech))
        await vendor.tts.nth(1)
    for received in vendor.tts.received:
        await soon(received.gone)


async def test_consumer_that_stops_makes_the_vendor_wait(vendor: FakeVendor, synthesizer: Synthesizer) -> None:
    """Unread audio is not buffered without bound: the socket fills and the vendor's writes wait."""
    text = "x" * 10_000  # 400 s of sound, 19 MB: more than loopback's buffers hold
    vendor.tts.cue(TtsCue(chunk_bytes=1 << 20))
    async with synthesizer.open(VOICE) as speech:
        speech.push(text)
        spoken = await anext(audio_of(speech))
        received = await vendor.tts.nth(0)
        for _ in range(8_000):  # turns of the loop in which a reader without bound would have read it all
            await asyncio.sleep(0)
        assert not received.ended.is_set()
    assert len(spoken.samples) <= RATE_HZ
    await soon(received.gone)


async def test_clauses_without_end_are_refused(synthesizer: Synthesizer) -> None:
    """A turn has tens of clauses; thousands are a mistake, and the iterator says so."""
    async with synthesizer.open(VOICE) as speech:
        for _ in range(1_100):
            speech.push(".")
        with pytest.raises(StageRefused, match="at most 1024 waiting clauses"):
            await anext(audio_of(speech))


# What servers answer


@pytest.mark.parametrize(
    "cue",
    [
        TtsCue(wav=True),
        TtsCue(wav=True, content_type="audio/pcm", chunk_bytes=7),
        TtsCue(content_type="application/octet-stream"),
        TtsCue(rate_hz=16_000, wav=True),
        TtsCue(rate_hz=48_000, wav=True, chunk_bytes=4_801),
        TtsCue(rate_hz=16_000, content_type="audio/l16; rate=16000; channels=1"),
    ],
    ids=["wav", "wav in pieces", "no type", "16 kHz wav", "48 kHz wav", "rate in the type"],
)
async def test_forms_of_sound(vendor: FakeVendor, synthesizer: Synthesizer, cue: TtsCue) -> None:
    """A header is read and not played, and other rates become the port's; the tone is as long and as high as it was."""
    vendor.tts.cue(cue)
    sound = sound_of(await speak(synthesizer, VOICE, "Some clause to say."), 0)
    expected = tone("Some clause to say.")
    assert len(sound) == len(expected)
    assert np.abs(sound.astype(int) - expected.astype(int)).max() < (1 if cue.rate_hz == RATE_HZ else 200)


async def test_rate_as_an_option(vendor: FakeVendor, settings: Settings) -> None:
    """The settings state the rate of a server whose headerless audio has another rate."""
    vendor.tts.cue(TtsCue(rate_hz=22_050))
    spoken_audio = await speak(open_synthesizer(SPEC, settings(speech_rate_hz="22050")), VOICE, "Some clause to say.")
    assert len(sound_of(spoken_audio, 0)) == len(tone("Some clause to say."))


@pytest.mark.parametrize(
    ("cue", "kind", "words"),
    [
        (TtsCue(fault=InBandError(message="voice not found")), StageBroken, "voice not found"),
        (TtsCue(fault=InBandError(message="voice not found", code=404)), StageRefused, "voice not found"),
        (TtsCue(content_type="text/plain", raw=b"out of credit"), StageBroken, "out of credit"),
        (TtsCue(content_type="audio/mpeg"), StageBroken, "expected pcm or wav, got audio/mpeg"),
        (TtsCue(fault=Malformed()), StageBroken, "got mp3"),
        (TtsCue(raw=b""), StageBroken, "no audio"),
        (TtsCue(raw=wav_header(24_000)), StageBroken, "no audio"),
        (TtsCue(raw=b"RIFF\0\0\0\0WAVE" + b"junk" + struct.pack("<I", 100_000) + bytes(80_000)), StageBroken, "header"),
    ],
)
async def test_what_is_not_sound(
    vendor: FakeVendor, synthesizer: Synthesizer, cue: TtsCue, kind: type[Exception], words: str
) -> None:
    """Errors under 200, compressed files and empty answers are distinguished, and none of them is played."""
    vendor.tts.cue(cue)
    spoken_audio, error = await outcome(synthesizer, VOICE, "Hello.")
    assert type(error) is kind
    assert words in str(error)
    assert spoken_audio == []


async def test_clause_without_words_may_be_silent(vendor: FakeVendor, synthesizer: Synthesizer) -> None:
    """Dots have no sound, and that is no failure."""
    vendor.tts.cue(TtsCue(raw=b""))
    assert await speak(synthesizer, VOICE, "...") == []


def wav(samples: Samples, *, channels: int = 1, width: int = 2, rate_hz: int = RATE_HZ) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(width)
        writer.setframerate(rate_hz)
        writer.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def read(body: bytes, places: list[int], content_type: str = "audio/wav") -> Samples:
    reader = SoundReader(content_type, rate_hz=RATE_HZ)
    bounds = [0, *sorted(min(place, len(body)) for place in places), len(body)]
    pieces = [reader.push(body[a:b]) for a, b in pairwise(bounds)]
    whole = np.concatenate([*pieces, reader.finish()])
    assert reader.n_samples == len(whole)
    return whole


SAMPLES = st.lists(st.integers(-32_768, 32_767), max_size=60).map(lambda values: np.array(values, dtype=np.int16))
PLACES = st.lists(st.integers(0, 200), max_size=12)


@given(SAMPLES, PLACES)
def test_any_cut_gives_the_same_samples(samples: Samples, places: list[int]) -> None:
    """Headers, samples and what follows them: where the network cuts makes no difference."""
    pcm = samples.astype("<i2").tobytes()
    assert np.array_equal(read(wav(samples), places), samples)
    assert np.array_equal(read(wav(samples) + b"LIST\x04\0\0\0junk" * bool(len(samples)), places), samples)
    assert np.array_equal(read(wav_header(RATE_HZ) + pcm, places), samples)
    if pcm[:3] != b"ID3" and pcm[:4] not in (b"RIFF", b"OggS", b"fLaC"):
        assert np.array_equal(read(pcm, places, ""), samples)


@given(SAMPLES, PLACES)
def test_stereo_becomes_mono(samples: Samples, places: list[int]) -> None:
    """Both channels are mixed into one."""
    frames = samples[: len(samples) // 2 * 2].reshape(-1, 2)
    expected = frames.mean(axis=1).astype(np.int16)
    assert np.array_equal(read(wav(frames.ravel(), channels=2), places), expected)


def test_wav_of_another_kind_is_named() -> None:
    """What can't be played says what it is."""
    with pytest.raises(NotSpeech, match="24 bits"):
        read(wav(np.zeros(3, dtype=np.int16), width=3), [])
    with pytest.raises(NotSpeech, match="without"):
        read(b"RIFF\0\0\0\0WAVEdata\0\0\0\0", [])
