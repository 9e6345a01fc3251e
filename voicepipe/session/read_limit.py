"""Limit how fast one client is read, so that the event loop also serves the others.

A client that sends more than its token buckets allow gets no error. It is read more slowly, so that its messages wait
in the kernels of both sides, and finally in the client (TCP, RFC 9293, 3.8.6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from voicepipe.clock import monotonic_us

TIME_SLICE_US: Final = 5_000
"""How long one client's events may be processed before the event loop serves the others."""

SHARED_TIME_SLICE_US: Final = 20_000
"""The time slice of all clients together: each client that sends without a break gets its share of it."""

_FEW_CLIENTS: Final = SHARED_TIME_SLICE_US // TIME_SLICE_US
"""Up to this number, each client gets a whole `TIME_SLICE_US` of `SHARED_TIME_SLICE_US`."""

BURST_EVENTS: Final = 4_000
"""Events that pass at once: half a minute of audio in frames of 10 ms, and the client's other events meanwhile."""

EVENTS_PER_S: Final = 400
"""Events that pass in the long run. The shortest frames in use, of 5 ms, are 200 a second."""

BYTES_PER_EVENT: Final = 16 << 10
"""A longer message costs 1 more event for each of these; so does the answer to it."""

BURST_AUDIO_S: Final = 60
"""Audio that passes at once: an uploaded recording, or what a client stored while its connection was down."""

AUDIO_SPEED: Final = 10
"""Further audio passes at this multiple of the speed of speech."""

_MIN_WAIT_US: Final = 5_000
"""A debt below this is not worth a timer."""

_MAX_WAIT_US: Final = 500_000
"""After this time the reader checks whether the client is still there."""

_WAITED_US: Final = 200
"""A message that took this long to come was waited for: the event loop has run meanwhile."""

UPDATE_EVENTS: Final = 4
"""A `session.update` costs this many events beyond its length: all settings are read and checked again."""

RETRIEVE_EVENTS: Final = 40
"""An item's retrieval costs this many events beyond its answer's length where the session stores audio, which is then
joined, resampled and encoded."""


class TokenBucket:
    """A limit of `size` at once and `per_s` in the long run."""

    __slots__ = ("_full_us", "_size_us", "_unit_us")

    def __init__(self, size: float, per_s: float) -> None:
        self._unit_us = 1_000_000 / per_s
        self._size_us = size * self._unit_us
        self._full_us = 0.0
        """When the bucket is full again."""

    def take(self, amount: float, now_us: float) -> float:
        """Take `amount`, even if the bucket holds less. Return in how many microseconds the debt is paid; 0 or less:
        no debt."""
        full_us = self._full_us if self._full_us > now_us else now_us
        self._full_us = full_us = full_us + amount * self._unit_us
        return full_us - now_us - self._size_us


class ActiveClients:
    """Counts the clients that have more to be read or sent and wait for the event loop."""

    __slots__ = ("n_waiting", "time_slice_us")

    def __init__(self) -> None:
        self.n_waiting = 0
        self.time_slice_us = float(TIME_SLICE_US)
        """How long the client that is being read or written to may block the event loop."""

    async def yield_to_others(self) -> None:
        """Let all other tasks run once; with many active clients, for as long as these run together.

        A turn of another client takes dozens of steps, and would otherwise wait `SHARED_TIME_SLICE_US` at each.
        """
        self._count(1)
        try:
            await asyncio.sleep(0 if self.n_waiting <= _FEW_CLIENTS else 2 * SHARED_TIME_SLICE_US / 1_000_000)
        finally:
            self._count(-1)

    def _count(self, n_more: int) -> None:
        self.n_waiting += n_more
        self.time_slice_us = (
            TIME_SLICE_US if self.n_waiting < _FEW_CLIENTS else SHARED_TIME_SLICE_US / (1 + self.n_waiting)
        )


ALL_CLIENTS: Final = ActiveClients()
"""All clients of the process: what is read from them and what is sent to them."""


