"""The one timer of a session's core: `WakeAt` sets it, and `TimePassed` follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from voicepipe.clock import SessionClock
from voicepipe.turn import events as e


class WakeTimer:
    """Posts `TimePassed` at the latest instant that was set."""

    def __init__(self, clock: SessionClock, post: Callable[[e.Event], None]) -> None:
        self._clock, self._post = clock, post
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at_ms: int) -> None:
        """Post at that instant, in session ms, and at no earlier one."""
        self.cancel()
        delay_s = max(0, at_ms - self._clock.now_ms()) / 1_000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._post, e.TimePassed())

    def cancel(self) -> None:
        """Post no more."""
        if self._timer is not None:
            self._timer.cancel()
