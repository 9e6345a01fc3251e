"""How fast one client is read: no faster than leaves the event loop to the others.

A client that sends more than its buckets hold is told of no error. It is read more slowly, so that what it sends waits
in the kernels of both sides, and in the end with itself (TCP, RFC 9293, 3.8.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from voicepipe.clock import monotonic_us

HOLD_US: Final = 5_000
"""So long one client's events may be dealt with before the event loop gets to the others."""

ALL_HOLD_US: Final = 20_000
"""So long the events of all clients together may: each of those that send without a break gets its share of it."""

BURST_EVENTS: Final = 4_000
"""So many events pass at once: half a minute of audio in frames of 10 ms, and what else a client says meanwhile."""

EVENTS_PER_S: Final = 400
"""So many pass in the long run. The shortest frames in use, of 5 ms, are 200 a second."""

BYTES_PER_EVENT: Final = 16 << 10
"""A longer message, and what it is answered with, cost another event for each of these."""

BURST_AUDIO_S: Final = 60
"""So much audio passes at once: a recording that is pushed, or what a client kept while its connection was down."""

AUDIO_SPEED: Final = 10
"""Longer audio passes so many times faster than it was spoken."""

_SHORTEST_WAIT_US: Final = 5_000
"""Less than this is owed until it is worth a timer."""

_LONGEST_WAIT_US: Final = 500_000
"""After so long it is looked whether the client is there still."""

_WAITED_US: Final = 200
"""A message that took so long to come was waited for: the event loop has turned meanwhile."""


class TokenBucket:
    """Gives `size` at once and `per_s` in the long run."""

    __slots__ = ("_full_us", "_size_us", "_unit_us")

    def __init__(self, size: float, per_s: float) -> None:
        self._unit_us = 1_000_000 / per_s
        self._size_us = size * self._unit_us
        self._full_us = 0.0
        """When it is full again."""

    def take(self, amount: float, now_us: float) -> float:
        """Take that much, be it there or not; returns in how many microseconds the debt is paid, 0 or less: none."""
        self._full_us = max(self._full_us, now_us) + amount * self._unit_us
        return self._full_us - now_us - self._size_us


class Crowd:
    """How many clients are giving way: they have more to be read, and wait for their next turn."""

    __slots__ = ("n_waiting",)

    def __init__(self) -> None:
        self.n_waiting = 0

    @property
    def hold_us(self) -> float:
        """How long the client that is being read may have the event loop."""
        return min(HOLD_US, ALL_HOLD_US / (1 + self.n_waiting))

    async def give_way(self) -> None:
        """Let everything else have a turn of the event loop."""
        self.n_waiting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self.n_waiting -= 1


_ALL: Final = Crowd()


class Pace:
    """Slows down the reading of one client."""

    def __init__(self, now_us: Callable[[], int] = monotonic_us, crowd: Crowd = _ALL) -> None:
        """`now_us` is a monotonic clock; `crowd` has all clients of the event loop."""
        self._crowd = crowd
        self._now_us = now_us
        self.is_gone: Callable[[], bool] = _is_here
        """Tells whether the client is there no more: then nothing of it is waited for."""

        self._events = TokenBucket(BURST_EVENTS, EVENTS_PER_S)
        self._audio_ms = TokenBucket(BURST_AUDIO_S * 1_000, AUDIO_SPEED * 1_000)
        self._owed_us = 0.0
        self._since_us = now_us()
        """Since when this client has had the event loop."""

    async def message(self, receive: Callable[[], Awaitable[str | bytes | None]]) -> str | bytes | None:
        """Return the client's next message, once it may be read; None when there is none any more."""
        await self._give_way(self._now_us())
        asked_us = self._now_us()
        message = await receive()
        now_us = self._now_us()
        if now_us - asked_us > _WAITED_US:
            self._since_us = now_us
        if message is not None:
            self._owed_us = self._events.take(1 + len(message) / BYTES_PER_EVENT, now_us)
        return message

    def charge(self, n_events: float) -> None:
        """Count that many events more for what the latest message asked for."""
        self._owed_us = self._events.take(n_events, self._now_us())

    def charge_bytes(self, n_bytes: int) -> None:
        """Count what the latest message was answered with."""
        if n_bytes > 0:
            self.charge(n_bytes / BYTES_PER_EVENT)

    async def heard(self, audio_ms: float) -> int:
        """Count so much audio; returns when the next may be heard, and for how many ms it had to wait beyond giving
        way."""
        now_us = self._now_us()
        owed_us = self._audio_ms.take(audio_ms, now_us)
        if owed_us >= _SHORTEST_WAIT_US:
            await self._sleep(owed_us)
            return (self._since_us - now_us) // 1_000
        await self._give_way(now_us)
        return 0

    async def _give_way(self, now_us: int) -> None:
        if self._owed_us >= _SHORTEST_WAIT_US:
            owed_us, self._owed_us = self._owed_us, 0.0
            await self._sleep(owed_us)
        elif now_us - self._since_us >= self._crowd.hold_us:
            await self._crowd.give_way()
            self._since_us = self._now_us()

    async def _sleep(self, wait_us: float) -> None:
        while wait_us > _LONGEST_WAIT_US and not self.is_gone():
            await asyncio.sleep(_LONGEST_WAIT_US / 1_000_000)
            wait_us -= _LONGEST_WAIT_US
        await asyncio.sleep(0 if self.is_gone() else wait_us / 1_000_000)
        self._since_us = self._now_us()


def _is_here() -> bool:
    return False
