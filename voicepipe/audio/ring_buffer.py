"""Buffers of a stream's recent audio, addressed by position."""

from __future__ import annotations

from collections import deque

import numpy as np

from voicepipe.audio.samples import Samples, silence


class RingBuffer:
    """The last `keep_samples` of a stream as one contiguous array, addressed by sample position from the stream's
    beginning.
    """

    def __init__(self, keep_samples: int, longest_append_samples: int) -> None:
        # Space for two of the longest appends, so that the kept part is moved to the front rarely, not on each append.
        self._buffer: Samples = silence(keep_samples + 2 * longest_append_samples)
        self._keep = keep_samples
        self._fill = 0
        self.end = 0
        """Samples appended so far: the position just after the newest."""

    @property
    def start(self) -> int:
        """Return the oldest readable position. At least `keep_samples` lie between it and `end`, once that many were
        appended."""
        return self.end - self._fill

    def append(self, samples: Samples) -> None:
        """Append the newest samples, at most `longest_append_samples` of them."""
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
        self._keep = keep_samples
        # Bounded by `append`: pieces that lie wholly before the kept part are dropped.
        self._pieces: deque[Samples] = deque()
        self._held = 0
        self.end = 0
        """Samples appended so far: the position just after the newest."""

    def append(self, samples: Samples) -> None:
        """Append the newest samples, and drop samples more than `keep_samples` before them."""
        while self._pieces and self._held - len(self._pieces[0]) >= self._keep:
            self._held -= len(self._pieces.popleft())
        if len(samples):
            self._pieces.append(samples)
        self._held += len(samples)
        self.end += len(samples)

    def since(self, position: int) -> Samples:
        """Return a copy of everything from `position` on, or from the oldest kept sample if that is later; int16."""
        skip = max(0, position - (self.end - self._held))
        whole = np.concatenate(self._pieces) if self._pieces else silence(0)
        return whole[skip:]
