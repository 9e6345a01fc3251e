"""How much of what we sent has been heard: by the client's reports, and between them by the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_KEEP_TURNS: Final = 4
"""Turns that can still be asked about. Reports come seconds late at most, and sound of older turns is over."""


@dataclass(slots=True)
class _Track:
    """One turn's sound: how much was sent, when the last of it ends, and the most that a report could claim."""

    sent_ms: int = 0
    ends_ms: int = 0
    cut_at_ms: int | None = None
    """How much had been heard when the rest was dropped."""

    def heard_ms(self, now_ms: int) -> int:
        if self.cut_at_ms is not None:
            return self.cut_at_ms
        return max(0, self.sent_ms - max(0, self.ends_ms - now_ms))


class Playhead:
    """The client's loudspeaker as seen from here: it plays what is sent, in order, in real time.

    When nothing is queued it waits, and begins again with what comes next. A report corrects the estimate for all that
    is still unheard. All times are session ms; nothing here raises on what a client claims.
    """

    def __init__(self) -> None:
        # Bounded by `_track`: the oldest turn goes when a fifth comes.
        self._tracks: dict[int, _Track] = {}
        self._ends_ms = 0

    def _track(self, turn: int) -> _Track:
        track = self._tracks.setdefault(turn, _Track())
        while len(self._tracks) > _KEEP_TURNS:
            del self._tracks[next(iter(self._tracks))]
        return track

    def sent(self, turn: int, duration_ms: int, now_ms: int) -> int:
        """Sound of `turn` left for the client; returns when it begins to play, by all we know."""
        track = self._track(turn)
        starts_ms = max(self._ends_ms, now_ms)
        track.sent_ms += duration_ms
        track.ends_ms = self._ends_ms = starts_ms + duration_ms
        return starts_ms

    def reported(self, turn: int, played_ms: int, now_ms: int) -> int:
        """The client says how much of `turn` it has played; returns what of that can be true.

        More than was sent counts as all that was sent, less than nothing as nothing, and of a turn that we know
        nothing of, or that was cut, nothing changes.
        """
        track = self._tracks.get(turn)
        if track is None:
            return 0
        if track.cut_at_ms is not None:
            return track.cut_at_ms
        played_ms = min(max(0, played_ms), track.sent_ms)
        later_ms = now_ms + track.sent_ms - played_ms - max(track.ends_ms, now_ms)
        self._shift(turn, later_ms, now_ms)
        return played_ms

    def _shift(self, turn: int, later_ms: int, now_ms: int) -> None:
        """All that plays from `turn` on ends that much later (or earlier) than thought."""
        at_or_after = False
        for number, track in self._tracks.items():
            at_or_after = at_or_after or number == turn
            if at_or_after and track.cut_at_ms is None:
                track.ends_ms = max(track.ends_ms, now_ms) + later_ms
        self._ends_ms = max((track.ends_ms for track in self._tracks.values()), default=now_ms)

    def cut(self, turn: int, now_ms: int) -> int:
        """The rest of `turn` was dropped, here and at the client; returns how much of it had been heard."""
        track = self._tracks.get(turn)
        if track is None:
            return 0
        track.cut_at_ms = track.heard_ms(now_ms)
        track.ends_ms = min(track.ends_ms, now_ms)
        self._ends_ms = max(each.ends_ms for each in self._tracks.values())
        return track.cut_at_ms

    def heard_ms(self, turn: int, now_ms: int) -> int:
        """How much of `turn` has been heard by now; 0 of a turn that we know nothing of."""
        track = self._tracks.get(turn)
        return track.heard_ms(now_ms) if track else 0

    def sent_ms(self, turn: int) -> int:
        """How much of `turn` has been sent."""
        track = self._tracks.get(turn)
        return track.sent_ms if track else 0

    @property
    def ends_at_ms(self) -> int:
        """When the last of what was sent has been played; in the past when the loudspeaker is silent."""
        return self._ends_ms

    def audible(self, now_ms: int) -> bool:
        """Is anything of ours playing?"""
        return now_ms < self._ends_ms
