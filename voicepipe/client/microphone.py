"""A simulated microphone that plays a recording in real time: 20 ms at a time, then silence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from voicepipe import clock
from voicepipe.audio.samples import Samples, silence
from voicepipe.client.errors import CallEnded

RATE_HZ: Final = 24_000
"""The sample rate of the wire (`audio/pcm`)."""

FRAME_MS: Final = 20
_FRAME_SAMPLES: Final = RATE_HZ * FRAME_MS // 1_000

Send = Callable[[Samples], Awaitable[None]]


class Microphone:
    """Captures from its creation on. Positions count all audio that the session has sent, in ms."""

    def __init__(self, sound: Samples, *, first_ms: int) -> None:
        """`sound`: int16, (n_samples,), 24 kHz. `first_ms`: how much audio the session has sent before."""
        self._sound, self._first_ms = sound, first_ms
        self._began_ms = clock.monotonic_ms()

    def position_ms(self) -> int:
        """Return how much audio the client's device has captured by now."""
        return self._first_ms + clock.monotonic_ms() - self._began_ms

    def sound_left_ms(self) -> int:
        """Return how long the recording still lasts; negative once it is over."""
        return self._first_ms + len(self._sound) * 1_000 // RATE_HZ - self.position_ms()

    async def run(self, send: Send) -> None:
        """Send each frame when its last sample has been captured, until cancelled or until the connection is closed.

        The schedule is absolute: a frame that was late does not make the next one late.
        """
        n_frames = 0
        while True:
            due_ms = self._first_ms + (n_frames + 1) * FRAME_MS
            await asyncio.sleep(max(0, due_ms - self.position_ms()) / 1_000)
            try:
                await send(self._frame(n_frames))
            except CallEnded:
                return  # the receiving side gets the same error
            n_frames += 1

    def _frame(self, index: int) -> Samples:
        frame = self._sound[index * _FRAME_SAMPLES : (index + 1) * _FRAME_SAMPLES]
        if len(frame) == _FRAME_SAMPLES:
            return frame
        full = silence(_FRAME_SAMPLES)
        full[: len(frame)] = frame
        return full
