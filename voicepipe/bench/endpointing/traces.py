"""The pauses of a recording, as the VAD and the models describe them, for any rule to decide on afterwards.

A trace has no rule: its pauses last until the user goes on. The decisions of all rules come from the same trace, so
that VAD, transcription and models run once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from voicepipe.audio.classifier import Vad
from voicepipe.audio.samples import Samples
from voicepipe.audio.speech_events import Edge, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadSegmenter

FRAME_MS: Final = 20

PADDING_MS: Final = 200
"""Audio from before the speech that models get too."""

AUDIO_SCORE_AT_MS: Final = (100, 200)
"""The silences after which the audio model scores: this server's, and Pipecat's."""

Words = Callable[[Samples], str]
"""Returns the text of these samples, int16, (n_samples,)."""

SentenceEnd = Callable[[str], float]
"""Returns the probability, 0 to 1, that the sentence ends after this text."""

AudioScore = Callable[[Samples], float]
"""Returns the probability, 0 to 1, that the user has finished, of these samples, int16, (n_samples,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseStep:
    """The silence of a pause at one frame."""

    at_ms: int
    """Position in the stream: the end of the frame."""

    silence_ms: int
    """Since the last voiced sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One pause, from its detection until the user goes on or the recording ends."""

    began_ms: int
    """Onset of the utterance."""

    voiced_ms: int
    """Position of the last voiced sample."""

    text: str
    """The words of the utterance up to the pause."""

    sentence_end: float | None
    """The language model's probability that the sentence ends after `text`; None without a model."""

    audio_scores: dict[int, float]
    """Silence in ms -> the audio model's score of the audio up to then; empty without a model."""

    steps: tuple[PauseStep, ...]
    resumed_at_ms: int | None = None
    """Position at which the VAD found that the user goes on; None: the recording ended."""

    onset_ms: int | None = None
    """Position of that onset."""

    telephone: bool = False
    """Whether the user speaks on a telephone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The pauses of one recording under one condition."""

    clip: str
    condition: str
    started_at_ms: tuple[int, ...]
    """Positions at which the VAD found that the user has begun to speak."""

    pauses: tuple[Pause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledTrace:
    """A trace, and what is known of its recording."""

    trace: Trace
    set: str
    """`orders`, `calls`, `reading`, or the kind of the clip."""

    speaker: str
    end_ms: int | None
    """Position of the end of the last word; None: no speech."""

    babble: bool
    """Whether the noise of its condition consists of voices."""

    vad: Vad = "silero"
    """The VAD that found its pauses."""


def read_traces(path: Path, vad: Vad = "silero") -> Iterator[LabelledTrace]:
    """Yield the traces of one VAD that `append_trace` has written.

    Raises:
        OSError: the file can't be read.
        msgspec.MsgspecError: a line is not a trace.
    """
    with path.open("rb") as file:
        for line in file:
            traced = msgspec.json.decode(line, type=LabelledTrace)
            if traced.vad == vad:
                yield traced


def append_trace(path: Path, traced: LabelledTrace) -> None:
    """Append one trace to a file of JSON lines."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(traced) + b"\n")


@dataclass(slots=True, kw_only=True)
class _OpenPause:
    stop: SpeechStop
    began_ms: int
    text: str
    sentence_end: float | None
    telephone: bool
    audio_scores: dict[int, float] = field(default_factory=dict)
    steps: list[PauseStep] = field(default_factory=list)

    def closed(self, at_ms: int | None = None, onset_ms: int | None = None) -> Pause:
        return Pause(
            began_ms=self.began_ms,
            voiced_ms=self.stop.last_voiced.stream_ms,
            text=self.text,
            sentence_end=self.sentence_end,
            audio_scores=self.audio_scores,
            steps=tuple(self.steps),
            resumed_at_ms=at_ms,
            onset_ms=onset_ms,
            telephone=self.telephone,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseModels:
    """The models that describe each pause. None: not measured."""

    words: Words | None = None
    sentence_end: SentenceEnd | None = None
    audio_score: AudioScore | None = None


class Tracer:
    """Traces one recording; `telephone`: of a telephone."""

    def __init__(self, rate_hz: int, models: PauseModels, *, telephone: bool = False, vad: Vad = "silero") -> None:
        self._rate_hz, self._models, self._telephone = rate_hz, models, telephone
        self._segmenter = VadSegmenter(rate_hz, vad=vad)

    def trace(self, samples: Samples, clip: str, condition: str) -> Trace:
        """Return the trace of `samples`, int16, (n_samples,), pushed in frames of `FRAME_MS`."""
        started: list[int] = []
        pauses = tuple(self._pauses(samples, started))
        return Trace(clip=clip, condition=condition, started_at_ms=tuple(started), pauses=pauses)

    def _pauses(self, samples: Samples, started: list[int]) -> Iterator[Pause]:
        pause: _OpenPause | None = None
        began_ms = 0
        for at_ms, edge in self._edges(samples):
            match edge:
                case SpeechStart(onset):
                    began_ms = onset.stream_ms
                    started.append(at_ms)
                case SpeechStop(_, silence_ms):
                    pause = self._opened(edge, samples, began_ms, at_ms)
                    self._step(pause, samples, at_ms, silence_ms)
                case SilenceProgress(silence_ms) if pause is not None:
                    self._step(pause, samples, at_ms, silence_ms)
                case SpeechResume(onset) if pause is not None:
                    yield pause.closed(at_ms, onset.stream_ms)
                    pause = None
        if pause is not None:
            yield pause.closed()

    def _edges(self, samples: Samples) -> Iterator[tuple[int, Edge]]:
        n_frame = self._rate_hz * FRAME_MS // 1_000
        for end in range(n_frame, len(samples) + 1, n_frame):
            at_ms = end * 1_000 // self._rate_hz
            for edge in self._segmenter.push(samples[end - n_frame : end], at_ms):
                yield at_ms, edge

    def _opened(self, stop: SpeechStop, samples: Samples, began_ms: int, at_ms: int) -> _OpenPause:
        models = self._models
        text = "" if models.words is None else models.words(self._utterance(samples, began_ms, at_ms))
        sentence_end = models.sentence_end(text) if models.sentence_end is not None and text else None
        return _OpenPause(stop=stop, began_ms=began_ms, text=text, sentence_end=sentence_end, telephone=self._telephone)

    def _step(self, pause: _OpenPause, samples: Samples, at_ms: int, silence_ms: int) -> None:
        pause.steps.append(PauseStep(at_ms=at_ms, silence_ms=silence_ms))
        audio_score = self._models.audio_score
        if audio_score is None:
            return
        for due_ms in AUDIO_SCORE_AT_MS:
            if silence_ms >= due_ms and due_ms not in pause.audio_scores:
                pause.audio_scores[due_ms] = audio_score(self._utterance(samples, pause.began_ms, at_ms))

    def _utterance(self, samples: Samples, began_ms: int, at_ms: int) -> Samples:
        first, last = max(0, began_ms - PADDING_MS), at_ms
        return np.ascontiguousarray(samples[first * self._rate_hz // 1_000 : last * self._rate_hz // 1_000])
