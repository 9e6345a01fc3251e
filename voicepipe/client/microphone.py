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


GAP_MS: Final = 500
"""Time without a frame after which capturing has paused; a shorter gap is a late frame."""

DRIFT: Final = 0.0002
"""Maximum drift of the device's clock behind this clock: 200 ppm, twice that of crystals."""


class CaptureClock:
    """Estimates how much audio the device has captured, in ms, from what was sent when.

    A frame may be sent late, and then others at once; it is never sent before it was captured. So the position is that
    of the most punctual frame, and not of the latest one. While capturing pauses, time passes on.
    """

    def __init__(self) -> None:
        self._ahead_ms: float | None = None
        """Captured audio less the clock's time, by the most punctual frame."""

        self._sent_at_ms = 0

    def sent(self, sent_ms: int, now_ms: int) -> None:
        """Record that `sent_ms` of audio have been sent by now."""
        passed_ms, ahead_ms = now_ms - self._sent_at_ms, sent_ms - now_ms
        if self._ahead_ms is None or passed_ms > GAP_MS:
            self._ahead_ms = ahead_ms
        else:
            self._ahead_ms = max(ahead_ms, self._ahead_ms - DRIFT * passed_ms)
        self._sent_at_ms = now_ms

    def position_ms(self, now_ms: int) -> int:
        """Return how much has been captured by now; 0 before anything was sent."""
        return 0 if self._ahead_ms is None else round(now_ms + self._ahead_ms)


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
