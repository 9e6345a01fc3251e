"""The recent past of a stream, by position: what was just heard is still at hand."""

from __future__ import annotations

from collections import deque

import numpy as np

from voicepipe.audio.samples import Samples, silence


class Tape:
    """The last `keep_samples` of a stream as one contiguous piece, addressed by sample position from its beginning."""

    def __init__(self, keep_samples: int, longest_append_samples: int) -> None:
        # Room for two of the longest appends, so that the kept part moves to the front once in a while, not each time.
        self._buffer: Samples = silence(keep_samples + 2 * longest_append_samples)
        self._keep = keep_samples
        self._fill = 0
        self.end = 0
        """Samples appended so far: the position just behind the newest."""

    @property
    def start(self) -> int:
        """The oldest position that can still be read. At least `keep_samples` lie between it and `end`, once there
        have been as many."""
        return self.end - self._fill

    def append(self, samples: Samples) -> None:
        """Add the newest samples, at most `longest_append_samples` of them."""
        n = len(samples)
        if self._fill + n > len(self._buffer):
            kept = self._buffer[self._fill - self._keep : self._fill]
            self._buffer[: self._keep] = kept
            self._fill = self._keep
        self._buffer[self._fill : self._fill + n] = samples
        self._fill += n
        self.end += n

    def read(self, first: int, end: int) -> Samples:
        """The samples at positions first <= p < end, a view that the next append may change."""
        start = self.start
        return self._buffer[first - start : end - start]


class Recent:
    """The last `keep_samples` of a stream, and all of the newest append, kept as the pieces that came.

    Costs nothing to append to and a copy to read: made for the audio that is rarely asked for.
    """

    def __init__(self, keep_samples: int) -> None:
        self._keep = keep_samples
        # Bounded by `append`: pieces that lie wholly before the kept part go.
        self._pieces: deque[Samples] = deque()
        self._held = 0
        self.end = 0
        """Samples appended so far: the position just behind the newest."""

    def append(self, samples: Samples) -> None:
        """Add the newest samples, and forget what lies more than `keep_samples` before them."""
        while self._pieces and self._held - len(self._pieces[0]) >= self._keep:
            self._held -= len(self._pieces.popleft())
        if len(samples):
            self._pieces.append(samples)
        self._held += len(samples)
        self.end += len(samples)

    def since(self, position: int) -> Samples:
        """A copy of everything from `position` on, or from the oldest kept sample if that is later; int16."""
        skip = max(0, position - (self.end - self._held))
        whole = np.concatenate(self._pieces) if self._pieces else silence(0)
        return whole[skip:]
