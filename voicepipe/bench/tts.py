"""Measure the latency and steadiness of TTS: the same texts to each, timed where audio would go to a user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from voicepipe.audio.samples import first_audible
from voicepipe.bench.runner import ReportProgress, run_repeated
from voicepipe.clock import loop_s
from voicepipe.errors import ConfigError, StageError
from voicepipe.ports.synthesizer import RATE_HZ, Speech, Spoken, Synthesizer, Voice, audio_of
from voicepipe.turn.clauses import ClauseSplitter

TEXTS: Final = (
    "Yes, of course.",
    "The tallest mountain is Mount Everest, at eight thousand eight hundred and forty-nine metres.",
    "I have moved your appointment to Friday at half past ten. Is there anything else that I can do for you?",
    "I'm sorry, but I could not find that order. Could you tell me the number once more, please?",
    "Boil the egg for six minutes. Then put it into cold water, so that it is easy to peel.",
    "Thanks for calling, and goodbye!",
)
"""Texts as agents speak them."""


@dataclass(frozen=True, slots=True)
class TtsCandidate:
    """A TTS to be measured."""

    spec: str
    synthesizer: Synthesizer
    voice: Voice
    cost_usd: Callable[[int], float | None]
    """Returns the cost of a number of characters; None if no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtsMeasurement:
    """The measurements of one text."""

    spec: str
    text: int
    """Index of the text, from 0."""

    n_chars: int
    audible_ms: float | None
    """To the piece with the first audible sample; None if there was none."""

    leading_ms: float | None
    """Silence before that sample."""

    total_ms: float
    """To the end, or to the error."""

    sound_ms: float
    n_underruns: int
    """Number of underruns for a user who plays the first audio at once."""

    underrun_ms: float
    """Total length of the underruns."""

    cost_usd: float | None
    error: str
    """Empty for complete audio."""

    @property
    def real_time_factor(self) -> float | None:
        """Return the time taken for each second of audio."""
        return self.total_ms / self.sound_ms if self.sound_ms and not self.error else None


async def measure(
    candidates: Sequence[TtsCandidate], texts: Sequence[str], n: int, at_once: int, progress: ReportProgress
) -> list[TtsMeasurement]:
    """Synthesize `n` texts with each candidate, one after the other, `at_once` at a time."""
    spoken = list[TtsMeasurement]()
    for candidate in candidates:
        spoken += await run_repeated(candidate.spec, n, at_once, partial(_speak, candidate, texts), progress)
    return spoken


async def learn(candidate: TtsCandidate, texts: Sequence[str]) -> None:
    """Synthesize each text as often as needed for the phrase cache to store it; nothing is measured.

    Raises:
        StageError: the synthesis failed.
    """
    for text in (*texts, *texts):
        async with candidate.synthesizer.open(candidate.voice) as speech:
            _push_text(speech, text)
            async for _ in speech:
                pass


def _push_text(speech: Speech, text: str) -> None:
    splitter = ClauseSplitter()
    for clause in (*splitter.push(text), *splitter.flush()):
        speech.push(clause)
    speech.finish()


async def _speak(candidate: TtsCandidate, texts: Sequence[str], n: int) -> TtsMeasurement:
    text, error = texts[n % len(texts)], ""
    playback = _Playback()
    try:
        async with candidate.synthesizer.open(candidate.voice) as speech:
            _push_text(speech, text)
            async for spoken in audio_of(speech):
                playback.take(spoken, loop_s())
    except StageError as failure:
        error = str(failure)
    return TtsMeasurement(
        spec=candidate.spec,
        text=n % len(texts),
        n_chars=len(text),
        audible_ms=playback.audible_ms,
        leading_ms=playback.leading_ms,
        total_ms=1_000 * (loop_s() - playback.began_s),
        sound_ms=playback.sound_ms,
        n_underruns=playback.n_underruns,
        underrun_ms=playback.underrun_ms,
        cost_usd=None if error else candidate.cost_usd(len(text)),
        error=error,
    )


class _Playback:
    """A user who plays audio as soon as it arrives."""

    def __init__(self) -> None:
        self.began_s = loop_s()
        self.audible_ms: float | None = None
        self.leading_ms: float | None = None
        self.sound_ms = self.underrun_ms = 0.0
        self.n_underruns = 0
        self._plays_until_s: float | None = None

    def take(self, spoken: Spoken, now_s: float) -> None:
        if self._plays_until_s is None:
            self._plays_until_s = now_s
        elif now_s > self._plays_until_s:
            self.n_underruns += 1
            self.underrun_ms += 1_000 * (now_s - self._plays_until_s)
            self._plays_until_s = now_s
        self._plays_until_s += len(spoken.samples) / RATE_HZ
        if self.audible_ms is None and (first := first_audible(spoken.samples)) is not None:
            self.audible_ms = 1_000 * (now_s - self.began_s)
            self.leading_ms = self.sound_ms + 1_000 * first / RATE_HZ
        self.sound_ms += 1_000 * len(spoken.samples) / RATE_HZ


def read_texts(path: Path) -> tuple[str, ...]:
    """Read a file with a text on each line.

    Raises:
        ConfigError: the file cannot be read, or has no text.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as why:
        raise ConfigError(f"--texts: expected a text file that can be read, got {str(path)!r}: {why}") from None
    texts = tuple(line.strip() for line in lines if any(map(str.isalnum, line)))
    if not texts:
        raise ConfigError(f"--texts: expected a text on each line, got none in {str(path)!r}")
    return texts
