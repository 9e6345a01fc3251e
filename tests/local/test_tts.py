"""The real TTS engine, transcribed back by the real STT engine."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
import soxr
from hypothesis import given
from hypothesis import strategies as st

from voicepipe.errors import StageRefused
from voicepipe.ports.synthesizer import RATE_HZ, Spoken, Synthesizer, Voice, audio_of
from voicepipe.ports.transcriber import Final, Samples, TranscriptionOptions
from voicepipe.providers.local import tts
from voicepipe.providers.local.engine.hibari import louder
from voicepipe.providers.local.stt import open_transcriber
from voicepipe.registry import ProviderSettings, Spec
from voicepipe.testing.waiting import WAIT_S

VOICE = Voice(model="hibari")


@pytest.fixture
def synthesizer(settings: ProviderSettings) -> Synthesizer:
    """The adapter at the real engine."""
    return tts.open_synthesizer(Spec("local", "hibari"), settings)


async def spoken(synthesizer: Synthesizer, *clauses: str, voice: Voice = VOICE) -> list[Spoken]:
    """All sound of one turn."""
    async with synthesizer.open(voice) as speech, asyncio.timeout(WAIT_S):
        for clause in clauses:
            speech.push(clause)
        speech.finish()
        return [sound async for sound in audio_of(speech)]


def joined(sound: list[Spoken]) -> Samples:
    """int16, (n_samples,)."""
    return np.concatenate([spoken.samples for spoken in sound]) if sound else np.zeros(0, np.int16)


async def test_what_it_says_is_understood(synthesizer: Synthesizer, settings: ProviderSettings) -> None:
    """Clause by clause, joined without gaps in the sense: the STT engine transcribes the spoken text."""
    sound = joined(await spoken(synthesizer, "The capital of France is Paris,", "and it lies on the river Seine."))
    transcriber = open_transcriber(Spec("local", "moonshine-tiny"), settings)
    async with transcriber.open(TranscriptionOptions(model="moonshine-tiny")) as stream, asyncio.timeout(WAIT_S):
        stream.push(soxr.resample(sound, RATE_HZ, 16_000))
        stream.flush(1)
        text = await anext(aiter(stream))
    assert isinstance(text, Final)
    words = text.text.lower().replace(",", "").rstrip(".").split()
    assert words[:6] == ["the", "capital", "of", "france", "is", "paris"]
    assert words[-5:-1] == ["lies", "on", "the", "river"]


async def test_it_begins_at_once_and_is_loud_enough(synthesizer: Synthesizer) -> None:
    """The voice's own quarter second of silence is cut off; the level is that of other voices, without clipping."""
    sound = joined(await spoken(synthesizer, "Sure, I can help you with that.")).astype(np.float64) / 32768
    first_audible = int(np.flatnonzero(np.abs(sound) > 0.01)[0])
    assert first_audible < RATE_HZ * 80 // 1000
    level_dbfs = 20 * math.log10(np.sqrt(np.mean(sound**2)))
    assert -26 < level_dbfs < -18
    assert np.abs(sound).max() < 0.98


@pytest.mark.parametrize(
    "text",
    ["", " ", "...", "?!", "-", "(", "😀", "🎉 Party! 🎉", "日本語です", "Привет, как дела?", "٣ ٤", "\x00\x01\n\n",
     "<b>hi</b> & **bold** `code`", "http://example.com/a?b=c", "1/2 3.14159 50% #5 @me €20", "9" * 400, "x" * 3_000,
     "word " * 300, "a," * 300, "naïve café", "half of one: \ud83d"],
    ids=lambda text: ascii(text[:12]),
)  # fmt: skip
async def test_odd_texts_do_no_harm(synthesizer: Synthesizer, text: str) -> None:
    """Whatever a model writes, the turn ends, and what follows is spoken."""
    sound = await spoken(synthesizer, text, "Yes.")
    assert {part.clause for part in sound} <= {0, 1}
    assert joined([part for part in sound if part.clause == 1]).size > RATE_HZ // 5


async def test_speed_is_applied(synthesizer: Synthesizer) -> None:
    """Faster is shorter; beyond what the voice can it is brought to the nearest."""
    text = "This sentence takes a little while to say."
    normal, fast, fastest = [
        joined(await spoken(synthesizer, text, voice=Voice(model="hibari", speed=speed))).size
        for speed in (1.0, 1.5, 9.0)
    ]
    assert normal * 0.55 < fast < normal * 0.8
    assert normal * 0.4 < fastest < fast


async def test_other_voices_are_refused(synthesizer: Synthesizer) -> None:
    """With the list of those that are there; nothing is downloaded."""
    for voice in (Voice(model="hibari", voice="emma"), Voice(model="tts-1")):
        with pytest.raises(StageRefused) as refused:
            async with synthesizer.open(voice):
                pass
        assert not refused.value.retryable
        assert ("heart" if voice.voice else "'hibari'") in str(refused.value)
    assert await spoken(synthesizer, "Yes.", voice=Voice(model="hibari", voice="heart"))


async def test_too_many_clauses_are_refused(synthesizer: Synthesizer) -> None:
    """A model that never ends does not fill the memory."""
    async with synthesizer.open(VOICE) as speech:
        for _ in range(tts.MAX_CLAUSES + 1):
            speech.push("On and on.")
        with pytest.raises(StageRefused, match="expected 256 waiting clauses at most"):
            await anext(audio_of(speech))


@given(st.text(max_size=900))
def test_pieces_hold_all_words(text: str) -> None:
    """Cutting loses nothing that can be said, and no piece is longer than the engine takes."""
    cut = tts.pieces(text)
    assert all(0 < len(piece) <= tts.PIECE_CHARACTERS for piece in cut)
    letters = [c for c in text.encode("utf-8", "replace").decode() if c.isalnum()]
    assert [c for piece in cut for c in piece if c.isalnum()] == letters


def test_long_clauses_are_cut_between_words() -> None:
    """Each piece as full as can be; a word longer than any is cut too."""
    assert tts.pieces("word " * 50) == [" ".join(["word"] * 40), " ".join(["word"] * 10)]
    assert [len(word) for word in tts.pieces("9" * 100)[0].split()] == [30, 30, 30, 10]


@given(st.lists(st.floats(-2, 2, width=32), max_size=50))
def test_gain_never_clips(values: list[float]) -> None:
    """Even of a voice that comes out above full scale; quiet sound gets all of it."""
    samples = louder(np.array(values, np.float32))
    assert samples.dtype == np.int16
    assert np.abs(samples.astype(int)).max(initial=0) <= 0.98 * 32767
    if values and max(map(abs, values)) < 0.5:
        assert np.allclose(samples, np.array(values) * 1.778 * 32767, atol=10)
