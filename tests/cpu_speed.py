"""The speed of this machine's processor, for bounds of CPU time: such a bound is true of one machine only."""

from __future__ import annotations

import time
from typing import Final

ADDITIONS: Final = 200_000
REFERENCE_S: Final = 0.008
"""CPU time of so many additions on the slowest of the machines on which the bounds were set. It is computed from
another loop that was timed there, so it is right to some tenths."""


def slowness() -> float:
    """Return how many times as long as there Python code takes here, at its slowest of a few tries; at least 1."""
    return max(1.0, max(_additions_s() for _ in range(9)) / REFERENCE_S)


def _additions_s() -> float:
    began_s, total = time.thread_time(), 0
    for number in range(ADDITIONS):
        total += number
    return time.thread_time() - began_s
