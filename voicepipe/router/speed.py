"""How fast each model writes: from the first piece of an answer to its last, by its provider's own count of tokens."""

from __future__ import annotations

from typing import Final

MEMORY: Final = 0.95
"""What an answer weighs beside the next one: about twenty of them count."""

LEAST_MS: Final = 20.0
"""Of an answer that came in less we see how it was sent, not how it was written."""


class Speed:
    """One model's. An answer weighs as much as it has tokens."""

    def __init__(self) -> None:
        self._n_gaps = self._sum_ms = 0.0

    def note(self, n_tokens: int, span_ms: float) -> None:
        """So many tokens were written, and from the first to the last it took so long."""
        if n_tokens > 1 and span_ms >= LEAST_MS:
            self._n_gaps = self._n_gaps * MEMORY + n_tokens - 1
            self._sum_ms = self._sum_ms * MEMORY + span_ms

    @property
    def itl_ms(self) -> float | None:
        """The mean time from one token to the next; None: nothing is known."""
        return self._sum_ms / self._n_gaps if self._n_gaps else None

    @property
    def tokens_per_s(self) -> float | None:
        """How many come in a second once the first one is there."""
        return 1_000 * self._n_gaps / self._sum_ms if self._n_gaps else None
