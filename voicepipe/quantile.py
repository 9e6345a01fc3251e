"""Quantiles of latencies that can be added up: p50, p95 and p99 without keeping the values.

A sketch counts values in buckets whose edges grow by the factor `GAMMA`; bucket `i` holds what lies
in `(GAMMA**(i-1), GAMMA**i]`. A quantile is the point of its bucket that is
relatively as far from both edges. So its error is at most `(GAMMA - 1) / (GAMMA + 1)` for any
distribution of the values. Two sketches merge by adding their counts, without loss.

Source: Masson, Rim, Lee, "DDSketch: A Fast and Fully-Mergeable Quantile Sketch with
Relative-Error Guarantees", PVLDB 12(12), 2019, section 2.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

GAMMA: Final = 1.02
RELATIVE_ERROR: Final = (GAMMA - 1) / (GAMMA + 1)
"""0.0099: a p95 of 1000 ms is reported as a value from 990 to 1010 ms."""

MIN_MS: Final = 1e-3
"""A shorter duration counts as 0: a microsecond is below the clock's resolution."""

MAX_MS: Final = 1e9
"""What is longer counts as this (11 days); with `MIN_MS` it bounds a sketch at 1400 buckets."""

_SLACK: Final = 1e-9
"""0.07 of 100 values are 7, though the product of these floats is a little more."""

_LOG_GAMMA: Final = math.log(GAMMA)
_ZERO: Final = -32_768  # a bucket no positive value falls into; the smallest index in the bytes' int16
_HEADER: Final = struct.Struct("<4sddI")  # magic, min_ms, max_ms, number of buckets
_BUCKET: Final = struct.Struct("<hQ")  # index, count
_MAGIC: Final = b"vpq1"


SketchState = tuple[float, float, dict[int, int]]
"""A sketch as plain values: see `Sketch.state`."""


@lru_cache(4_096)
def _index(value_ms: float) -> int:
    """Return the bucket of a value; most are whole ms, and the same ones come again and again."""
    return math.ceil(math.log(value_ms) / _LOG_GAMMA) if value_ms >= MIN_MS else _ZERO


def state_of_one(value_ms: float) -> SketchState:
    """Return the state of a sketch of this value alone, which is not negative: in a third of the time."""
    value_ms = min(value_ms, MAX_MS)
    return value_ms, value_ms, {_index(value_ms): 1}


class Sketch:
    """Durations in ms, counted so that any quantile is known within 1 %.

    Not safe to share between threads: give each its own and merge them.
    """

    __slots__ = ("_counts", "_max_ms", "_min_ms", "count")

    def __init__(self, values_ms: Iterable[float] = ()) -> None:
        self.count = 0
        """How many values were added."""
        self._counts: dict[int, int] = {}
        self._min_ms, self._max_ms = math.inf, -math.inf
        for value_ms in values_ms:
            self.add(value_ms)

    def add(self, value_ms: float) -> None:
        """Count one duration.

        Raises:
            ValueError: the value is negative or not a number.
        """
        if not value_ms >= 0:
            raise ValueError(f"expected a duration of 0 ms or more, got {value_ms}")
        value_ms = min(value_ms, MAX_MS)
        index = _index(value_ms)
        self._counts[index] = self._counts.get(index, 0) + 1
        self.count += 1
        self._min_ms, self._max_ms = min(self._min_ms, value_ms), max(self._max_ms, value_ms)

    def merge(self, other: Sketch) -> None:
        """Count all that `other` counted; the result is as if every value had been added here."""
        self.add_state(other.state)

    def quantile(self, q: float) -> float | None:
        """The smallest value in ms that at least the share `q` of all does not exceed, or None when there are none.

        The nearest rank, `ceil(q * count)`: of five values the p95 is the largest, not the second.
        Within `RELATIVE_ERROR` of the true one, and never outside the smallest and largest seen.

        Raises:
            ValueError: `q` is not within 0 and 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"expected a quantile from 0 to 1, got {q}")
        rank = max(0, math.ceil(q * self.count - _SLACK) - 1)
        for index in sorted(self._counts):
            rank -= self._counts[index]
            if rank < 0:
                return min(max(_middle_ms(index), self._min_ms), self._max_ms)
        return None

    def bands(self, bounds_ms: Sequence[float]) -> tuple[int, ...]:
        """Count the values up to each bound, in ascending order, above the one before; the last count is beyond all.

        A value within `RELATIVE_ERROR` of a bound may count on its other side.
        """
        counts = [0] * (len(bounds_ms) + 1)
        for index, count in self._counts.items():
            counts[bisect_left(bounds_ms, min(max(_middle_ms(index), self._min_ms), self._max_ms))] += count
        return tuple(counts)

    @property
    def p50_ms(self) -> float | None:
        """The median in ms, or None when nothing was counted."""
        return self.quantile(0.50)

    @property
    def p95_ms(self) -> float | None:
        """In ms, or None when nothing was counted."""
        return self.quantile(0.95)

    @property
    def p99_ms(self) -> float | None:
        """In ms, or None when nothing was counted."""
        return self.quantile(0.99)

    @property
    def state(self) -> SketchState:
        """All that it holds, for an encoder: the smallest and the largest value in ms, and bucket -> count."""
        return self._min_ms, self._max_ms, self._counts

    def add_state(self, state: SketchState) -> None:
        """Count all that the sketch had counted which gave this state; it came from `state`, unchanged."""
        min_ms, max_ms, added = state
        counts = self._counts
        for index, count in added.items():
            counts[index] = counts.get(index, 0) + count
        self.count += sum(added.values())
        self._min_ms, self._max_ms = min(self._min_ms, min_ms), max(self._max_ms, max_ms)

    def to_bytes(self) -> bytes:
        """The sketch as bytes, little-endian; equal sketches give equal bytes. 10 bytes a bucket in use."""
        header = _HEADER.pack(_MAGIC, self._min_ms, self._max_ms, len(self._counts))
        return header + b"".join(_BUCKET.pack(*bucket) for bucket in sorted(self._counts.items()))

    @classmethod
    def from_bytes(cls, data: bytes) -> Sketch:
        """The sketch that `to_bytes` wrote.

        Raises:
            ValueError: these are not the bytes of a sketch.
        """
        if len(data) < _HEADER.size or data[:4] != _MAGIC:
            raise ValueError(f"expected the bytes of a sketch ({_MAGIC!r}...), got {data[:4]!r} and {len(data)} bytes")
        sketch = cls()
        _, sketch._min_ms, sketch._max_ms, n_buckets = _HEADER.unpack_from(data)
        if len(data) != _HEADER.size + n_buckets * _BUCKET.size:
            raise ValueError(
                f"expected {n_buckets} buckets of {_BUCKET.size} bytes, got {len(data) - _HEADER.size} bytes"
            )
        sketch._counts = dict(_BUCKET.iter_unpack(data[_HEADER.size :]))
        sketch.count = sum(sketch._counts.values())
        return sketch


def _middle_ms(index: int) -> float:
    """The value that is relatively as far from both edges of a bucket."""
    return 0.0 if index == _ZERO else 2 * GAMMA**index / (GAMMA + 1)
