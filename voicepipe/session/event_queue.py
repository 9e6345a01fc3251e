"""The events on their way to a session's core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from voicepipe.clock import SessionClock
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.turn import events as e


class EventQueue:
    """The events on their way to the core.

    A session's parts hold this queue and not the session, so that no circle of references outlives the session.
    """

    def __init__(self, stalls: StallLog, clock: SessionClock) -> None:
        self.waiting: deque[e.Event] = deque()  # bounded: drained before the outermost `post` returns
        self._stalls, self._clock = stalls, clock
        self._n_stalls = 0
        """Stalls of the event loop that are known to the core, or were before the session."""

        self._drain: Callable[[], None] | None = None
        """Handles all that wait. None before the session runs, and when it is over: then events are dropped."""

    def begin(self, drain: Callable[[], None]) -> None:
        """Handle events with this function from now on."""
        self._n_stalls = self._stalls.n_noted
        self._drain = drain

    def end(self) -> None:
        """Drop the events that are posted from now on."""
        self._drain = None

    def post(self, event: e.Event) -> None:
        """Have an event handled, before this returns or, if an event is being handled, right after that one."""
        if self._drain is not None:
            self.waiting.append(event)
            if len(self.waiting) == 1:
                self._drain()

    def note_stalls(self) -> None:
        """Put the stalls of the event loop since the last call before the event that comes next."""
        if self._stalls.n_noted == self._n_stalls:
            return
        stalls = self._stalls.since(self._n_stalls)
        self._n_stalls = self._stalls.n_noted
        since_ms = self._clock.since_ms
        self.waiting.extendleft(e.EventLoopStalled(since_ms(begin), since_ms(end)) for begin, end in reversed(stalls))
