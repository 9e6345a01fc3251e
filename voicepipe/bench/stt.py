"""Measure the latency and word errors of STT: each recording is sent in real time, and its text compared.

A streaming STT gets each recording in real time. An STT that transcribes whole utterances gets it at once,
since it begins at the request. The clock starts at the request for the text, 100 ms after the last word,
as in a session.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from voicepipe.audio.samples import Samples, silence
from voicepipe.bench.runner import ReportProgress, run_repeated
from voicepipe.clock import loop_s
from voicepipe.errors import StageError
from voicepipe.ports.transcriber import Final as FinalText
from voicepipe.ports.transcriber import Interim, Transcriber, TranscriptEvent, TranscriptionOptions, TranscriptStream

PAUSE_MS: Final = 100
"""Silence behind the last word that is sent before the text is requested."""

FRAME_MS: Final = 20

WORD: Final = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
"""Punctuation and case are not compared."""


@dataclass(frozen=True, slots=True)
class SttUtterance:
    """One utterance for an STT."""

    name: str
    samples: Samples
    """The speech, int16, (n_samples,), mono, at `rate_hz`."""

    rate_hz: int
    text: str
    """The reference text."""


@dataclass(frozen=True, slots=True)
class SttCandidate:
    """An STT to be measured."""

    spec: str
    transcriber: Transcriber
    transcription: TranscriptionOptions
    cost_usd: Callable[[float], float | None]
    """Returns the cost of a number of seconds; None if no price is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SttResult:
    """The measurements of one utterance."""

    spec: str
    name: str
    final_ms: float | None
    """From the request to the text; None if there was none."""

    partial_ms: float | None
    """From the start of the speech to its first words; None if they came with all the others."""

    duration_s: float
    n_words: int
    """Number of reference words."""

    n_errors: int
    """Number of inserted, deleted and substituted words."""

    cost_usd: float | None
    text: str
    error: str
    """Empty for an answer."""


async def measure(
    candidates: Sequence[SttCandidate],
    utterances: Callable[[int], Sequence[SttUtterance]],
    n: int,
    at_once: int,
    progress: ReportProgress,
) -> list[SttResult]:
    """Send `n` utterances to each STT, one STT after the other, `at_once` at a time.

    Args:
        candidates: the STTs.
        utterances: returns the utterances at a rate in Hz; they are sent in turn.
        n: number of utterances.
        at_once: number of concurrent utterances, each on its own stream.
        progress: receives the progress.
    """
    results = list[SttResult]()
    for candidate in candidates:
        utterance = utterances(candidate.transcriber.capabilities.rate_hz)
        work = partial(_nth, candidate, utterance)
        results += await run_repeated(candidate.spec, n, at_once, work, progress)
    return results


async def _nth(candidate: SttCandidate, utterance: Sequence[SttUtterance], n: int) -> SttResult:
    return await _transcribe(candidate, utterance[n % len(utterance)])


async def _transcribe(candidate: SttCandidate, utterance: SttUtterance) -> SttResult:
    times = _Times()
    error = text = ""
    try:
        async with candidate.transcriber.open(candidate.transcription) as stream, asyncio.TaskGroup() as group:
            final = group.create_task(_final(aiter(stream), times), name="bench-texts")
            await _speak(stream, utterance, paced=candidate.transcriber.capabilities.streams)
            times.flushed_s = loop_s()
            text = await final
            error = "" if times.final_s else "the STT ended without a transcript"
    except* StageError as failed:
        error = _first(failed)
    duration_s = len(utterance.samples) / utterance.rate_hz
    expected = words(utterance.text)
    return SttResult(
        spec=candidate.spec,
        name=utterance.name,
        final_ms=None if error else 1_000 * (times.final_s - times.flushed_s),
        partial_ms=None if times.partial_s is None else 1_000 * (times.partial_s - times.began_s),
        duration_s=duration_s,
        n_words=len(expected),
        n_errors=0 if error else word_errors(expected, words(text)),
        cost_usd=None if error else candidate.cost_usd(duration_s),
        text=text,
        error=error,
    )


def _first(group: BaseExceptionGroup[StageError]) -> str:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first)


class _Times:
    """Times by the loop's clock."""

    def __init__(self) -> None:
        self.began_s = self.flushed_s = loop_s()
        self.partial_s: float | None = None
        self.final_s = 0.0


async def _speak(stream: TranscriptStream, utterance: SttUtterance, *, paced: bool) -> None:
    """Push the speech and a pause, and request the text."""
    sound = np.concatenate((utterance.samples, silence(PAUSE_MS * utterance.rate_hz // 1_000)))
    n_frame = FRAME_MS * utterance.rate_hz // 1_000
    stream.begin(1)
    began_s = loop_s()
    for begin in range(0, len(sound), n_frame):
        stream.push(sound[begin : begin + n_frame])
        if paced:
            await asyncio.sleep(began_s + (begin + n_frame) / utterance.rate_hz - loop_s())
    stream.flush(1)


async def _final(events: AsyncIterator[TranscriptEvent], times: _Times) -> str:
    async for event in events:
        match event:
            case FinalText(flush=1, text=text):
                times.final_s = loop_s()
                return text
            case Interim() | FinalText() if times.partial_s is None and event.text:
                times.partial_s = loop_s()
    return ""


def words(text: str) -> list[str]:
    """Return the words of a text, without case and punctuation."""
    return WORD.findall(text.casefold().replace("\u2019", "'"))


def word_errors(utterance: Sequence[str], results: Sequence[str]) -> int:
    """Return the number of insertions, deletions and substitutions between the two.

    Source: Levenshtein's distance, by Wagner and Fischer's table, a row at a time.
    """
    row = list(range(len(results) + 1))
    for n, word in enumerate(utterance, 1):
        diagonal, row[0] = row[0], n
        for m, other in enumerate(results, 1):
            best = min(row[m] + 1, row[m - 1] + 1, diagonal + (word != other))
            diagonal, row[m] = row[m], best
    return row[-1]
