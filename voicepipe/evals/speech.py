"""The user's speech: recordings and synthesized texts, cut to the voice, with the place of the last voiced sample."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from voicepipe.audio import levels
from voicepipe.audio.files import UnreadableSound, read_sound
from voicepipe.audio.resample import Resampler
from voicepipe.audio.samples import Samples, silence
from voicepipe.errors import ConfigError, StageError
from voicepipe.evals.scenario import Part
from voicepipe.ports.synthesizer import RATE_HZ, Synthesizer, Voice, audio_of

MARGIN_MS: Final = 60
"""Audio left before the first and behind the last voiced sample: consonants are weaker than the vowels beside them."""

_LEVEL_HZ: Final = 16_000
_HOP_MS: Final = 10
_RUN_HOPS: Final = 3
"""A click is shorter than 30 ms, and a syllable is longer."""

_SHARE: Final = 0.3
_MIN_RISE_DB: Final = 9.0
"""Of the way from the quiet to the peak, and the least: as for t0, see `voicepipe.audio.levels`."""

_SPAN_DB: Final = 30.0
"""From the quiet to the peak, where all of a recording is voice."""

_SILENT_DB: Final = 17.5
"""-73 dBFS, quieter than any room."""

_TAIL_HOPS: Final = 10
_FLUSH_SAMPLES: Final = 2_400
"""100 ms, which bring the end of the audio out of the resampler."""

_PER_MS: Final = RATE_HZ // 1_000


@dataclass(frozen=True, slots=True)
class Words:
    """A stretch of an utterance with its text."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class StepSpeech:
    """The user's audio of one step."""

    samples: Samples
    """int16, (n_samples,), 24 kHz."""

    voiced_until_ms: int
    """Position of the last voiced sample, to 10 ms."""

    words: tuple[Words, ...]

    @property
    def duration_ms(self) -> int:
        """Return the length of the audio in ms."""
        return len(self.samples) // _PER_MS


@dataclass(frozen=True, slots=True)
class UserTts:
    """A TTS that speaks the user's texts."""

    synthesizer: Synthesizer
    voice: Voice


class UserSpeech:
    """Makes utterances; a text or recording is made once."""

    def __init__(self, tts_of: Callable[[str, str | None], UserTts]) -> None:
        """`tts_of` returns the TTS of a spec and a voice's name; it raises `ConfigError` if there is none."""
        self._tts_of = tts_of
        self._made: dict[tuple[str, ...], Samples] = {}

    async def utterance(self, parts: tuple[Part, ...], folder: Path, tts: str, voice: str | None) -> StepSpeech:
        """Return the parts as one utterance; recordings are relative to `folder`.

        Raises:
            ConfigError: a recording can't be read or has no voice, or the TTS failed.
        """
        pieces, words, at_ms, voiced_ms = list[Samples](), list[Words](), 0, 0
        for part in parts:
            sound = silence(part.pause_ms * _PER_MS)
            if not part.pause_ms:
                sound = await self._voiced(part, folder, tts, voice)
                voiced_ms = at_ms + len(sound) // _PER_MS - MARGIN_MS
                words.append(Words(part.text, at_ms, at_ms + len(sound) // _PER_MS))
            pieces.append(sound)
            at_ms += len(sound) // _PER_MS
        return StepSpeech(np.concatenate(pieces), voiced_ms, tuple(words))

    async def _voiced(self, part: Part, folder: Path, tts: str, voice: str | None) -> Samples:
        key = (str(folder / part.audio),) if part.audio else (part.text, tts, voice or "")
        if key not in self._made:
            if part.audio:
                sound = await asyncio.to_thread(_read, folder / part.audio)
            else:
                sound = await _synthesize(part.text, self._tts_of(tts, voice))
            self._made[key] = voiced_part(sound, part.audio or repr(part.text))
        return self._made[key]


def voiced_part(sound: Samples, name: str) -> Samples:
    """Return the audio from its first to its last voiced sample, with `MARGIN_MS` at both ends.

    Raises:
        ConfigError: it has no voice; the text has `name`.
    """
    bounds = voice_bounds_ms(sound)
    if bounds is None:
        raise ConfigError(f"expected speech, got audio without a voice: {name}")
    margin = silence(MARGIN_MS * _PER_MS)
    cut: Samples = np.concatenate((margin, sound, margin))[bounds[0] * _PER_MS : (bounds[1] + 2 * MARGIN_MS) * _PER_MS]
    return cut


def voice_bounds_ms(sound: Samples) -> tuple[int, int] | None:
    """Return where the voice begins and ends in a recording of one utterance, int16, at 24 kHz; None: it has none.

    By levels alone, so that the measurement does not depend on the server's own VAD. On the labelled recordings of
    `tests/data` the end is 25 ms early to 38 ms late, by the median 5 ms early.
    """
    sound_16k = Resampler(RATE_HZ, _LEVEL_HZ).push(np.concatenate((sound, silence(_FLUSH_SAMPLES))))
    sound_16k = sound_16k[: len(sound) * _LEVEL_HZ // RATE_HZ]
    level = levels.levels(sound_16k)
    if level.shape[1] < _RUN_HOPS:
        return None
    quiet, peak = np.quantile(level[0], (0.1, 0.98))
    if peak - quiet < _MIN_RISE_DB:  # a synthesized text may have no silence in it
        quiet = peak - _SPAN_DB
    loud = level[0] > max(quiet + _MIN_RISE_DB, quiet + _SHARE * (peak - quiet), _SILENT_DB)
    runs = np.flatnonzero(np.convolve(loud.astype(int), np.ones(_RUN_HOPS, dtype=int), mode="valid") == _RUN_HOPS)
    if not len(runs):
        return None
    first, last = int(runs[0]), int(runs[-1]) + _RUN_HOPS - 1
    consonants = levels.voiced(level)
    if consonants is not None:  # a weak consonant may follow the last vowel
        behind = levels.voice_end_hops(consonants, len(consonants) - 1 - last, _TAIL_HOPS)
        last = last if behind is None else max(last, len(consonants) - 1 - behind)
    offset_ms = (len(sound_16k) - 1 - level.shape[1] * levels.HOP_SAMPLES) * 1_000 // _LEVEL_HZ
    return first * _HOP_MS + offset_ms, (last + 1) * _HOP_MS + offset_ms


def _read(path: Path) -> Samples:
    try:
        return read_sound(path, RATE_HZ)
    except UnreadableSound as why:
        raise ConfigError(f"expected a recording (wav, flac, ogg, mp3), got {why}") from why


async def _synthesize(text: str, tts: UserTts) -> Samples:
    pieces = [silence(0)]
    try:
        async with tts.synthesizer.open(tts.voice) as speech:
            speech.push(text)
            speech.finish()
            async for spoken in audio_of(speech):
                pieces.append(spoken.samples)  # noqa: PERF401 - an asynchronous comprehension hides the failure's place
    except StageError as failure:
        raise ConfigError(f"user.tts: expected a voice that can speak {text!r}, got {failure}") from failure
    return np.concatenate(pieces)
