"""The stalls of the event loop, as one session's core gets them."""

from __future__ import annotations

from collections.abc import Iterator

from voicepipe.clock import SessionClock
from voicepipe.telemetry.stall_log import StallLog
from voicepipe.turn.events import EventLoopStalled


class EventLoopStalls:
    """The stalls of the process since the session began, each posted once."""

    def __init__(self, log: StallLog, clock: SessionClock) -> None:
        self._log, self._clock = log, clock
        self.n_posted = 0
        """Number of stalls of the process that were posted to the core, or that were before the session."""

    def begin(self) -> None:
        """Skip the stalls so far: the session begins now."""
        self.n_posted = self._log.n_recorded

    def new(self) -> Iterator[EventLoopStalled]:
        """Return the stalls since the latest call, each once."""
        stalls = self._log.since(self.n_posted)
        self.begin()
        since_ms = self._clock.since_ms
        return (EventLoopStalled(since_ms(begin), since_ms(end)) for begin, end in stalls)
