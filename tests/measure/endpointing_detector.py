"""Run the sessions' detector over a recording in stream time: a VAD, and the rule that ends a turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import numpy as np

from voicepipe.audio.samples import Samples
from voicepipe.audio.speech_events import Edge, SilenceProgress, SpeechResume, SpeechStart, SpeechStop
from voicepipe.audio.vad_segmenter import VadSegmenter
from voicepipe.ports.endpointing import strategy_named
from voicepipe.turn.endpointing.pauses import Pauses
from voicepipe.turn.settings import TurnSettings

FRAME_MS: Final = 20

WORDS_MS: Final = 60
"""Stream time from a pause to its words: a streaming transcriber's final, 50 ms, as it falls into frames."""

PADDING_MS: Final = 200
"""Audio from before the speech that the transcriber gets too."""

INAUDIBLE_MS: Final = 500
"""For this long after the end of a turn no answer is audible, and further speech continues the same turn."""

ANSWER_MS: Final = 500
"""Time of LLM and TTS from the request to the first audio. If started that long before the end of the wait, they
add no delay."""

Words = Callable[[Samples], str]
"""Returns the text of these samples, int16, (n_samples,)."""


class Kind(StrEnum):
    """A kind of decision."""

    STARTED = "started"
    TENTATIVE = "tentative"
    """The pause is detected: its text is requested."""

    BEGUN = "begun"
    """Work on the answer begins."""

    WITHDRAWN = "withdrawn"
    """The work is discarded: the user goes on."""

    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Event:
    """One decision, at the position in the stream (the end of a frame) at which it was taken."""

    kind: Kind
    at_ms: int


class Detector:
    """One user's detector. `words`: text is evidence too, and no work begins without it. `max_starts`: per turn.

    `answer_ms`: the known duration of an answer, so that work begins no sooner than needed; None: not known.
    """

    def __init__(
        self,
        rate_hz: int,
        settings: TurnSettings,
        words: Words | None = None,
        max_starts: int | None = None,
        answer_ms: int | None = ANSWER_MS,
    ) -> None:
        self.events: list[Event] = []
        self.words_cpu_ms = 0.0
        """CPU time of the transcription, in all threads."""

        self.apart_ms = 0.0
        """The part of this thread's CPU time that was the transcription's."""

        self._segmenter = VadSegmenter(rate_hz)
        self._rate_hz = rate_hz
        self._frames: list[Samples] = []
        self._strategy = strategy_named(settings.end_of_turn, key="end_of_turn")(settings.silence_ms)
        self._words = words
        self._pauses = Pauses()
        self._now_ms = 0
        self._began_ms = 0
        self._voiced_ms = 0
        self._text: tuple[int, str] | None = None
        """The time from which the text of this pause is known."""

        self._working = False
        self._starts, self._max_starts = 0, max_starts
        self._answer_ms = answer_ms
        self._ended_ms: int | None = None

    def push(self, frame: Samples, at_ms: int) -> None:
        """Process the frame that ends at position `at_ms`."""
        self._now_ms = at_ms
        if self._words is not None:
            self._frames.append(frame)
        for edge in self._segmenter.push(frame, at_ms):
            self._take(edge)

    def _take(self, edge: Edge) -> None:
        match edge:
            case SpeechStart(onset):
                self._began_ms = onset.stream_ms
                self._say(Kind.STARTED)
                if self._ended_ms is not None and onset.stream_ms - self._ended_ms < INAUDIBLE_MS:
                    self._pauses.resumed(onset.stream_ms - self._voiced_ms)
            case SpeechResume(onset):
                self._pauses.resumed(onset.stream_ms - self._voiced_ms)
                if self._working:
                    self._say(Kind.WITHDRAWN)
                self._working = False
            case SpeechStop(last_voiced, silence_ms, pitch_st, voiced_ms):
                self._voiced_ms = last_voiced.stream_ms
                self._pauses.began(pitch_st, voiced_ms, speech_ms=last_voiced.stream_ms - self._began_ms)
                self._say(Kind.TENTATIVE)
                self._request_text()
                self._decide(silence_ms)
            case SilenceProgress(silence_ms):
                self._decide(silence_ms)

    def _request_text(self) -> None:
        """Transcribe the audio so far; its cost is counted separately."""
        if self._words is None:
            return
        first = max(0, self._began_ms - PADDING_MS) * self._rate_hz // 1_000
        began, began_here = time.process_time(), time.thread_time()
        text = self._words(np.concatenate(self._frames)[first:])
        self.words_cpu_ms += 1_000 * (time.process_time() - began)
        self.apart_ms += 1_000 * (time.thread_time() - began_here)
        self._text = (self._now_ms + WORDS_MS, text)

    def _decide(self, silence_ms: int) -> None:
        if self._text is not None and self._now_ms >= self._text[0]:
            self._pauses.add_words(self._text[1])
            self._text = None
        evidence = replace(self._pauses.evidence, silence_ms=silence_ms, answer_ms=self._answer_ms)
        decision = self._strategy.decide(evidence)
        over, due = silence_ms >= decision.audible_ms, silence_ms >= decision.start_ms
        begins = due and self._text is None and (self._max_starts is None or self._starts < self._max_starts)
        if not self._working and (begins or over):
            self._working = True
            self._starts += 1
            self._say(Kind.BEGUN)
        if over:
            self._end()

    def _end(self) -> None:
        self._say(Kind.ENDED)
        self._ended_ms = self._now_ms
        self._working = False
        self._starts = 0  # the answer is usually ready, and audible at once: further speech is another turn
        self._segmenter.end_turn()

    def _say(self, kind: Kind) -> None:
        self.events.append(Event(kind, self._now_ms))
