"""The port of a model that judges from the words whether the user has finished."""

from __future__ import annotations

from typing import Protocol


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
