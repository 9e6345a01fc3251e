"""Live turns for subscribers outside the session: the changes by each event.

This runs beside the core, not in it: a subscriber must not change what the core does, or a journal would not replay.
"""

from __future__ import annotations

from voicepipe.session.ports import LiveTurns
from voicepipe.telemetry.log import log_crash
from voicepipe.turn.core import Core
from voicepipe.turn.live_updates import TurnTracker


class TurnObserver:
    """Sends the turns of one session to live subscribers. It is needed only while there are any, and once after."""

    def __init__(self, core: Core, live: LiveTurns) -> None:
        self._core, self._live = core, live
        self.tracker = TurnTracker(core.context)

    def update(self, now_ms: int) -> None:
        """Report the latest event's changes. A subscriber that joins in mid-turn receives all of that turn so far."""
        try:
            self._update(now_ms)
        except Exception as bug:
            log_crash("live_updates", bug)  # a subscriber that fails does not end the session

    def _update(self, now_ms: int) -> None:
        if not self._live.subscribers.is_watched:
            self.tracker.clear()
            return
        for turn in (self._core.user.turn, self._core.agent.turn):
            if turn is not None and turn.outcome is None:
                self.tracker.track(turn)
        for what in self.tracker.changes(now_ms):
            self._live.publish(what)
