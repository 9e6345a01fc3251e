"""Put the user's RTP packets into order, with a short wait for those that are late."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

MIN_DEPTH: Final = 3
"""Depth on a network that keeps the order: packets that wait for an earlier one, 60 ms. Then the earlier one counts as
lost."""

MAX_DEPTH: Final = 10
"""Depth where packets overtake each other: 200 ms at most."""

STABLE_PACKETS: Final = 250
"""Packets in a row of which none was overtaken by as many as are waited for, 5 s: then one packet less is waited
for."""

MAX_OVERTAKEN: Final = 50
"""A packet that comes 1 s late says nothing of the next ones."""

_WRAP: Final = 1 << 16
_TIMESTAMP_WRAP: Final = 1 << 32


@dataclass(slots=True)
class DueFrames:
    """Encoded frames that are due together. To aiortc it is one frame, the first."""

    data: bytes
    timestamp: int
    later: tuple[tuple[bytes, int], ...]
    """The other frames, each with its distance from the first, in units of the RTP clock."""


class AudioJitterBuffer:
    """Takes the place of aiortc's jitter buffer (1.16) for a receiver of audio, and has its interface.

    aiortc waits for 4 packets at the start, and for 16 behind a lost one, and gives one frame for each packet: from
    the first loss on, the user's audio would come 0.3 s late. Here a packet without a gap before it passes at once,
    with all that have waited. How long a gap is waited for follows the network.
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._newest = 0
        self._waiting: dict[int, Any] = {}  # at most MAX_DEPTH + 1
        self._depth = MIN_DEPTH
        self._n_stable = 0

    def add(self, packet: Any) -> tuple[bool, DueFrames | None]:
        """Take a packet; return whether a picture is missing (never, in audio), and what is due now, or None."""
        number = packet.sequence_number
        if self._next is None:
            self._next = self._newest = number
        self._adapt(number)
        if self._ahead(number) >= _WRAP // 2:
            return False, None  # it comes after its time
        self._waiting[number] = packet
        if self._next not in self._waiting and len(self._waiting) > self._depth:
            self._next = min(self._waiting, key=self._ahead)
        due: list[Any] = []
        while (found := self._waiting.pop(self._next, None)) is not None:
            due.append(found)
            self._next = (self._next + 1) % _WRAP
        return False, _frames(due) if due else None

    def _adapt(self, number: int) -> None:
        """Wait for as many packets as lately overtook one."""
        overtaken = (self._newest - number) % _WRAP
        if overtaken >= _WRAP // 2:
            self._newest, overtaken = number, 0
        if self._depth <= overtaken <= MAX_OVERTAKEN:
            self._depth, self._n_stable = min(MAX_DEPTH, overtaken), 0
        else:
            self._n_stable += 1
        if self._n_stable >= STABLE_PACKETS:
            self._depth, self._n_stable = max(MIN_DEPTH, self._depth - 1), 0

    def _ahead(self, number: int) -> int:
        return (number - (self._next or 0)) % _WRAP


def _frames(packets: list[Any]) -> DueFrames:
    first, *others = packets
    later = tuple((each._data, (each.timestamp - first.timestamp) % _TIMESTAMP_WRAP) for each in others)
    return DueFrames(first._data, first.timestamp, later)


class DecoderQueue(queue.Queue[Any]):
    """Takes the place of the queue of aiortc's decoder thread: `DueFrames` are decoded one by one."""

    def __init__(self, frame_of: Callable[[bytes, int], Any]) -> None:
        """`frame_of` makes aiortc's frame from its data and its timestamp."""
        super().__init__()
        self._frame_of = frame_of

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put the codec with what is to be decoded; None ends the thread."""
        if item is None:
            super().put(item, block, timeout)
            return
        codec, frames = item
        for data, distance in ((frames.data, 0), *frames.later):
            super().put((codec, self._frame_of(data, frames.timestamp + distance)), block, timeout)
