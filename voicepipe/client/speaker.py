"""A simulated loudspeaker: it plays audio in order and in real time, and reports its progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from voicepipe.client.microphone import RATE_HZ

TRACKED_ITEMS: Final = 8
"""The number of latest items that are tracked; items before them no longer play."""


@dataclass(frozen=True, slots=True)
class Played:
    """The played part of one item's audio."""

    item_id: str
    played_ms: int
    buffered_ms: int
    """Received and not played yet."""


@dataclass(slots=True)
class _Track:
    """One item's audio: pieces as (ms at which it begins to play, samples)."""

    pieces: list[tuple[int, int]] = field(default_factory=list)
    reported: Played | None = None
    is_cut: bool = False

    def received_ms(self) -> int:
        return sum(n_samples for _, n_samples in self.pieces) * 1_000 // RATE_HZ

    def played_ms(self, now_ms: int) -> int:
        played = (min(max(0, now_ms - start_ms) * RATE_HZ // 1_000, n_samples) for start_ms, n_samples in self.pieces)
        return sum(played) * 1_000 // RATE_HZ


class Speaker:
    """Plays at once, or after its buffer time, and never pauses. All times are ms on one clock of the client."""

    def __init__(self, buffer_ms: int = 0) -> None:
        self._tracks: dict[str, _Track] = {}
        self._buffer_ms, self._ends_ms = buffer_ms, 0

    def play(self, item_id: str, n_samples: int, now_ms: int) -> None:
        """Queue audio of an item, 24 kHz, after what is playing."""
        starts_ms = self._ends_ms if self._ends_ms > now_ms else now_ms + self._buffer_ms
        self._tracks.setdefault(item_id, _Track()).pieces.append((starts_ms, n_samples))
        if len(self._tracks) > TRACKED_ITEMS:
            del self._tracks[next(iter(self._tracks))]
        self._ends_ms = starts_ms + n_samples * 1_000 // RATE_HZ

    def left_ms(self, now_ms: int) -> int:
        """Return how long the queued audio plays on."""
        return max(0, self._ends_ms - now_ms)

    def flush(self, now_ms: int) -> None:
        """Drop the audio that has not been played: the user speaks."""
        self._ends_ms = min(self._ends_ms, now_ms)
        for track in self._tracks.values():
            played_ms = track.played_ms(now_ms)
            track.pieces = [(now_ms - played_ms, played_ms * RATE_HZ // 1_000)]
            track.is_cut = True

    def reports(self, now_ms: int) -> list[Played]:
        """Return the changes since the last report: each item that plays, or has ended or was cut since then."""
        found = []
        for item_id, track in list(self._tracks.items()):
            played_ms = track.played_ms(now_ms)
            left_ms = track.received_ms() - played_ms
            now = Played(item_id, played_ms, left_ms)
            if (played_ms or track.is_cut) and now != track.reported:
                found.append(now)
                track.reported = now
            if track.is_cut:
                del self._tracks[item_id]
        return found
