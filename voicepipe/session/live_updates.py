"""Live turns for subscribers outside the session: the changes by each event.

This runs beside the core, not in it: a subscriber must not change what the core does, or a journal would not replay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from voicepipe.session.context import LiveSubscribers
from voicepipe.telemetry.log import log_crash
from voicepipe.turn import notifications as a
from voicepipe.turn import record_builder
from voicepipe.turn.core import Core
from voicepipe.turn.live_updates import news
from voicepipe.turn.record.values import TurnRecord
from voicepipe.turn.turn import Turn


@dataclass(slots=True)
class _Followed:
    turn: Turn
    sent: TurnRecord | None = None
    marks: tuple[tuple[str, int], ...] = ()


class TurnObserver:
    """Follows the turns of one session for live subscribers. It is needed only while there are any, and once after."""

    def __init__(self, core: Core, live: LiveSubscribers, notify: Callable[[a.Notification], None]) -> None:
        self._core, self._live, self._notify = core, live, notify
        self.followed: dict[str, _Followed] = {}  # bounded: running turns; each ends by a deadline

    def follow(self, now_ms: int) -> None:
        """Report the latest event's changes. A subscriber that joins in mid-turn receives all of that turn so far."""
        try:
            self._follow(now_ms)
        except Exception as bug:
            log_crash("lookout", bug)  # a subscriber that fails does not end the session

    def _follow(self, now_ms: int) -> None:
        if not self._live.is_watched:
            self.followed.clear()
            return
        for turn in (self._core.user.turn, self._core.agent.turn):
            if turn is not None and turn.outcome is None and turn.id not in self.followed:
                self.followed[turn.id] = _Followed(turn)
        for each in tuple(self.followed.values()):
            self._look_at(each, now_ms)

    def _look_at(self, each: _Followed, now_ms: int) -> None:
        turn, marks = each.turn, tuple(each.turn.marks.items())
        if turn.outcome is not None:
            del self.followed[turn.id]
        elif marks == each.marks:
            return
        now = record_builder.record_of(self._core.context, turn, now_ms)
        for what in news(each.sent, now):
            self._notify(what)
        each.marks, each.sent = marks, now
