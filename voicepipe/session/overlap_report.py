"""The reports of speech over the agent's audio: how long it lasts, and how much of it is the user's own."""

from __future__ import annotations

from collections.abc import Callable

from voicepipe.audio.echo_detector import SPAN_MS, EchoDetector
from voicepipe.audio.nonlexical import is_nonlexical
from voicepipe.audio.samples import Samples
from voicepipe.audio.speech_events import Instant
from voicepipe.audio.vad_segmenter import VadSegmenter, VadState
from voicepipe.turn import events as e

REPORT_MS = 100
"""How often the length of speech over the agent's audio is reported."""

ECHO_FROM_MS = 600
"""How much speech is needed to decide whether it is an echo of the agent's audio."""


class OverlapReport:
    """Reports regularly how long the speech that has just begun lasts, until it pauses.

    A segmenter is replaced when the client's format changes, so each method gets the present one. `away_ms`: time that
    does not count for it.
    """

    def __init__(self, echo: EchoDetector, post: Callable[[e.Event], None]) -> None:
        self._echo, self._post = echo, post
        self.onset_ms = 0
        """Where the latest stretch of speech began, in the segmenter's audio."""

        self.reported_ms: int | None = None
        """The reported length of that stretch; None: no report is due."""

        self.earlier_ms = 0
        """How much speech the utterance had before its latest pause."""

        self._own_ms = 0
        """How much of the latest stretch is no echo."""

        self._echoes = False

    def begin(self) -> None:
        """Report the speech from now on."""
        self.reported_ms, self._own_ms = 0, 0

    def report(self, segmenter: VadSegmenter, away_ms: int) -> None:
        """Report the speech so far, every `REPORT_MS` of it."""
        due_ms = self.onset_ms + (self.reported_ms or 0) + REPORT_MS
        if segmenter.state is not VadState.SPEAKING or segmenter.received_ms < due_ms:
            return
        last = segmenter.last_voiced()
        if last is not None and last.stream_ms >= due_ms:
            self._post(e.SpeechWentOn(self._own_until(segmenter, last, away_ms), self._echoes))

    def end(self, segmenter: VadSegmenter, last: Instant, away_ms: int) -> None:
        """Report all of the speech at its pause, and whether it was more than a nonlexical sound ("hm")."""
        if self.reported_ms is not None:
            spoken = _audio_between(segmenter, self.onset_ms, last.stream_ms)
            own_ms = self._own_until(segmenter, last, away_ms)
            # Where there is an echo, the audio that makes words of a nonlexical sound may be the agent's.
            nonlexical = self._echo.known or is_nonlexical(spoken, segmenter.rate_hz)
            self._post(e.SpeechWentOn(own_ms, self._echoes, nonlexical))
        self.earlier_ms += last.stream_ms - self.onset_ms
        self.reported_ms = None

    def _own_until(self, segmenter: VadSegmenter, last: Instant, away_ms: int) -> int:
        """Return how much of the speech until then is the user's own, and no echo of the agent's audio."""
        known_ms = self.onset_ms + (self.reported_ms or 0)
        self.reported_ms = max(0, last.stream_ms - self.onset_ms)
        rate_hz, ended_ms = segmenter.rate_hz, last.session_ms + away_ms
        self._own_ms += self._echo.own_ms(_audio_between(segmenter, known_ms, last.stream_ms), rate_hz, ended_ms)
        self._echoes = False
        if self.earlier_ms + self.reported_ms >= ECHO_FROM_MS:
            latest = _audio_between(segmenter, last.stream_ms - SPAN_MS, last.stream_ms)
            self._echoes = self._echo.has(latest, rate_hz, ended_ms)
            if self._echoes:
                self._own_ms = min(self._own_ms, self._echo.own_ms(latest, rate_hz, ended_ms))
        return self._own_ms


def _audio_between(segmenter: VadSegmenter, from_ms: int, to_ms: int) -> Samples:
    received = segmenter.since(from_ms)
    behind = (segmenter.received_ms - to_ms) * segmenter.rate_hz // 1_000
    return received[: max(0, len(received) - behind)]
