"""The recent part of a user's audio: its samples by position, and the session time of each position."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from voicepipe.audio.samples import Samples, silence

_KEEP_MS: Final = 4_000
"""How far back positions can be mapped exactly; the voice activity detector looks back at most 3 s."""


class RingBuffer:
    """The last `keep_samples` of a stream as one contiguous array, addressed by sample position from the stream's
    beginning.
    """

    def __init__(self, keep_samples: int, max_append_samples: int) -> None:
        # Space for two of the longest appends, so that the kept part is moved to the front rarely, not on each append.
        self._buffer: Samples = silence(keep_samples + 2 * max_append_samples)
        self._keep = keep_samples
        self._fill = 0
        self.end = 0
        """Samples appended so far: the position just after the newest."""

    @property
    def start(self) -> int:
        """Return the oldest readable position: at least `keep_samples` before `end`, once these were appended."""
        return self.end - self._fill

    def append(self, samples: Samples) -> None:
        """Append the newest samples, at most `max_append_samples` of them."""
        n = len(samples)
        if self._fill + n > len(self._buffer):
            retained = self._buffer[self._fill - self._keep : self._fill]
            self._buffer[: self._keep] = retained
            self._fill = self._keep
        self._buffer[self._fill : self._fill + n] = samples
        self._fill += n
        self.end += n

    def read(self, first: int, end: int) -> Samples:
        """Return the samples at positions first <= p < end, a view that the next append may change."""
        start = self.start
        return self._buffer[first - start : end - start]


class AudioHistory:
    """The last `keep_samples` of a stream, and all of the newest append, kept as separate pieces.

    Appending costs nothing and reading makes a copy: made for audio that is rarely read.
    """

    def __init__(self, keep_samples: int) -> None:
        self.keep_samples = keep_samples
        """May be changed between appends."""

        # Bounded by `append`: pieces that lie wholly before the kept part are dropped.
        self._pieces: deque[Samples] = deque()
        self._held = 0
        self.end = 0
        """Samples appended so far: the position just after the newest."""

    def append(self, samples: Samples) -> None:
        """Append the newest samples, and drop samples more than `keep_samples` before them."""
        pieces, n = self._pieces, len(samples)
        while pieces and self._held - (oldest := len(pieces[0])) >= self.keep_samples:
            pieces.popleft()
            self._held -= oldest
        if n:
            pieces.append(samples)
            self._held += n
            self.end += n

    def since(self, position: int) -> Samples:
        """Return a copy of everything from `position` on, or from the oldest kept sample if that is later; int16."""
        skip = max(0, position - (self.end - self._held))
        whole = np.concatenate(self._pieces) if self._pieces else silence(0)
        return whole[skip:]


class StreamClock:
    """Maps stream positions to arrival times.

    Audio that ended at position `end_ms` when it arrived at `now_ms` was spoken no later than that. Position p was
    therefore spoken no later than `now_ms - (end_ms - p)`. Every arrival at or behind p gives such a bound, and the
    earliest bound is used. So neither a chunk delayed by the network nor a pause in the stream moves an instant.
    """

    def __init__(self) -> None:
        # (end_ms, now_ms - end_ms), both rising: an arrival makes every earlier entry with a later bound useless.
        # Bounded by `_KEEP_MS` of stream, at most 1 entry per ms.
        self._bounds: deque[tuple[int, int]] = deque()

    def arrived(self, end_ms: int, now_ms: int) -> None:
        """Record that audio up to stream position `end_ms` has arrived."""
        bounds, offset_ms = self._bounds, now_ms - end_ms
        while bounds and bounds[-1][1] >= offset_ms:
            bounds.pop()
        if not bounds or bounds[-1][0] < end_ms:
            bounds.append((end_ms, offset_ms))
        oldest_ms = end_ms - _KEEP_MS
        while bounds[0][0] < oldest_ms:
            bounds.popleft()

    def session_ms(self, stream_ms: int) -> int:
        """Return the session time of a stream position; before any audio has arrived both clocks start together."""
        offset_ms = 0
        for end_ms, offset_ms in self._bounds:  # noqa: B007 - the newest bound serves what is yet to come
            if end_ms >= stream_ms:
                break
        return stream_ms + offset_ms
