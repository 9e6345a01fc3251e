"""The user's microphone: it captures utterances and silence in real time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import numpy as np

from voicepipe import clock
from voicepipe.audio.samples import Samples, silence
from voicepipe.client.errors import CallEnded
from voicepipe.client.microphone import FRAME_MS, RATE_HZ

FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1_000

Send = Callable[[Samples], Awaitable[None]]


class UserMicrophone:
    """Captures from its creation on. Positions count the captured audio in ms: this is the user's own clock."""

    def __init__(self) -> None:
        self._began_ms = clock.monotonic_ms()
        self._queue: deque[Samples] = deque()  # bounded by the utterance of one step
        self.captured: list[Samples] = []
        """All frames so far, int16, (480,), 24 kHz."""

    def position_ms(self) -> int:
        """Return how much has been captured by now."""
        return clock.monotonic_ms() - self._began_ms

    def monotonic_ms_at(self, position_ms: int) -> int:
        """Return the time of a position on this machine's monotonic clock."""
        return self._began_ms + position_ms

    def play(self, samples: Samples) -> int:
        """Capture an utterance, int16, (n_samples,), 24 kHz, behind those in the queue; return the position of its
        start."""
        first = len(self.captured) + len(self._queue)
        padded = np.concatenate((samples, silence(-len(samples) % FRAME_SAMPLES)))
        self._queue.extend(padded.reshape(-1, FRAME_SAMPLES))
        return first * FRAME_MS

    async def run(self, send: Send, tick: Callable[[], Awaitable[None]]) -> None:
        """Send each frame when its last sample has been captured, and call `tick` then; ends with the connection.

        The schedule is absolute: a frame that was late does not make the next one late.
        """
        while True:
            due_ms = (len(self.captured) + 1) * FRAME_MS
            await asyncio.sleep(max(0, due_ms - self.position_ms()) / 1_000)
            frame = self._queue.popleft() if self._queue else silence(FRAME_SAMPLES)
            self.captured.append(frame)
            try:
                await send(frame)
            except CallEnded:
                return  # the receiving side gets the same error
            await tick()
