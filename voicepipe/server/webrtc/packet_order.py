"""Put the user's RTP packets into order, with a short wait for those that are late."""

from __future__ import annotations

from typing import Any, Final

MAX_BEHIND: Final = 3
"""Packets that wait for an earlier one: 60 ms. Then the earlier one counts as lost."""

_WRAP: Final = 1 << 16


class PacketOrder:
    """Takes the place of aiortc's jitter buffer (1.16) for a receiver of audio, and has its interface.

    aiortc waits for 4 packets at the start, and for 16 behind a lost one: from the first loss on, the user's audio
    would come 0.3 s late. Here a packet without a gap before it passes at once.
    """

    def __init__(self, frame_of: Any) -> None:
        """`frame_of` makes a frame from the keyword arguments `data` and `timestamp`."""
        self._frame_of = frame_of
        self._next: int | None = None
        self._waiting: dict[int, Any] = {}  # at most MAX_BEHIND + 1

    def add(self, packet: Any) -> tuple[bool, Any]:
        """Take a packet; return whether a picture is missing (never, in audio), and the next frame or None."""
        number = packet.sequence_number
        if self._next is None:
            self._next = number
        ahead = (number - self._next) % _WRAP
        if ahead >= _WRAP // 2:
            return False, None  # it comes after its time
        self._waiting[number] = packet
        if number != self._next and len(self._waiting) > MAX_BEHIND:
            self._next = min(self._waiting, key=self._ahead)
        found = self._waiting.pop(self._next, None)
        if found is None:
            return False, None
        self._next = (self._next + 1) % _WRAP
        return False, self._frame_of(data=found._data, timestamp=found.timestamp)

    def _ahead(self, number: int) -> int:
        return (number - (self._next or 0)) % _WRAP
