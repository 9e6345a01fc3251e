"""Queue the agent's audio: the session adds it as fast as it is synthesized, RTP plays it in real time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from voicepipe.audio.samples import Samples, silence

RATE_HZ: Final = 24_000
MAX_QUEUED_S: Final = 600
"""Audio that waits to be played. The end of a longer answer is dropped: no voice agent speaks for ten minutes."""

PlayoutEvent = Literal["started", "stopped", "cleared"]


@dataclass(slots=True)
class PartAudio:
    """The audio of one content part of a response."""

    response_id: str
    item_id: str
    content_index: int
    n_played: int = 0
    """Samples that were sent over RTP."""

    @property
    def played_ms(self) -> int:
        """Return how much of the part was sent over RTP, in ms."""
        return self.n_played * 1_000 // RATE_HZ


class Playout:
    """A queue of audio, int16, 24 kHz mono, by response. Pure: `take` is called for each frame when it is due."""

    def __init__(self, on_event: Callable[[PlayoutEvent, str], None]) -> None:
        """`on_event` gets an event of the playback and the ID of its response."""
        self._on_event = on_event
        self._queue: deque[tuple[PartAudio, Samples]] = deque()  # bounded by MAX_QUEUED_S
        self._n_queued = 0
        self._playing: PartAudio | None = None
        self._complete: set[str] = set()
        """Responses whose audio is complete and not completely played."""

    @property
    def is_playing(self) -> bool:
        """Return whether a response has begun to play and has not ended."""
        return self._playing is not None

    @property
    def queued_ms(self) -> int:
        """Return how much audio waits, in ms."""
        return self._n_queued * 1_000 // RATE_HZ

    def push(self, part: PartAudio, samples: Samples) -> None:
        """Queue more audio of a part, int16, (n_samples,). What exceeds `MAX_QUEUED_S` is dropped."""
        known = next((each for each, _ in reversed(self._queue) if _is_same_part(each, part)), self._playing)
        part = known if known is not None and _is_same_part(known, part) else part
        samples = samples[: max(0, MAX_QUEUED_S * RATE_HZ - self._n_queued)]
        if len(samples):
            self._queue.append((part, samples))
            self._n_queued += len(samples)

    def complete(self, response_id: str) -> None:
        """Record that the response's audio is complete."""
        if self._is_pending(response_id):
            self._complete.add(response_id)
            self._stop_if_complete()

    def take(self, n_samples: int) -> Samples:
        """Return the next frame, int16, (n_samples,); silence where there is no audio."""
        frame, n_filled = silence(n_samples), 0
        while n_filled < n_samples and self._queue:
            part, samples = self._queue.popleft()
            self._play_part(part)
            n = min(len(samples), n_samples - n_filled)
            frame[n_filled : n_filled + n] = samples[:n]
            if n < len(samples):
                self._queue.appendleft((part, samples[n:]))
            n_filled += n
            part.n_played += n
            self._n_queued -= n
        self._stop_if_complete()
        return frame

    def clear(self, response_id: str | None = None) -> PartAudio | None:
        """Drop the audio of a response, or of all; return the part that was playing, if it is dropped."""
        dropped = [len(samples) for part, samples in self._queue if response_id in (None, part.response_id)]
        self._queue = deque(each for each in self._queue if response_id not in (None, each[0].response_id))
        self._n_queued = self._n_queued - sum(dropped)
        cut = self._playing
        if cut is None or response_id not in (None, cut.response_id):
            return None
        self._playing = None
        self._complete.discard(cut.response_id)
        self._on_event("cleared", cut.response_id)
        return cut

    def _play_part(self, part: PartAudio) -> None:
        before, self._playing = self._playing, part
        if before is not None and before.response_id != part.response_id:
            self._complete.discard(before.response_id)
            self._on_event("stopped", before.response_id)
        if before is None or before.response_id != part.response_id:
            self._on_event("started", part.response_id)

    def _is_pending(self, response_id: str) -> bool:
        is_playing = self._playing is not None and self._playing.response_id == response_id
        return is_playing or any(part.response_id == response_id for part, _ in self._queue)

    def _stop_if_complete(self) -> None:
        playing = self._playing
        if playing is None or playing.response_id not in self._complete:
            return
        if not any(part.response_id == playing.response_id for part, _ in self._queue):
            self._playing = None
            self._complete.discard(playing.response_id)
            self._on_event("stopped", playing.response_id)


def _is_same_part(one: PartAudio, other: PartAudio) -> bool:
    return (one.response_id, one.item_id, one.content_index) == (
        other.response_id,
        other.item_id,
        other.content_index,
    )


def mono(stereo: Samples) -> Samples:
    """Return the mean of two channels: int16, (n_samples, 2) to (n_samples,)."""
    return ((stereo[:, 0].astype(np.int32) + stereo[:, 1]) >> 1).astype(np.int16)
