"""Learn how long a transcriber may take with the final text before its interim text is used."""

from __future__ import annotations

from collections import deque
from typing import Final

_UNKNOWN_MS: Final = 1_000
"""The whole budget of a turn: an answer to a later final text is always late."""

_MIN_MS: Final = 300
"""Minimum time for a final text: an interim text that is not yet stable leads to an answer that must be taken back.

It is about what detecting a pause (80 ms, and 230 ms for speech that fades) and a good streaming service take together.
"""

_SHARE: Final = 2
"""Twice the usual time is unusual."""

_TIMES: Final = 8
_TIMES_KNOWN: Final = 3
"""Number of the latest times that count; fewer than 3 are no evidence."""


class SttTiming:
    """The times of one session's transcribers: from the last voiced sample to the final text, by provider."""

    def __init__(self) -> None:
        self._took_ms: dict[str, deque[int]] = {}  # bounded by the providers that a pool has
        self._provider = ""

    def record(self, provider: str, took_ms: int) -> None:
        """Record that a final text came `took_ms` after the wait for it began. Its provider is expected next."""
        self._provider = provider
        # Bounded: the oldest is dropped.
        self._took_ms.setdefault(provider, deque(maxlen=_TIMES)).append(took_ms)

    @property
    def timeout_ms(self) -> int:
        """Return how long the next final text may take: twice the second longest of the latest times, so that one slow
        text is ignored.
        """
        known = sorted(self._took_ms.get(self._provider, ()))
        return max(_MIN_MS, _SHARE * known[-2]) if len(known) >= _TIMES_KNOWN else _UNKNOWN_MS

    def due_ms(self, t0_ms: int, now_ms: int) -> tuple[int, int]:
        """Return when the wait for a text requested now began, and when it is over, in session ms.

        It began with the last voiced sample, however late the text is requested. The exception is a commit after a long
        silence, in which that time does not measure the transcriber.
        """
        from_ms = t0_ms if now_ms - t0_ms < self.timeout_ms // 2 else now_ms
        return from_ms, from_ms + self.timeout_ms
