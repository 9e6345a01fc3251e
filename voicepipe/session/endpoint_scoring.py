"""Score the user's pauses outside the core: by models from words and audio, and by the STT's own detection.

A score that is late is no score: the strategy decides on the words alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Literal, TypeVar

from voicepipe.audio.samples import Samples
from voicepipe.errors import StageError
from voicepipe.freeing import FreeingTaskGroup
from voicepipe.ports.endpoint_scorer import AudioScorer, EndpointScorer
from voicepipe.ports.transcriber import EndOfTurn
from voicepipe.session.utterance_audio import UtteranceAudio
from voicepipe.tasks import AsyncEvent
from voicepipe.turn import events as e
from voicepipe.turn.endpointing.probability import STT_END
from voicepipe.turn.endpointing.strategies import SILENCE

DEADLINE_S: Final = 0.08
"""How long a model may take. The wait of a pause that sounds over is 270 ms longer than the words take at best."""

AUDIO_AFTER_MS: Final = 100
"""The silence after which the audio is judged, once a pause. The weights were fitted to scores at that time."""

Post = Callable[[e.Event], None]

Outcome = Literal["in_time", "late", "failed"]

CountScore = Callable[[str, Outcome], None]
"""Counts the outcome of one request; the first is the score's name."""

_WITHOUT_SCORES: Final[tuple[type[e.Event], ...]] = (e.SettingsChanged,)
_WITH_SCORES: Final = (e.SettingsChanged, e.SpeechStarted, e.SpeechPaused, e.TranscriptFinished)
_WITH_AUDIO: Final = (*_WITH_SCORES, e.SilenceGrew)
"""`silence` reads no scores; any other strategy may."""

_Judged = TypeVar("_Judged")


class _LatestRequest(Generic[_Judged]):
    """One model's requests in a session, of which the latest alone is sent."""

    def __init__(self, score: Callable[[_Judged], Awaitable[float]], name: str, post: Post, count: CountScore) -> None:
        self._score, self._name, self._post, self._count = score, name, post, count
        self._request: tuple[int, _Judged] | None = None
        """The pause, by its last voiced sample in ms, and what to judge."""

        self._requested = AsyncEvent()

    def put(self, paused_ms: int, judged: _Judged) -> None:
        """Have it judged next."""
        self._request = (paused_ms, judged)
        self._requested.set()

    def drop(self) -> None:
        """Drop what is not sent yet: the user goes on."""
        self._request = None

    async def run(self) -> None:
        """Judge the requests, until cancelled."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            if self._request is not None:
                (paused_ms, judged), self._request = self._request, None
                await self._judge(paused_ms, judged)

    async def _judge(self, paused_ms: int, judged: _Judged) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                score = await self._score(judged)
        except (TimeoutError, StageError) as why:
            self._count(self._name, "late" if isinstance(why, TimeoutError) else "failed")
            return
        self._count(self._name, "in_time")
        self._post(e.EndpointScored(paused_ms, self._name, score))


_Audio = tuple[Samples, int]
"""Samples, int16, (n_samples,), and their rate in Hz."""


def _words_requests(scorer: EndpointScorer, session: str, post: Post, count: CountScore) -> _LatestRequest[str]:
    return _LatestRequest(lambda text: scorer.score(session, text), scorer.score_name, post, count)


def _audio_requests(scorer: AudioScorer, session: str, post: Post, count: CountScore) -> _LatestRequest[_Audio]:
    return _LatestRequest(lambda audio: scorer.score(session, *audio), scorer.score_name, post, count)


def discard(name: str, outcome: Outcome) -> None:
    """Count nothing."""


def _never() -> int:
    return 0


class EndpointScoring:
    """The scores of one session's pauses."""

    def __init__(
        self,
        scorer: EndpointScorer | None,
        session: str,
        post: Post,
        *,
        stt_detects: bool = False,
        audio_scorer: AudioScorer | None = None,
        count: CountScore = discard,
        now_ms: Callable[[], int] = _never,
    ) -> None:
        """`scorer`: None where no model runs that costs nothing. `stt_detects`: the STT sends `EndOfTurn`; then
        `now_ms` is the session's clock.
        """
        self._post, self._now_ms = post, now_ms
        self._words = None if scorer is None else _words_requests(scorer, session, post, count)
        self._audio = None if audio_scorer is None else _audio_requests(audio_scorer, session, post, count)
        self.audio = None if audio_scorer is None else UtteranceAudio()
        """What must get the user's audio; None: no model judges it."""

        with_words = _WITH_SCORES if scorer is not None or stt_detects else _WITHOUT_SCORES
        self._handled_with_scores: tuple[type[e.Event], ...] = with_words if audio_scorer is None else _WITH_AUDIO
        self.handled: tuple[type[e.Event], ...] = _WITHOUT_SCORES
        """The events that `handle` must get. Few, so that sessions without scores pay nothing for them."""

        self._paused_ms: int | None = None
        """The last voiced sample of the current pause; None while the user speaks."""

        self._audio_due = False
        """Whether the audio of the current pause is still to be judged."""

        self._detected: tuple[int, EndOfTurn] | None = None
        """The STT's latest detection while the VAD reports no pause, and when it came, in ms of the session."""

    def handle(self, event: e.Event) -> None:
        """Observe an event of the session, of those that are `handled`."""
        match event:
            case e.SpeechPaused(last_voiced_ms):
                self._paused_ms, self._audio_due = last_voiced_ms, True
                detected, self._detected = self._detected, None
                if detected is not None and detected[0] >= last_voiced_ms:
                    self.take(detected[1])
            case e.SpeechStarted():
                self._clear()
            case e.SettingsChanged(settings):
                self.handled = _WITHOUT_SCORES if settings.end_of_turn == SILENCE else self._handled_with_scores
                self._clear()
            case e.SilenceGrew(silence_ms) if self._audio_due and silence_ms >= AUDIO_AFTER_MS:
                self._audio_due = False
                self._put_audio()
            case e.TranscriptFinished(text=text) if text and self._paused_ms is not None and self._words is not None:
                self._words.put(self._paused_ms, text)

    def take(self, detected: EndOfTurn) -> None:
        """Post the STT's own detection as a score of the current pause.

        It may come before the VAD reports the pause. It is then of the next pause, unless the user has spoken since.
        """
        if self._paused_ms is None:
            self._detected = self._now_ms(), detected
        else:
            self._post(e.EndpointScored(self._paused_ms, STT_END, detected.probability))

    async def run(self) -> None:
        """Score each pause, until cancelled."""
        async with FreeingTaskGroup() as group:
            for each in (self._words, self._audio):
                if each is not None:
                    group.create_task(each.run(), name="score")

    def _put_audio(self) -> None:
        if self._audio is not None and self.audio is not None and self._paused_ms is not None:
            self._audio.put(self._paused_ms, self.audio.latest())

    def _clear(self) -> None:
        self._paused_ms, self._audio_due, self._detected = None, False, None
        for each in (self._words, self._audio):
            if each is not None:
                each.drop()
