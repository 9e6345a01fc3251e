"""Restore the order of the user's RTP packets, with a short wait for late packets."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

MIN_DEPTH: Final = 3
"""Depth on a network that preserves the order: when more packets than this wait for an earlier packet, 60 ms, that
packet counts as lost."""

MAX_DEPTH: Final = 10
"""Depth where packets overtake each other: 200 ms at most."""

STABLE_PACKETS: Final = 250
"""Packets in a row that were overtaken by less than the depth, 5 s: then the depth shrinks by one packet."""

MAX_OVERTAKEN: Final = 50
"""A packet that is later than 1 s does not change the depth: it does not predict the next packets."""

_WRAP: Final = 1 << 16
_TIMESTAMP_WRAP: Final = 1 << 32


@dataclass(slots=True)
class DueFrames:
    """Encoded frames that are due together. aiortc reads it as one frame, the first."""

    data: bytes
    timestamp: int
    later: tuple[tuple[bytes, int], ...]
    """The data of each other frame, and its timestamp relative to the first one, in units of the RTP clock."""


class AudioJitterBuffer:
    """Replaces aiortc's jitter buffer (1.16) of an audio receiver, with the same interface.

    aiortc's buffer waits for 4 packets at the start and for 16 behind a lost packet, and returns one frame a packet:
    after the first loss all audio is 0.3 s late. This buffer returns a packet without a gap before it at once, with all
    packets that waited for it. The depth adapts to the network.
    """

    def __init__(self) -> None:
        self._next_number: int | None = None
        self._newest_number = 0
        self._waiting: dict[int, Any] = {}  # bounded by `MAX_DEPTH`
        self._depth = MIN_DEPTH
        self._n_stable = 0

    def add(self, packet: Any) -> tuple[bool, DueFrames | None]:
        """Add a packet; return whether a picture is missing (never, in audio), and the frames that are due, or None."""
        number = packet.sequence_number
        if self._next_number is None:
            self._next_number = self._newest_number = number
        self._adapt(number)
        if self._distance(number) >= _WRAP // 2:
            return False, None  # too late: later packets were returned
        self._waiting[number] = packet
        if self._next_number not in self._waiting and len(self._waiting) > self._depth:
            self._next_number = min(self._waiting, key=self._distance)
        due: list[Any] = []
        while (next_packet := self._waiting.pop(self._next_number, None)) is not None:
            due.append(next_packet)
            self._next_number = (self._next_number + 1) % _WRAP
        return False, _frames(due) if due else None

    def _adapt(self, number: int) -> None:
        """Set the depth to the number of packets that lately overtook one packet."""
        overtaken = (self._newest_number - number) % _WRAP
        if overtaken >= _WRAP // 2:
            self._newest_number, overtaken = number, 0
        if self._depth <= overtaken <= MAX_OVERTAKEN:
            self._depth, self._n_stable = min(MAX_DEPTH, overtaken), 0
        else:
            self._n_stable += 1
        if self._n_stable >= STABLE_PACKETS:
            self._depth, self._n_stable = max(MIN_DEPTH, self._depth - 1), 0

    def _distance(self, number: int) -> int:
        return (number - (self._next_number or 0)) % _WRAP


def _frames(packets: list[Any]) -> DueFrames:
    first, *others = packets
    later = tuple((each._data, (each.timestamp - first.timestamp) % _TIMESTAMP_WRAP) for each in others)
    return DueFrames(first._data, first.timestamp, later)


class DecoderQueue(queue.Queue[Any]):
    """Replaces the queue of aiortc's decoder thread: it splits `DueFrames` into single frames."""

    def __init__(self, frame_of: Callable[[bytes, int], Any]) -> None:
        """`frame_of` returns aiortc's frame of data and a timestamp."""
        super().__init__()
        self._frame_of = frame_of

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Queue a codec and `DueFrames`; None ends the thread."""
        if item is None:
            super().put(item, block, timeout)
            return
        codec, frames = item
        for data, distance in ((frames.data, 0), *frames.later):
            super().put((codec, self._frame_of(data, frames.timestamp + distance)), block, timeout)
