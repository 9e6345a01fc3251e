"""How long a transcriber may take with the final text before its guess must do: learned from how long it took."""

from __future__ import annotations

from collections import deque
from typing import Final

_UNKNOWN_MS: Final = 1_000
"""The whole budget of a turn: later than that no answer to the final text is in time."""

_SHORTEST_MS: Final = 300
"""A guess that is not yet stable makes an answer that must be taken back: no final text is given less than this. It is
about what a pause's notice (80 ms, and 230 for a voice that fades) and a good streaming service take together."""

_SHARE: Final = 2
"""Twice what it usually takes is not usual."""

_TIMES: Final = 8
_TIMES_KNOWN: Final = 3
"""So many of the latest count; fewer than three tell nothing."""


class FinalTimes:
    """One session's transcribers: from the last voiced sample to the final text, by provider."""

    def __init__(self) -> None:
        self._took_ms: dict[str, deque[int]] = {}  # bounded by the providers that a pool has
        self._provider = ""

    def note(self, provider: str, took_ms: int) -> None:
        """A final text came, so long after the waiting for it had begun. Its provider is the one to expect."""
        self._provider = provider
        # Bounded: the oldest is forgotten.
        self._took_ms.setdefault(provider, deque(maxlen=_TIMES)).append(took_ms)

    @property
    def patience_ms(self) -> int:
        """How long the next may take: twice the second longest of the latest; one slow text is no rule."""
        known = sorted(self._took_ms.get(self._provider, ()))
        return max(_SHORTEST_MS, _SHARE * known[-2]) if len(known) >= _TIMES_KNOWN else _UNKNOWN_MS

    def due_ms(self, t0_ms: int, now_ms: int) -> tuple[int, int]:
        """When the waiting for a text that is asked for now began, and when it is over, in session ms.

        It began with the last voiced sample, however late the text is asked for; unless that is so long ago that it
        says nothing of the transcriber, as in a commit after a long silence.
        """
        from_ms = t0_ms if now_ms - t0_ms < self.patience_ms // 2 else now_ms
        return from_ms, from_ms + self.patience_ms
