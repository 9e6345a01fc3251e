"""Where audio was dropped on its way to a vendor, so that the vendor's positions can be told in ours."""

from __future__ import annotations

from collections import deque

REMEMBERED = 64
"""Gaps that are told apart. Drops at one place are one gap; more places than this in one's memory is a line that
stutters for minutes, whose oldest positions nobody asks about."""


class Gaps:
    """Counts in any unit, the same for all: bytes, samples."""

    def __init__(self) -> None:
        self.lost = 0
        """All that was dropped."""

        self._gaps: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)  # (place at the vendor, lost up to there)

    def note(self, sent: int, lost: int) -> None:
        """After `sent` had been sent, `lost` was dropped."""
        self.lost += lost
        if self._gaps and self._gaps[-1][0] == sent:
            self._gaps.pop()
        self._gaps.append((sent, self.lost))

    def place(self, sent: int) -> int:
        """The place in all that there was of the place `sent` in what was sent; of a gap, its beginning."""
        return sent + next((lost for at, lost in reversed(self._gaps) if at < sent), 0)
