"""Map a vendor's audio positions to the session's, across audio that was dropped or padded."""

from __future__ import annotations

from collections import deque

REMEMBERED = 64
"""Maximum number of separate gaps. Drops at one place are one gap. More gaps than this mean a connection that stutters
for minutes, whose oldest positions are no longer requested."""


class PositionMap:
    """Counts in any unit, the same for all: bytes, samples."""

    def __init__(self) -> None:
        self.lost = 0
        """Total dropped, less total added."""

        # (place at the vendor, lost up to there, the place in all audio)
        self._gaps: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._gaps)

    def record(self, sent: int, lost: int) -> None:
        """Record that after `sent` had been sent, `lost` was dropped; a negative number means that padding was sent."""
        place = self.place(sent)
        self.lost += lost
        at = sent
        if self._gaps and (self._gaps[-1][0] == sent or place == self._gaps[-1][2]):
            at, _, place = self._gaps.pop()
        self._gaps.append((at, self.lost, place))

    def place(self, sent: int) -> int:
        """Return the place in all audio of the place `sent` in the sent audio; of a gap, its beginning."""
        return next((max(sent + lost, place) for at, lost, place in reversed(self._gaps) if at < sent), sent)
