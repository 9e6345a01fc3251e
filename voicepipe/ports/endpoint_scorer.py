"""The ports of models that judge whether the user has finished: from the words, and from the audio."""

from __future__ import annotations

from typing import Protocol

from voicepipe.audio.samples import Samples


class EndpointScorer(Protocol):
    """Judges texts outside the event loop, and costs nothing. One instance serves many sessions at once."""

    score_name: str
    """The name of its scores in the evidence of a pause."""

    async def score(self, session: str, text: str) -> float:
        """Return the score of the user's words up to a pause, 0 to 1. Cancelling it releases the model.

        Raises:
            StageError: the model refused, stalled or failed.
        """
        ...


class AudioScorer(Protocol):
    """Judges the audio before a pause outside the event loop. One instance serves many sessions at once."""

    score_name: str
    """The name of its scores in the evidence of a pause."""

    async def score(self, session: str, samples: Samples, rate_hz: int) -> float:
        """Return the score of the utterance up to a pause, int16, (n_samples,), 0 to 1. Cancelling it releases the
        model.

        Raises:
            StageError: the model refused, stalled or failed.
        """
        ...
