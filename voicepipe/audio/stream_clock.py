"""Map positions in the user's audio to the session's clock."""

from __future__ import annotations

from collections import deque
from typing import Final

_KEEP_MS: Final = 4_000
"""How far back positions can be mapped exactly; the voice activity detector looks back at most 3 s."""


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
        offset_ms = now_ms - end_ms
        while self._bounds and self._bounds[-1][1] >= offset_ms:
            self._bounds.pop()
        if not self._bounds or self._bounds[-1][0] < end_ms:
            self._bounds.append((end_ms, offset_ms))
        while self._bounds[0][0] < end_ms - _KEEP_MS:
            self._bounds.popleft()

    def session_ms(self, stream_ms: int) -> int:
        """Return the session time of a stream position; before any audio has arrived both clocks start together."""
        offset_ms = 0
        for end_ms, offset_ms in self._bounds:  # noqa: B007 - the newest bound serves what is yet to come
            if end_ms >= stream_ms:
                break
        return stream_ms + offset_ms
