"""The pauses of one user, in order."""

from __future__ import annotations

from collections import deque
from typing import Final

from voicepipe.turn.endpointing.completeness import unfinished
from voicepipe.turn.endpointing.strategy import NOTHING, Evidence
from voicepipe.values import replace

_PAUSES: Final = 8
"""Number of the user's latest pauses that count."""


class Pauses:
    """Collects the evidence for the current pause."""

    def __init__(self) -> None:
        # Bounded: the oldest pause is dropped.
        self._resumed_ms: deque[int] = deque([0], maxlen=_PAUSES)
        self._n_resumed = 0
        self.evidence = NOTHING

    def began(self, *, speech_ms: int = 0, noticed_ms: int = 0) -> None:
        """Record that the user fell silent."""
        self.evidence = Evidence(
            noticed_ms=noticed_ms,
            speech_ms=speech_ms,
            longest_pause_ms=max(self._resumed_ms),
            n_resumed=self._n_resumed,
        )

    def add_words(self, text: str, language: str | None = None, *, after_question: bool = False) -> None:
        """Record the words up to this pause."""
        self.evidence = replace(
            self.evidence,
            text=text,
            language=language,
            after_question=after_question,
            unfinished=unfinished(text, language, after_question=after_question),
        )

    def scored(self, name: str, score: float) -> None:
        """Record a model's score of this pause; a later score of that name replaces it."""
        self.evidence = replace(
            self.evidence, scores=tuple(sorted({**dict(self.evidence.scores), name: score}.items()))
        )

    def resumed(self, pause_ms: int) -> None:
        """Record that the user went on after `pause_ms`: it was a pause and not the end."""
        self._resumed_ms.append(pause_ms)
        self.evidence = NOTHING

    def overlapped(self, pause_ms: int) -> None:
        """Record the same of a pause in which an answer had begun. What is known of the present pause stays."""
        self._resumed_ms.append(pause_ms)
        self._n_resumed += 1
        self.evidence = replace(self.evidence, longest_pause_ms=max(self._resumed_ms), n_resumed=self._n_resumed)
