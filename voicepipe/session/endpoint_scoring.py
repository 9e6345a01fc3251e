"""Score the user's pauses outside the core: by a local model from the words, and by the STT's own detection.

A score that is late is no score: the strategy decides on the words alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from voicepipe.errors import StageError
from voicepipe.ports.endpoint_scorer import EndpointScorer
from voicepipe.ports.transcriber import EndOfTurn
from voicepipe.turn import events as e
from voicepipe.turn.endpointing.probability import STT_END
from voicepipe.turn.endpointing.strategies import SILENCE

DEADLINE_S: Final = 0.08
"""How long a model may take. The wait of a pause that sounds over is 270 ms longer than the words take at best."""


_WITHOUT_SCORES: Final = (e.SettingsChanged,)
_WITH_SCORES: Final = (e.SettingsChanged, e.SpeechStarted, e.SpeechPaused, e.TranscriptFinished)
"""`silence` reads no scores; any other strategy may."""


class EndpointScoring:
    """The scores of one session's pauses."""

    def __init__(
        self,
        scorer: EndpointScorer | None,
        session: str,
        post: Callable[[e.Event], None],
        *,
        stt_detects: bool = False,
    ) -> None:
        """`scorer`: None where no model runs that costs nothing. `stt_detects`: the STT sends `EndOfTurn`."""
        self._scorer, self._session, self._post = scorer, session, post
        self._has_source = scorer is not None or stt_detects
        self.followed: tuple[type[e.Event], ...] = _WITHOUT_SCORES
        """The events that `follow` must get. Few, so that sessions without scores pay nothing for them."""

        self._paused_ms: int | None = None
        """The last voiced sample of the current pause; None while the user speaks."""

        self._request: tuple[int, str] | None = None
        """The pause and the words to judge next: the latest alone."""

        self._requested = asyncio.Event()

    def follow(self, event: e.Event) -> None:
        """Observe an event of the session, of those that are `followed`."""
        match event:
            case e.SpeechPaused(last_voiced_ms):
                self._paused_ms = last_voiced_ms
            case e.SpeechStarted():
                self._paused_ms = self._request = None
            case e.SettingsChanged(settings):
                is_used = self._has_source and settings.end_of_turn != SILENCE
                self.followed = _WITH_SCORES if is_used else _WITHOUT_SCORES
                self._paused_ms = self._request = None
            case e.TranscriptFinished(text=text) if text and self._paused_ms is not None:
                self._request = (self._paused_ms, text)
                self._requested.set()

    def take(self, detected: EndOfTurn) -> None:
        """Post the STT's own detection as a score. While the user speaks it is of no pause, and dropped."""
        if self._paused_ms is not None:
            self._post(e.EndpointScored(self._paused_ms, STT_END, detected.probability))

    async def run(self) -> None:
        """Score the words of each pause, until cancelled."""
        if self._scorer is None:
            return
        while True:
            await self._requested.wait()
            self._requested.clear()
            if self._request is not None:
                await self._score(self._scorer, *self._request)

    async def _score(self, scorer: EndpointScorer, paused_ms: int, text: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                score = await scorer.score(self._session, text)
        except (TimeoutError, StageError):
            return
        self._post(e.EndpointScored(paused_ms, scorer.score_name, score))