class ReadLimit:
    """Limits the reading of one client by token buckets."""

    def __init__(self, now_us: Callable[[], int] = monotonic_us, active: ActiveClients = ALL_CLIENTS) -> None:
        """`now_us` is a monotonic clock; `active` counts the active clients of the event loop."""
        self._active = active
        self._now_us = now_us
        self.is_gone: Callable[[], bool] = _is_here
        """Returns whether the client is gone: then the reader waits no longer."""

        self._events = TokenBucket(BURST_EVENTS, EVENTS_PER_S)
        self._audio_ms = TokenBucket(BURST_AUDIO_S * 1_000, AUDIO_SPEED * 1_000)
        self._wait_us = self._audio_wait_us = 0.0
        self._since_us = self._began_us = now_us()
        """Start of this client's current time slice, and of the wait for its next message."""

    def admits_message(self) -> bool:
        """Return whether the next message may be read at once; if not, `wait_for_message` first. Call it before each
        message but the first, and `count` the message then.

        This class does not receive the message itself: each frame of audio would resume one more coroutine.
        """
        self._began_us = self._now_us()
        return self._wait_us < _MIN_WAIT_US and self._began_us - self._since_us < self._active.time_slice_us

    def admits_at_once(self) -> bool:
        """Return whether a message that has come while the reader waited may be processed at once, and begin a time
        slice with it. If not, the reader takes it, and then waits as long as it must."""
        self._since_us = self._began_us = self._now_us()
        return self._wait_us < _MIN_WAIT_US and self._audio_wait_us < _MIN_WAIT_US

    async def wait_for_message(self) -> None:
        """Wait until the next message may be read."""
        await self._yield_to_others(self._began_us)
        self._began_us = self._now_us()

    def count(self, message: str | bytes) -> None:
        """Count a message that was read."""
        now_us = self._now_us()
        if now_us - self._began_us > _WAITED_US:
            self._since_us = now_us
        self._wait_us = self._events.take(1 + len(message) / BYTES_PER_EVENT, now_us)

    def charge(self, n_events: float) -> None:
        """Count `n_events` more for the work that the latest message caused."""
        self._wait_us = self._events.take(n_events, self._now_us())

    def charge_bytes(self, n_bytes: int) -> None:
        """Count the bytes of the answer to the latest message."""
        if n_bytes > 0:
            self.charge(n_bytes / BYTES_PER_EVENT)

    def admits_audio(self, audio_ms: float) -> bool:
        """Count `audio_ms`. Return whether the next audio may be processed at once; if not, `wait_for_audio`."""
        now_us = self._now_us()
        self._audio_wait_us = self._audio_ms.take(audio_ms, now_us)
        must_wait = self._audio_wait_us >= _MIN_WAIT_US or self._wait_us >= _MIN_WAIT_US
        return not must_wait and now_us - self._since_us < self._active.time_slice_us

    async def wait_for_audio(self) -> int:
        """Wait until the next audio may be processed. Return for how many ms it had to wait beyond giving way."""
        now_us = self._now_us()
        if self._audio_wait_us >= _MIN_WAIT_US:
            await self._sleep(self._audio_wait_us)
            return (self._since_us - now_us) // 1_000
        await self._yield_to_others(now_us)
        return 0

    async def _yield_to_others(self, now_us: int) -> None:
        if self._wait_us >= _MIN_WAIT_US:
            wait_us, self._wait_us = self._wait_us, 0.0
            await self._sleep(wait_us)
        elif now_us - self._since_us >= self._active.time_slice_us:
            await self._active.yield_to_others()
            self._since_us = self._now_us()

    async def _sleep(self, wait_us: float) -> None:
        while wait_us > _MAX_WAIT_US and not self.is_gone():
            await asyncio.sleep(_MAX_WAIT_US / 1_000_000)
            wait_us -= _MAX_WAIT_US
        await asyncio.sleep(0 if self.is_gone() else wait_us / 1_000_000)
        self._since_us = self._now_us()


def _is_here() -> bool:
    return False
