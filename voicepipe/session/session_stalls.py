"""The stalls of the event loop that one session's core has yet to know."""

from __future__ import annotations

from collections.abc import Iterator

from voicepipe.clock import SessionClock
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.turn.events import EventLoopStalled


class SessionStalls:
    """Follows the process's stalls for one session."""

    def __init__(self, log: StallLog, clock: SessionClock) -> None:
        self._log, self._clock = log, clock
        self.n_known = 0
        """How many of the process's stalls the core knows, or were before the session."""

    def begin(self) -> None:
        """Leave out the stalls so far: the session begins now."""
        self.n_known = self._log.n_noted

    def new(self) -> Iterator[EventLoopStalled]:
        """Return the stalls since the latest call, each once."""
        stalls = self._log.since(self.n_known)
        self.begin()
        since_ms = self._clock.since_ms
        return (EventLoopStalled(since_ms(begin), since_ms(end)) for begin, end in stalls)
