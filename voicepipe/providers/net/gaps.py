"""Where audio was dropped or padded on its way to a vendor, so that the vendor's positions can be told in ours."""

from __future__ import annotations

from collections import deque

REMEMBERED = 64
"""Gaps that are told apart. Drops at one place are one gap; more places than this in one's memory is a line that
stutters for minutes, whose oldest positions nobody asks about."""


class Gaps:
    """Counts in any unit, the same for all: bytes, samples."""

    def __init__(self) -> None:
        self.lost = 0
        """All that was dropped, less all that was added."""

        # (place at the vendor, lost up to there, the place in all that there was)
        self._gaps: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._gaps)

    def note(self, sent: int, lost: int) -> None:
        """After `sent` had been sent, `lost` was dropped; a negative number says that so much more was sent."""
        place = self.place(sent)
        self.lost += lost
        at = sent
        if self._gaps and (self._gaps[-1][0] == sent or place == self._gaps[-1][2]):
            at, _, place = self._gaps.pop()
        self._gaps.append((at, self.lost, place))

    def place(self, sent: int) -> int:
        """The place in all that there was of the place `sent` in what was sent; of a gap, its beginning."""
        return next((max(sent + lost, place) for at, lost, place in reversed(self._gaps) if at < sent), sent)
