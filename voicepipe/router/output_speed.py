"""Measure how fast each model writes: from the first piece of an answer to its last, by its provider's token count."""

from __future__ import annotations

from typing import Final

MEMORY: Final = 0.95
"""An answer's weight relative to the next one: about 20 answers count."""

LEAST_MS: Final = 20.0
"""A shorter answer shows how it was sent, not how it was written."""


class OutputSpeed:
    """The output speed of one model. An answer weighs as much as it has tokens."""

    def __init__(self) -> None:
        self._n_gaps = self._sum_ms = 0.0

    def note(self, n_tokens: int, span_ms: float) -> None:
        """Record the number of tokens, and the time from the first to the last."""
        if n_tokens > 1 and span_ms >= LEAST_MS:
            self._n_gaps = self._n_gaps * MEMORY + n_tokens - 1
            self._sum_ms = self._sum_ms * MEMORY + span_ms

    @property
    def itl_ms(self) -> float | None:
        """Return the mean time from one token to the next; None: not measured."""
        return self._sum_ms / self._n_gaps if self._n_gaps else None

    @property
    def tokens_per_s(self) -> float | None:
        """Return the tokens per second after the first token."""
        return 1_000 * self._n_gaps / self._sum_ms if self._n_gaps else None
